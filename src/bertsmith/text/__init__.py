"""From files to documents: readers, cleaning, sentences, word bounds. No torch."""
