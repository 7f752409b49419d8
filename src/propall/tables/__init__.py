"""Tables with ambiguous labels: read, summarize, fit, resolve, evaluate, export."""
