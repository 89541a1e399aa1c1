/* `nonsmooth.space`, `normal_system` and `pattern` for one real matrix of few columns.
 *
 *     normal:     XΛ          gather:     sym XᵀV, its adjoint
 *     system:     Λ ↦ sym XᵀD(XΛ) + δΛ, with D a diagonal
 *     tangents:   W ↦ P(W − XΛ),   Λ such that sym XᵀP(W − XΛ) = 0
 *     restored:   X ← X − P(XΛ),   Λ such that sym XᵀP(XΛ) = ½(XᵀX − I)
 */
#include "normal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "eigen.h"

static const double ROOT_HALF = 0.70710678118654752440;
static const double SINGULAR = 1e-12; /* of the largest eigenvalue, as in `normal_system` */
/* As in `pattern`. */
enum { MOST_PATTERN_STEPS = 12 };
static const double LONGEST_PATTERN_STEP = 0.5, LEAST_GAIN = 0.7, QUICK = 0.03;
static const double NEGLIGIBLE_OVERLAP = 1e-15;

Py_ssize_t numbers_of_system(Py_ssize_t q) { return 1 + q + q * q; }

Py_ssize_t scratch_of_normal(Py_ssize_t k) { return k * k + (k + 1) * (k * (k + 1) / 2); }

Normal normal_space(Py_ssize_t n, Py_ssize_t k, const double *X, double *scratch)
{
    Normal s = {n, k, k * (k + 1) / 2, X, scratch, scratch + k * k};
    return s;
}

/* out ← out + sign AΛ for an n×k matrix A */
void normal_part(const Normal *s, const double *A, const double *L, double sign, double *out)
{
    Py_ssize_t k = s->k, p = 0;
    if (k == 1) {
        double c = sign * L[0];
        for (Py_ssize_t i = 0; i < s->n; i++)
            out[i] += c * A[i];
        return;
    }
    for (Py_ssize_t i = 0; i < k; i++) {
        for (Py_ssize_t j = 0; j < i; j++, p++)
            s->small[i * k + j] = s->small[j * k + i] = ROOT_HALF * L[p];
        s->small[i * k + i] = L[p++];
    }
    d_multiply(PLAIN, PLAIN, s->n, k, k, sign, A, k, s->small, k, 1.0, out, k);
}

/* E = sym XᵀV */
void gather(const Normal *s, const double *V, double *E)
{
    Py_ssize_t k = s->k, p = 0;
    if (k == 1) {
        E[0] = d_dot(s->n, s->X, V);
        return;
    }
    d_multiply(ADJOINT, PLAIN, k, k, s->n, 1.0, s->X, k, V, k, 0.0, s->small, k);
    for (Py_ssize_t i = 0; i < k; i++) {
        for (Py_ssize_t j = 0; j < i; j++)
            E[p++] = ROOT_HALF * (s->small[i * k + j] + s->small[j * k + i]);
        E[p++] = s->small[i * k + i];
    }
}

/* grams[j] = Xᵀ diag(column j of the weights) X, by their lower triangles; zero weights cost nothing */
static void weighted_grams(const Normal *s, const double *weights)
{
    Py_ssize_t k = s->k, q = s->q;
    double *products = s->grams + k * q;
    memset(s->grams, 0, sizeof(double) * (size_t)(k * q));
    for (Py_ssize_t row = 0; row < s->n; row++) {
        const double *x = s->X + row * k, *w = weights + row * k;
        int needed = 0;
        for (Py_ssize_t j = 0; j < k; j++)
            needed |= w[j] != 0.0;
        if (!needed)
            continue;
        for (Py_ssize_t i = 0, p = 0; i < k; i++)
            for (Py_ssize_t j = 0; j <= i; j++)
                products[p++] = x[i] * x[j];
        for (Py_ssize_t j = 0; j < k; j++) {
            if (w[j] == 0.0)
                continue;
            double *gram = s->grams + j * q;
            for (Py_ssize_t p = 0; p < q; p++)
                gram[p] += w[j] * products[p];
        }
    }
}

static double gram_entry(const Normal *s, Py_ssize_t j, Py_ssize_t i, Py_ssize_t m)
{
    Py_ssize_t a = i > m ? i : m, b = i > m ? m : i;
    return s->grams[j * s->q + a * (a + 1) / 2 + b];
}

/* ⟨E_p, XᵀD(XE_r)⟩ for the pairs p = (a, b) and r = (c, d): an entry of a Gram matrix for every
 * index that they have in common */
static double system_entry(const Normal *s, Py_ssize_t a, Py_ssize_t b, Py_ssize_t c, Py_ssize_t d)
{
    double sum = 0.0;
    if (a == c || a == d)
        sum += gram_entry(s, a, b, c + d - a);
    if (b != a && (b == c || b == d))
        sum += gram_entry(s, b, a, c + d - b);
    return sum * (a == b ? 1.0 : ROOT_HALF) * (c == d ? 1.0 : ROOT_HALF);
}

static void assemble(const Normal *s, double delta, double *block)
{
    Py_ssize_t k = s->k, q = s->q, p = 0;
    for (Py_ssize_t a = 0; a < k; a++)
        for (Py_ssize_t b = 0; b <= a; b++, p++) {
            Py_ssize_t r = 0;
            for (Py_ssize_t c = 0; c <= a; c++)
                for (Py_ssize_t d = 0; d <= c && r <= p; d++, r++)
                    block[p * q + r] = block[r * q + p] = system_entry(s, a, b, c, d);
            block[p * q + p] += delta;
        }
}

/* The pseudo-inverse by eigenvectors. */
static void pseudo_inverse(Py_ssize_t q, double *block, double *values)
{
    double largest = 0.0;
    if (d_eigh(q, block, values)) {
        for (Py_ssize_t p = 0; p < q; p++)
            values[p] = NAN;
        return;
    }
    for (Py_ssize_t p = 0; p < q; p++)
        largest = fmax(largest, fabs(values[p]));
    for (Py_ssize_t p = 0; p < q; p++)
        values[p] = fabs(values[p]) > SINGULAR * largest ? 1.0 / values[p] : 0.0;
}

void factorise(const Normal *s, const double *weights, double delta, int pseudo, double *system)
{
    weighted_grams(s, weights);
    factorise_grams(s, delta, pseudo, system);
}

/* `pseudo`: columns without a common row have coordinates of Λ that nothing depends on */
void factorise_grams(const Normal *s, double delta, int pseudo, double *system)
{
    Py_ssize_t q = s->q;
    double *values = system + 1, *block = values + q, largest = 0.0, least = INFINITY, most = 0.0;
    assemble(s, delta, block);
    for (Py_ssize_t p = 0; p < q; p++)
        largest = fmax(largest, block[p * q + p]);
    for (Py_ssize_t p = 0; p < q; p++) {
        values[p] = !(pseudo && block[p * q + p] <= SINGULAR * largest);
        if (values[p] == 0.0)
            block[p * q + p] += 1.0;
    }
    system[0] = !d_cholesky(q, block);
    for (Py_ssize_t p = 0; p < q; p++) {
        least = fmin(least, block[p * q + p]);
        most = fmax(most, block[p * q + p]);
    }
    if (system[0] && least * least > SINGULAR * most * most)
        return;
    system[0] = 0.0;
    assemble(s, delta, block);
    pseudo_inverse(q, block, values);
}

/* rhs ← the solution */
void solve_system(Py_ssize_t q, const double *system, double *rhs, double *scratch)
{
    const double *values = system + 1, *A = values + q;
    if (system[0] == 0.0) {
        d_times(q, q, 1.0, A, rhs, 0.0, scratch);
        for (Py_ssize_t p = 0; p < q; p++)
            scratch[p] *= values[p];
        d_transpose_times(q, q, 1.0, A, scratch, 0.0, rhs);
        return;
    }
    for (Py_ssize_t i = 0; i < q; i++) {
        double sum = rhs[i];
        for (Py_ssize_t j = 0; j < i; j++)
            sum -= A[i * q + j] * rhs[j];
        rhs[i] = sum / A[i * q + i];
    }
    for (Py_ssize_t i = q - 1; i >= 0; i--) {
        double found = rhs[i] /= A[i * q + i];
        for (Py_ssize_t j = 0; j < i; j++)
            rhs[j] -= A[i * q + j] * found;
    }
    for (Py_ssize_t p = 0; p < q; p++)
        if (values[p] == 0.0)
            rhs[p] = 0.0;
}

/* -- the kernels -------------------------------------------------------------------------------- */

/* The matrix that a kernel's first argument is. */
static const double *matrix(Arrays *a, PyObject *object, Py_ssize_t *n, Py_ssize_t *k)
{
    Py_ssize_t shape[2] = {0, 0};
    size_t entry = 0;
    const double *X = shaped_array(a, object, 2, shape, &entry);
    *n = shape[0], *k = shape[1];
    if (X != NULL && (entry != sizeof(double) || *n < 1 || *k < 1))
        refuse(a, "expected a matrix of double precision with entries");
    return X;
}

/* normal_factor(X, weights, δ, pseudo, system) */
PyObject *normal_factor(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    if (!counted(count, 5))
        return NULL;
    const double *X = matrix(&a, args[0], &n, &k);
    Py_ssize_t q = k * (k + 1) / 2;
    const double *weights = array(&a, args[1], n * k, sizeof(double), READ);
    double delta = number(&a, args[2]);
    long pseudo = integer(&a, args[3]);
    double *system = array(&a, args[4], numbers_of_system(q), sizeof(double), WRITE);
    double *scratch = workspace(&a, sizeof(double) * (size_t)scratch_of_normal(k));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    Normal s = normal_space(n, k, X, scratch);
    factorise(&s, weights, delta, (int)pseudo, system);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* normal_solve(system, rhs): right-hand sides, q numbers each, become the solutions */
PyObject *normal_solve(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t numbers = ANY, sides = ANY, q = 0;
    if (!counted(count, 2))
        return NULL;
    const double *system = real_numbers(&a, args[0], &numbers, READ);
    double *rhs = real_numbers(&a, args[1], &sides, WRITE);
    while (numbers_of_system(q) < numbers)
        q++;
    if (!a.failed && (q < 1 || numbers_of_system(q) != numbers || sides % q))
        refuse(&a, "the right-hand side does not fit the system");
    double *scratch = workspace(&a, sizeof(double) * (size_t)q);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t side = 0; side < sides; side += q)
        solve_system(q, system, rhs + side, scratch);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* tangent_part(X, mask, system, V, W or None, Λ or None, out): with V ← V − WΛ first, if there is a
 * W, out = P(V − XM) with the M for which it is tangent */
PyObject *tangent_part(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    if (!counted(count, 7))
        return NULL;
    const double *X = matrix(&a, args[0], &n, &k);
    Py_ssize_t q = k * (k + 1) / 2, N = n * k;
    const double *mask = array(&a, args[1], N, sizeof(double), READ);
    const double *system = array(&a, args[2], numbers_of_system(q), sizeof(double), READ);
    const double *V = array(&a, args[3], N, sizeof(double), READ);
    const double *W = optional_array(&a, args[4], N, sizeof(double));
    const double *L = optional_array(&a, args[5], q, sizeof(double));
    double *out = array(&a, args[6], N, sizeof(double), WRITE);
    double *scratch = workspace(&a, sizeof(double) * (size_t)(scratch_of_normal(k) + 2 * q));
    if (!a.failed && W != NULL && L == NULL)
        refuse(&a, "W comes without its multiplier");
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    Normal s = normal_space(n, k, X, scratch);
    double *M = scratch + scratch_of_normal(k);
    memcpy(out, V, sizeof(double) * (size_t)N);
    if (W != NULL)
        normal_part(&s, W, L, -1.0, out);
    for (Py_ssize_t i = 0; i < N; i++)
        out[i] *= mask[i];
    gather(&s, out, M);
    solve_system(q, system, M, M + q);
    normal_part(&s, X, M, -1.0, out);
    for (Py_ssize_t i = 0; i < N; i++)
        out[i] *= mask[i];
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* The mask without the smaller entry of a row that is the only one two columns share: they cannot be
 * orthogonal with it. */
static void separate(Py_ssize_t n, Py_ssize_t k, const double *x, const double *mask, double *fewer)
{
    for (Py_ssize_t i = 0; i < k; i++)
        for (Py_ssize_t j = i + 1; j < k; j++) {
            Py_ssize_t shared = 0, last = 0;
            double product = 0.0;
            for (Py_ssize_t row = 0; row < n && shared < 2; row++)
                if (mask[row * k + i] != 0.0 && mask[row * k + j] != 0.0) {
                    shared++;
                    last = row;
                    product += x[row * k + i] * x[row * k + j];
                }
            if (shared == 1 && fabs(product) > NEGLIGIBLE_OVERLAP) {
                int first = fabs(x[last * k + i]) < fabs(x[last * k + j]);
                fewer[last * k + (first ? i : j)] = 0.0;
            }
        }
}

/* Gauss and Newton; H stays while it serves well.  Whether the defect is within `allowed`. */
static int restored(Py_ssize_t n, Py_ssize_t k, double *x, const double *mask, double allowed,
                    int given, double *system, double *scratch)
{
    Normal s = normal_space(n, k, x, scratch);
    Py_ssize_t q = s.q, N = n * k;
    double *E = scratch + scratch_of_normal(k), *spare = E + q, *step = spare + q;
    double last = INFINITY;
    int stale = 0;
    for (int i = 0; i < MOST_PATTERN_STEPS; i++) {
        double size, length = 0.0;
        gather(&s, x, E);
        for (Py_ssize_t p = 0, j = 0; j < k; j++, p += j + 1)
            E[p] -= 1.0;
        size = sqrt(d_dot(q, E, E));
        if (size <= allowed)
            return 1;
        if (!(stale || size <= LEAST_GAIN * last))
            return 0;
        stale = given && size <= QUICK * last;
        if (!stale)
            factorise(&s, mask, 0.0, 1, system);
        given = 1;
        last = size;
        for (Py_ssize_t p = 0; p < q; p++)
            E[p] *= 0.5;
        solve_system(q, system, E, spare);
        memset(step, 0, sizeof(double) * (size_t)N);
        normal_part(&s, x, E, 1.0, step);
        for (Py_ssize_t j = 0; j < N; j++) {
            step[j] *= mask[j];
            length += step[j] * step[j];
        }
        if (!(length <= LONGEST_PATTERN_STEP * LONGEST_PATTERN_STEP))
            return 0;
        for (Py_ssize_t j = 0; j < N; j++)
            x[j] -= step[j];
    }
    return 0;
}

/* restore_zeros(Z, mask, allowed, system or None, X, fewer) -> whether X is orthonormal; `fewer` is the
 * mask that served */
PyObject *restore_zeros(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    int done = 0;
    if (!counted(count, 6))
        return NULL;
    const double *Z = matrix(&a, args[0], &n, &k);
    Py_ssize_t q = k * (k + 1) / 2, N = n * k, numbers = numbers_of_system(q);
    const double *mask = array(&a, args[1], N, sizeof(double), READ);
    double allowed = number(&a, args[2]);
    const double *given = optional_array(&a, args[3], numbers, sizeof(double));
    double *X = array(&a, args[4], N, sizeof(double), WRITE);
    double *fewer = array(&a, args[5], N, sizeof(double), WRITE);
    Py_ssize_t room = scratch_of_normal(k) + 2 * q + N + numbers;
    double *scratch = workspace(&a, sizeof(double) * (size_t)room);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    double *system = scratch + room - numbers;
    if (given != NULL)
        memcpy(system, given, sizeof(double) * (size_t)numbers);
    memcpy(fewer, mask, sizeof(double) * (size_t)N);
    separate(n, k, Z, mask, fewer);
    for (Py_ssize_t i = 0; i < N; i++)
        X[i] = Z[i] * fewer[i];
    done = restored(n, k, X, fewer, allowed, given != NULL, system, scratch);
    Py_END_ALLOW_THREADS
    return finish(&a, PyBool_FromLong(done));
}
