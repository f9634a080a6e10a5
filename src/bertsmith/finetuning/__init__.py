"""Fine-tuning: a task on top of a model, with the loop of `train`."""
