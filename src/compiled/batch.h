/* Kernels for many small matrices at once; see batch.c, batch_learned.c and batch_quadratic.c. */
#ifndef STIEFEL_BATCH_H
#define STIEFEL_BATCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *batch_lower(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *batch_trial(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *batch_pair(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *batch_remember(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *batch_arrive(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *batch_observe(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *batch_points(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *batch_recognise(PyObject *self, PyObject *const *args, Py_ssize_t count);

#endif
