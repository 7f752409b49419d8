"""`python -m propall.cli`."""

from propall.cli.app import main

main()
