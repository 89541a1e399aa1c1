/* Matrices with many columns: see wide.inc for the formulas, wide.c for the arguments. */
#ifndef STIEFEL_WIDE_H
#define STIEFEL_WIDE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* `wide.prepare_wide` of matrices whose entries have so many bytes: U, A and C, and the squares of
 * XᴴX − I, of U and of W; room for k² entries. */
void prepare_wide_matrix(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, const void *W,
                         double theta, void *const *ray, double *out, void *room);

/* `wide.wide_point`: Y = X + V; room for 2k² + nk entries. */
void point_of_wide(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, void *const *ray, double t,
                   void *Y, void *V, void *room);

/* A step from X along the ray U, A, C to Y = X + V, and what is known at its end. */
typedef struct {
    Py_ssize_t n, k;
    int span; /* whether gradients are those of functions of the span */
    double t;
    const void *X, *U, *A, *C, *V, *G, *rotation, *Y, *E;
    void *G_new, *rotation_new, *level, *s, *y, *B, *yy;
    double square, slope, change; /* ‖G⁺‖²_g*, ⟨G⁺, s⟩ and ‖y‖² */
} WideLanding;

/* The gradient at Y and `wide.wide_pair`; room for 2k² entries. */
void land_wide(size_t entry, WideLanding *l, void *room);

PyObject *prepare_wide(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *wide_point(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *wide_pair(PyObject *, PyObject *const *, Py_ssize_t);

#endif
