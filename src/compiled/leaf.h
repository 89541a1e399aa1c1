/* A leaf of a small tree, or a small stack, as the kernels see it that take all leaves at once.
 *
 * Leaves come as tuples of arrays.  They are small (`solvers.leaf_kinds.SMALL_TREE`), so that the
 * interpreter's lock is kept, and an array is open only while it is looked at: its owner, whom the
 * caller holds, keeps the memory.  The blocks of the memory have the real numbers of all leaves one
 * after the other.
 */
#ifndef STIEFEL_LEAF_H
#define STIEFEL_LEAF_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "arrays.h"

/* How φ acts on a leaf: as the identity; as that of a matrix with orthonormal columns, or of a stack of
 * them, whose ray is prepared too, and as that of a span; on coordinates of a frame, and of rotations; on
 * unit vectors.  `solvers.leaf_kinds` has the same numbers. */
enum Kind { FLAT, MATRIX, SPAN, FRAMED, TURNS, UNITS, KINDS };

typedef struct {
    enum Kind kind;
    Py_ssize_t many, n, k, numbers; /* matrices of a stack, rows, columns, real numbers of all */
    size_t entry;
    const void *X, *D;
    int horizontal;
    double omega, theta, scale;
    const double *scales; /* of the matrices of a stack, or NULL */
    Py_ssize_t stride;    /* doubles from one of them to the next */
    void *frame[4];
    double small[3];
} Leaf;

/* A memory of m rows of N real numbers, and what it says of the direction. */
typedef struct {
    Py_ssize_t m, N;
    double *S, *Y, *inverse, *diagonal;
} Ring;

/* Whether columns are orthonormal, so that there are frames. */
int has_columns(const Leaf *leaf);

/* Item i of a tuple, which has `count` of them. */
PyObject *leaf_item(Arrays *a, PyObject *tuple, Py_ssize_t i, Py_ssize_t count);

/* The memory of a leaf that has so many bytes, and is C-contiguous. */
void *leaf_memory(Arrays *a, PyObject *object, Py_ssize_t bytes, enum Access access);

/* Copies the numbers of a tuple of arrays of doubles, in whatever order they stand, to `out`. */
void gather_leaves(Arrays *a, PyObject *tuple, Py_ssize_t numbers, double *out);

/* S, Y, R⁻¹ and diagonal of the arguments; N is counted by row. */
Ring ring_of(Arrays *a, PyObject *const *args, enum Access access);

/* The leaves of T, X, metrics, kinds and frames, which have as many numbers as a row: in memory that is
 * freed by `finish`, or NULL. */
Leaf *leaves_of(Arrays *a, PyObject *const *args, Py_ssize_t numbers, Py_ssize_t *count);

/* Bytes that φ and rays of the leaves want beside them. */
size_t room_of_leaves(const Leaf *leaves, Py_ssize_t count);

/* φ(q) over q, in its metric. */
void raise_leaf(const Leaf *leaf, double *q, void *room);

/* Writes q to the arrays of the tuple T, and prepares the rays. */
void set_out(Arrays *a, PyObject *T, Leaf *leaves, Py_ssize_t count, const double *q, void *room);

/* The slopes ⟨G, T⟩ of the leaves, and for matrices what `prepare_tangent` returns: two tuples. */
PyObject *slopes_of(Py_ssize_t count, const Leaf *leaves, const double *g, const double *q);
PyObject *small_of(Py_ssize_t count, const Leaf *leaves);

/* T = −H G by both loops with φ(q) of every leaf between them, times its scale; `g` has room for 2N + 3m
 * numbers and for what `room_of_leaves` says, begins with G, and is followed by T. */
void aim_leaves(Arrays *a, const Ring *r, double gamma, Leaf *leaves, Py_ssize_t count, PyObject *T,
                double *g);

#endif
