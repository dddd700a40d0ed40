"""What a trained model is worth and how it is handed over: evaluation, export, model card."""
