"""The packed BERT: attention, encoder, heads. Torch and nothing else: no paths, no prints, no tokenizer."""
