"""Small runs over random mixtures, a law fitted to them, and the mixture that it proposes."""
