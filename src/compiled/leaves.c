/* The leaves of a small tree in one call: a call for each costs more than what it computes.
 *
 * The leaves come as tuples of arrays.  They are small (`solvers.leaf_kinds.SMALL_TREE`), so that the
 * interpreter's lock is kept, and an array is open only while it is looked at: its owner, whom the
 * caller holds, keeps the memory.  The blocks of the memory have the real numbers of all leaves one
 * after the other.
 */
#include "leaves.h"

#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "matrices.h"
#include "metric.h"
#include "pairs.h"

/* How φ acts on a leaf: as the identity; as that of a matrix with orthonormal columns, whose ray is
 * prepared too, and as that of a span; on coordinates of a frame, and of rotations; on unit vectors.
 * `solvers.leaf_kinds` has the same numbers. */
enum Kind { FLAT, MATRIX, SPAN, FRAMED, TURNS, UNITS, KINDS };

typedef struct {
    enum Kind kind;
    Py_ssize_t n, k, numbers; /* rows, columns, real numbers */
    size_t entry;
    const void *X, *D;
    double omega, theta, scale;
    void *frame[4];
    double small[3];
} Leaf;

/* Item i of a tuple, which has `count` of them. */
static PyObject *item(Arrays *a, PyObject *tuple, Py_ssize_t i, Py_ssize_t count)
{
    if (a->failed)
        return NULL;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        refuse(a, "a tree has another number of leaves");
        return NULL;
    }
    return PyTuple_GetItem(tuple, i);
}

/* The memory of a leaf that has so many bytes, and is C-contiguous. */
static void *memory(Arrays *a, PyObject *object, Py_ssize_t bytes, enum Access access)
{
    Py_buffer view;
    if (a->failed || object == NULL)
        return NULL;
    if (PyObject_GetBuffer(object, &view, PyBUF_C_CONTIGUOUS | (access == WRITE ? PyBUF_WRITABLE : 0))) {
        a->failed = 1;
        return NULL;
    }
    void *found = view.buf;
    if (view.len != bytes)
        refuse(a, "a leaf has another size");
    PyBuffer_Release(&view);
    return found;
}

/* Copies the numbers of a tuple of arrays of doubles, in whatever order they stand, to `out`. */
static void gather(Arrays *a, PyObject *tuple, Py_ssize_t numbers, double *out)
{
    Py_ssize_t count = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : 0, filled = 0;
    for (Py_ssize_t i = 0; i < count && !a->failed; i++) {
        Py_buffer view;
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, i), &view, PyBUF_STRIDES)) {
            a->failed = 1;
            return;
        }
        Py_ssize_t more = view.len / (Py_ssize_t)sizeof(double);
        if (filled + more > numbers || view.itemsize % (Py_ssize_t)sizeof(double))
            refuse(a, "the leaves of a tree have other sizes than its memory");
        else if (PyBuffer_ToContiguous(out + filled, &view, view.len, 'C'))
            a->failed = 1;
        filled += more;
        PyBuffer_Release(&view);
    }
    if (filled != numbers)
        refuse(a, "the leaves of a tree have other sizes than its memory");
}

/* n×k and the bytes of an entry; a vector is a column, and of more axes the last is k.  Unit vectors
 * are rows, with a further axis of length one or without. */
static void shape_of(Arrays *a, PyObject *object, Leaf *leaf)
{
    Py_buffer view;
    if (a->failed || object == NULL || PyObject_GetBuffer(object, &view, PyBUF_C_CONTIGUOUS)) {
        a->failed = 1;
        return;
    }
    leaf->entry = (size_t)view.itemsize;
    leaf->numbers = view.len / (Py_ssize_t)sizeof(double);
    leaf->k = view.ndim < 2 ? 1 : view.shape[view.ndim - 1];
    if (leaf->kind == UNITS && leaf->k == 1 && view.ndim > 1)
        leaf->k = view.shape[view.ndim - 2];
    leaf->n = leaf->k ? view.len / view.itemsize / leaf->k : 0;
    PyBuffer_Release(&view);
}

/* D, ω, horizontal and scale of a `Metric`. */
static void metric_of(Arrays *a, PyObject *metric, Leaf *leaf)
{
    if (a->failed || !PyTuple_Check(metric) || PyTuple_Size(metric) < 4) {
        refuse(a, "a metric is a tuple");
        return;
    }
    PyObject *D = PyTuple_GetItem(metric, 0);
    if (D != Py_None && (leaf->kind == MATRIX || leaf->kind == SPAN))
        leaf->D = memory(a, D, leaf->k * leaf->k * (Py_ssize_t)leaf->entry, READ);
    leaf->omega = number(a, PyTuple_GetItem(metric, 1));
    int horizontal = PyObject_IsTrue(PyTuple_GetItem(metric, 2));
    leaf->omega = horizontal ? 0.0 : leaf->omega;
    leaf->theta = horizontal || leaf->kind == SPAN ? 1.0 : 0.5;
    leaf->scale = number(a, PyTuple_GetItem(metric, 3));
}

/* A leaf as `leaves_aim` gets it: T, X, metric, kind, frame. */
static void open_leaf(Arrays *a, PyObject *const *args, Py_ssize_t i, Py_ssize_t count, Leaf *leaf)
{
    memset(leaf, 0, sizeof(*leaf));
    PyObject *kind = item(a, args[3], i, count);
    leaf->kind = kind == NULL ? KINDS : (enum Kind)integer(a, kind);
    if (leaf->kind >= KINDS)
        refuse(a, "a leaf is of no kind");
    shape_of(a, item(a, args[0], i, count), leaf);
    metric_of(a, item(a, args[2], i, count), leaf);
    if (a->failed || leaf->kind == FLAT || leaf->kind == FRAMED || leaf->kind == TURNS)
        return;
    Py_ssize_t bytes = 4 * leaf->k * leaf->k * (Py_ssize_t)leaf->entry;
    leaf->X = memory(a, item(a, args[1], i, count), leaf->numbers * (Py_ssize_t)sizeof(double), READ);
    if (leaf->kind == UNITS)
        return;
    char *frames = memory(a, item(a, args[4], i, count), 4 * bytes, WRITE);
    for (int j = 0; j < 4 && frames != NULL; j++)
        leaf->frame[j] = frames + j * bytes;
}

/* φ(q) over q, in its metric. */
static void raise_leaf(const Leaf *leaf, double *q, void *room)
{
    if (leaf->kind == MATRIX || leaf->kind == SPAN)
        raise_matrix(leaf->entry, leaf->n, leaf->k, leaf->X, q, leaf->D, leaf->omega, room);
    for (Py_ssize_t i = 0; leaf->kind == UNITS && i < leaf->n; i++) {
        const double *x = (const double *)leaf->X + i * leaf->k;
        double along = -d_dot(leaf->k, x, q + i * leaf->k);
        for (Py_ssize_t j = 0; j < leaf->k; j++)
            q[i * leaf->k + j] += along * x[j];
    }
    Py_ssize_t upper = leaf->kind == FRAMED ? leaf->k * leaf->k * (Py_ssize_t)(leaf->entry / 8) : 0;
    for (Py_ssize_t i = 0; i < upper; i++)
        q[i] *= leaf->omega;
    for (Py_ssize_t i = 0; leaf->kind == TURNS && i < leaf->numbers; i++)
        q[i] *= 2.0;
    for (Py_ssize_t i = 0; leaf->scale != 1.0 && i < leaf->numbers; i++)
        q[i] *= leaf->scale;
}

/* The slopes ⟨G, T⟩ of the leaves, and for matrices what `prepare_tangent` returns. */
static PyObject *told(Py_ssize_t count, const Leaf *leaves, const double *g, const double *q)
{
    PyObject *slopes = PyTuple_New(count), *small = PyTuple_New(count);
    for (Py_ssize_t i = 0; slopes != NULL && small != NULL && i < count; i++) {
        const Leaf *leaf = leaves + i;
        const double *s = leaf->small;
        PyTuple_SetItem(slopes, i, PyFloat_FromDouble(d_dot(leaf->numbers, g, q)));
        PyTuple_SetItem(small, i, leaf->frame[0] == NULL ? Py_NewRef(Py_None)
                                                         : Py_BuildValue("ddd", s[0], s[1], s[2]));
        g += leaf->numbers, q += leaf->numbers;
    }
    return Py_BuildValue("NN", slopes, small);
}

/* leaves_aim(S, Y, R⁻¹, diagonal, γ, G, T, X, metrics, kinds, frames) -> the slopes ⟨G, T⟩ of the
 * leaves, and what `prepare_tangent` returns for matrices: T = −H G by both loops with φ(q) of every
 * leaf between them, times its scale */
PyObject *leaves_aim(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY, N = ANY, square, leaves, held = 0;
    size_t room_for_aim = 0;
    if (!counted(count, 11))
        return NULL;
    const double *diagonal = real_numbers(&a, args[3], &m, READ);
    const double *S = real_numbers(&a, args[0], &N, READ), *Y = real_numbers(&a, args[1], &N, READ);
    square = m * m;
    const double *inverse = real_numbers(&a, args[2], &square, READ);
    double gamma = number(&a, args[4]);
    leaves = PyTuple_Check(args[6]) ? PyTuple_Size(args[6]) : 0;
    if (!a.failed && (m < 1 || leaves < 1))
        refuse(&a, "a tree has no leaves, or its memory has no rows");
    if (a.failed)
        return finish(&a, NULL);
    N /= m;
    Leaf *all = workspace(&a, sizeof(Leaf) * (size_t)leaves);
    for (Py_ssize_t i = 0; i < leaves && !a.failed; i++) {
        open_leaf(&a, args + 6, i, leaves, all + i);
        held += all[i].numbers;
        size_t needed = all[i].frame[0] != NULL ? all[i].entry * aim_room(all[i].k) : 0;
        room_for_aim = needed > room_for_aim ? needed : room_for_aim;
    }
    if (!a.failed && held != N)
        refuse(&a, "the leaves of a tree have other sizes than its memory");
    double *g = a.failed ? NULL : PyMem_Malloc(sizeof(double) * (size_t)(2 * N + 3 * m) + room_for_aim);
    if (g == NULL)
        refuse(&a, "there is no memory for a direction");
    else
        gather(&a, args[5], N, g);
    PyObject *result = NULL;
    if (!a.failed) {
        double *q = g + N, *room = q + N, *weights = room + 2 * m, *at = q;
        first_of_two_loops(m, N, S, Y, inverse, g, q, weights, room);
        for (Py_ssize_t i = 0; i < leaves; at += all[i++].numbers)
            raise_leaf(all + i, at, room + 3 * m);
        second_of_two_loops(m, N, S, Y, inverse, diagonal, gamma, weights, q, room);
        at = q;
        for (Py_ssize_t i = 0; i < leaves && !a.failed; at += all[i++].numbers) {
            Leaf *leaf = all + i;
            Py_ssize_t bytes = leaf->numbers * (Py_ssize_t)sizeof(double);
            void *T = memory(&a, PyTuple_GetItem(args[6], i), bytes, WRITE);
            if (T != NULL)
                memcpy(T, at, (size_t)bytes);
            if (T != NULL && leaf->frame[0] != NULL)
                prepare_matrix(leaf->entry, leaf->n, leaf->k, leaf->X, T, leaf->theta, leaf->frame,
                               leaf->small, room + 3 * m);
        }
        result = told(leaves, all, g, q);
    }
    PyMem_Free(g);
    return finish(&a, result);
}

/* leaves_remember(S, Y, row, gone, s, y, ⟨s, y⟩, R⁻¹, diagonal): `remember_pair` of a tree */
PyObject *leaves_remember(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY, N = ANY;
    if (!counted(count, 9))
        return NULL;
    double *diagonal = real_numbers(&a, args[8], &m, WRITE);
    double *S = real_numbers(&a, args[0], &N, WRITE), *Y = real_numbers(&a, args[1], &N, WRITE);
    Py_ssize_t square = m * m;
    double *inverse = real_numbers(&a, args[7], &square, WRITE);
    long row = integer(&a, args[2]), gone = integer(&a, args[3]);
    double sy = number(&a, args[6]);
    double *room = workspace(&a, sizeof(double) * (size_t)(2 * (m > 0 ? m : 0)));
    if (!a.failed && (row < 0 || row >= m || gone >= m))
        refuse(&a, "the memory has no such row");
    if (a.failed)
        return finish(&a, NULL);
    N /= m;
    gather(&a, args[4], N, S + row * N);
    gather(&a, args[5], N, Y + row * N);
    if (!a.failed)
        border(m, N, S, Y, row, gone, sy, inverse, diagonal, room);
    return finish(&a, Py_NewRef(Py_None));
}

/* ⟨C, C⟩ of a leaf, whose numbers may stand in any order */
static double square_of(Arrays *a, PyObject *object)
{
    Py_buffer view;
    double found = 0.0;
    if (a->failed || PyObject_GetBuffer(object, &view, PyBUF_STRIDES)) {
        a->failed = 1;
        return 0.0;
    }
    if (view.itemsize % (Py_ssize_t)sizeof(double) || !PyBuffer_IsContiguous(&view, 'A'))
        refuse(a, "a leaf is not in one piece, or not in double precision");
    else
        found = d_dot(view.len / (Py_ssize_t)sizeof(double), view.buf, view.buf);
    PyBuffer_Release(&view);
    return found;
}

/* leaves_balanced(s, ‖y‖² of the leaves, N, W, unit, memory, least share, out) -> the unit, or None
 * if the step tells nothing: `solvers.leaves.balanced`; `out` gets N, W and the scales, and N is None
 * before the first step */
PyObject *leaves_balanced(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    if (!counted(count, 8))
        return NULL;
    Py_ssize_t size = PyTuple_Check(args[0]) ? PyTuple_Size(args[0]) : 0;
    double unit = number(&a, args[4]), memory = number(&a, args[5]), least = number(&a, args[6]);
    double *N = array(&a, args[7], 3 * size, sizeof(double), WRITE), *W = N + size, *scales = W + size;
    double *ss = workspace(&a, sizeof(double) * (size_t)(2 * size)), *yy = ss + size;
    double step = 0.0, change = 0.0;
    for (Py_ssize_t i = 0; i < size && !a.failed; i++) {
        ss[i] = square_of(&a, PyTuple_GetItem(args[0], i));
        yy[i] = number(&a, item(&a, args[1], i, size));
        step += ss[i], change += yy[i];
    }
    if (a.failed)
        return finish(&a, NULL);
    unit = step > 0.0 ? (unit != 0.0 ? unit : change / step) : 0.0;
    if (!(unit > 0.0 && isfinite(unit)))
        return finish(&a, Py_NewRef(Py_None));
    if (args[2] == Py_None)
        memset(N, 0, sizeof(double) * (size_t)(2 * size));
    else {
        gather(&a, args[2], size, N);
        gather(&a, args[3], size, W);
    }
    if (!a.failed)
        weigh(size, ss, yy, N, W, unit, memory, least, scales);
    return finish(&a, PyFloat_FromDouble(unit));
}
