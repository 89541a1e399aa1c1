/* The row model of L-BFGS: see rows*.inc for the formulas, rows.c and recognition.c for
 * the arguments. */
#ifndef STIEFEL_ROWS_H
#define STIEFEL_ROWS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *rows_grown(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *rows_grams(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *rows_combined(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *rows_ritz(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *rows_inverse(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *rows_look(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *rows_symmetrising(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *rows_step(PyObject *, PyObject *const *, Py_ssize_t);

#endif
