"""Studies beside the paper that have a command: the demo, and the annotators of CIFAR-10N."""
