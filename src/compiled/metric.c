/* The learned metric: `geometry.metric.mean_metric` and `spread` of real k×k matrices, and the scales
 * of the leaves of a tree.
 *
 * An eigenvector is a row here: to LAPACK, which counts by columns, a symmetric matrix is itself.
 */
#include "metric.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "eigen.h"

/* out = Vᵀ diag(values) V for eigenvectors in the rows of V; room for k². */
static void rebuilt(Py_ssize_t k, const double *V, const double *values, double *out, double *room)
{
    for (Py_ssize_t i = 0; i < k; i++)
        for (Py_ssize_t j = 0; j < k; j++)
            room[i * k + j] = values[i] * V[i * k + j];
    d_multiply(ADJOINT, PLAIN, k, k, k, 1.0, V, k, room, k, 0.0, out, k);
}

static void symmetrised(Py_ssize_t k, double *A)
{
    for (Py_ssize_t i = 0; i < k; i++)
        for (Py_ssize_t j = i + 1; j < k; j++)
            A[i * k + j] = A[j * k + i] = 0.5 * (A[i * k + j] + A[j * k + i]);
}

/* A little off the singular ones. */
static void regular(Py_ssize_t k, double share, const double *A, double *out)
{
    double trace = 0.0;
    memcpy(out, A, sizeof(double) * (size_t)(k * k));
    for (Py_ssize_t i = 0; i < k; i++)
        trace += A[i * k + i];
    for (Py_ssize_t i = 0; i < k; i++)
        out[i * k + i] += share * (trace / (double)k) + sqrt(DBL_MIN);
}

/* D = M⁻¹ with MPM = R, determinant one, condition at most `ratio`; see `fused.mean_metric`.
 * With P = LLᵀ and LᵀRL = VᵀλV, D = (LVᵀ) λ^{-½} (LVᵀ)ᵀ.  Room for 4k² + k; 0 if it exists. */
static int mean(Py_ssize_t k, const double *P, const double *R, double ratio, double *D,
                double *room)
{
    double *L = room, *A = L + k * k, *B = A + k * k, *C = B + k * k, *values = C + k * k;
    double sum = 0.0;
    regular(k, 1e-3, P, L);
    regular(k, 1e-6, R, A);
    if (d_cholesky(k, L))
        return 1;
    d_multiply(PLAIN, PLAIN, k, k, k, 1.0, A, k, L, k, 0.0, B, k);
    d_multiply(ADJOINT, PLAIN, k, k, k, 1.0, L, k, B, k, 0.0, A, k);
    symmetrised(k, A);
    if (d_eigh(k, A, values))
        return 1;
    /* R is a difference: what is beneath the rounding of the largest value is not known. */
    double least = fmax(DBL_EPSILON * values[k - 1], DBL_MIN);
    for (Py_ssize_t i = 0; i < k; i++)
        values[i] = 1.0 / sqrt(fmax(values[i], least));
    d_multiply(PLAIN, ADJOINT, k, k, k, 1.0, A, k, L, k, 0.0, B, k); /* rows: (LVᵀ)ᵀ */
    rebuilt(k, B, values, A, C);
    symmetrised(k, A);
    if (d_eigh(k, A, values))
        return 1;
    least = DBL_EPSILON * values[k - 1];
    for (Py_ssize_t i = 0; i < k; i++)
        values[i] = fmax(values[i], least);
    for (Py_ssize_t i = k - 1; i >= 0; i--)
        values[i] = fmin(values[i] / values[0], ratio);
    for (Py_ssize_t i = 0; i < k; i++)
        sum += log(values[i]);
    for (Py_ssize_t i = 0; i < k; i++)
        values[i] /= exp(sum / (double)k);
    rebuilt(k, A, values, D, C);
    return 0;
}

/* The condition number of D relative to E; E may be NULL for I.  Room for 2k² + k. */
static double condition(Py_ssize_t k, const double *D, const double *E, double *room)
{
    double *A = room, *B = A + k * k, *values = B + k * k;
    memcpy(A, D, sizeof(double) * (size_t)(k * k));
    symmetrised(k, A);
    memset(B, 0, sizeof(double) * (size_t)(k * k));
    for (Py_ssize_t i = 0; i < k; i++)
        B[i * k + i] = 1.0;
    if (E != NULL)
        memcpy(B, E, sizeof(double) * (size_t)(k * k));
    return d_relative_values(k, A, B, values) ? NAN : values[k - 1] / values[0];
}

/* A k×k matrix of doubles. */
static const double *square_matrix(Arrays *a, PyObject *object, Py_ssize_t *k)
{
    Py_ssize_t shape[2] = {0, 0};
    size_t entry = 0;
    const double *A = shaped_array(a, object, 2, shape, &entry);
    *k = shape[0];
    if (A != NULL && (shape[0] != shape[1] || *k < 1 || entry != sizeof(double))) {
        PyErr_Format(PyExc_ValueError, "a matrix is %zd by %zd; expected a square one of doubles",
                     shape[0], shape[1]);
        a->failed = 1;
    }
    return A;
}

/* mean_metric(P, R, ratio, D): D is NaN where there is none */
PyObject *mean_metric(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t k;
    if (!counted(count, 4))
        return NULL;
    const double *P = square_matrix(&a, args[0], &k);
    const double *R = array(&a, args[1], k * k, sizeof(double), READ);
    double ratio = number(&a, args[2]);
    double *D = array(&a, args[3], k * k, sizeof(double), WRITE);
    double *room = workspace(&a, sizeof(double) * (size_t)(4 * k * k + k));
    if (a.failed)
        return finish(&a, NULL);
    if (mean(k, P, R, ratio, D, room))
        for (Py_ssize_t i = 0; i < k * k; i++)
            D[i] = NAN;
    return finish(&a, Py_NewRef(Py_None));
}

/* spread(D, E or None) -> the condition number of D relative to E */
PyObject *spread(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t k;
    if (!counted(count, 2))
        return NULL;
    const double *D = square_matrix(&a, args[0], &k);
    const double *E = optional_array(&a, args[1], k * k, sizeof(double));
    double *room = workspace(&a, sizeof(double) * (size_t)(2 * k * k + k));
    if (a.failed)
        return finish(&a, NULL);
    return finish(&a, PyFloat_FromDouble(condition(k, D, E, room)));
}

/* 1 for the softest part of stiffness W/N, and for those that are not known. */
static void scales_of(Py_ssize_t size, const double *N, const double *W, double *scales)
{
    double least = INFINITY;
    for (Py_ssize_t i = 0; i < size; i++)
        if (N[i] > 0.0 && W[i] / N[i] < least)
            least = W[i] / N[i];
    for (Py_ssize_t i = 0; i < size; i++)
        scales[i] = N[i] > 0.0 ? exp(0.5 * (least - W[i] / N[i])) : 1.0;
}

/* weighed(‖s‖², ‖y‖², N, W, unit, memory, least share, scales): `solvers.leaves.weighed`; N and W
 * become those after the step */
PyObject *weighed(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t size = ANY;
    if (!counted(count, 8))
        return NULL;
    const double *ss = real_numbers(&a, args[0], &size, READ);
    const double *yy = real_numbers(&a, args[1], &size, READ);
    double *N = real_numbers(&a, args[2], &size, WRITE), *W = real_numbers(&a, args[3], &size, WRITE);
    double unit = number(&a, args[4]), memory = number(&a, args[5]), least = number(&a, args[6]);
    double *scales = real_numbers(&a, args[7], &size, WRITE), sum = 0.0;
    if (a.failed)
        return finish(&a, NULL);
    scales_of(size, N, W, scales);
    for (Py_ssize_t i = 0; i < size; i++)
        sum += ss[i] / scales[i];
    for (Py_ssize_t i = 0; i < size; i++) {
        double share = ss[i] / scales[i] / sum, w = 0.0, log_ratio = 0.0;
        if (share > least && yy[i] > 0.0) {
            w = fmin((double)size * share, 1.0);
            log_ratio = log(yy[i] / ss[i] / unit);
        }
        N[i] = memory * N[i] + w;
        W[i] = memory * W[i] + w * log_ratio;
    }
    scales_of(size, N, W, scales);
    return finish(&a, Py_NewRef(Py_None));
}
