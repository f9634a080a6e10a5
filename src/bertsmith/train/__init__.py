"""Training: batch in, loss out, weights changed. Knows no task, no text and no paths but those of its own state."""
