"""Arrays and nothing of manifolds: array libraries, sums over ranks, threads of BLAS.

`base.Kernels` is written against the array API and serves every library; `numpy`, `torch` and
`jax` say what they do faster, `rank_kernels` adds sums over the rows that other machines hold.
`arrays.kernels_for` chooses, once per solve.
"""
