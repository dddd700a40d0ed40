"""The stages applied to plain files, without Dagster or a store."""
