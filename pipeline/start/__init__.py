"""From a folder and a deadline to a recipe: looks at a sample, chooses each setting, and says why."""
