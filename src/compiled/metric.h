/* The learned metric's small matrices; see metric.c. */
#ifndef STIEFEL_METRIC_H
#define STIEFEL_METRIC_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Whether the mean metric D of P and R differs from E by more than `change`; room for 5k². */
int mean_differs(Py_ssize_t k, const double *P, const double *R, double ratio, const double *E,
                 double change, double *D, double *room);

PyObject *mean_metric(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *learn(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *spread(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *weighed(PyObject *, PyObject *const *, Py_ssize_t);

#endif
