/* Eigenvalues of small symmetric matrices, one in each lane.
 *
 * The reflections and QL steps of eigen.inc.  All lanes take the steps of the slowest one: a lane
 * that has converged turns by nothing.  Matrices do not fall apart here: a subdiagonal of zero in
 * between is walked through.
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
    V r = 1.0 / x;
    for (int l = 0; l < LANES; l++)
        LANE(r, l) = LANE(x, l) != 0.0 ? LANE(r, l) : otherwise;
    return r;
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

/* Which lanes still have something beside the diagonal: 1 or 0. */
INLINE V unfinished(const V *d, const V *e, int *any)
{
    V left = same(0.0);
    *any = 0;
    for (int l = 0; l < LANES; l++) {
        double least = DBL_EPSILON * (fabs(LANE(d[0], l)) + fabs(LANE(d[1], l)));
        LANE(left, l) = fabs(LANE(e[0], l)) > least ? 1.0 : 0.0;
        *any |= fabs(LANE(e[0], l)) > least;
    }
    return left;
}

/* b where the lane is still at work, else a. */
INLINE V moved(V at_work, V a, V b)
{
    for (int l = 0; l < LANES; l++)
        LANE(a, l) = LANE(at_work, l) != 0.0 ? LANE(b, l) : LANE(a, l);
    return a;
}

/* Eigenvalues in place of d, and the rows of M turned with them. */
INLINE void diagonalised(Py_ssize_t size, V *d, V *e, V *M)
{
    const V one = same(1.0), none = same(0.0);
    for (Py_ssize_t first = 0; first + 1 < size; first++)
        for (int turn = 0, any; turn < MOST_QL_STEPS; turn++) {
            V at_work = unfinished(d + first, e + first, &any);
            if (!any)
                break;
            V half = (d[first + 1] - d[first]) * reciprocal(2.0 * e[first], 0.0);
            V shift = e[first] / (half + signed_like(root(half * half + 1.0), half));
            V g = d[size - 1] - d[first] + shift, s = one, c = one, gone = none;
            for (Py_ssize_t i = size - 2; i >= first; i--) {
                V f = s * e[i], b = c * e[i], r = root(f * f + g * g), inverse = reciprocal(r, 0.0);
                s = f * inverse, c = g * inverse;
                for (int l = 0; l < LANES; l++)
                    LANE(c, l) = LANE(r, l) != 0.0 ? LANE(c, l) : 1.0;
                V rest = d[i + 1] - gone, twice = (d[i] - rest) * s + 2.0 * c * b;
                gone = s * twice;
                g = c * twice - b;
                e[i + 1] = moved(at_work, e[i + 1], r);
                d[i + 1] = moved(at_work, d[i + 1], rest + gone);
                V turn_c = moved(at_work, one, c), turn_s = moved(at_work, none, s);
                V *low = M + i * size, *high = low + size;
                for (Py_ssize_t j = 0; j < size; j++) {
                    V x = low[j], y = high[j];
                    low[j] = turn_c * x - turn_s * y;
                    high[j] = turn_s * x + turn_c * y;
                }
            }
            d[first] = moved(at_work, d[first], d[first] - gone);
            e[first] = moved(at_work, e[first], g);
            e[size - 1] = none;
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
