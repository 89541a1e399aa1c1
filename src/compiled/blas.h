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

/* C ← AᴴA of an n×k matrix with its rows `rows` apart, half of it computed; C is k×k. */
void d_self_gram(Py_ssize_t n, Py_ssize_t k, const double *A, Py_ssize_t rows, double *C);
void z_self_gram(Py_ssize_t n, Py_ssize_t k, const zdouble *A, Py_ssize_t rows, zdouble *C);

/* B ← BA⁻¹ of an n×m matrix B and an m×m matrix A, which is overwritten.  NaN for a singular A. */
void d_divide(Py_ssize_t n, Py_ssize_t m, double *B, double *A);
void z_divide(Py_ssize_t n, Py_ssize_t m, zdouble *B, zdouble *A);

/* Eigenvalues, rising, of the Hermitian A; its rows become the eigenvectors, conjugated.  0 if they
 * converged.  See `eigen.h` for small matrices. */
int d_lapack_eigh(Py_ssize_t m, double *A, double *values);
int z_lapack_eigh(Py_ssize_t m, zdouble *A, double *values);

/* The same without eigenvectors: A is overwritten. */
int d_lapack_eigenvalues(Py_ssize_t m, double *A, double *values);
int z_lapack_eigenvalues(Py_ssize_t m, zdouble *A, double *values);

/* The eigenvectors of A, which is overwritten, in the columns of V, 1, where eigenvalues are real: their
 * imaginary parts at most `least` of the largest, and of a real matrix zero; 0 otherwise.  Room for
 * m(m + 6). */
int d_real_eigenvectors(Py_ssize_t m, double *A, double *V, double least, double *room);
int z_real_eigenvectors(Py_ssize_t m, zdouble *A, zdouble *V, double least, zdouble *room);

/* The lower triangle L with A = LLᴴ in place of A, and zeros above; nonzero if there is none. */
int d_cholesky(Py_ssize_t m, double *A);
int z_cholesky(Py_ssize_t m, zdouble *A);

/* The lower triangle L in place of A with A = LLᵀ, 1, where no eigenvalue is below `least` of the
 * largest by LAPACK's estimate in the 1-norm, which errs on the safe side; 0 otherwise. */
int d_well_conditioned_cholesky(Py_ssize_t m, double *A, double least);

/* x ← (LLᵀ)⁻¹x. */
void d_solve_cholesky(Py_ssize_t m, double *L, double *x);

/* The lower triangle L in place of A with LLᴴ = PᵀAP, as far as pivots are above `least`; the rank.
 * Row i of it is row pivots[i] of A.  Room for 2m. */
Py_ssize_t d_pivoted_cholesky(Py_ssize_t m, double *A, int *pivots, double least, double *room);
Py_ssize_t z_pivoted_cholesky(Py_ssize_t m, zdouble *A, int *pivots, double least, double *room);

/* L⁻¹ in place of an m×m lower triangle L with rows `rows` apart. */
void d_invert_lower(Py_ssize_t m, double *L, Py_ssize_t rows);
void z_invert_lower(Py_ssize_t m, zdouble *L, Py_ssize_t rows);

/* y ← alpha Ax + beta y of an m×n matrix, and with its transpose. */
void d_times(Py_ssize_t m, Py_ssize_t n, double alpha, const double *A, const double *x,
             double beta, double *y);
void d_transpose_times(Py_ssize_t m, Py_ssize_t n, double alpha, const double *A, const double *x,
                       double beta, double *y);

double d_dot(Py_ssize_t n, const double *x, const double *y);

#endif
