"""The wheel, installed outside the repository."""
