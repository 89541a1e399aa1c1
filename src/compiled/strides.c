/* What every step decides that is taken in one call: the numbers of `solvers.strides`. */
#include "strides.h"

#include <math.h>

#include "blas.h"

double paired(const Terms *q, double t, double slope) { return t * (slope / t - q->start); }

int is_ordinary(const Terms *q, double t, double square, double slope, double change)
{
    return isfinite(square) && square > 0.0 && (q->far || slope / t >= q->flattest * q->start) &&
           paired(q, t, slope) > q->caution * sqrt(change);
}

double averaged(double gamma, double sy, double square)
{
    if (!(square > 0.0))
        return gamma;
    return gamma != 0.0 ? sqrt(gamma * (sy / square)) : sy / square;
}

double first_trial(double speed, double longest)
{
    double size = speed > 0.0 ? sqrt(speed) : 0.0;
    return size > 0.0 && longest / size < 1.0 ? longest / size : 1.0;
}

int has_turned(size_t entry, Py_ssize_t k, const void *rotation, double turn)
{
    return sqrt(d_dot(k * k * (Py_ssize_t)(entry / sizeof(double)), rotation, rotation)) > turn;
}
