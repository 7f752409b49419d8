"""`python -m propall`."""

from propall.cli import main

main()
