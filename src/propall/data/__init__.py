"""What a method may learn from: data sets, corruption, splits."""
