"""Sparse loadings of images: entries, rows, or none

This recipe compares three penalties for the loadings of the digits. `L1` makes single loadings
zero, `RowNorms` makes whole pixels unused. Without a penalty the answer is that of the singular
value decomposition.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import stiefel

X, _ = load_digits(return_X_y=True)
A = (X - X.mean(axis=0)) / np.sqrt(len(X) - 1)
A /= np.linalg.norm(A, 2)  # the largest eigenvalue of the covariance is one


def fun(V):
    AV = A @ V
    return -float(np.vdot(AV, AV)), -2.0 * (A.T @ AV)


def hessp(V, W):
    return -2.0 * (A.T @ (A @ W))


start = np.linalg.svd(A, full_matrices=False)[2][:4].T.copy()
terms = {"none": stiefel.L1(0.0), "L1": stiefel.L1(0.1), "RowNorms": stiefel.RowNorms(0.15)}
found = {}
print("penalty    explained   zero loadings   unused pixels   χ        evaluations + products")
for name, term in terms.items():
    result = stiefel.minimize(fun, start, nonsmooth=term, hessp=hessp, rtol=0, gtol=1e-8)
    V = found[name] = result.x
    assert result.success, result.message
    assert np.linalg.norm(V.T @ V - np.eye(4)) < 1e-13
    explained = -result.smooth / np.sum(A**2)
    unused = int(np.sum(~V.any(axis=1)))
    print(
        f"{name:9}  {explained:9.3f}   {np.mean(V == 0):13.2f}   {unused:13d}   "
        f"{result.gradient_norm:.0e}   {result.nfev:11d} + {result.nhev}"
    )

assert np.mean(found["L1"] == 0) > 0.4

figure = plt.figure(figsize=(8, 6), layout="constrained")
for row, (name, V) in zip(figure.subplots(3, 4), found.items()):
    for axes, loading in zip(row, V.T):
        axes.imshow(loading.reshape(8, 8), cmap="RdBu", vmin=-0.6, vmax=0.6)
        axes.set(xticks=[], yticks=[], title=name)
