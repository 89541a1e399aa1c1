"""What a point is, how to move, how to measure: Sections 2 and 4.2 of the paper."""

from .euclidean import Euclidean
from .grassmann import Grassmann
from .product import Product
from .rotations import Orthogonal, SpecialOrthogonal, Unitary
from .sphere import Sphere
from .stiefel import Stiefel
from .unit import ComplexCircle, Oblique

__all__ = [
    "ComplexCircle",
    "Euclidean",
    "Grassmann",
    "Oblique",
    "Orthogonal",
    "Product",
    "SpecialOrthogonal",
    "Sphere",
    "Stiefel",
    "Unitary",
]
