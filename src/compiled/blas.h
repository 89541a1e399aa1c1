/* The routines of BLAS and LAPACK that SciPy brings, for row-major matrices.
 *
 * SciPy publishes its BLAS and LAPACK as pointers to functions: the kernels use the same library,
 * with the same number of threads, as everything else.
 */
#ifndef STIEFEL_BLAS_H
#define STIEFEL_BLAS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <complex.h>

typedef double complex zdouble;

enum Form { PLAIN, ADJOINT };

/* Fills the table of routines; -1 with an error set where SciPy's are not as expected. */
int load_blas(void);

/* C ← alpha op(A) op(B) + beta C, with C m×n and the rows of a matrix its last argument apart. */
void d_multiply(enum Form a, enum Form b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t inner,
                double alpha, const double *A, Py_ssize_t rows_a, const double *B,
                Py_ssize_t rows_b, double beta, double *C, Py_ssize_t rows_c);
void z_multiply(enum Form a, enum Form b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t inner,
                zdouble alpha, const zdouble *A, Py_ssize_t rows_a, const zdouble *B,
                Py_ssize_t rows_b, zdouble beta, zdouble *C, Py_ssize_t rows_c);

/* B ← BA⁻¹ of an n×m matrix B and an m×m matrix A, which is overwritten.  NaN for a singular A. */
void d_divide(Py_ssize_t n, Py_ssize_t m, double *B, double *A);
void z_divide(Py_ssize_t n, Py_ssize_t m, zdouble *B, zdouble *A);

/* Eigenvalues, rising, of the symmetric A; its rows become the eigenvectors.  0 if they converged. */
int d_eigh(Py_ssize_t m, double *A, double *values);

/* Eigenvalues, rising, of B⁻¹A for a symmetric A and a positive definite B; both are overwritten. */
int d_relative_values(Py_ssize_t m, double *A, double *B, double *values);

/* The lower triangle L with A = LLᵀ in place of A, and zeros above; nonzero if there is none. */
int d_cholesky(Py_ssize_t m, double *A);

/* y ← alpha Ax + beta y of an m×n matrix, and with its transpose. */
void d_times(Py_ssize_t m, Py_ssize_t n, double alpha, const double *A, const double *x,
             double beta, double *y);
void d_transpose_times(Py_ssize_t m, Py_ssize_t n, double alpha, const double *A, const double *x,
                       double beta, double *y);

double d_dot(Py_ssize_t n, const double *x, const double *y);

#endif
