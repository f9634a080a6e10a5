"""The command line: one file per verb, which calls its job and prints. No logic lives here."""
