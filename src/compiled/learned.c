/* `nonsmooth.learned_operator`: what the columns of a step show of the operator of ∇f.
 *
 *     R = Y − ÂS,    Â = TᵀΘ⁻¹T,    Q′ an orthonormal basis of S − QQᵀS, as rows,    P′ = AQ′
 *     R′ = (A − Â)Q′,    Q′R′ᵀ = VΘ′Vᵀ,    T′ = VᵀR′
 */
#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "eigen.h"
#include "normal.h"

typedef struct {
    Py_ssize_t n, k, p, r;
    const double *Q, *P, *T, *theta, *S, *Y;
    double *Q_new, *P_new, *T_new, *theta_new;
    double *R, *S_new, *Y_new; /* n×k */
    double *C;                 /* the larger of p and r, and k, by k */
    double *gram, *V, *sizes;
} Lesson;

/* C ← A B for m rows of A, and B ← B − Aᵀ C */
static void along(Py_ssize_t m, const Lesson *l, const double *A, const double *B)
{
    if (l->k == 1)
        d_times(m, l->n, 1.0, A, B, 0.0, l->C);
    else
        d_multiply(PLAIN, PLAIN, m, l->k, l->n, 1.0, A, l->n, B, l->k, 0.0, l->C, l->k);
}

static void without(Py_ssize_t m, const Lesson *l, const double *A, double *B)
{
    if (l->k == 1)
        d_transpose_times(m, l->n, -1.0, A, l->C, 1.0, B);
    else
        d_multiply(ADJOINT, PLAIN, l->n, l->k, m, -1.0, A, l->n, l->C, l->k, 1.0, B, l->k);
}

static double error_of_model(const Lesson *l)
{
    Py_ssize_t n = l->n, k = l->k;
    memcpy(l->R, l->Y, sizeof(double) * (size_t)(n * k));
    if (l->r) {
        along(l->r, l, l->T, l->S);
        for (Py_ssize_t i = 0; i < l->r; i++)
            for (Py_ssize_t j = 0; j < k; j++)
                l->C[i * k + j] /= l->theta[i];
        without(l->r, l, l->T, l->R);
    }
    double whole = d_dot(n * k, l->Y, l->Y);
    if (!l->p)
        return INFINITY;
    return whole > 0.0 ? sqrt(d_dot(n * k, l->R, l->R) / whole) : 0.0;
}

/* rows ← Vᵀ Aᵀ, with `new` columns of V that are the rows of l->V */
static void rows_of(const Lesson *l, Py_ssize_t new, const double *A, double *rows)
{
    d_multiply(PLAIN, ADJOINT, new, l->n, l->k, 1.0, l->V, l->k, A, l->k, 0.0, rows, l->n);
}

/* How many directions of S are new. */
static Py_ssize_t new_columns(const Lesson *l, double least)
{
    Py_ssize_t n = l->n, k = l->k, new = 0;
    memcpy(l->S_new, l->S, sizeof(double) * (size_t)(n * k));
    memcpy(l->Y_new, l->Y, sizeof(double) * (size_t)(n * k));
    for (Py_ssize_t j = 0; j < k; j++) {
        double square = 0.0;
        for (Py_ssize_t i = 0; i < n; i++)
            square += l->S[i * k + j] * l->S[i * k + j];
        l->sizes[j] = square > 0.0 ? sqrt(square) : 1.0;
    }
    if (l->p) {
        along(l->p, l, l->Q, l->S);
        without(l->p, l, l->Q, l->S_new);
        without(l->p, l, l->P, l->Y_new);
    }
    d_multiply(ADJOINT, PLAIN, k, k, n, 1.0, l->S_new, k, l->S_new, k, 0.0, l->gram, k);
    for (Py_ssize_t i = 0; i < k; i++)
        for (Py_ssize_t j = 0; j < k; j++)
            l->gram[i * k + j] /= l->sizes[i] * l->sizes[j];
    double *squares = l->theta_new;
    if (d_eigh(k, l->gram, squares))
        return 0;
    for (Py_ssize_t i = 0; i < k; i++) {
        if (!(squares[i] > least * least))
            continue;
        for (Py_ssize_t j = 0; j < k; j++)
            l->V[new * k + j] = l->gram[i * k + j] / (l->sizes[j] * sqrt(squares[i]));
        new++;
    }
    rows_of(l, new, l->S_new, l->Q_new);
    rows_of(l, new, l->Y_new, l->P_new);
    rows_of(l, new, l->R, l->S_new); /* R′, where S is needed no more */
    return new;
}

/* The asymmetry of K in its new rows, and what they add to ‖K‖²; both squared. */
static void symmetry(const Lesson *l, Py_ssize_t new, double *wrong, double *squares)
{
    Py_ssize_t n = l->n;
    *wrong = *squares = 0.0;
    for (Py_ssize_t i = 0; i < new; i++) {
        const double *q = l->Q_new + i * n, *p = l->P_new + i * n;
        if (l->p)
            d_times(l->p, n, 1.0, l->P, q, 0.0, l->C);
        for (Py_ssize_t j = 0; j < l->p; j++)
            *squares += 2.0 * l->C[j] * l->C[j];
        if (l->p)
            d_times(l->p, n, -1.0, l->Q, p, 1.0, l->C);
        for (Py_ssize_t j = 0; j < l->p; j++)
            *wrong += l->C[j] * l->C[j];
        for (Py_ssize_t j = 0; j < new; j++) {
            double one = d_dot(n, q, l->P_new + j * n);
            double other = d_dot(n, l->Q_new + j * n, p);
            *squares += one * one;
            *wrong += (one - other) * (one - other);
        }
    }
}

/* Θ′ and T′ of R′ and Q′ */
static int extend(const Lesson *l, Py_ssize_t new)
{
    Py_ssize_t n = l->n;
    const double *R = l->S_new;
    d_multiply(PLAIN, ADJOINT, new, new, n, 1.0, R, n, l->Q_new, n, 0.0, l->V, new);
    for (Py_ssize_t i = 0; i < new; i++)
        for (Py_ssize_t j = 0; j < new; j++)
            l->gram[i * new + j] = 0.5 * (l->V[i * new + j] + l->V[j * new + i]);
    if (d_eigh(new, l->gram, l->theta_new))
        return 0;
    d_multiply(PLAIN, PLAIN, new, n, new, 1.0, l->gram, new, R, n, 0.0, l->T_new, n);
    return 1;
}

/* learn_columns(Q, P, T, Θ, S, Y, k, KNOWN, NEW, Q′, P′, T′, Θ′)
 * -> error, new directions or −1 if there is nothing to learn, asymmetry², ‖new rows of K‖² */
PyObject *learn_columns(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t N = ANY, pn = ANY, rn = ANY, r = ANY, new = -1;
    double error = 0.0, wrong = 0.0, squares = 0.0;
    if (!counted(count, 13))
        return NULL;
    Lesson l = {.S = real_numbers(&a, args[4], &N, READ)};
    l.Y = real_numbers(&a, args[5], &N, READ);
    l.k = (Py_ssize_t)integer(&a, args[6]);
    l.n = l.k > 0 ? N / l.k : 0;
    l.Q = real_numbers(&a, args[0], &pn, READ);
    l.P = real_numbers(&a, args[1], &pn, READ);
    l.T = real_numbers(&a, args[2], &rn, READ);
    l.theta = real_numbers(&a, args[3], &r, READ);
    l.r = r;
    l.p = l.n > 0 ? pn / l.n : 0;
    double known = number(&a, args[7]), least = number(&a, args[8]);
    l.Q_new = array(&a, args[9], N, sizeof(double), WRITE);
    l.P_new = array(&a, args[10], N, sizeof(double), WRITE);
    l.T_new = array(&a, args[11], N, sizeof(double), WRITE);
    l.theta_new = array(&a, args[12], l.k, sizeof(double), WRITE);
    if (!a.failed && (l.n < 1 || l.n * l.k != N || l.p * l.n != pn || l.r * l.n != rn))
        refuse(&a, "the arrays of an operator do not fit each other");
    if (a.failed)
        return finish(&a, NULL);
    Py_ssize_t most = l.p > l.r ? l.p : l.r;
    Py_ssize_t numbers = 3 * N + (most + 1) * l.k + 2 * l.k * l.k + l.k;
    double *room = workspace(&a, sizeof(double) * (size_t)numbers);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    l.R = room, l.S_new = room + N, l.Y_new = room + 2 * N, l.C = room + 3 * N;
    l.gram = l.C + (most + 1) * l.k, l.V = l.gram + l.k * l.k, l.sizes = l.V + l.k * l.k;
    error = error_of_model(&l);
    if (!(error <= known)) {
        new = new_columns(&l, least);
        symmetry(&l, new, &wrong, &squares);
        if (new && !extend(&l, new))
            new = 0;
    }
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dndd", error, new, wrong, squares));
}
