/* The learned metric: `geometry.metric.mean_metric` and `spread` of k×k matrices, what is learned from
 * a step, and the scales of the leaves of a tree.  The formulas of one matrix are in metric.inc.
 */
#include "metric.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "eigen.h"
#include "entries.h"
#include "matrices.h"

enum { FEW_COLUMNS = 24 }; /* beyond, LAPACK's factors take less time than loops */

#include "real_entries.inc"
#include "metric.inc"

#include "complex_entries.inc"
#include "metric.inc"

void learn_from_step(size_t entry, Py_ssize_t many, Py_ssize_t k, const Told *told, const void *P,
                     const void *R, const void *E, Sums *sums, void *const *out, void *room)
{
    if (entry == sizeof(double))
        d_learn(many, k, told, P, R, E, sums, out[0], out[1], out[2], room);
    else
        z_learn(many, k, told, P, R, E, sums, out[0], out[1], out[2], room);
}

int mean_differs(Py_ssize_t k, const double *P, const double *R, double ratio, const double *E,
                 double change, double *D, double *room)
{
    return d_differ(1, k, P, R, ratio, E, change, D, room);
}

/* So many k×k matrices of doubles, or of complex ones. */
static const void *square_matrices(Arrays *a, PyObject *object, Py_ssize_t *many, Py_ssize_t *k,
                                   size_t *entry)
{
    Py_ssize_t rows;
    const void *A = stacked_array(a, object, many, &rows, k, entry);
    int fits = *entry == sizeof(double) || *entry == sizeof(zdouble);
    if (A != NULL && (rows != *k || *k < 1 || *many < 1 || !fits)) {
        PyErr_Format(PyExc_ValueError, "a matrix is %zd by %zd; expected a square one of doubles",
                     rows, *k);
        a->failed = 1;
    }
    return A;
}

/* mean_metric(P, R, ratio, D), of one matrix or a stack: D is NaN where there is none */
PyObject *mean_metric(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, k;
    size_t e = 0;
    if (!counted(count, 4))
        return NULL;
    const char *P = square_matrices(&a, args[0], &many, &k, &e);
    const char *R = array(&a, args[1], many * k * k, e, READ);
    double ratio = number(&a, args[2]);
    char *D = array(&a, args[3], many * k * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(5 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    int real = e == sizeof(double);
    size_t size = e * (size_t)(k * k);
    double own;
    for (Py_ssize_t i = 0; i < many; i++, P += size, R += size, D += size)
        if (real ? d_mean(k, (const double *)P, (const double *)R, ratio, (double *)D, &own, room)
                 : z_mean(k, (const zdouble *)P, (const zdouble *)R, ratio, (zdouble *)D, &own, room))
            for (Py_ssize_t j = 0; j < k * k * (real ? 1 : 2); j++)
                ((double *)D)[j] = NAN;
    return finish(&a, Py_NewRef(Py_None));
}

/* spread(D, E or None) -> the condition number of D relative to E, of a stack the largest */
PyObject *spread(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, k;
    size_t e = 0;
    double largest = 0.0;
    if (!counted(count, 2))
        return NULL;
    const char *D = square_matrices(&a, args[0], &many, &k, &e);
    const char *E = optional_array(&a, args[1], many * k * k, e);
    void *room = workspace(&a, e * (size_t)(4 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    size_t size = e * (size_t)(k * k);
    for (Py_ssize_t i = 0; i < many; i++, D += size, E = E == NULL ? NULL : E + size) {
        double found = e == sizeof(double)
                           ? d_condition(k, (const double *)D, (const double *)E, room)
                           : z_condition(k, (const zdouble *)D, (const zdouble *)E, room);
        largest = found > largest || isnan(found) ? found : largest;
    }
    return finish(&a, PyFloat_FromDouble(largest));
}

/* learn(t, gram, basis, K, B, yᴴy, P, R, D or None, weight, judged, ratio, sums (4), power, memory,
 * news, change, range, least, P⁺, R⁺, D⁺) -> weight, judged, ratio, sums (4) and whether D⁺ differs
 * from D by more than `change`; None for a step that tells nothing.  Of one matrix or of a stack; of a
 * ray of many columns (wide.h) C and A stand for gram and basis, and None for K */
PyObject *learn(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, k, all;
    size_t e = 0;
    if (!counted(count, 25))
        return NULL;
    Told told = {.t = number(&a, args[0])};
    told.B = square_matrices(&a, args[4], &many, &k, &e);
    all = many * k * k;
    Py_ssize_t size = args[3] == Py_None ? all : 4 * all;
    told.gram = array(&a, args[1], size, e, READ);
    told.basis = array(&a, args[2], size, e, READ);
    told.K = optional_array(&a, args[3], size, e);
    told.yy = array(&a, args[5], all, e, READ);
    const void *P = array(&a, args[6], all, e, READ), *R = array(&a, args[7], all, e, READ);
    const void *E = optional_array(&a, args[8], all, e);
    if (told.K == NULL && many != 1)
        refuse(&a, "a ray of many columns is that of one matrix");
    double given[13];
    for (int i = 0; i < 13; i++)
        given[i] = number(&a, args[9 + i]);
    Sums s = {given[0], given[1], given[2], {given[3], given[4], given[5], given[6]}, 0, 0};
    told.power = given[7], told.memory = given[8], told.news = given[9];
    told.change = given[10], told.range = given[11], told.least = given[12];
    void *out[3];
    for (int i = 0; i < 3; i++)
        out[i] = array(&a, args[22 + i], all, e, WRITE);
    void *room = workspace(&a, e * (size_t)(7 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    learn_from_step(e, many, k, &told, P, R, E, &s, out, room);
    if (!s.seen)
        return finish(&a, Py_NewRef(Py_None));
    return finish(&a, Py_BuildValue("dddddddi", s.weight, s.judged, s.ratio, s.sums[0], s.sums[1],
                                    s.sums[2], s.sums[3], s.replaced));
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

void weigh(Py_ssize_t size, const double *ss, const double *yy, double *N, double *W, double unit,
           double memory, double least, double *scales)
{
    double sum = 0.0;
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
    double *scales = real_numbers(&a, args[7], &size, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    weigh(size, ss, yy, N, W, unit, memory, least, scales);
    return finish(&a, Py_NewRef(Py_None));
}
