"""How anything is fitted; knows no method by name."""
