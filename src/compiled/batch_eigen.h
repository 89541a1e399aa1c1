/* Eigenvalues of small symmetric matrices, one in each lane.
 *
 * The reflections and QL steps of eigen.inc.  All lanes take the steps of the slowest one: a lane
 * that has converged turns by nothing, and so does each beyond the place where its matrix ends.
 */
#ifndef STIEFEL_BATCH_EIGEN_H
#define STIEFEL_BATCH_EIGEN_H

#include <float.h>
#include <math.h>

#include "batch_lanes.h"

enum { MOST_QL_STEPS = 40 };

INLINE V root(V v)
{
    double a[LANES];
    memcpy(a, &v, sizeof v);
    for (int l = 0; l < LANES; l++)
        a[l] = sqrt(a[l]);
    memcpy(&v, a, sizeof v);
    return v;
}

/* x with the sign of y. */
INLINE V signed_like(V x, V y)
{
    for (int l = 0; l < LANES; l++)
        LANE(x, l) = copysign(LANE(x, l), LANE(y, l));
    return x;
}

/* 1/x, or `otherwise` for zero. */
INLINE V reciprocal(V x, double otherwise)
{
    return where(x != same(0.0), 1.0 / x, same(otherwise));
}

/* A becomes Qᵀ, row by row; d and e are the diagonals of QᵀAQ.  Room for size²/2 + 2 size. */
INLINE void tridiagonal(Py_ssize_t size, V *A, V *d, V *e, V *room)
{
    V *taus = room, *u = taus + size, *v = u + size;
    for (Py_ssize_t j = 0; j + 1 < size; j++) {
        Py_ssize_t n = size - j - 1;
        V *B = A + (j + 1) * size + j + 1, square = same(0.0), along = same(0.0);
        for (Py_ssize_t i = 0; i < n; i++) {
            v[i] = A[(j + 1 + i) * size + j];
            square += v[i] * v[i];
        }
        V length = root(square), signed_length = signed_like(length, v[0]);
        V tau = reciprocal(square + signed_length * v[0], 0.0);
        taus[j] = tau;
        e[j] = -signed_length;
        d[j] = A[j * size + j];
        v[0] += signed_length;
        for (Py_ssize_t i = 0; i < n; i++)
            u[i] = same(0.0);
        for (Py_ssize_t c = 0; c < n; c++) {
            V factor = tau * v[c];
            for (Py_ssize_t i = 0; i < n; i++)
                u[i] += factor * B[c * size + i];
        }
        for (Py_ssize_t i = 0; i < n; i++)
            along += v[i] * u[i];
        along *= 0.5 * tau;
        for (Py_ssize_t i = 0; i < n; i++)
            u[i] -= along * v[i];
        for (Py_ssize_t r = 0; r < n; r++)
            for (Py_ssize_t c = 0; c < n; c++)
                B[r * size + c] -= v[r] * u[c] + u[r] * v[c];
        v += n;
    }
    d[size - 1] = A[size * size - 1];
    e[size - 1] = same(0.0);
    for (Py_ssize_t i = 0; i < size * size; i++)
        A[i] = same(i % (size + 1) ? 0.0 : 1.0);
    for (Py_ssize_t j = size - 2; j >= 0; j--) {
        Py_ssize_t n = size - j - 1;
        v -= n;
        for (Py_ssize_t r = j + 1; r < size; r++) {
            V *row = A + r * size + j + 1, sum = same(0.0);
            for (Py_ssize_t c = 0; c < n; c++)
                sum += row[c] * v[c];
            sum *= taus[j];
            for (Py_ssize_t c = 0; c < n; c++)
                row[c] -= sum * v[c];
        }
    }
}

INLINE V magnitude(V x)
{
    for (int l = 0; l < LANES; l++)
        LANE(x, l) = fabs(LANE(x, l));
    return x;
}

/* Where the matrix that begins at `first` falls apart: the place of the last of its values. */
INLINE V last_of(Py_ssize_t size, Py_ssize_t first, const V *d, const V *e, V rounding)
{
    V last = same((double)(size - 1));
    for (Py_ssize_t i = size - 2; i >= first; i--) {
        V least = rounding + DBL_EPSILON * (magnitude(d[i]) + magnitude(d[i + 1]));
        last = where(magnitude(e[i]) > least, last, same((double)i));
    }
    return last;
}

/* Eigenvalues in place of d, and the rows of M turned with them. */
INLINE void diagonalised(Py_ssize_t size, V *d, V *e, V *M)
{
    const V one = same(1.0), none = same(0.0);
    V rounding = none; /* beside values that are zero to rounding nothing is small */
    for (Py_ssize_t i = 0; i < size; i++)
        rounding += magnitude(d[i]) + magnitude(e[i]);
    rounding *= 0.1 * DBL_EPSILON / (double)size;
    for (Py_ssize_t first = 0; first + 1 < size; first++)
        for (int turn = 0; turn < MOST_QL_STEPS; turn++) {
            V last = last_of(size, first, d, e, rounding), start = same((double)first);
            if (!some(last > start))
                break;
            V half = (d[first + 1] - d[first]) * reciprocal(2.0 * e[first], 0.0);
            V shift = e[first] / (half + signed_like(root(half * half + 1.0), half));
            V g = none, s = one, c = one, gone = none;
            for (Py_ssize_t i = size - 2; i >= first; i--) {
                Mask at_work = last > same((double)i), begins = last == same((double)(i + 1));
                g = where(begins, d[i + 1] - d[first] + shift, g);
                V f = s * e[i], b = c * e[i], r = root(f * f + g * g), inverse = reciprocal(r, 0.0);
                V turn_s = f * inverse, turn_c = where(r != none, g * inverse, one);
                V rest = d[i + 1] - gone, twice = (d[i] - rest) * turn_s + 2.0 * turn_c * b;
                s = where(at_work, turn_s, one), c = where(at_work, turn_c, one);
                gone = where(at_work, turn_s * twice, none);
                g = c * twice - b;
                e[i + 1] = where(at_work, where(begins, none, r), e[i + 1]);
                d[i + 1] = where(at_work, rest + gone, d[i + 1]);
                turn_c = where(at_work, c, one), turn_s = where(at_work, s, none);
                V *low = M + i * size, *high = low + size;
                for (Py_ssize_t j = 0; j < size; j++) {
                    V x = low[j], y = high[j];
                    low[j] = turn_c * x - turn_s * y;
                    high[j] = turn_s * x + turn_c * y;
                }
            }
            d[first] = where(last > start, d[first] - gone, d[first]);
            e[first] = where(last > start, g, e[first]);
        }
}

/* Eigenvalues of the symmetric A on its diagonal, eigenvectors in the rows of `vectors`; room for
 * size²/2 + 4 size. */
INLINE void eigenpairs(Py_ssize_t size, V *A, V *vectors, V *room)
{
    V *d = room, *e = d + size;
    memcpy(vectors, A, sizeof(V) * (size_t)(size * size));
    tridiagonal(size, vectors, d, e, e + size);
    diagonalised(size, d, e, vectors);
    for (Py_ssize_t i = 0; i < size; i++)
        A[i * size + i] = d[i];
}

#endif
