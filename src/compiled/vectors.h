/* Real vectors: one of them, or the unit columns or rows of a matrix; see vectors.inc for the formulas,
 * vectors_memory.inc for pairs of them, vectors.c and vectors_memory.c for the arguments. */
#ifndef STIEFEL_VECTORS_H
#define STIEFEL_VECTORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *vector_gradient(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *vector_prepare(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *vector_point(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *vector_pair(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *units_gradient(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *units_prepare(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *units_point(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *units_pair(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_products(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_remember(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_direction(PyObject *, PyObject *const *, Py_ssize_t);

/* Every kernel is compiled twice where that pays: for any machine of its kind, and for those with
 * AVX2 and fused multiplication.  Which one runs is asked once; the same machine, the same bits. */
#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_WIDE 1
#define WIDE __attribute__((target("avx2,fma")))
#define IS_WIDE (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#define PICK(name) (IS_WIDE ? wide_##name : usual_##name)
#else
#define HAS_WIDE 0
#define PICK(name) usual_##name
#endif

#endif
