"""Tasks: what a fine-tuned model is for. One file a kind: read, encode, decode, score."""
