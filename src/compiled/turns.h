/* Stacks of 2×2 and 3×3 rotations; see turns.c. */
#ifndef STIEFEL_TURNS_H
#define STIEFEL_TURNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *turns_gradient(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *turns_point(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *turns_defect(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *turns_ray(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *turns_straightened(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *turns_aim(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *turns_aim_apart(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *turns_stride(PyObject *, PyObject *const *, Py_ssize_t);

#endif
