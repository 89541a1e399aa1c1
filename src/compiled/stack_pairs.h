/* Pairs of the matrices of a stack; see stack_pairs.c. */
#ifndef STIEFEL_STACK_PAIRS_H
#define STIEFEL_STACK_PAIRS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *stack_products(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *stack_first_loop(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *stack_second_loop(PyObject *, PyObject *const *, Py_ssize_t);

#endif
