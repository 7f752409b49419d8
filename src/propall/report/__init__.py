"""Pages and figures: results in, one look out; computes nothing new."""
