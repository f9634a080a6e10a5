"""The pre-training task: its settings and recipes, its stream of steps, its evaluation and its health."""
