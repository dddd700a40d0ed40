"""The tokenizer and the token shards."""
