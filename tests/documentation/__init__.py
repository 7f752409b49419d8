"""Runs the code on the pages of the documentation and compares what it prints with what the pages show."""
