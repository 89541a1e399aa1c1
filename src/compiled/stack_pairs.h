/* Pairs of the matrices of a stack; see stack_pairs.c. */
#ifndef STIEFEL_STACK_PAIRS_H
#define STIEFEL_STACK_PAIRS_H

#include "arrays.h"

/* What the kernels share. */
typedef struct {
    const double *S, *Y;
    const double *curvatures; /* m × B */
    Py_ssize_t m, B, n, N;    /* N = Bn, the length of a row */
    const Py_ssize_t *rows;   /* in use, oldest first */
    Py_ssize_t count;
} Stack;

/* From blocks, numbers of shape m × B, and rows; N is known. */
Stack stack_of(Arrays *a, PyObject *S, PyObject *Y, PyObject *curvatures, PyObject *rows, Py_ssize_t N);

/* Both loops: a weight of every matrix and row in use goes from the first to the second. */
void without_pairs(const Stack *s, double *q, double *weights);

/* r = φ(q)/factor becomes −H g, and no matrix longer than `longest`; γ where a matrix has none yet. */
void with_pairs(const Stack *s, double *r, const double *weights, const double *gammas, double gamma,
                double factor, double longest);

/* `stack_pairs._asymmetries` of |cross| and (|⟨s, y⟩| |⟨s', y'⟩|)^½, in their place: median and mean. */
void asymmetry(Py_ssize_t B, double *cross, const double *sizes, double least, double out[2]);

PyObject *stack_look(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *stack_gammas(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *stack_first_loop(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *stack_second_loop(PyObject *, PyObject *const *, Py_ssize_t);

#endif
