/* Scales of unit vectors: what a step teaches of them, as `solvers.vector_scales._weighed` has it. */
#include <math.h>

#include "arrays.h"
#include "vectors.h"

/* ‖s‖², ‖y‖², ⟨s, D⁻¹s⟩ and ⟨y, Dy⟩; D = 1 if it is NULL. */
static void scale_sums(Py_ssize_t k, const double *restrict ss, const double *restrict yy,
                       const double *restrict D, double *out)
{
    double step = 0.0, change = 0.0, scaled_step = 0.0, scaled_change = 0.0;
    for (Py_ssize_t i = 0; i < k; i++) {
        step += ss[i], change += yy[i];
        if (D != NULL)
            scaled_step += ss[i] / D[i], scaled_change += yy[i] * D[i];
    }
    out[0] = step, out[1] = change;
    out[2] = D != NULL ? scaled_step : step, out[3] = D != NULL ? scaled_change : change;
}

/* The sums N and W with this step, and D, in the place of ‖s_i‖² and ‖y_i‖²; the mean square of
 * D/used − 1. */
static double learn_scales(Py_ssize_t k, double step, const Look *look, double *restrict N,
                           double *restrict W, double *restrict D)
{
    const double *before = look->before, *used = look->used;
    double whole = 0.0, known = 0.0, change = 0.0, least = look->least * step, most = look->most;
    for (Py_ssize_t i = 0; i < k; i++) {
        int told = N[i] > least;
        N[i] = (before == NULL ? 0.0 : before[i]) + (told ? N[i] / step : 0.0);
        W[i] = (before == NULL ? 0.0 : before[k + i]) + (told ? W[i] / step : 0.0);
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

Look look_of(Arrays *a, PyObject *object, PyObject *learned, Py_ssize_t k)
{
    Look look = {.learned = NULL};
    PyObject *before, *used;
    if (a->failed || object == Py_None)
        return look;
    if (!PyTuple_Check(object) ||
        !PyArg_ParseTuple(object, "OOddd", &before, &used, &look.least, &look.most, &look.huge)) {
        refuse(a, "expected what is known of unit vectors, D in use, and three numbers");
        return look;
    }
    look.before = optional_array(a, before, 3 * k, sizeof(double));
    look.used = optional_array(a, used, k, sizeof(double));
    look.learned = array(a, learned, 3 * k, sizeof(double), WRITE);
    return look;
}

void look_at_vectors(Py_ssize_t k, const Look *look, double *out)
{
    double *N = look->learned, huge = look->huge, sums[4];
    scale_sums(k, N, N + k, look->before == NULL ? NULL : look->before + 2 * k, sums);
    int tells = sums[0] > 1.0 / huge && sums[0] < huge && sums[1] > 1.0 / huge && sums[1] < huge;
    out[0] = tells ? log(sums[0] / sums[2]) + log(sums[1] / sums[3]) : NAN;
    out[1] = tells ? learn_scales(k, sums[0], look, N, N + k, N + 2 * k) : NAN;
}
