/* The normal space of XᵀX = I at one real n×k matrix of few columns; see normal.c for the formulas.
 *
 * Λ, symmetric, is given by its q = k(k+1)/2 coordinates in the orthonormal basis that
 * `nonsmooth.space.hermitian_basis` has. */
#ifndef STIEFEL_NORMAL_H
#define STIEFEL_NORMAL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct {
    Py_ssize_t n, k, q;
    const double *X;
    double *small; /* k×k */
    double *grams; /* k×q, for `factorise` */
} Normal;

/* A factorised system is 1 + q + q² numbers: whether it is a triangle, weights of the coordinates
 * or of the eigenvectors, and the triangle or the eigenvectors, row by row. */
Py_ssize_t numbers_of_system(Py_ssize_t q);

/* Doubles of scratch that a Normal needs behind `small`. */
Py_ssize_t scratch_of_normal(Py_ssize_t k);
Normal normal_space(Py_ssize_t n, Py_ssize_t k, const double *X, double *scratch);

void normal_part(const Normal *s, const double *A, const double *L, double sign, double *out);
void gather(const Normal *s, const double *V, double *E);
void factorise(const Normal *s, const double *weights, double delta, int pseudo, double *system);
/* The same, if the Gram matrices Xᵀ diag(w_j) X are there already, by their lower triangles. */
void factorise_grams(const Normal *s, double delta, int pseudo, double *system);
void solve_system(Py_ssize_t q, const double *system, double *rhs, double *scratch);

PyObject *normal_factor(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *normal_solve(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *tangent_part(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *restore_zeros(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *compact_model(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *learn_columns(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *proximal_step(PyObject *, PyObject *const *, Py_ssize_t);

#endif
