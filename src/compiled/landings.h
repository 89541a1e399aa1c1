/* Steps of one matrix; see landings.c. */
#ifndef STIEFEL_LANDINGS_H
#define STIEFEL_LANDINGS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *matrix_aim(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *matrix_arrival(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *matrix_landing(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *matrix_stride(PyObject *, PyObject *const *, Py_ssize_t);

#endif
