"""Optimisers for PyTorch that keep marked parameters orthonormal, and how to mark them.

stiefel.torch.orthonormal(model.layer, "weight")
optimizer = stiefel.torch.SGD(model, lr=0.1, momentum=0.9)      # or Adam, or Muon
loss.backward(); optimizer.step()

`SGD`, `Adam` and `Muon` are for training on batches and move all parameters of a model, marked and
free.  `Accelerated` is for a loss of the whole data and searches along lines.  `minimize` returns a
solution that has derivatives.
"""

from stiefel.batched.torch_implicit import minimize
from stiefel.training.torch_accelerated import Accelerated, is_marked, mark_orthonormal
from stiefel.training.torch_marks import copy_marks, is_orthonormal, orthonormal
from stiefel.training.torch_rules import SGD, Adam, Muon

__all__ = [
    "SGD",
    "Accelerated",
    "Adam",
    "Muon",
    "copy_marks",
    "is_marked",
    "is_orthonormal",
    "mark_orthonormal",
    "minimize",
    "orthonormal",
]
