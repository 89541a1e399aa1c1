/* The learned metric's small matrices; see metric.c. */
#ifndef STIEFEL_METRIC_H
#define STIEFEL_METRIC_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* What a step tells, and how it is learned from; the names are those of `LearnedMetric`. */
typedef struct {
    double t, power, memory, news, change, range, least;
    const void *gram, *basis, *K, *B, *yy; /* of many columns K is NULL: see `learn` */
} Told;

/* What is known before the step, and after it; the sums are Σ‖A‖², Σ‖B‖², Σ‖S‖², Σ‖T‖². */
typedef struct {
    double weight, judged, ratio, sums[4];
    int seen, replaced;
} Sums;

/* `LearnedMetric._accumulate` and the comparison of D in `_refresh`, of so many k×k matrices whose
 * entries have so many bytes; E may be NULL for I, out is P⁺, R⁺ and D⁺.  Room for 7k² entries. */
void learn_from_step(size_t entry, Py_ssize_t many, Py_ssize_t k, const Told *told, const void *P,
                     const void *R, const void *E, Sums *sums, void *const *out, void *room);

/* Whether the mean metric D of P and R differs from E by more than `change`; room for 5k². */
int mean_differs(Py_ssize_t k, const double *P, const double *R, double ratio, const double *E,
                 double change, double *D, double *room);

/* `solvers.leaves.weighed` of so many parts. */
void weigh(Py_ssize_t size, const double *ss, const double *yy, double *N, double *W, double unit,
           double memory, double least, double *scales);

PyObject *mean_metric(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *learn(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *spread(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *weighed(PyObject *, PyObject *const *, Py_ssize_t);

#endif
