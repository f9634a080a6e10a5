"""The WordPiece vocabulary and the tokenizer over it."""
