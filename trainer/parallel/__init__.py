"""Processes that train one model together."""
