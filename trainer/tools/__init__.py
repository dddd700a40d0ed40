"""The commands of `python -m trainer`, and what they need: the planner, the chat, means of checkpoints."""
