"""Evaluation, export and model card of a trained model."""
