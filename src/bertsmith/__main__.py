"""`python -m bertsmith`."""

from bertsmith.cli.main import main

main()
