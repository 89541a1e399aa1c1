/* The pairs of L-BFGS; see pairs.c. */
#ifndef STIEFEL_PAIRS_H
#define STIEFEL_PAIRS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *remember_pair(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *first_loop(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *matrix_aim(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *second_loop(PyObject *, PyObject *const *, Py_ssize_t);

#endif
