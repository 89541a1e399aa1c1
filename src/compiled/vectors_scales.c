/* Scales of unit vectors: what a step teaches of them, as `solvers.vector_scales._weighed` has it. */
#include <math.h>

#include "arrays.h"
#include "vectors.h"

/* The score of D = exp(logs), the shares of ‖s_i‖²/D_i, and ‖y‖². */
static double score_of(Py_ssize_t k, const double *ss, const double *yy, const double *logs,
                       double *own, double *sum)
{
    double step = 0.0, change = 0.0, scaled_step = 0.0, scaled_change = 0.0;
    for (Py_ssize_t i = 0; i < k; i++) {
        double D = exp(logs[i]);
        own[i] = ss[i] / D;
        step += ss[i], change += yy[i], scaled_step += own[i], scaled_change += yy[i] * D;
    }
    for (Py_ssize_t i = 0; i < k; i++)
        own[i] /= scaled_step;
    *sum = change;
    return log(step / scaled_step) + log(change / scaled_change);
}

/* N, W and the logarithms with this step, of which `own` are the shares. */
static void learn_scales(Py_ssize_t k, const double *ss, const double *yy, const double *own,
                         double change, double unit, double least, double most, double *N,
                         double *W, double *logs)
{
    double sum = 0.0;
    for (Py_ssize_t i = 0; i < k; i++) {
        if (own[i] > least && yy[i] > least * least * change) {
            double w = (double)k * own[i] < 1.0 ? (double)k * own[i] : 1.0;
            N[i] += w, W[i] += w * log(yy[i] / ss[i] / unit);
        }
        logs[i] = N[i] > 0.0 ? -0.5 * W[i] / N[i] : 0.0;
        sum += logs[i];
    }
    for (Py_ssize_t i = 0; i < k; i++) {
        double centred = logs[i] - sum / (double)k;
        logs[i] = centred < -most ? -most : centred > most ? most : centred;
    }
}

/* units_weighed(‖s_i‖², ‖y_i‖², N, W, log D, unit, least share, most) -> the score of D for this step;
 * N, W and log D become those after it, unless the score is not finite */
PyObject *units_weighed(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t k = ANY;
    double score, change;
    if (!counted(count, 8))
        return NULL;
    const double *ss = real_numbers(&a, args[0], &k, READ), *yy = real_numbers(&a, args[1], &k, READ);
    double *N = real_numbers(&a, args[2], &k, WRITE), *W = real_numbers(&a, args[3], &k, WRITE);
    double *logs = real_numbers(&a, args[4], &k, WRITE);
    double unit = number(&a, args[5]), least = number(&a, args[6]), most = number(&a, args[7]);
    double *own = workspace(&a, sizeof(double) * (size_t)(k > 0 ? k : 1));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    score = score_of(k, ss, yy, logs, own, &change);
    if (isfinite(score))
        learn_scales(k, ss, yy, own, change, unit, least, most, N, W, logs);
    Py_END_ALLOW_THREADS
    return finish(&a, PyFloat_FromDouble(score));
}
