/* The learned metric's small matrices; see metric.c. */
#ifndef STIEFEL_METRIC_H
#define STIEFEL_METRIC_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `solvers.leaves.weighed` of so many parts. */
void weigh(Py_ssize_t size, const double *ss, const double *yy, double *N, double *W, double unit,
           double memory, double least, double *scales);

PyObject *mean_metric(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *learn(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *spread(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *weighed(PyObject *, PyObject *const *, Py_ssize_t);

#endif
