/* Kernels for a matrix in a frame or a stack of them: arguments in, the formulas of frames.inc,
 * numbers out. */
#include "frames.h"

#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "entries.h"
#include "matrices.h"

enum { SMALL = 200 }; /* multiplications, up to which plain loops take less time than BLAS */

#include "real_entries.inc"
#include "frames.inc"

#include "complex_entries.inc"
#include "frames.inc"

/* A frame has at least as many rows as the user's point has columns. */
static int upright(Arrays *a, Py_ssize_t n, Py_ssize_t k)
{
    if (n >= k)
        return 1;
    PyErr_Format(PyExc_ValueError, "a matrix is %zd by %zd; expected at least as many rows", n, k);
    a->failed = 1;
    return 0;
}

static double larger(double a, double b) { return b > a || isnan(b) ? b : a; }

void set_out_in_frames(size_t e, Py_ssize_t many, Py_ssize_t n, Py_ssize_t k, const void *Q, void *W,
                       int horizontal, void *E, const double *probe, double *out, void *room)
{
    for (int j = 0; j < SETTING_OUT; j++)
        out[j] = 0.0;
    for (Py_ssize_t i = 0; i < many; i++) {
        double found[3] = {0.0, 0.0, 0.0};
        if (e == sizeof(double))
            d_framed_ray(n, k, OF(Q, n * n), OF(W, n * k), horizontal, OF(E, k * k), probe, found, room);
        else
            z_framed_ray(n, k, OF(Q, n * n), OF(W, n * k), horizontal, OF(E, k * k), probe, found, room);
        out[DRIFT_OF_ALL] += found[0];
        for (int j = 0; j < 3; j++)
            out[LARGEST_DRIFT + j] = larger(out[LARGEST_DRIFT + j], found[j]);
    }
}

double gradient_in_frame(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *Q, const void *E, void *G)
{
    return entry == sizeof(double) ? d_framed_gradient(n, k, Q, E, G) : z_framed_gradient(n, k, Q, E, G);
}

/* framed_gradient(Q, E, G) -> ‖G‖²_g* */
PyObject *framed_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    double square = 0.0;
    if (!counted(count, 3))
        return NULL;
    const void *E = stack_like(&a, args[1], &many, &n, &k, &e);
    const void *Q = array(&a, args[0], many * n * n, e, READ);
    void *G = array(&a, args[2], many * n * k, e, WRITE);
    if (a.failed || !upright(&a, n, k))
        return finish(&a, NULL);
    FOR_MATRICES(many, e,
                 square += d_framed_gradient(n, k, OF(Q, n * n), OF(E, n * k), OF(G, n * k)),
                 square += z_framed_gradient(n, k, OF(Q, n * n), OF(E, n * k), OF(G, n * k)))
    return finish(&a, PyFloat_FromDouble(square));
}

/* framed_ray(Q, T, horizontal, E, probe or None) -> see `set_out_in_frames` */
PyObject *framed_ray(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    double out[SETTING_OUT];
    if (!counted(count, 5))
        return NULL;
    stack_like(&a, args[1], &many, &n, &k, &e);
    const void *Q = array(&a, args[0], many * n * n, e, READ);
    void *W = array(&a, args[1], many * n * k, e, WRITE), *E = array(&a, args[3], many * k * k, e, WRITE);
    long horizontal = integer(&a, args[2]);
    const double *probe = optional_array(&a, args[4], n, sizeof(double));
    void *room = workspace(&a, e * (size_t)(3 * n));
    if (a.failed || !upright(&a, n, k))
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    set_out_in_frames(e, many, n, k, Q, W, (int)horizontal, E, probe, out, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", out[0], out[1], out[2], out[3]));
}

/* framed_point(Q, T, t, Q(t)) */
PyObject *framed_point(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    if (!counted(count, 4))
        return NULL;
    const void *tangent = stack_like(&a, args[1], &many, &n, &k, &e);
    const void *Q = array(&a, args[0], many * n * n, e, READ);
    double t = number(&a, args[2]);
    void *out = array(&a, args[3], many * n * n, e, WRITE);
    void *room = workspace(&a, e * (size_t)(k * k + 2 * n * k));
    if (a.failed || !upright(&a, n, k))
        return finish(&a, NULL);
    FOR_MATRICES(many, e,
                 d_framed_point(n, k, OF(Q, n * n), OF(tangent, n * k), t, OF(out, n * n), room),
                 z_framed_point(n, k, OF(Q, n * n), OF(tangent, n * k), t, OF(out, n * n), room))
    return finish(&a, Py_NewRef(Py_None));
}
