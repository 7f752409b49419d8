"""Additional studies with their own commands: the demo, and the annotators of CIFAR-10N."""
