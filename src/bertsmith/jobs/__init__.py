"""One function per verb: puts the rooms together, returns what the command line prints."""
