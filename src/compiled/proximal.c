/* `nonsmooth.subproblem.proximal_step` for one real matrix of few columns and h = Σ μ_ij |X_ij|.
 *
 *     Z(b, M) = prox_th(X − tG + XM − Ub),    E₁ = K⁻¹b − UᵀV,    E₂ = sym XᵀV,    V = Z − X
 *
 * by the same semismooth Newton method in (b, M), with the same damping and the same ends.
 */
#include "normal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"

/* As in `subproblem`. */
enum { MOST_INNER_STEPS = 60, BISECTIONS = 40 };
static const double FINEST = 1e-13, COARSEST = 1e-4, LEAST_DAMPING = 1e-3;
static const double ARGUMENT_ROUNDING = 4.0 * DBL_EPSILON;
static const double ROOT_HALF = 0.70710678118654752440;

typedef struct {
    double *b, *M;      /* r and q unknowns */
    double *w, *z, *v;  /* N numbers each */
    double *E1, *E2;
    double size;
} Trial;

typedef struct {
    Normal s;
    Py_ssize_t N, r;
    const double *base;  /* X − tG */
    const double *mu;    /* of every entry, or one */
    int one_weight;
    double t, part;      /* part < 0: none */
    const double *U, *K_inverse;
    double *both, *gram; /* n×(k+r) and its Gram matrix */
    double *A, *C;       /* r×r, (r+1)×q */
    double *W, *spare, *system;
    double *db, *dM;
} Subproblem;

/* z = prox_th(w) */
static void soft_threshold(const Subproblem *p, const double *w, double *z)
{
    double one = p->t * p->mu[0];
    for (Py_ssize_t i = 0; i < p->N; i++) {
        double bound = p->one_weight ? one : p->t * p->mu[i];
        double clipped = w[i] < -bound ? -bound : (w[i] > bound ? bound : w[i]);
        z[i] = w[i] - clipped;
    }
}

/* Of column b of the point, the entries where prox_th moves with its argument: their rows of X and
 * their columns of U, side by side; how many there are */
static Py_ssize_t moving(const Subproblem *p, const double *w, Py_ssize_t b)
{
    Py_ssize_t k = p->s.k, r = p->r, count = 0;
    for (Py_ssize_t i = b; i < p->N; i += k) {
        double bound = p->t * p->mu[p->one_weight ? 0 : i];
        if (!(fabs(w[i]) > bound || bound == 0.0))
            continue;
        double *row = p->both + (k + r) * count++;
        memcpy(row, p->s.X + (i - b), sizeof(double) * (size_t)k);
        for (Py_ssize_t j = 0; j < r; j++)
            row[k + j] = p->U[j * p->N + i];
    }
    return count;
}

/* With D = prox', a mask: the Gram matrices of the system for Λ, A = K⁻¹ + UᵀDU, C = NᵀDU */
static void products(const Subproblem *p, const double *w)
{
    Py_ssize_t k = p->s.k, r = p->r, q = p->s.q, m = k + r;
    if (r)
        memcpy(p->A, p->K_inverse, sizeof(double) * (size_t)(r * r));
    memset(p->C, 0, sizeof(double) * (size_t)(r * q));
    for (Py_ssize_t b = 0; b < k; b++) {
        Py_ssize_t count = moving(p, w, b);
        memset(p->gram, 0, sizeof(double) * (size_t)(m * m));
        if (count)
            d_multiply(ADJOINT, PLAIN, m, m, count, 1.0, p->both, m, p->both, m, 0.0, p->gram, m);
        for (Py_ssize_t i = 0, pair = b * q; i < k; i++)
            for (Py_ssize_t j = 0; j <= i; j++)
                p->s.grams[pair++] = p->gram[i * m + j];
        for (Py_ssize_t i = 0; i < r; i++) {
            const double *row = p->gram + (k + i) * m;
            for (Py_ssize_t c = 0; c < k; c++) {
                Py_ssize_t high = c > b ? c : b, low = c > b ? b : c;
                p->C[i * q + high * (high + 1) / 2 + low] += row[c] * (c == b ? 1.0 : ROOT_HALF);
            }
            for (Py_ssize_t j = 0; j < r; j++)
                p->A[i * r + j] += row[k + j];
        }
    }
}

/* The rest of a trial whose b and M are known. */
static void evaluate(const Subproblem *p, Trial *at)
{
    size_t bytes = sizeof(double) * (size_t)p->N;
    memcpy(at->w, p->base, bytes);
    normal_part(&p->s, p->s.X, at->M, 1.0, at->w);
    if (p->r)
        d_transpose_times(p->r, p->N, -1.0, p->U, at->b, 1.0, at->w);
    soft_threshold(p, at->w, at->z);
    for (Py_ssize_t i = 0; i < p->N; i++)
        at->v[i] = at->z[i] - p->s.X[i];
    gather(&p->s, at->v, at->E2);
    double square = d_dot(p->s.q, at->E2, at->E2);
    if (p->r) {
        d_times(p->r, p->r, 1.0, p->K_inverse, at->b, 0.0, at->E1);
        d_times(p->r, p->N, -1.0, p->U, at->v, 1.0, at->E1);
        square += d_dot(p->r, at->E1, at->E1);
    }
    at->size = sqrt(square);
}

static int accurate(const Subproblem *p, const Trial *now)
{
    double square = d_dot(p->N, now->v, now->v);
    double target = p->part < 0.0 ? fmin(0.1 * square, COARSEST) : p->part * sqrt(square);
    if (!p->r || p->part < 0.0 || !(now->size <= target)) {
        double rounding = ARGUMENT_ROUNDING * sqrt(d_dot(p->N, now->w, now->w));
        return now->size <= fmax(fmax(target, FINEST), rounding);
    }
    double hidden = d_dot(p->r, now->b, now->E1);
    d_times(p->r, p->r, 1.0, p->K_inverse, now->b, 0.0, p->spare);
    double least = square + d_dot(p->r, now->b, p->spare) - hidden;
    return least > fabs(hidden) || now->size <= FINEST;
}

/* (db, dM): Λ is eliminated by its system, b found by what is left */
static void newton(const Subproblem *p, const Trial *now)
{
    Py_ssize_t r = p->r, q = p->s.q;
    products(p, now->w);
    factorise_grams(&p->s, 0.05 * fmin(2.0 * now->size, 0.1), 0, p->system);
    memcpy(p->C + r * q, now->E2, sizeof(double) * (size_t)q);
    memcpy(p->W, p->C, sizeof(double) * (size_t)((r + 1) * q));
    for (Py_ssize_t i = 0; i <= r; i++)
        solve_system(q, p->system, p->W + i * q, p->spare);
    const double *last = p->W + r * q;
    for (Py_ssize_t i = 0; i < q; i++)
        p->dM[i] = -last[i];
    if (!r)
        return;
    d_multiply(PLAIN, ADJOINT, r, r, q, -1.0, p->W, q, p->C, q, 1.0, p->A, r); /* its transpose */
    for (Py_ssize_t i = 0; i < r; i++)
        p->db[i] = -now->E1[i] - d_dot(q, p->C + i * q, last);
    memcpy(p->spare, p->db, sizeof(double) * (size_t)r);
    d_divide(1, r, p->db, p->A);
    if (isnan(p->db[0]))
        memcpy(p->db, p->spare, sizeof(double) * (size_t)r);
    d_transpose_times(r, q, 1.0, p->W, p->db, 1.0, p->dM);
}

static void move(const Subproblem *p, const Trial *now, double s, int with_b, Trial *next)
{
    for (Py_ssize_t i = 0; i < p->r; i++)
        next->b[i] = now->b[i] + (with_b ? s * p->db[i] : 0.0);
    for (Py_ssize_t i = 0; i < p->s.q; i++)
        next->M[i] = now->M[i] + s * p->dM[i];
    evaluate(p, next);
}

static int damped(const Subproblem *p, const Trial *now, Trial *next)
{
    for (double s = 1.0; s >= LEAST_DAMPING; s *= 0.5) {
        move(p, now, s, 1, next);
        if (next->size <= (1.0 - 1e-3 * s) * now->size)
            return 1;
    }
    return 0;
}

static int bisected(const Subproblem *p, const Trial *now, Trial *next)
{
    double slope = d_dot(p->s.q, now->E2, p->dM), low = 0.0, high = 1.0;
    if (!(slope < 0.0))
        return 0;
    for (int i = 0; i < BISECTIONS; i++) {
        double s = i ? 0.5 * (low + high) : high;
        move(p, now, s, 0, next);
        double found = d_dot(p->s.q, next->E2, p->dM);
        if (fabs(found) <= 0.1 * fabs(slope) || (found < 0.0 && s == 1.0))
            return 1;
        if (found < 0.0)
            low = s;
        else
            high = s;
    }
    return 1;
}

static Trial trial(double **room, Py_ssize_t N, Py_ssize_t r, Py_ssize_t q)
{
    double *at = *room;
    Trial made = {at, at + r, at + r + q, at + r + q + N, at + r + q + 2 * N, NULL, NULL, 0.0};
    made.E1 = made.v + N;
    made.E2 = made.E1 + r;
    *room = made.E2 + q;
    return made;
}

static double *take(double **room, Py_ssize_t numbers)
{
    double *at = *room;
    *room += numbers;
    return at;
}

/* The solution in `now`; whether a system was made for it is told by `stepped`. */
static int solved(const Subproblem *p, Trial *now, Trial *next, int *stepped)
{
    int good = 0;
    *stepped = 0;
    evaluate(p, now);
    for (int i = 0; i < MOST_INNER_STEPS && !(good = accurate(p, now)); i++) {
        newton(p, now);
        *stepped = 1;
        if (!damped(p, now, next) && (p->r || !bisected(p, now, next)))
            break;
        Trial swapped = *now;
        *now = *next;
        *next = swapped;
    }
    return good || accurate(p, now) || now->size <= 10.0 * FINEST * sqrt((double)p->s.q);
}

/* proximal_step(X, G, t, μ, Λ, U or None, K⁻¹ or None, part or −1, z, v, Λ⁺, E, system)
 * -> residual, solved, whether there is a system */
PyObject *proximal_step(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t shape[2] = {0, 0}, weights = ANY, many = ANY;
    size_t entry = 0;
    int good = 0, stepped = 0;
    double residual = 0.0;
    if (!counted(count, 13))
        return NULL;
    const double *X = shaped_array(&a, args[0], 2, shape, &entry);
    Py_ssize_t n = shape[0], k = shape[1], N = n * k, q = k * (k + 1) / 2, r = 0;
    Subproblem p = {.N = N};
    const double *G = array(&a, args[1], N, sizeof(double), READ);
    p.t = number(&a, args[2]);
    p.mu = real_numbers(&a, args[3], &weights, READ);
    const double *L = array(&a, args[4], q, sizeof(double), READ);
    if (args[5] != Py_None && N > 0) {
        p.U = real_numbers(&a, args[5], &many, READ);
        r = p.r = many / N;
        p.K_inverse = array(&a, args[6], r * r, sizeof(double), READ);
    }
    p.part = number(&a, args[7]);
    double *z = array(&a, args[8], N, sizeof(double), WRITE);
    double *v = array(&a, args[9], N, sizeof(double), WRITE);
    double *L_new = array(&a, args[10], q, sizeof(double), WRITE);
    double *E = array(&a, args[11], q, sizeof(double), WRITE);
    p.system = array(&a, args[12], numbers_of_system(q), sizeof(double), WRITE);
    if (!a.failed && (entry != sizeof(double) || N < 1 || (weights != 1 && weights != N) ||
                      (p.r && many != p.r * N)))
        refuse(&a, "the arrays of a proximal step do not fit each other");
    Py_ssize_t numbers = 2 * (3 * N + 2 * r + 2 * q) + N + n * (k + r) + (k + r) * (k + r) + r * r + 2 * (r + 1) * q +
                         (r + q) + r + q + scratch_of_normal(k);
    double *room = workspace(&a, sizeof(double) * (size_t)numbers);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    Trial now = trial(&room, N, r, q), next = trial(&room, N, r, q);
    double *base = take(&room, N);
    p.one_weight = weights == 1;
    p.both = take(&room, n * (k + r));
    p.gram = take(&room, (k + r) * (k + r));
    p.A = take(&room, r * r);
    p.C = take(&room, (r + 1) * q);
    p.W = take(&room, (r + 1) * q);
    p.spare = take(&room, r + q);
    p.db = take(&room, r);
    p.dM = take(&room, q);
    p.s = normal_space(n, k, X, room);
    for (Py_ssize_t i = 0; i < N; i++)
        base[i] = X[i] - p.t * G[i];
    p.base = base;
    for (Py_ssize_t i = 0; i < r; i++)
        now.b[i] = 0.0;
    for (Py_ssize_t i = 0; i < q; i++)
        now.M[i] = p.t * L[i];
    good = solved(&p, &now, &next, &stepped);
    residual = now.size;
    memcpy(z, now.z, sizeof(double) * (size_t)N);
    memcpy(v, now.v, sizeof(double) * (size_t)N);
    memcpy(E, now.E2, sizeof(double) * (size_t)q);
    for (Py_ssize_t i = 0; i < q; i++)
        L_new[i] = now.M[i] / p.t;
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dii", residual, good, stepped));
}
