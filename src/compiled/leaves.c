/* The direction, the pairs and the scales of a small tree in one call each: a call for every leaf costs
 * more than what it computes.  What a leaf is stands in leaf.h.
 */
#include "leaves.h"

#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "leaf.h"
#include "metric.h"
#include "pairs.h"
#include "stack_pairs.h"

/* leaves_aim(S, Y, R⁻¹, diagonal, γ, G, T, X, metrics, kinds, frames) -> the slopes ⟨G, T⟩ of the
 * leaves, and what `prepare_tangent` returns for matrices: T = −H G by both loops with φ(q) of every
 * leaf between them, times its scale */
PyObject *leaves_aim(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t leaves = 0;
    if (!counted(count, 11))
        return NULL;
    Ring r = ring_of(&a, args, READ);
    double gamma = number(&a, args[4]);
    Leaf *all = leaves_of(&a, args + 6, r.N, &leaves);
    double *g = a.failed ? NULL : PyMem_Malloc(sizeof(double) * (size_t)(2 * r.N + 3 * r.m)
                                               + room_of_leaves(all, leaves));
    if (g == NULL)
        refuse(&a, "there is no memory for a direction");
    else
        gather_leaves(&a, args[5], r.N, g);
    if (!a.failed)
        aim_leaves(&a, &r, gamma, all, leaves, args[6], g);
    PyObject *result = NULL;
    if (!a.failed)
        result = Py_BuildValue("NN", slopes_of(leaves, all, g, g + r.N), small_of(leaves, all));
    PyMem_Free(g);
    return finish(&a, result);
}

/* stack_aim_apart(S, Y, ⟨s, y⟩ of rows and matrices, rows, γ of matrices, γ, G, T, X, metrics, kinds,
 * frames, longest) -> as `leaves_aim`: the same of a tree whose one leaf is a stack, with a recursion for
 * each of its matrices, none of which moves by more than `longest` */
PyObject *stack_aim_apart(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t leaves = 0, N = 0, B;
    if (!counted(count, 13))
        return NULL;
    PyObject *G = leaf_item(&a, args[6], 0, 1);
    Py_buffer view;
    if (!a.failed && PyObject_GetBuffer(G, &view, PyBUF_STRIDES) == 0) {
        N = view.len / (Py_ssize_t)sizeof(double);
        PyBuffer_Release(&view);
    } else
        a.failed = 1;
    Stack s = stack_of(&a, args[0], args[1], args[2], args[3], N);
    B = s.B;
    const double *gammas = real_numbers(&a, args[4], &B, READ);
    double gamma = number(&a, args[5]), longest = number(&a, args[12]);
    Leaf *all = leaves_of(&a, args + 7, N, &leaves);
    if (!a.failed && all->many != s.B)
        refuse(&a, "expected as many matrices as curvatures");
    double *g = a.failed ? NULL : PyMem_Malloc(sizeof(double) * (size_t)(2 * N + s.count * s.B)
                                               + room_of_leaves(all, leaves));
    if (g == NULL)
        refuse(&a, "there is no memory for a direction");
    else
        gather_leaves(&a, args[6], N, g);
    PyObject *result = NULL;
    if (!a.failed) {
        double *q = g + N, *weights = q + N, *room = weights + s.count * s.B;
        memcpy(q, g, sizeof(double) * (size_t)N);
        without_pairs(&s, q, weights);
        raise_leaf(all, q, room);
        with_pairs(&s, q, weights, gammas, gamma, 1.0, longest);
        set_out(&a, args[7], all, leaves, q, room);
    }
    if (!a.failed)
        result = Py_BuildValue("NN", slopes_of(leaves, all, g, g + N), small_of(leaves, all));
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
    gather_leaves(&a, args[4], N, S + row * N);
    gather_leaves(&a, args[5], N, Y + row * N);
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
        yy[i] = number(&a, leaf_item(&a, args[1], i, size));
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
        gather_leaves(&a, args[2], size, N);
        gather_leaves(&a, args[3], size, W);
    }
    if (!a.failed)
        weigh(size, ss, yy, N, W, unit, memory, least, scales);
    return finish(&a, PyFloat_FromDouble(unit));
}
