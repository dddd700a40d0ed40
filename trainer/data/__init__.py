"""Token shards and the order in which windows are read from them."""
