/* Matrices with many columns: see wide.inc for the formulas, wide.c for the arguments. */
#ifndef STIEFEL_WIDE_H
#define STIEFEL_WIDE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `wide.prepare_wide` of matrices whose entries have so many bytes: U, A and C, and the squares of
 * XᴴX − I, of U and of W; room for k² entries. */
void prepare_wide_matrix(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, const void *W,
                         double theta, void *const *ray, double *out, void *room);

PyObject *prepare_wide(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *wide_point(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *wide_pair(PyObject *, PyObject *const *, Py_ssize_t);

#endif
