/* Functions tr(XᵀAXM) of many problems: `stiefel.batched.quadratic.recognised`. */
#include "batch.h"

#include <float.h>
#include <math.h>

#include "batch_arguments.h"
#include "batch_eigen.h"

enum { WIDEST = 4, MOST_UNKNOWNS = WIDEST * (WIDEST + 1) / 2, POLAR_STEPS = 20 };

typedef struct {
    Py_ssize_t n, k, points;
    double gate, equal;
} Shape;

/* The coefficients of D's entries i ≤ j in (K_pq D − D K_qpᵀ)_ad. */
INLINE void equation(Shape w, const V *K, Py_ssize_t p, Py_ssize_t q, Py_ssize_t a, Py_ssize_t d,
                     V *row)
{
    Py_ssize_t k = w.k, m = w.points * k, r = 0;
    const V *left = K + (p * k + a) * m + q * k, *right = K + (q * k + d) * m + p * k;
    for (Py_ssize_t i = 0; i < k; i++)
        for (Py_ssize_t j = i; j < k; j++, r++) {
            row[r] = same(0.0);
            if (d == j)
                row[r] += left[i];
            if (d == i && i != j)
                row[r] += left[j];
            if (a == i)
                row[r] -= right[j];
            if (a == j && i != j)
                row[r] -= right[i];
        }
}

/* `symmetrising_columns`: D, all K_pq D in K, and their asymmetric part; room for 3 unknowns² and
 * 4 unknowns. */
INLINE V symmetrising(Shape w, const V *X, const V *E, V *D, V *K, V *room)
{
    Py_ssize_t n = w.n, k = w.k, m = w.points * k, unknowns = k * (k + 1) / 2;
    V *N = room, *vectors_of_N = N + unknowns * unknowns, row[MOST_UNKNOWNS], v[MOST_UNKNOWNS];
    for (Py_ssize_t p = 0; p < m; p++)
        for (Py_ssize_t q = 0; q < m; q++) {
            const V *x = X + p / k * n * k + p % k, *e = E + q / k * n * k + q % k;
            V sum = same(0.0);
            for (Py_ssize_t i = 0; i < n * k; i += k)
                sum += x[i] * e[i];
            K[p * m + q] = sum;
        }
    for (Py_ssize_t i = 0; i < unknowns * unknowns; i++)
        N[i] = same(0.0);
    for (Py_ssize_t p = 0; p < w.points; p++)
        for (Py_ssize_t q = p; q < w.points; q++)
            for (Py_ssize_t a = 0; a < k; a++)
                for (Py_ssize_t d = p == q ? a + 1 : 0; d < k; d++) {
                    equation(w, K, p, q, a, d, row);
                    for (Py_ssize_t i = 0; i < unknowns; i++)
                        for (Py_ssize_t j = i; j < unknowns; j++)
                            N[i * unknowns + j] += row[i] * row[j];
                }
    for (Py_ssize_t i = 0; i < unknowns; i++)
        for (Py_ssize_t j = 0; j < i; j++)
            N[i * unknowns + j] = N[j * unknowns + i];
    eigenpairs(unknowns, N, vectors_of_N, vectors_of_N + unknowns * unknowns);
    V least = N[0];
    for (Py_ssize_t i = 0; i < unknowns; i++) {
        Mask less = N[i * (unknowns + 1)] <= least;
        least = where(less, N[i * (unknowns + 1)], least);
        for (Py_ssize_t j = 0; j < unknowns; j++)
            v[j] = where(less, vectors_of_N[i * unknowns + j], i ? v[j] : same(0.0));
    }
    for (Py_ssize_t i = 0, r = 0; i < k; i++)
        for (Py_ssize_t j = i; j < k; j++, r++)
            D[i * k + j] = D[j * k + i] = v[r];
    for (Py_ssize_t p = 0; p < m * m; p += k) {
        V of_K[WIDEST];
        for (Py_ssize_t c = 0; c < k; c++)
            of_K[c] = K[p + c];
        for (Py_ssize_t d = 0; d < k; d++) {
            K[p + d] = of_K[0] * D[d];
            for (Py_ssize_t c = 1; c < k; c++)
                K[p + d] += of_K[c] * D[c * k + d];
        }
    }
    V size = same(0.0), skew = same(0.0);
    for (Py_ssize_t p = 0; p < m; p++)
        for (Py_ssize_t q = 0; q < m; q++) {
            V difference = K[p * m + q] - K[q * m + p];
            size += K[p * m + q] * K[p * m + q], skew += difference * difference;
        }
    return root(skew / size);
}

/* q ← q − τ v vᵀq, from row `first` on. */
INLINE void reflect(Py_ssize_t n, Py_ssize_t first, const V *v, V tau, V *q)
{
    V along = same(0.0);
    for (Py_ssize_t i = first; i < n; i++)
        along += v[i] * q[i];
    along *= tau;
    for (Py_ssize_t i = first; i < n; i++)
        q[i] -= along * v[i];
}

/* `completed`: the points, of which the first one is x; by the reflections that take the columns of
 * x to those of I.  Room for (k + 1) n. */
INLINE void complete(Shape w, V *points, V *room)
{
    Py_ssize_t n = w.n, k = w.k;
    V *q = room + k * n, taus[WIDEST];
    for (Py_ssize_t j = 0; j < k; j++) {
        V *v = room + j * n, square = same(0.0);
        for (Py_ssize_t i = 0; i < n; i++)
            v[i] = points[i * k + j];
        for (Py_ssize_t r = 0; r < j; r++)
            reflect(n, r, room + r * n, taus[r], v);
        for (Py_ssize_t i = j; i < n; i++)
            square += v[i] * v[i];
        V length = signed_like(root(square), v[j]);
        taus[j] = reciprocal(square + length * v[j], 0.0);
        v[j] += length;
    }
    for (Py_ssize_t c = k; c < w.points * k; c++) {
        V *to = points + c / k * n * k + c % k;
        for (Py_ssize_t i = 0; i < n; i++)
            q[i] = c < n ? same(i == c) : points[i * k + c - n];
        for (Py_ssize_t r = k - 1; r >= 0 && c < n; r--)
            reflect(n, r, room + r * n, taus[r], q);
        for (Py_ssize_t i = 0; i < n; i++)
            to[i * k] = q[i];
    }
}

/* m ← its orthogonal polar factor, by Newton's iteration; NaN where there is none.
 *
 * It is scaled by the norms of m and m⁻¹, and takes ten steps at most for any condition number.
 */
static void polar(int k, double *m)
{
    for (int step = 0; step < POLAR_STEPS; step++) {
        double M[WIDEST][2 * WIDEST], change = 0.0, size = 0.0, inverse_size = 0.0;
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++)
                M[i][j] = m[i * k + j], M[i][k + j] = i == j;
        for (int j = 0; j < k; j++) {
            int best = j;
            for (int i = j + 1; i < k; i++)
                if (fabs(M[i][j]) > fabs(M[best][j]))
                    best = i;
            for (int c = 0; c < 2 * k; c++) {
                double swapped = M[j][c];
                M[j][c] = M[best][c], M[best][c] = swapped;
            }
            double inverse = 1.0 / M[j][j];
            for (int c = 0; c < 2 * k; c++)
                M[j][c] *= inverse;
            for (int i = 0; i < k; i++) {
                double factor = M[i][j];
                for (int c = 0; c < 2 * k && i != j; c++)
                    M[i][c] -= factor * M[j][c];
            }
        }
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++) {
                size += m[i * k + j] * m[i * k + j];
                inverse_size += M[i][k + j] * M[i][k + j];
            }
        double scale = sqrt(sqrt(inverse_size / size));
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++) {
                double next = 0.5 * (scale * m[i * k + j] + M[j][k + i] / scale);
                change += fabs(next - m[i * k + j]);
                m[i * k + j] = next;
            }
        if (change <= 4.0 * DBL_EPSILON * k)
            return;
    }
    m[0] = NAN;
}

/* Y ← Y(3I − YᵀY)/2: rotations leave a defect of some rounding errors. */
INLINE void restore(Py_ssize_t n, Py_ssize_t k, V *Y)
{
    V S[WIDEST * WIDEST], row[WIDEST];
    for (Py_ssize_t a = 0; a < k; a++)
        for (Py_ssize_t c = 0; c < k; c++) {
            V sum = same(0.0);
            for (Py_ssize_t i = 0; i < n; i++)
                sum += Y[i * k + a] * Y[i * k + c];
            S[a * k + c] = (a == c ? 1.5 : 0.0) - 0.5 * sum;
        }
    for (Py_ssize_t i = 0; i < n; i++) {
        for (Py_ssize_t c = 0; c < k; c++)
            row[c] = Y[i * k + c];
        for (Py_ssize_t c = 0; c < k; c++) {
            Y[i * k + c] = row[0] * S[c];
            for (Py_ssize_t a = 1; a < k; a++)
                Y[i * k + c] += row[a] * S[a * k + c];
        }
    }
}

/* The places of `size` numbers, rising. */
static void sorted(Py_ssize_t size, const double *values, Py_ssize_t *place)
{
    for (Py_ssize_t i = 0; i < size; i++) {
        Py_ssize_t j = i;
        for (; j > 0 && values[place[j - 1]] > values[i]; j--)
            place[j] = place[j - 1];
        place[j] = i;
    }
}

/* What `least` needs, of one problem in each lane. */
typedef struct {
    V *vectors;                  /* of A in its basis, k rows of n */
    V Q[WIDEST * WIDEST];        /* of M, in rows */
    V together[WIDEST * WIDEST]; /* 1 where two values of M are equal */
    V gamma;                     /* 1/max curvature */
} Ends;

/* The eigenvectors of A that belong to those of M, of lane l. */
static void choose_ends(Shape w, int l, const V *H, const V *of_H, const V *D, const V *of_D,
                        double *values, Py_ssize_t *place, Ends *ends)
{
    Py_ssize_t n = w.n, k = w.k, of_M[WIDEST];
    double mu[WIDEST] = {0.0}, largest = 0.0;
    for (Py_ssize_t i = 0; i < n; i++)
        values[i] = LANE(H[i], l);
    sorted(n, values, place);
    for (Py_ssize_t i = 0; i < k; i++) {
        mu[i] = -1.0 / LANE(D[i * k + i], l);
        largest = fmax(largest, fabs(mu[i]));
    }
    sorted(k, mu, of_M);
    LANE(ends->gamma, l) = 1.0 / (largest * (values[place[n - 1]] - values[place[0]]));
    for (Py_ssize_t a = 0; a < k; a++) {
        Py_ssize_t own = place[mu[of_M[a]] < 0 ? a : n - k + a];
        for (Py_ssize_t i = 0; i < n; i++)
            LANE(ends->vectors[a * n + i], l) = LANE(of_H[own * n + i], l);
        for (Py_ssize_t c = 0; c < k; c++) {
            double apart = fabs(mu[of_M[a]] - mu[of_M[c]]);
            LANE(ends->Q[a * k + c], l) = LANE(of_D[of_M[a] * k + c], l);
            LANE(ends->together[a * k + c], l) = apart <= w.equal * largest;
        }
    }
}

/* The rotations nearest to m, where it is not diagonal; signs where it is. */
static void rotations(int k, V *m)
{
    for (int l = 0; l < LANES; l++) {
        double one[WIDEST * WIDEST];
        int diagonal = 1;
        for (int i = 0; i < k * k; i++) {
            one[i] = LANE(m[i], l);
            diagonal &= i % (k + 1) == 0 || one[i] == 0.0;
        }
        for (int i = 0; i < k && diagonal; i++)
            one[i * (k + 1)] = copysign(1.0, one[i * (k + 1)]);
        if (!diagonal)
            polar(k, one);
        for (int i = 0; i < k * k; i++)
            LANE(m[i], l) = one[i];
    }
}

/* `least`: V R Q, with the rotations R nearest to VᵀxQᵀ among values of M that are equal. */
INLINE void least(Shape w, const Ends *ends, const V *X, V *vectors, V *Y)
{
    Py_ssize_t n = w.n, k = w.k;
    V m[WIDEST * WIDEST];
    for (Py_ssize_t a = 0; a < k; a++)
        for (Py_ssize_t i = 0; i < n; i++) {
            V sum = same(0.0);
            for (Py_ssize_t p = 0; p < n; p++)
                sum += X[(p / k * n + i) * k + p % k] * ends->vectors[a * n + p];
            vectors[a * n + i] = sum;
        }
    for (Py_ssize_t a = 0; a < k; a++)
        for (Py_ssize_t c = 0; c < k; c++) {
            V sum = same(0.0);
            for (Py_ssize_t i = 0; i < n; i++)
                for (Py_ssize_t j = 0; j < k; j++)
                    sum += vectors[a * n + i] * X[i * k + j] * ends->Q[c * k + j];
            m[a * k + c] = where(ends->together[a * k + c] != same(0.0), sum, same(0.0));
        }
    rotations((int)k, m);
    for (Py_ssize_t a = 0; a < k; a++) {
        V row[WIDEST];
        for (Py_ssize_t c = 0; c < k; c++)
            row[c] = m[a * k + c];
        for (Py_ssize_t j = 0; j < k; j++) {
            m[a * k + j] = row[0] * ends->Q[j];
            for (Py_ssize_t c = 1; c < k; c++)
                m[a * k + j] += row[c] * ends->Q[c * k + j];
        }
    }
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t j = 0; j < k; j++) {
            V sum = same(0.0);
            for (Py_ssize_t a = 0; a < k; a++)
                sum += vectors[a * n + i] * m[a * k + j];
            Y[i * k + j] = sum;
        }
    restore(n, k, Y);
}

/* `recognised`; room for 2mn + m² + 2n², and for the eigenpairs, with m columns of points. */
FOR_PROCESSORS static void recognise_part(Part p, Shape w, const double *Xs, const double *Es,
                                          double *Ys, double *gammas, unsigned char *known, V *room)
{
    Py_ssize_t n = w.n, k = w.k, m = w.points * k;
    V *X = room, *E = X + m * n, *K = E + m * n, *H = K + m * m, *of_H = H + n * n;
    V *rest = of_H + n * n, D[WIDEST * WIDEST], of_D[WIDEST * WIDEST];
    load(p, m * n, Xs, X);
    load(p, m * n, Es, E);
    V left = symmetrising(w, X, E, D, K, rest);
    Mask fits = left <= same(w.gate);
    for (int l = 0; l < p.count; l++)
        known[p.first + l] = LANE(fits, l) != 0;
    if (!some(fits))
        return;
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t j = 0; j < n; j++)
            H[i * n + j] = 0.5 * (K[i * m + j] + K[j * m + i]);
    eigenpairs(n, H, of_H, rest);
    eigenpairs(k, D, of_D, rest);
    for (Py_ssize_t i = 0; i < n; i++)
        H[i] = H[i * (n + 1)];
    V *Y = E, *vectors = Y + n * k; /* gradients are not needed any more */
    Ends ends = {.vectors = K};
    double *values = (double *)rest;
    for (int l = 0; l < LANES; l++)
        choose_ends(w, l, H, of_H, D, of_D, values, (Py_ssize_t *)(values + n), &ends);
    least(w, &ends, X, vectors, Y);
    V size = ends.gamma;
    for (Py_ssize_t i = 0; i < n * k; i++)
        size += Y[i];
    for (int l = 0; l < p.count; l++) {
        Py_ssize_t b = p.first + l;
        known[b] = known[b] && isfinite(LANE(size, l));
        gammas[b] = LANE(ends.gamma, l);
        for (Py_ssize_t i = 0; i < n * k; i++)
            Ys[i * p.all + b] = LANE(Y[i], l);
    }
}

/* `fits` of the start, which is the first of the points, and of the trial X; the other points. */
FOR_PROCESSORS static void points_part(Part p, Shape w, double *points, const double *Gs,
                                       const double *Xs, const double *Es, const double *scales,
                                       unsigned char *known, V *room)
{
    Py_ssize_t size = w.n * w.k;
    V *X = room, *E = X + 2 * size, *K = E + 2 * size, *all = K + 4 * w.k * w.k;
    V *rest = all + w.points * size, D[WIDEST * WIDEST], scale = number_of(p, scales);
    Shape two = {w.n, w.k, 2, w.gate, w.equal};
    load(p, size, points, X);
    load(p, size, Xs, X + size);
    load(p, size, Gs, E);
    load_shown(p, size, Es, E + size);
    for (Py_ssize_t i = 0; i < size; i++)
        E[size + i] *= scale, all[i] = X[i];
    Mask fits = symmetrising(two, X, E, D, K, rest) <= same(w.gate);
    for (int l = 0; l < p.count; l++)
        known[p.first + l] = LANE(fits, l) != 0;
    if (!some(fits))
        return;
    complete(w, all, rest);
    store(p, w.points * size, all, points);
}

/* The points (P, n, k, B) of several problems. */
static Shape points_of(Arrays *a, PyObject *object, enum Access access, double **points,
                       Py_ssize_t *B)
{
    Py_ssize_t shape[4] = {0, 0, 0, 0};
    size_t entry = sizeof(double);
    *points = access == WRITE ? writable_array(a, object, 4, shape, &entry)
                              : shaped_array(a, object, 4, shape, &entry);
    Shape w = {shape[1], shape[2], shape[0], 0.0, 0.0};
    *B = shape[3];
    int fits = entry == sizeof(double) && w.k >= 1 && w.k <= WIDEST && w.k < w.n;
    if (*points != NULL && (!fits || w.points * w.k < w.n || (w.points - 1) * w.k >= w.n))
        refuse(a, "expected n/k points (P, n, k, B), k <= 4 and k < n");
    return w;
}

/* points(points, G, X, E, scale, gate, fits); E is the user's, (B, n, k) */
PyObject *batch_points(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double *points;
    Py_ssize_t B;
    if (!counted(count, 7))
        return NULL;
    Shape w = points_of(&a, args[0], WRITE, &points, &B);
    Py_ssize_t size = w.n * w.k, unknowns = w.k * (w.k + 1) / 2;
    const double *G = doubles(&a, args[1], size * B, READ);
    const double *X = doubles(&a, args[2], size * B, READ);
    const double *E = doubles(&a, args[3], size * B, READ);
    const double *scale = doubles(&a, args[4], B, READ);
    w.gate = number(&a, args[5]);
    unsigned char *fits = flags(&a, args[6], B, WRITE);
    Py_ssize_t rest = 3 * unknowns * unknowns + 4 * unknowns, reflections = (w.k + 1) * w.n;
    rest = rest > reflections ? rest : reflections;
    V *room = vectors(&a, (4 + w.points) * size + 4 * w.k * w.k + rest);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS for (Py_ssize_t b = 0; b < B; b += LANES)
        points_part(part_at(B, b), w, points, G, X, E, scale, fits, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* recognise(points, gradients, gate, equal, Y, gamma, known); Y is near the first of the points */
PyObject *batch_recognise(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double *X;
    Py_ssize_t B;
    if (!counted(count, 7))
        return NULL;
    Shape w = points_of(&a, args[0], READ, &X, &B);
    Py_ssize_t n = w.n, m = w.points * w.k, unknowns = w.k * (w.k + 1) / 2;
    const double *E = doubles(&a, args[1], m * n * B, READ);
    w.gate = number(&a, args[2]), w.equal = number(&a, args[3]);
    double *Y = doubles(&a, args[4], n * w.k * B, WRITE), *gamma = doubles(&a, args[5], B, WRITE);
    unsigned char *known = flags(&a, args[6], B, WRITE);
    Py_ssize_t rest = 3 * unknowns * unknowns + 4 * unknowns, eigen = n * n + 4 * n;
    V *room = vectors(&a, 2 * m * n + m * m + 2 * n * n + (rest > eigen ? rest : eigen));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS for (Py_ssize_t b = 0; b < B; b += LANES)
        recognise_part(part_at(B, b), w, X, E, Y, gamma, known, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}
