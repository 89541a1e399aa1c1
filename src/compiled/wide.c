/* Kernels for a matrix with many columns: arguments in, the formulas of wide.inc, numbers out. */
#include "wide.h"

#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "entries.h"
#include "matrices.h"

#include "real_entries.inc"
#include "wide.inc"

#include "complex_entries.inc"
#include "wide.inc"

void prepare_wide_matrix(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, const void *W,
                         double theta, void *const *ray, double *out, void *room)
{
    if (entry == sizeof(double))
        d_prepare_wide(n, k, X, W, theta, ray[0], ray[1], ray[2], out, room);
    else
        z_prepare_wide(n, k, X, W, theta, ray[0], ray[1], ray[2], out, room);
}

/* prepare_wide(X, W, θ, U, A, C) -> ‖XᴴX − I‖², ‖U‖², ‖W‖² */
PyObject *prepare_wide(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    double out[3];
    void *ray[3];
    if (!counted(count, 6))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *W = array(&a, args[1], n * k, e, READ);
    double theta = number(&a, args[2]);
    for (int i = 0; i < 3; i++)
        ray[i] = array(&a, args[3 + i], i == 0 ? n * k : k * k, e, WRITE);
    void *room = a.failed ? NULL : workspace(&a, e * (size_t)(k * k));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS prepare_wide_matrix(e, n, k, X, W, theta, ray, out, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddd", out[0], out[1], out[2]));
}

void point_of_wide(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, void *const *ray, double t,
                   void *Y, void *V, void *room)
{
    if (entry == sizeof(double))
        d_wide_point(n, k, X, ray[0], ray[1], ray[2], t, Y, V, room);
    else
        z_wide_point(n, k, X, ray[0], ray[1], ray[2], t, Y, V, room);
}

void land_wide(size_t entry, WideLanding *l, void *room)
{
    Py_ssize_t n = l->n, k = l->k, numbers = (Py_ssize_t)(entry / sizeof(double));
    const double *before = l->rotation, *after = l->rotation_new;
    double *B = l->B;
    l->square = gradient_of_matrix(entry, l->span, n, k, l->Y, l->E, l->G_new, l->rotation_new, l->level,
                                   room);
    if (entry == sizeof(double))
        d_wide_pair(n, k, l->X, l->U, l->A, l->V, l->t, l->G, l->rotation, l->G_new, l->s, l->y, l->yy,
                    room);
    else
        z_wide_pair(n, k, l->X, l->U, l->A, l->V, l->t, l->G, l->rotation, l->G_new, l->s, l->y, l->yy,
                    room);
    for (Py_ssize_t i = 0; i < k * k * numbers; i++)
        B[i] = after[i] - before[i];
    l->slope = d_dot(n * k * numbers, l->G_new, l->s);
    l->change = d_dot(n * k * numbers, l->y, l->y);
}

/* wide_point(X, U, A, C, t, Y, V) */
PyObject *wide_point(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    if (!counted(count, 7))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *U = array(&a, args[1], n * k, e, READ), *A = array(&a, args[2], k * k, e, READ);
    const void *C = array(&a, args[3], k * k, e, READ);
    double t = number(&a, args[4]);
    void *Y = array(&a, args[5], n * k, e, WRITE), *V = array(&a, args[6], n * k, e, WRITE);
    void *room = a.failed ? NULL : workspace(&a, e * (size_t)(2 * k * k + n * k));
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, d_wide_point(n, k, X, U, A, C, t, Y, V, room),
                z_wide_point(n, k, X, U, A, C, t, Y, V, room))
    return finish(&a, Py_NewRef(Py_None));
}

/* wide_pair(X, U, A, V, t, G, XᴴG, G⁺, s, y, yᴴy) -> ⟨G⁺, s⟩, ‖y‖² */
PyObject *wide_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    if (!counted(count, 11))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *U = array(&a, args[1], n * k, e, READ), *A = array(&a, args[2], k * k, e, READ);
    const void *V = array(&a, args[3], n * k, e, READ);
    double t = number(&a, args[4]), slope = 0.0, square = 0.0;
    const void *G = array(&a, args[5], n * k, e, READ);
    const void *rotation = array(&a, args[6], k * k, e, READ);
    const void *G_new = array(&a, args[7], n * k, e, READ);
    void *s = array(&a, args[8], n * k, e, WRITE), *y = array(&a, args[9], n * k, e, WRITE);
    void *yy = array(&a, args[10], k * k, e, WRITE);
    void *room = a.failed ? NULL : workspace(&a, e * (size_t)(2 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    Py_ssize_t numbers = n * k * (Py_ssize_t)(e / sizeof(double));
    FOR_ENTRIES(e, d_wide_pair(n, k, X, U, A, V, t, G, rotation, G_new, s, y, yy, room),
                z_wide_pair(n, k, X, U, A, V, t, G, rotation, G_new, s, y, yy, room))
    slope = d_dot(numbers, G_new, s), square = d_dot(numbers, y, y);
    return finish(&a, Py_BuildValue("dd", slope, square));
}
