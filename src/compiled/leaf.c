/* What the kernels share that take all leaves of a small tree in one call; see leaf.h. */
#include "leaf.h"

#include <math.h>
#include <string.h>

#include "blas.h"
#include "matrices.h"
#include "pairs.h"

int has_columns(const Leaf *leaf) { return leaf->kind == MATRIX || leaf->kind == SPAN; }

PyObject *leaf_item(Arrays *a, PyObject *tuple, Py_ssize_t i, Py_ssize_t count)
{
    if (a->failed)
        return NULL;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        refuse(a, "a tree has another number of leaves");
        return NULL;
    }
    return PyTuple_GetItem(tuple, i);
}

void *leaf_memory(Arrays *a, PyObject *object, Py_ssize_t bytes, enum Access access)
{
    Py_buffer view;
    if (a->failed || object == NULL)
        return NULL;
    int flags = access == WRITE ? PyBUF_WRITABLE | PyBUF_FORMAT : 0;
    if (PyObject_GetBuffer(object, &view, PyBUF_C_CONTIGUOUS | flags)) {
        a->failed = 1;
        return NULL;
    }
    void *found = view.buf;
    if (access == WRITE)
        refuse_objects(a, &view);
    if (view.len != bytes)
        refuse(a, "a leaf has another size");
    PyBuffer_Release(&view);
    return a->failed ? NULL : found;
}

void gather_leaves(Arrays *a, PyObject *tuple, Py_ssize_t numbers, double *out)
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

Ring ring_of(Arrays *a, PyObject *const *args, enum Access access)
{
    Ring r = {.m = ANY, .N = ANY};
    r.diagonal = real_numbers(a, args[3], &r.m, access);
    r.S = real_numbers(a, args[0], &r.N, access), r.Y = real_numbers(a, args[1], &r.N, access);
    Py_ssize_t square = r.m * r.m;
    r.inverse = real_numbers(a, args[2], &square, access);
    if (!a->failed && (r.m < 1 || r.N % r.m))
        refuse(a, "a memory has no rows, or no whole ones");
    r.N = a->failed ? 0 : r.N / r.m;
    return r;
}

/* n×k and the bytes of an entry; a vector is a column, and of more axes the last is k.  Unit vectors
 * are rows, with a further axis of length one or without; matrices may be many. */
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
    leaf->n = leaf->k && view.itemsize ? view.len / view.itemsize / leaf->k : 0;
    leaf->many = 1;
    if (has_columns(leaf) && view.ndim > 2 && view.shape[view.ndim - 2] > 0) {
        leaf->many = leaf->n / view.shape[view.ndim - 2];
        leaf->n = view.shape[view.ndim - 2];
    }
    if (leaf->many < 1)
        refuse(a, "a stack has no matrices");
    if (has_columns(leaf) && (leaf->n < 1 || leaf->k < 1))
        refuse(a, "a matrix has no entries");
    if (leaf->entry != sizeof(double) && leaf->entry != 2 * sizeof(double))
        refuse(a, "a leaf is not in double precision");
    if (leaf->kind == FRAMED && leaf->n < leaf->k)
        refuse(a, "a cotangent in a frame has more columns than rows");
    PyBuffer_Release(&view);
}

/* D, ω, horizontal, scale and scales of a `Metric`. */
static void metric_of(Arrays *a, PyObject *metric, Leaf *leaf)
{
    if (a->failed || !PyTuple_Check(metric) || PyTuple_Size(metric) != 5) {
        refuse(a, "a metric is a tuple of five");
        return;
    }
    PyObject *D = PyTuple_GetItem(metric, 0), *scales = PyTuple_GetItem(metric, 4);
    if (D != Py_None && has_columns(leaf))
        leaf->D = leaf_memory(a, D, leaf->many * leaf->k * leaf->k * (Py_ssize_t)leaf->entry, READ);
    leaf->omega = number(a, PyTuple_GetItem(metric, 1));
    leaf->horizontal = PyObject_IsTrue(PyTuple_GetItem(metric, 2));
    leaf->theta = leaf->horizontal || leaf->kind == SPAN ? 1.0 : 0.5;
    leaf->scale = number(a, PyTuple_GetItem(metric, 3));
    leaf->stride = (Py_ssize_t)(leaf->entry / sizeof(double));
    if (scales != Py_None && has_columns(leaf))
        leaf->scales = leaf_memory(a, scales, leaf->many * (Py_ssize_t)leaf->entry, READ);
}

/* A leaf of T, X, metrics, kinds, frames. */
static void open_leaf(Arrays *a, PyObject *const *args, Py_ssize_t i, Py_ssize_t count, Leaf *leaf)
{
    memset(leaf, 0, sizeof(*leaf));
    PyObject *kind = leaf_item(a, args[3], i, count);
    leaf->kind = kind == NULL ? KINDS : (enum Kind)integer(a, kind);
    if (leaf->kind >= KINDS)
        refuse(a, "a leaf is of no kind");
    shape_of(a, leaf_item(a, args[0], i, count), leaf);
    metric_of(a, leaf_item(a, args[2], i, count), leaf);
    if (a->failed || leaf->kind == FLAT || leaf->kind == FRAMED || leaf->kind == TURNS)
        return;
    Py_ssize_t bytes = leaf->many * 4 * leaf->k * leaf->k * (Py_ssize_t)leaf->entry;
    Py_ssize_t whole = leaf->numbers * (Py_ssize_t)sizeof(double);
    leaf->X = leaf_memory(a, leaf_item(a, args[1], i, count), whole, READ);
    if (leaf->kind == UNITS)
        return;
    char *frames = leaf_memory(a, leaf_item(a, args[4], i, count), 4 * bytes, WRITE);
    for (int j = 0; j < 4 && frames != NULL; j++)
        leaf->frame[j] = frames + j * bytes;
}

Leaf *leaves_of(Arrays *a, PyObject *const *args, Py_ssize_t numbers, Py_ssize_t *count)
{
    Py_ssize_t held = 0;
    *count = PyTuple_Check(args[0]) ? PyTuple_Size(args[0]) : 0;
    if (*count < 1)
        refuse(a, "a tree has no leaves");
    Leaf *all = workspace(a, sizeof(Leaf) * (size_t)*count);
    for (Py_ssize_t i = 0; i < *count && !a->failed; i++) {
        open_leaf(a, args, i, *count, all + i);
        held += all[i].numbers;
    }
    if (!a->failed && held != numbers)
        refuse(a, "the leaves of a tree have other sizes than its memory");
    return a->failed ? NULL : all;
}

size_t room_of_leaves(const Leaf *leaves, Py_ssize_t count)
{
    size_t most = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        size_t needed = has_columns(leaves + i) ? leaves[i].entry * aim_room(leaves[i].k) : 0;
        most = needed > most ? needed : most;
    }
    return most;
}

/* Matrix i of A, whose matrices have so many entries. */
static void *part(const Leaf *leaf, const void *A, Py_ssize_t i, Py_ssize_t entries)
{
    return A == NULL ? NULL : (char *)A + (size_t)(i * entries) * leaf->entry;
}

void raise_leaf(const Leaf *leaf, double *q, void *room)
{
    const Py_ssize_t n = leaf->n, k = leaf->k, each = leaf->numbers / leaf->many;
    const double omega = leaf->horizontal ? 0.0 : leaf->omega;
    for (Py_ssize_t i = 0; has_columns(leaf) && i < leaf->many; i++) {
        double *w = q + i * each, scale = leaf->scales == NULL ? 1.0 : leaf->scales[i * leaf->stride];
        const void *D = part(leaf, leaf->D, i, k * k);
        raise_matrix(leaf->entry, n, k, part(leaf, leaf->X, i, n * k), w, D, omega, room);
        for (Py_ssize_t j = 0; scale != 1.0 && j < each; j++)
            w[j] *= scale;
    }
    for (Py_ssize_t i = 0; leaf->kind == UNITS && i < n; i++) {
        const double *x = (const double *)leaf->X + i * k;
        double along = -d_dot(k, x, q + i * k);
        for (Py_ssize_t j = 0; j < k; j++)
            q[i * k + j] += along * x[j];
    }
    Py_ssize_t upper = leaf->kind == FRAMED ? k * k * (Py_ssize_t)(leaf->entry / 8) : 0;
    for (Py_ssize_t i = 0; i < upper; i++)
        q[i] *= omega;
    for (Py_ssize_t i = 0; leaf->kind == TURNS && i < leaf->numbers; i++)
        q[i] *= 2.0;
    for (Py_ssize_t i = 0; leaf->scale != 1.0 && i < leaf->numbers; i++)
        q[i] *= leaf->scale;
}

/* The rays of a leaf along T, of a stack with the fastest of them. */
static void prepare_leaf(Leaf *leaf, const void *T, void *room)
{
    const Py_ssize_t nk = leaf->n * leaf->k, kk = 4 * leaf->k * leaf->k;
    double out[3], *sums = leaf->small;
    for (Py_ssize_t i = 0; i < leaf->many; i++) {
        void *frame[4];
        for (int j = 0; j < 4; j++)
            frame[j] = part(leaf, leaf->frame[j], i, kk);
        prepare_matrix(leaf->entry, leaf->n, leaf->k, part(leaf, leaf->X, i, nk), part(leaf, T, i, nk),
                       leaf->theta, frame, out, room);
        sums[0] += out[0], sums[2] += out[2];
        sums[1] = out[1] > sums[1] || isnan(out[1]) ? out[1] : sums[1]; /* the fastest */
    }
}

void set_out(Arrays *a, PyObject *T, Leaf *leaves, Py_ssize_t count, const double *q, void *room)
{
    for (Py_ssize_t i = 0; i < count && !a->failed; q += leaves[i++].numbers) {
        Py_ssize_t bytes = leaves[i].numbers * (Py_ssize_t)sizeof(double);
        void *out = leaf_memory(a, leaf_item(a, T, i, count), bytes, WRITE);
        if (out != NULL)
            memcpy(out, q, (size_t)bytes);
        if (out != NULL && leaves[i].frame[0] != NULL)
            prepare_leaf(leaves + i, out, room);
    }
}

PyObject *slopes_of(Py_ssize_t count, const Leaf *leaves, const double *g, const double *q)
{
    PyObject *slopes = PyTuple_New(count);
    for (Py_ssize_t i = 0; slopes != NULL && i < count; i++) {
        PyTuple_SetItem(slopes, i, PyFloat_FromDouble(d_dot(leaves[i].numbers, g, q)));
        g += leaves[i].numbers, q += leaves[i].numbers;
    }
    return slopes;
}

PyObject *small_of(Py_ssize_t count, const Leaf *leaves)
{
    PyObject *small = PyTuple_New(count);
    for (Py_ssize_t i = 0; small != NULL && i < count; i++) {
        const double *s = leaves[i].small;
        PyTuple_SetItem(small, i, leaves[i].frame[0] == NULL ? Py_NewRef(Py_None)
                                                             : Py_BuildValue("ddd", s[0], s[1], s[2]));
    }
    return small;
}

void aim_leaves(Arrays *a, const Ring *r, double gamma, Leaf *leaves, Py_ssize_t count, PyObject *T,
                double *g)
{
    double *q = g + r->N, *room = q + r->N, *weights = room + 2 * r->m, *at = q;
    first_of_two_loops(r->m, r->N, r->S, r->Y, r->inverse, g, q, weights, room);
    for (Py_ssize_t i = 0; i < count; at += leaves[i++].numbers)
        raise_leaf(leaves + i, at, room + 3 * r->m);
    second_of_two_loops(r->m, r->N, r->S, r->Y, r->inverse, r->diagonal, gamma, weights, q, room);
    set_out(a, T, leaves, count, q, room + 3 * r->m);
}
