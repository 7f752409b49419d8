"""Studies beside the paper: the demo, annotators on CIFAR-10N, selection without true labels."""
