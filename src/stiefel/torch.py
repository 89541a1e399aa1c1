"""`Accelerated`, a `torch.optim.Optimizer` for orthonormal parameters, and how to mark them.

stiefel.torch.mark_orthonormal(layer.weight)
inner = stiefel.torch.Accelerated(model.parameters())          # the marked ones
rest = torch.optim.Adam(p for p in model.parameters() if not stiefel.torch.is_marked(p))
"""

from stiefel.interop.torch_optimizer import Accelerated, is_marked, mark_orthonormal

__all__ = ["Accelerated", "is_marked", "mark_orthonormal"]
