"""What is run: one run as a `Spec`, many at once, and what came of them."""
