/* Scales of unit vectors: what a step teaches of them, as `solvers.vector_scales._weighed` has it. */
#include <math.h>

#include "arrays.h"
#include "vectors.h"

/* ‖s‖², ‖y‖², ⟨s, D⁻¹s⟩ and ⟨y, Dy⟩. */
static void scale_sums(Py_ssize_t k, const double *restrict ss, const double *restrict yy,
                       const double *restrict D, double *out)
{
    double step = 0.0, change = 0.0, scaled_step = 0.0, scaled_change = 0.0;
    for (Py_ssize_t i = 0; i < k; i++) {
        step += ss[i], change += yy[i];
        scaled_step += ss[i] / D[i], scaled_change += yy[i] * D[i];
    }
    out[0] = step, out[1] = change, out[2] = scaled_step, out[3] = scaled_change;
}

/* The sums N and W with this step, and D; the mean square of D/used − 1. */
static double learn_scales(Py_ssize_t k, const double *restrict ss, const double *restrict yy,
                           double step, double least, double most, const double *used,
                           double *restrict N, double *restrict W, double *restrict D)
{
    double whole = 0.0, known = 0.0, change = 0.0;
    for (Py_ssize_t i = 0; i < k; i++) {
        int told = ss[i] > least * step;
        N[i] += told ? ss[i] / step : 0.0, W[i] += told ? yy[i] / step : 0.0;
        int is_known = N[i] > 0.0 && W[i] > 0.0;
        D[i] = is_known ? sqrt(N[i] / W[i]) : 0.0;
        whole += D[i], known += is_known;
    }
    for (Py_ssize_t i = 0; i < k; i++) {
        double own = D[i] * (known / whole);
        own = own < 1.0 / most ? 1.0 / most : own > most ? most : own;
        D[i] = N[i] > 0.0 && W[i] > 0.0 ? own : 1.0;
        double relative = D[i] / (used == NULL ? 1.0 : used[i]) - 1.0;
        change += relative * relative;
    }
    return change / (double)k;
}

/* units_weighed((‖s_i‖², ‖y_i‖²), (N, W, D), D in use or None, least share, most, huge) -> the score of D
 * for this step and what is new in the D with it; or None, and everything as it was, where sums are
 * huge, or less than the inverse of that */
PyObject *units_weighed(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t both = ANY;
    double sums[4], change = 0.0;
    if (!counted(count, 6))
        return NULL;
    const double *ss = real_numbers(&a, args[0], &both, READ);
    Py_ssize_t k = both / 2;
    double *N = array(&a, args[1], 3 * k, sizeof(double), WRITE);
    const double *used = optional_array(&a, args[2], k, sizeof(double)), *yy = ss + k;
    double least = number(&a, args[3]), most = number(&a, args[4]), huge = number(&a, args[5]);
    if (!a.failed && both % 2)
        refuse(&a, "expected two numbers for each vector");
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    scale_sums(k, ss, yy, N + 2 * k, sums);
    int tells = sums[0] > 1.0 / huge && sums[0] < huge && sums[1] > 1.0 / huge && sums[1] < huge;
    if (tells)
        change = learn_scales(k, ss, yy, sums[0], least, most, used, N, N + k, N + 2 * k);
    sums[0] = tells ? log(sums[0] / sums[2]) + log(sums[1] / sums[3]) : NAN;
    Py_END_ALLOW_THREADS
    if (isnan(sums[0]))
        return finish(&a, Py_NewRef(Py_None));
    return finish(&a, Py_BuildValue("dd", sums[0], change));
}
