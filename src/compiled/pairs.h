/* The pairs of L-BFGS; see pairs.c. */
#ifndef STIEFEL_PAIRS_H
#define STIEFEL_PAIRS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "arrays.h"

/* a = R⁻¹Sᵀg and q = g − Ya; room for m. */
void first_of_two_loops(Py_ssize_t m, Py_ssize_t N, const double *S, const double *Y,
                        const double *inverse, const double *g, double *q, double *weights,
                        double *room);

/* r ← −γr − S(R⁻ᵀ(diag(R)a − γYᵀr)); room for 2m. */
void second_of_two_loops(Py_ssize_t m, Py_ssize_t N, const double *S, const double *Y,
                         const double *inverse, const double *diagonal, double gamma,
                         const double *weights, double *r, double *room);

/* The column of R⁻¹ of a pair that stands in its row, without the row `gone`, unless it is −1; room
 * for 2m. */
void border(Py_ssize_t m, Py_ssize_t N, const double *S, const double *Y, Py_ssize_t row,
            Py_ssize_t gone, double sy, double *inverse, double *diagonal, double *room);

/* The pair in its row, and its column of R⁻¹; room for 2m. */
void keep_pair(Py_ssize_t m, Py_ssize_t N, double *S, double *Y, Py_ssize_t row, Py_ssize_t gone,
               const double *s, const double *y, double sy, double *inverse, double *diagonal,
               double *room);

/* Whether a memory of m rows has these; `gone` may be −1. */
int has_rows(Arrays *a, Py_ssize_t m, long row, long gone);

PyObject *remember_pair(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *first_loop(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *second_loop(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *straight_pair(PyObject *, PyObject *const *, Py_ssize_t);

#endif
