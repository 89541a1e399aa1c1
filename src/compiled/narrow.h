/* Tall matrices of few columns. */
#ifndef STIEFEL_NARROW_H
#define STIEFEL_NARROW_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

enum { NARROW = 7 }; /* columns */

/* C = ±A B, added to what is there if that is asked for, for rows of A and C that are so far apart and
 * 2 ≤ k ≤ NARROW columns.  BLAS takes up to four times as long. */
void narrow_product(Py_ssize_t rows, Py_ssize_t k, double sign, const double *A, Py_ssize_t rows_a,
                    const double *B, int add, double *C, Py_ssize_t rows_c);

#endif
