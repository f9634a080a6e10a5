"""Model folders: Hugging Face layout in and out, Google's TensorFlow 1 checkpoints in."""
