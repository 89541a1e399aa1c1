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

/* `symmetrising_columns`: D, and what is left over; room for m² + 3 unknowns² + 4 unknowns. */
INLINE V symmetrising(Shape w, const V *X, const V *E, V *D, V *room)
{
    Py_ssize_t n = w.n, k = w.k, m = w.points * k, unknowns = k * (k + 1) / 2;
    V *K = room, *N = K + m * m, *vectors_of_N = N + unknowns * unknowns, size = same(0.0);
    V row[MOST_UNKNOWNS], v[MOST_UNKNOWNS];
    for (Py_ssize_t p = 0; p < m; p++)
        for (Py_ssize_t q = 0; q < m; q++) {
            V sum = same(0.0);
            for (Py_ssize_t i = 0; i < n; i++)
                sum += X[(p / k * n + i) * k + p % k] * E[(q / k * n + i) * k + q % k];
            K[p * m + q] = sum;
            size += sum * sum;
        }
    for (Py_ssize_t i = 0; i < unknowns * unknowns; i++)
        N[i] = same(0.0);
    for (int pass = 0; pass < 2; pass++) { /* the equations, and then what D leaves of them */
        V left = same(0.0);
        for (Py_ssize_t p = 0; p < w.points; p++)
            for (Py_ssize_t q = p; q < w.points; q++)
                for (Py_ssize_t a = 0; a < k; a++)
                    for (Py_ssize_t d = p == q ? a + 1 : 0; d < k; d++) {
                        equation(w, K, p, q, a, d, row);
                        V sum = same(0.0);
                        for (Py_ssize_t i = 0; i < unknowns && pass; i++)
                            sum += row[i] * v[i];
                        left += 2.0 * sum * sum;
                        for (Py_ssize_t i = 0; i < unknowns && !pass; i++)
                            for (Py_ssize_t j = i; j < unknowns; j++)
                                N[i * unknowns + j] += row[i] * row[j];
                    }
        if (pass)
            return root(left / size);
        for (Py_ssize_t i = 0; i < unknowns; i++)
            for (Py_ssize_t j = 0; j < i; j++)
                N[i * unknowns + j] = N[j * unknowns + i];
        eigenpairs(unknowns, N, vectors_of_N, vectors_of_N + unknowns * unknowns);
        for (int l = 0; l < LANES; l++) {
            Py_ssize_t least = 0;
            for (Py_ssize_t i = 1; i < unknowns; i++)
                if (LANE(N[i * unknowns + i], l) < LANE(N[least * unknowns + least], l))
                    least = i;
            for (Py_ssize_t i = 0; i < unknowns; i++)
                LANE(v[i], l) = LANE(vectors_of_N[least * unknowns + i], l);
        }
        for (Py_ssize_t i = 0, r = 0; i < k; i++)
            for (Py_ssize_t j = i; j < k; j++, r++)
                D[i * k + j] = D[j * k + i] = v[r];
    }
    return size;
}

/* `operator`: A with A X_j = E_j D, by Householder's reflections; room for 2mn. */
INLINE V operator_of(Shape w, const V *X, const V *E, const V *D, V *A, V *room)
{
    Py_ssize_t n = w.n, k = w.k, m = w.points * k, two = 2 * n;
    for (Py_ssize_t p = 0; p < m; p++)
        for (Py_ssize_t i = 0; i < n; i++) {
            const V *row = E + (p / k * n + i) * k;
            V sum = row[0] * D[p % k];
            for (Py_ssize_t c = 1; c < k; c++)
                sum += row[c] * D[c * k + p % k];
            room[p * two + i] = X[(p / k * n + i) * k + p % k];
            room[p * two + n + i] = sum;
        }
    for (Py_ssize_t j = 0; j < n; j++) {
        V norm = same(0.0), *pivot = room + j * two + j;
        for (Py_ssize_t p = j; p < m; p++)
            norm += room[p * two + j] * room[p * two + j];
        norm = root(norm);
        for (int l = 0; l < LANES; l++)
            LANE(norm, l) = LANE(*pivot, l) > 0 ? -LANE(norm, l) : LANE(norm, l);
        V diagonal = norm, inverse = 1.0 / (norm * (norm - *pivot)); /* 2/‖v‖² of v = x − norm e */
        *pivot -= norm;
        for (Py_ssize_t c = j + 1; c < two; c++) {
            V sum = same(0.0);
            for (Py_ssize_t p = j; p < m; p++)
                sum += room[p * two + j] * room[p * two + c];
            sum *= inverse;
            for (Py_ssize_t p = j; p < m; p++)
                room[p * two + c] -= sum * room[p * two + j];
        }
        *pivot = diagonal;
    }
    for (Py_ssize_t i = n - 1; i >= 0; i--) {
        V inverse = 1.0 / room[i * two + i];
        for (Py_ssize_t c = 0; c < n; c++) {
            V sum = room[i * two + n + c];
            for (Py_ssize_t j = i + 1; j < n; j++)
                sum -= room[i * two + j] * A[j * n + c];
            A[i * n + c] = sum * inverse;
        }
    }
    V size = same(0.0), skew = same(0.0);
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t j = 0; j < n; j++) {
            V difference = A[i * n + j] - A[j * n + i];
            size += A[i * n + j] * A[i * n + j], skew += difference * difference;
        }
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t j = 0; j < i; j++)
            A[i * n + j] = A[j * n + i] = 0.5 * (A[i * n + j] + A[j * n + i]);
    return root(skew / size);
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
static void restore(Py_ssize_t n, Py_ssize_t k, double *Y)
{
    double S[WIDEST * WIDEST];
    for (Py_ssize_t a = 0; a < k; a++)
        for (Py_ssize_t c = 0; c < k; c++) {
            double sum = 0.0;
            for (Py_ssize_t i = 0; i < n; i++)
                sum += Y[i * k + a] * Y[i * k + c];
            S[a * k + c] = (a == c ? 1.5 : 0.0) - 0.5 * sum;
        }
    for (Py_ssize_t i = 0; i < n; i++) {
        double row[WIDEST];
        for (Py_ssize_t c = 0; c < k; c++)
            row[c] = Y[i * k + c];
        for (Py_ssize_t c = 0; c < k; c++) {
            double sum = 0.0;
            for (Py_ssize_t a = 0; a < k; a++)
                sum += row[a] * S[a * k + c];
            Y[i * k + c] = sum;
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

/* `least` of one problem: its eigenpairs of A and D are lane l of vectors; 0 if M is singular. */
static int least(Shape w, int l, const V *A, const V *eigen_A, const V *D, const V *eigen_D,
                 const V *x, Py_ssize_t *place, double *values, double *Y)
{
    Py_ssize_t n = w.n, k = w.k, of_M[WIDEST];
    double mu[WIDEST] = {0.0}, Q[WIDEST * WIDEST], m[WIDEST * WIDEST], largest = 0.0;
    for (Py_ssize_t i = 0; i < n; i++)
        values[i] = LANE(A[i * n + i], l);
    sorted(n, values, place);
    for (Py_ssize_t i = 0; i < k; i++) {
        mu[i] = -1.0 / LANE(D[i * k + i], l);
        largest = fmax(largest, fabs(mu[i]));
    }
    if (!(largest < INFINITY))
        return 0;
    sorted(k, mu, of_M);
    for (Py_ssize_t a = 0; a < k; a++) {
        Py_ssize_t own = place[mu[of_M[a]] < 0 ? a : n - k + a];
        for (Py_ssize_t i = 0; i < n; i++)
            values[n + a * n + i] = LANE(eigen_A[own * n + i], l);
        for (Py_ssize_t c = 0; c < k; c++)
            Q[a * k + c] = LANE(eigen_D[of_M[a] * k + c], l);
    }
    for (Py_ssize_t a = 0; a < k; a++)
        for (Py_ssize_t c = 0; c < k; c++) {
            double sum = 0.0;
            int together = fabs(mu[of_M[a]] - mu[of_M[c]]) <= w.equal * largest;
            for (Py_ssize_t i = 0; i < n && together; i++)
                for (Py_ssize_t j = 0; j < k; j++)
                    sum += values[n + a * n + i] * LANE(x[i * k + j], l) * Q[c * k + j];
            m[a * k + c] = sum;
        }
    polar((int)k, m);
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t j = 0; j < k; j++) {
            double sum = 0.0;
            for (Py_ssize_t a = 0; a < k; a++)
                for (Py_ssize_t c = 0; c < k; c++)
                    sum += values[n + a * n + i] * m[a * k + c] * Q[c * k + j];
            Y[i * k + j] = sum;
        }
    restore(n, k, Y);
    for (Py_ssize_t i = 0; i < n * k; i++)
        if (!isfinite(Y[i]))
            return 0;
    return 1;
}

FOR_PROCESSORS static void recognise_part(Part p, Shape w, const double *Xs, const double *Es,
                                          const double *xs, double *Ys, double *lefts,
                                          unsigned char *fits, V *room)
{
    Py_ssize_t n = w.n, k = w.k, all = w.points * n * k;
    V *X = room, *E = X + all, *x = E + all, *A = x + n * k, *eigen_A = A + n * n;
    V *rest = eigen_A + n * n, D[WIDEST * WIDEST], eigen_D[WIDEST * WIDEST];
    load(p, all, Xs, X);
    load(p, all, Es, E);
    load(p, n * k, xs, x);
    V left = symmetrising(w, X, E, D, rest), asymmetry = operator_of(w, X, E, D, A, rest);
    put_number(p, left, lefts);
    int some = 0;
    for (int l = 0; l < p.count; l++) {
        fits[p.first + l] = LANE(left, l) <= w.gate && LANE(asymmetry, l) <= w.gate;
        some |= fits[p.first + l];
    }
    if (!some)
        return;
    eigenpairs(n, A, eigen_A, rest);
    eigenpairs(k, D, eigen_D, rest);
    double *values = (double *)rest, *Y = values + n + n * k;
    Py_ssize_t *place = (Py_ssize_t *)(Y + n * k);
    for (int l = 0; l < p.count; l++)
        if (fits[p.first + l] &&
            (fits[p.first + l] = least(w, l, A, eigen_A, D, eigen_D, x, place, values, Y) != 0))
            for (Py_ssize_t i = 0; i < n * k; i++)
                Ys[i * p.all + p.first + l] = Y[i];
}

/* recognise(X, E, x, gate, equal, Y, left, fits); Y is written where f fits */
PyObject *batch_recognise(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t shape[4] = {0, 0, 0, 0};
    size_t entry = sizeof(double);
    if (!counted(count, 8))
        return NULL;
    const double *X = shaped_array(&a, args[0], 4, shape, &entry);
    Py_ssize_t n = shape[1], k = shape[2], B = shape[3], m = shape[0] * k;
    if (X != NULL && (entry != sizeof(double) || k < 1 || k > WIDEST || k > n || m < n)) {
        PyErr_SetString(PyExc_ValueError, "expected points (P, n, k, B) with Pk >= n >= k and k <= 4");
        a.failed = 1;
    }
    const double *E = doubles(&a, args[1], m * n * B, READ);
    const double *x = doubles(&a, args[2], n * k * B, READ);
    Shape w = {n, k, shape[0], number(&a, args[3]), number(&a, args[4])};
    double *Y = doubles(&a, args[5], n * k * B, WRITE), *left = doubles(&a, args[6], B, WRITE);
    unsigned char *fits = flags(&a, args[7], B, WRITE);
    Py_ssize_t unknowns = k * (k + 1) / 2, most = m * m + 3 * unknowns * unknowns + 4 * unknowns;
    most = (most > 2 * m * n ? most : 2 * m * n) + n + 2 * n * k;
    V *room = vectors(&a, 2 * m * n + n * k + 2 * n * n + most);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS for (Py_ssize_t b = 0; b < B; b += LANES)
        recognise_part(part_at(B, b), w, X, E, x, Y, left, fits, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}
