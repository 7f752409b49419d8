"""Training of any method; knows no method by name."""
