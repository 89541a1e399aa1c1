/* Kernels for many small matrices at once: arguments in, the formulas of batch.inc, nothing out.
 *
 * Arrays have the problems last, but for what the user gives and sees, (B, n, k).  The number of
 * columns is one of those for which batch.inc is included; loops over them are unrolled.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2") /* more would unroll what is unrolled, for half a minute */
#endif

#include "batch.h"

#include <math.h>

#include "batch_arguments.h"
#include "batch_pairs.inc"

/* [0] before, [1] at the trial, [2] after; W has no trial. */
typedef struct {
    const unsigned char *arrived;
    double *X[3], *G[3], *rotation[3], *W[2], *slope, *square;
    const double *unit, *D, *omega, *theta, *gamma;
    double length;
} Arrival;

INLINE void newer(Part p, ptrdiff_t rows, int hits, Mask mask, const double *a, const double *b,
                  V *to)
{
    load(p, rows, hits ? a : b, to);
    for (ptrdiff_t i = 0; i < rows && hits && hits < p.count; i++)
        to[i] = where(mask, to[i], number_of(p, b + i * p.all));
}

#define JOIN(name, k) name##_##k
#define NAME(name, k) JOIN(name, k)
#define FN(name) NAME(name, K)
#define K 1
#include "batch.inc"
#undef K
#define K 2
#include "batch.inc"
#undef K
#define K 3
#include "batch.inc"
#undef K
#define K 4
#include "batch.inc"
#undef K

/* `function` of every part of the batch, for the k of its matrices. */
#define ONE_WIDTH(k, function, ...)                                                               \
    case k:                                                                                       \
        for (Py_ssize_t b = 0; b < B; b += LANES)                                                 \
            function##_##k(part_at(B, b), __VA_ARGS__);                                           \
        break;
#define FOR_WIDTH(k, function, ...)                                                               \
    Py_BEGIN_ALLOW_THREADS switch (k)                                                             \
    {                                                                                             \
        ONE_WIDTH(1, function, __VA_ARGS__)                                                       \
        ONE_WIDTH(2, function, __VA_ARGS__)                                                       \
        ONE_WIDTH(3, function, __VA_ARGS__)                                                       \
        ONE_WIDTH(4, function, __VA_ARGS__)                                                       \
    }                                                                                             \
    Py_END_ALLOW_THREADS

enum { WIDEST = 4 };

static double *batch_like(Arrays *a, PyObject *object, Py_ssize_t *n, Py_ssize_t *k, Py_ssize_t *B)
{
    Py_ssize_t shape[3] = {0, 0, 0};
    size_t entry = sizeof(double);
    double *X = shaped_array(a, object, 3, shape, &entry);
    *n = shape[0], *k = shape[1], *B = shape[2];
    if (X != NULL && (entry != sizeof(double) || *k < 1 || *k > WIDEST))
        refuse(a, "expected double precision and one to four columns");
    return X;
}

/* lower(X, E, scale, span, G, squares, rotation) */
PyObject *batch_lower(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k, B;
    if (!counted(count, 7))
        return NULL;
    const double *X = batch_like(&a, args[0], &n, &k, &B);
    const double *E = doubles(&a, args[1], n * k * B, READ);
    const double *scale = doubles(&a, args[2], B, READ);
    int span = (int)integer(&a, args[3]);
    double *G = doubles(&a, args[4], n * k * B, WRITE);
    double *squares = doubles(&a, args[5], B, WRITE);
    double *rotation = doubles(&a, args[6], k * k * B, WRITE);
    V *room = vectors(&a, 2 * n * k);
    if (a.failed)
        return finish(&a, NULL);
    FOR_WIDTH(k, lower_part, n, span, X, E, scale, G, squares, rotation, room)
    return finish(&a, Py_NewRef(Py_None));
}

/* trial(x, W, t, fresh, X, gram, N, σ, shown) */
PyObject *batch_trial(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k, B;
    if (!counted(count, 9))
        return NULL;
    const double *x = batch_like(&a, args[0], &n, &k, &B);
    const double *W = doubles(&a, args[1], n * k * B, READ);
    const double *t = doubles(&a, args[2], B, READ);
    const unsigned char *fresh = flags(&a, args[3], B, READ);
    double *X = doubles(&a, args[4], n * k * B, WRITE);
    double *gram = doubles(&a, args[5], 4 * k * k * B, WRITE);
    double *N = doubles(&a, args[6], 4 * k * k * B, WRITE);
    double *sigma = doubles(&a, args[7], B, WRITE);
    double *shown = doubles(&a, args[8], n * k * B, WRITE);
    V *room = vectors(&a, 3 * n * k);
    if (a.failed)
        return finish(&a, NULL);
    FOR_WIDTH(k, trial_part, n, x, W, t, fresh, X, gram, N, sigma, shown, room)
    return finish(&a, Py_NewRef(Py_None));
}

/* pair(x, W, t, σ, gram, N, G, rotation, G⁺, rotation⁺, s, y, B, yᵀy, SᵀS, TᵀT, numbers) */
PyObject *batch_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k, B;
    if (!counted(count, 17))
        return NULL;
    const double *x = batch_like(&a, args[0], &n, &k, &B), *in[9];
    double *out[7];
    Py_ssize_t tall = n * k * B, small = k * k * B;
    Py_ssize_t given[] = {tall, B, B, 4 * small, 4 * small, tall, small, tall, small};
    Py_ssize_t made[] = {tall, tall, small, small, small, small, 5 * B};
    for (int i = 0; i < 9; i++)
        in[i] = doubles(&a, args[1 + i], given[i], READ);
    for (int i = 0; i < 7; i++)
        out[i] = doubles(&a, args[10 + i], made[i], WRITE);
    V *room = vectors(&a, 5 * n * k);
    if (a.failed)
        return finish(&a, NULL);
    FOR_WIDTH(k, pair_part, n, x, in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8],
              out[0], out[1], out[2], out[3], out[4], out[5], out[6], room)
    return finish(&a, Py_NewRef(Py_None));
}

static Pairs pairs_of(Arrays *a, PyObject *const *args, Py_ssize_t size, Py_ssize_t B)
{
    Py_ssize_t shape[2] = {0, 0};
    size_t entry = sizeof(double);
    Pairs pairs = {.diagonal = shaped_array(a, args[3], 2, shape, &entry)};
    Py_ssize_t m = shape[0];
    if (pairs.diagonal != NULL && (entry != sizeof(double) || shape[1] != B || m > MOST_PAIRS))
        refuse(a, "expected at most 64 pairs of as many problems");
    pairs.m = (int)m;
    pairs.S = array(a, args[0], m * size * B, sizeof(float), WRITE);
    pairs.Y = array(a, args[1], m * size * B, sizeof(float), WRITE);
    pairs.inverse = doubles(a, args[2], m * m * B, WRITE);
    return pairs;
}

/* remember(S, Y, inverse, diagonal, row, s, y, unit, ⟨s, y⟩, keep) */
PyObject *batch_remember(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k, B;
    if (!counted(count, 10))
        return NULL;
    const double *s = batch_like(&a, args[5], &n, &k, &B);
    Pairs pairs = pairs_of(&a, args, n * k, B);
    long row = integer(&a, args[4]);
    const double *y = doubles(&a, args[6], n * k * B, READ);
    const double *unit = doubles(&a, args[7], B, READ), *sy = doubles(&a, args[8], B, READ);
    const unsigned char *keep = flags(&a, args[9], B, READ);
    V *room = vectors(&a, n * k);
    if (!a.failed && (row < 0 || row >= pairs.m))
        refuse(&a, "there is no such row");
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS for (Py_ssize_t b = 0; b < B; b += LANES)
        remember_part(part_at(B, b), n * k, &pairs, (int)row, s, y, unit, sy, keep, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* arrive(S, Y, inverse, diagonal, arrived, x, X, x', G, G⁺, G', rotation, rotation⁺, rotation',
 *        W, W', slope, square, unit, D or None, ω, θ, γ, length) */
PyObject *batch_arrive(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k, B;
    if (!counted(count, 24))
        return NULL;
    Arrival all = {.X = {batch_like(&a, args[5], &n, &k, &B)}};
    Pairs pairs = pairs_of(&a, args, n * k, B);
    Py_ssize_t tall = n * k * B, small = k * k * B;
    all.arrived = flags(&a, args[4], B, READ);
    for (int i = 1; i < 3; i++)
        all.X[i] = doubles(&a, args[5 + i], tall, i == 2 ? WRITE : READ);
    for (int i = 0; i < 3; i++) {
        all.G[i] = doubles(&a, args[8 + i], tall, i == 2 ? WRITE : READ);
        all.rotation[i] = doubles(&a, args[11 + i], small, i == 2 ? WRITE : READ);
    }
    for (int i = 0; i < 2; i++)
        all.W[i] = doubles(&a, args[14 + i], tall, i ? WRITE : READ);
    all.slope = doubles(&a, args[16], B, WRITE), all.square = doubles(&a, args[17], B, WRITE);
    all.unit = doubles(&a, args[18], B, READ);
    all.D = optional_array(&a, args[19], small, sizeof(double));
    all.omega = doubles(&a, args[20], B, READ), all.theta = doubles(&a, args[21], B, READ);
    all.gamma = doubles(&a, args[22], B, READ);
    all.length = number(&a, args[23]);
    V *room = vectors(&a, 5 * n * k);
    if (a.failed)
        return finish(&a, NULL);
    FOR_WIDTH(k, arrive_part, n, &all, &pairs, room)
    return finish(&a, Py_NewRef(Py_None));
}
