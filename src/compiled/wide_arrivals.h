/* Where L-BFGS goes next; see wide_arrivals.c. */
#ifndef STIEFEL_WIDE_ARRIVALS_H
#define STIEFEL_WIDE_ARRIVALS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *wide_aim(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *wide_arrival(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *wide_stride(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *framed_arrival(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *framed_stride(PyObject *, PyObject *const *, Py_ssize_t);

#endif
