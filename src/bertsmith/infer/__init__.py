"""The packed engine and what stands on it: fill and embed."""
