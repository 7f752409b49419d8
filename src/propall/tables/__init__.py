"""From a person's file to features, candidate sets, a model, and labels to go on with."""
