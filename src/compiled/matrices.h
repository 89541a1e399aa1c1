/* One n×k matrix: see matrices.inc for the formulas, matrices.c for the arguments. */
#ifndef STIEFEL_MATRICES_H
#define STIEFEL_MATRICES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "arrays.h"
#include "blas.h"
#include "entries.h"

/* `ray.squares` for other kernels; see matrices.inc. */
void d_squares(Py_ssize_t k, double t, const double *gram, const double *basis, const double *K,
               const double *B, const double *yy, double *SS, double *TT, double *out, double *room);
void z_squares(Py_ssize_t k, double t, const zdouble *gram, const zdouble *basis, const zdouble *K,
               const zdouble *B, const zdouble *yy, zdouble *SS, zdouble *TT, double *out,
               zdouble *room);

/* An n×k matrix of doubles or of complex ones. */
const void *point_like(Arrays *a, PyObject *object, Py_ssize_t *n, Py_ssize_t *k, size_t *entry);

/* A matrix, or a stack of so many: of any number of axes, n×k the last two. */
const void *stack_like(Arrays *a, PyObject *object, Py_ssize_t *many, Py_ssize_t *n, Py_ssize_t *k,
                       size_t *entry);

/* Matrix i of a stack whose matrices have so many entries; NULL of nothing. */
#define OF(A, entries) ((A) == NULL ? NULL : (void *)((char *)(A) + (size_t)(i * (entries)) * e))

/* The kernel for every matrix i of a stack; see FOR_ENTRIES. */
#define FOR_MATRICES(many, entry, real, complex)                                                   \
    FOR_ENTRIES(entry, for (Py_ssize_t i = 0; i < (many); i++) { real; },                          \
                for (Py_ssize_t i = 0; i < (many); i++) { complex; })

/* `metric.raise_index` over W and `cayley.prepare_tangent`, of matrices whose entries have so many
 * bytes; the room is for so many entries. */
size_t aim_room(Py_ssize_t k);
void prepare_matrix(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, const void *U,
                    double theta, void *const *f, double *out, void *room);
void raise_matrix(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, void *W, const void *D,
                  double omega, void *room);

/* `cayley.point`; room for 5k² entries. */
void point_of_matrix(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, const void *U,
                     void *const *frame, double t, void *Y, void *N, void *room);

/* A step from X to Y along the ray of a frame, and what is known at its end. */
typedef struct {
    Py_ssize_t n, k;
    int span; /* whether gradients are those of functions of the span */
    double t;
    const void *X, *U, *N, *G, *rotation, *Y, *E;
    void *frame[4];
    void *G_new, *rotation_new, *level, *s, *y, *B, *yy;
    double square, slope, change; /* ‖G⁺‖²_g*, ⟨G⁺, s⟩ and ‖y‖² */
} Landing;

/* `lower_gradient` (or `lower_span_gradient`) at Y and `secant_pair`; room for 6k² entries. */
void land_matrix(size_t entry, Landing *l, void *room);

/* The gradient at X of the Euclidean one E, its rotation and level, and ‖G‖²_g*: of a function of the
 * span, or of any; room for k² entries. */
double gradient_of_matrix(size_t entry, int span, Py_ssize_t n, Py_ssize_t k, const void *X,
                          const void *E, void *G, void *rotation, void *level, void *room);

/* `metric.squared_change`; room for k² entries. */
double change_of_matrix(size_t entry, Py_ssize_t k, const void *B, const void *yy, const void *D,
                        double omega, void *room);

PyObject *lower_gradient(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *prepare(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *prepare_tangent(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *displacement(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *point(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *secant_pair(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *transport(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *velocity(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *raise_index(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *lower_span_gradient(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *extrapolate(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *squares(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *squared_change(PyObject *, PyObject *const *, Py_ssize_t);

#endif
