/* Kernels of `solvers.row_recognition`: arguments in, the formulas of rows_recognition.inc, numbers out. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "eigen.h"
#include "entries.h"
#include "matrices.h"
#include "rows.h"

enum { WEIGHTS = 3 }; /* pairs at most, for each two of them a weight */

/* A step between two points of size n×k, and m older pairs; and what is filled. */
typedef struct {
    Py_ssize_t n, k, m;
    const void *X0, *G0, *level0, *X, *G, *level, *rotation, *older_S, *older_Y;
    double eps;
    void *S, *Y, *small, *older, *newer;
} StepLook;

#include "real_entries.inc"
#include "rooms.inc"
#include "rows_recognition.inc"

#include "complex_entries.inc"
#include "rooms.inc"
#include "rows_recognition.inc"

/* rows_look(X₀, G₀, level₀, X, G, level, rotation, older S, older Y, eps, S, Y, [SᴴS, SᴴY, XᴴY, SᴴE,
 * XᴴE], S_jᴴY, SᴴY_j) -> relative rounding, or −1 if there is no step */
PyObject *rows_look(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t shape[3] = {0, 0, 0};
    StepLook s = {0};
    size_t e = 0, other = 0;
    double error = 0.0;
    if (!counted(count, 15))
        return NULL;
    s.X0 = point_like(&a, args[0], &s.n, &s.k, &e);
    Py_ssize_t tall = s.n * s.k, square = s.k * s.k;
    s.older_S = shaped_array(&a, args[7], 3, shape, &other);
    if (!a.failed && (shape[1] != s.n || shape[2] != s.k || other != e))
        refuse(&a, "older pairs are not like this one");
    s.m = shape[0];
    s.older_Y = array(&a, args[8], s.m * tall, e, READ);
    s.G0 = array(&a, args[1], tall, e, READ), s.level0 = array(&a, args[2], square, e, READ);
    s.X = array(&a, args[3], tall, e, READ), s.G = array(&a, args[4], tall, e, READ);
    s.level = array(&a, args[5], square, e, READ), s.rotation = array(&a, args[6], square, e, READ);
    s.eps = number(&a, args[9]);
    s.S = array(&a, args[10], tall, e, WRITE), s.Y = array(&a, args[11], tall, e, WRITE);
    s.small = array(&a, args[12], 5 * square, e, WRITE);
    s.older = array(&a, args[13], s.m * square, e, WRITE);
    s.newer = array(&a, args[14], s.m * square, e, WRITE);
    void *room = workspace(&a, e * (size_t)(3 * tall + square));
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, error = d_look(&s, room), error = z_look(&s, room))
    return finish(&a, PyFloat_FromDouble(error));
}

/* rows_symmetrising(K, weights, rounds, hopeless, D) -> whether there is one */
PyObject *rows_symmetrising(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t rows = 0, width = 0, shape[2] = {0, 0};
    size_t e = 0, other = 0;
    int found = 0;
    if (!counted(count, 5))
        return NULL;
    const void *K = point_like(&a, args[0], &rows, &width, &e);
    const double *weights = array(&a, args[1], WEIGHTS * WEIGHTS, sizeof(double), READ);
    long rounds = integer(&a, args[2]);
    double hopeless = number(&a, args[3]);
    void *D = writable_array(&a, args[4], 2, shape, &other);
    Py_ssize_t k = shape[0];
    if (!a.failed && (k < 1 || shape[1] != k || other != e || rows != width || width < k ||
                      width % k || width / k > WEIGHTS || rounds < 0 || rounds > 100))
        refuse(&a, "expected blocks of products in a square matrix, three by three at most");
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, found = d_symmetrising(k, width / k, K, weights, (int)rounds, hopeless, D),
                found = z_symmetrising(k, width / k, K, weights, (int)rounds, hopeless, D))
    if (found < 0) {
        PyErr_NoMemory();
        a.failed = 1;
    }
    return finish(&a, a.failed ? NULL : PyBool_FromLong(found));
}
