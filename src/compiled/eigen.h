/* Eigenvalues of Hermitian matrices. */
#ifndef STIEFEL_EIGEN_H
#define STIEFEL_EIGEN_H

#include "blas.h"

/* Eigenvalues, rising, of the Hermitian A; its rows become the eigenvectors, conjugated.  0 if they
 * converged. */
int d_eigh(Py_ssize_t m, double *A, double *values);
int z_eigh(Py_ssize_t m, zdouble *A, double *values);

/* The same without eigenvectors: A is overwritten. */
int d_eigenvalues(Py_ssize_t m, double *A, double *values);
int z_eigenvalues(Py_ssize_t m, zdouble *A, double *values);

PyObject *eigh_rows(PyObject *, PyObject *const *, Py_ssize_t);

#endif
