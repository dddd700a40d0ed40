"""Makes a checkpoint again from its lineage."""
