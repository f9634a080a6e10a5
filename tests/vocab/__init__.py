"""A package, so that its helpers are found before a benchmark of the same name."""
