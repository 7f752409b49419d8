"""How candidate sets are written down, and how each form is read; `propall.labels` is the door to it."""
