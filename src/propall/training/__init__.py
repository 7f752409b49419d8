"""The training engine; independent of any particular method.

- `contract`: the interface of methods (`Objective`, `Algorithm`) and what they exchange with the engine.
- `recipe`, `views`: epochs, batches, optimizer, augmentation; `named_recipes`, `named_views`: both by name.
- `cleaning`, `missing_truth`: candidate sets that shrink during training, and sets that may lack the truth.
- `trainer`: the loop over epochs, with checkpoints (`checkpoint`) and monitors (`metrics`).
- `stack`: many runs as one set of tensors, and their step; `sections`: its runs by objective class.
- `backend`: losses and gradients of a step; `dense` and `single` are faster in special cases.
- `stream`: the data on the device, its order, augmentation and noise; `consistency`: losses on several views.
- `optim`, `averages`: optimizers and moving averages of weights; `compiled`: compiled and captured steps.
- `networks`: initialization, and the classifier that a run returns.
"""
