/* `nonsmooth.quasi_newton.model_of`: the compact BFGS matrix of pairs, with today's Lagrangian.
 *
 *     y = ΔG − SΛ,    σ(I + UKUᵀ),    U = [S, Y/σ],    K⁻¹ = −[SᵀS, L/σ; Lᵀ/σ, −D/σ]
 *
 * with unit steps; pairs without curvature are left out.
 */
#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "normal.h"

/* σ = BOLD‖y‖/‖s‖ of the newest pair, if that is a number to go by */
static double newest_sigma(double bold, double yy, double ss, double sigma)
{
    double newest = bold * sqrt(yy / ss);
    return 1e-8 * sigma < newest && newest < INFINITY ? newest : sigma;
}

/* The rows of U, ordered [S, Y], of the pairs that have curvature; how many there are. */
static Py_ssize_t curved_pairs(Py_ssize_t m, Py_ssize_t N, const double *S, const double *Y,
                               double bold, double caution, double *sigma, double *U)
{
    Py_ssize_t kept = 0, last = (m - 1) * N;
    *sigma = newest_sigma(bold, d_dot(N, Y + last, Y + last), d_dot(N, S + last, S + last), *sigma);
    for (Py_ssize_t i = 0; i < m; i++) {
        const double *s = S + i * N, *y = Y + i * N;
        double ss = d_dot(N, s, s), yy = d_dot(N, y, y);
        if (!(d_dot(N, s, y) > caution * sqrt(yy * ss)))
            continue;
        double scale = 1.0 / sqrt(ss), *unit = U + kept * N, *change = U + (m + kept) * N;
        for (Py_ssize_t j = 0; j < N; j++) {
            unit[j] = scale * s[j];
            change[j] = scale / *sigma * y[j];
        }
        kept++;
    }
    if (kept < m)
        memmove(U + kept * N, U + m * N, sizeof(double) * (size_t)(kept * N));
    return kept;
}

/* K⁻¹ of 2m rows U. */
static void inverse_middle(Py_ssize_t m, Py_ssize_t N, const double *U, double *K)
{
    Py_ssize_t r = 2 * m;
    d_multiply(PLAIN, ADJOINT, m, r, N, -1.0, U, N, U, N, 0.0, K, r);
    memset(K + m * r, 0, sizeof(double) * (size_t)(m * r));
    for (Py_ssize_t i = 0; i < m; i++) {
        K[(m + i) * r + m + i] = -K[i * r + m + i];
        for (Py_ssize_t j = i; j < m; j++)
            K[i * r + m + j] = 0.0;
        for (Py_ssize_t j = 0; j < i; j++)
            K[(m + j) * r + i] = K[i * r + m + j];
    }
}

/* compact_model(X, S, ΔG, Λ, BOLD, caution, σ, U, K⁻¹) -> σ, pairs; X only says n and k */
PyObject *compact_model(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t shape[2] = {0, 0}, all = ANY, kept = 0;
    size_t entry = 0;
    if (!counted(count, 9))
        return NULL;
    const double *X = shaped_array(&a, args[0], 2, shape, &entry);
    Py_ssize_t n = shape[0], k = shape[1], N = n * k, q = k * (k + 1) / 2;
    const double *S = real_numbers(&a, args[1], &all, READ);
    const double *G = real_numbers(&a, args[2], &all, READ);
    const double *L = array(&a, args[3], q, sizeof(double), READ);
    double bold = number(&a, args[4]), caution = number(&a, args[5]), sigma = number(&a, args[6]);
    Py_ssize_t m = N > 0 ? all / N : 0;
    double *U = array(&a, args[7], 2 * m * N, sizeof(double), WRITE);
    double *K = array(&a, args[8], 4 * m * m, sizeof(double), WRITE);
    if (!a.failed && (entry != sizeof(double) || m < 1 || m * N != all))
        refuse(&a, "the pairs do not fit the point");
    double *Y = workspace(&a, sizeof(double) * (size_t)(m * N + scratch_of_normal(k)));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    Normal s = normal_space(n, k, X, Y + m * N);
    memcpy(Y, G, sizeof(double) * (size_t)(m * N));
    for (Py_ssize_t i = 0; i < m; i++)
        normal_part(&s, S + i * N, L, -1.0, Y + i * N);
    kept = curved_pairs(m, N, S, Y, bold, caution, &sigma, U);
    if (kept)
        inverse_middle(kept, N, U, K);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dn", sigma, kept));
}
