"""Batches; and, with pre-training, shards, pairs and masks."""
