"""A run as a page that one can open: curves, settings, data, examples."""
