"""Plots and tables for the UI and the model card."""
