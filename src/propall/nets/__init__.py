"""Networks: plain `nn.Module` classes with `features(x)` and `head(z)`."""
