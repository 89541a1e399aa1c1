"""Running a solver by hand, state by state, and counting what a user's function sees."""

import numpy as np

from stiefel.arguments import place
from stiefel.function.counted import CountedObjective
from stiefel.function.trees import Tree
from stiefel.solvers.noise import Model
from stiefel.solvers.problem import Problem


def problem_of(fun, X0, manifold, jac=None):
    """(problem, start) as `minimize` builds them."""
    tree = Tree(X0)
    geometry, X = place(tree, X0, manifold)
    return Problem(geometry, CountedObjective(fun, jac, tree, X), noise=Model(geometry.eps(X))), X


def states(solver, fun, X0, manifold, count):
    """The first ``count`` states of a run, the start included; no stopping rule, no driver."""
    problem, X = problem_of(fun, X0, manifold)
    taken = [solver.init(problem, X)]
    while len(taken) < count:
        taken.append(solver.step(problem, taken[-1]))
    return taken


class Counted:
    """An objective with value and gradient that counts its calls, in every form users write."""

    def __init__(self, objective):
        self.objective = objective
        self.values = self.gradients = 0

    def value(self, X):
        self.values += 1
        return self.objective.value(X)

    def value_and_gradient(self, X):
        self.values += 1
        self.gradients += 1
        return self.objective.value_and_gradient(X)

    def pair(self, X):
        return self.value_and_gradient(X)

    def triple(self, X):
        return *self.value_and_gradient(X), {"norm": float(np.linalg.norm(X))}

    def gradient(self, X):
        self.gradients += 1
        return self.objective.value_and_gradient(X)[1]
