"""What a point is, how to move, how to measure: Sections 2 and 4.2 of the paper."""

from .euclidean import Euclidean
from .grassmann import Grassmann
from .product import Product
from .rotations import SpecialOrthogonal
from .sphere import Sphere
from .stiefel import Stiefel

__all__ = ["Euclidean", "Grassmann", "Product", "SpecialOrthogonal", "Sphere", "Stiefel"]
