/* The leaves of a small tree in one call; see leaves.c and arrivals.c. */
#ifndef STIEFEL_LEAVES_H
#define STIEFEL_LEAVES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *leaves_aim(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *leaves_remember(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *leaves_balanced(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *leaves_arrival(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *stack_aim_apart(PyObject *, PyObject *const *, Py_ssize_t);

#endif
