/* Kernels for one matrix: arguments in, the formulas of matrices.inc, numbers out. */
#include "matrices.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "entries.h"

enum { FEW = 4 }; /* columns */
enum { BLOCK = 4096 }; /* entries: 32 KiB of real numbers */

static Py_ssize_t rows_of_block(Py_ssize_t k) { return k < BLOCK / 16 ? BLOCK / k : 16; }

/* Tall matrices are read block by block, so that what is computed next is still in the cache. */
#define FOR_BLOCKS(n, k)                                                                           \
    for (Py_ssize_t top = 0, many = rows_of_block(k), rows = 0;                                    \
         rows = (n) - top < many ? (n) - top : many, rows > 0; top += rows)

#include "real_entries.inc"
#include "matrices.inc"
#include "frames.inc"

#include "complex_entries.inc"
#include "matrices.inc"
#include "frames.inc"

const void *point_like(Arrays *a, PyObject *object, Py_ssize_t *n, Py_ssize_t *k,
                              size_t *entry)
{
    Py_ssize_t shape[2] = {0, 0};
    const void *X = shaped_array(a, object, 2, shape, entry);
    *n = shape[0], *k = shape[1];
    if (X != NULL && *entry != sizeof(double) && *entry != sizeof(zdouble))
        refuse(a, "expected double precision");
    else if (X != NULL && (*n < 1 || *k < 1))
        refuse(a, "a matrix has no entries");
    return X;
}

static const void *square_like(Arrays *a, PyObject *object, Py_ssize_t *k, size_t *entry)
{
    Py_ssize_t rows;
    const void *A = point_like(a, object, &rows, k, entry);
    if (A != NULL && rows != *k) {
        PyErr_Format(PyExc_ValueError, "a matrix is %zd by %zd; expected a square one", rows, *k);
        a->failed = 1;
    }
    return A;
}

/* A frame has at least as many rows as the user's point has columns. */
static int upright(Arrays *a, Py_ssize_t n, Py_ssize_t k)
{
    if (n >= k)
        return 1;
    PyErr_Format(PyExc_ValueError, "a matrix is %zd by %zd; expected at least as many rows", n, k);
    a->failed = 1;
    return 0;
}

/* lower_gradient(X, E, G, rotation, level) -> ‖G‖²_g* */
PyObject *lower_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    double square = 0.0;
    if (!counted(count, 5))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *E = array(&a, args[1], n * k, e, READ);
    void *G = array(&a, args[2], n * k, e, WRITE);
    void *rotation = array(&a, args[3], k * k, e, WRITE);
    void *level = array(&a, args[4], k * k, e, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, square = d_lower_gradient(n, k, X, E, G, rotation, level),
                square = z_lower_gradient(n, k, X, E, G, rotation, level))
    return finish(&a, PyFloat_FromDouble(square));
}

/* prepare(X, W, gram, basis, cobasis, K) -> ‖W‖²_g*, ‖XᴴX − I‖² */
PyObject *prepare(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    double out[2];
    if (!counted(count, 6))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *W = array(&a, args[1], n * k, e, READ);
    void *frame[4];
    for (int i = 0; i < 4; i++)
        frame[i] = array(&a, args[2 + i], 4 * k * k, e, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, d_prepare(n, k, X, W, frame[0], frame[1], frame[2], frame[3], out),
                z_prepare(n, k, X, W, frame[0], frame[1], frame[2], frame[3], out))
    return finish(&a, Py_BuildValue("dd", out[0], out[1]));
}

void prepare_matrix(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, const void *U,
                    double theta, void *const *f, double *out, void *room)
{
    if (entry == sizeof(double))
        d_prepare_tangent(n, k, X, U, theta, f[0], f[1], f[2], f[3], out, room);
    else
        z_prepare_tangent(n, k, X, U, theta, f[0], f[1], f[2], f[3], out, room);
}

/* prepare_tangent(X, T, θ, gram, basis, cobasis, K) -> ‖XᴴX − I‖², ‖φ(W)‖², ‖T‖² */
PyObject *prepare_tangent(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    double out[3];
    if (!counted(count, 7))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *U = array(&a, args[1], n * k, e, READ);
    double theta = number(&a, args[2]);
    void *f[4];
    for (int i = 0; i < 4; i++)
        f[i] = array(&a, args[3 + i], 4 * k * k, e, WRITE);
    void *room = workspace(&a, e * aim_room(k));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS prepare_matrix(e, n, k, X, U, theta, f, out, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddd", out[0], out[1], out[2]));
}

/* displacement(K, t, N) */
PyObject *displacement(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t two;
    size_t e;
    if (!counted(count, 3))
        return NULL;
    const void *K = square_like(&a, args[0], &two, &e);
    double t = number(&a, args[1]);
    void *N = array(&a, args[2], two * two, e, WRITE);
    void *room = workspace(&a, e * (size_t)(two * two));
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, d_displacement(two / 2, K, t, N, room), z_displacement(two / 2, K, t, N, room))
    return finish(&a, Py_NewRef(Py_None));
}

/* point(X, U, gram, basis, K, t, Y, N) */
PyObject *point(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    if (!counted(count, 8))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *U = array(&a, args[1], n * k, e, READ), *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = array(&a, args[2 + i], 4 * k * k, e, READ);
    double t = number(&a, args[5]);
    void *Y = array(&a, args[6], n * k, e, WRITE);
    void *N = array(&a, args[7], 4 * k * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(5 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, d_point(n, k, X, U, f[0], f[1], f[2], t, Y, N, room),
                z_point(n, k, X, U, f[0], f[1], f[2], t, Y, N, room))
    return finish(&a, Py_NewRef(Py_None));
}

/* secant_pair(X, U, basis, cobasis, K, N, t, G, rotation, G⁺, s, y, yᴴy) -> ⟨G⁺, s⟩, ‖y‖² */
PyObject *secant_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    double slope = 0.0, square = 0.0;
    if (!counted(count, 13))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *U = array(&a, args[1], n * k, e, READ), *f[4];
    for (int i = 0; i < 4; i++)
        f[i] = array(&a, args[2 + i], 4 * k * k, e, READ);
    double t = number(&a, args[6]);
    const void *G = array(&a, args[7], n * k, e, READ);
    const void *rotation = array(&a, args[8], k * k, e, READ);
    const void *G_new = array(&a, args[9], n * k, e, READ);
    void *s = array(&a, args[10], n * k, e, WRITE), *y = array(&a, args[11], n * k, e, WRITE);
    void *yy = array(&a, args[12], k * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(6 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(
        e,
        d_secant_pair(n, k, X, U, f[0], f[1], f[2], f[3], t, G, rotation, G_new, s, y, yy, room),
        z_secant_pair(n, k, X, U, f[0], f[1], f[2], f[3], t, G, rotation, G_new, s, y, yy, room))
    slope = d_dot(n * k * (Py_ssize_t)(e / sizeof(double)), G_new, s);
    for (Py_ssize_t i = 0; i < k * k; i += k + 1)
        square += *(const double *)((const char *)yy + (size_t)i * e);
    return finish(&a, Py_BuildValue("dd", slope, square));
}

/* transport(X, U, basis, cobasis, N, t, V, Q(t)V) */
PyObject *transport(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    if (!counted(count, 8))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *U = array(&a, args[1], n * k, e, READ), *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = array(&a, args[2 + i], 4 * k * k, e, READ);
    double t = number(&a, args[5]);
    const void *V = array(&a, args[6], n * k, e, READ);
    void *out = array(&a, args[7], n * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(6 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, d_transport(n, k, X, U, f[0], f[1], f[2], t, V, out, room),
                z_transport(n, k, X, U, f[0], f[1], f[2], t, V, out, room))
    return finish(&a, Py_NewRef(Py_None));
}

/* velocity(X, U, basis, K, N, transported, out) */
PyObject *velocity(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    if (!counted(count, 7))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *U = array(&a, args[1], n * k, e, READ), *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = array(&a, args[2 + i], 4 * k * k, e, READ);
    int transported = (int)integer(&a, args[5]);
    void *out = array(&a, args[6], n * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(4 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, d_velocity(n, k, X, U, f[0], f[1], f[2], transported, out, room),
                z_velocity(n, k, X, U, f[0], f[1], f[2], transported, out, room))
    return finish(&a, Py_NewRef(Py_None));
}

size_t aim_room(Py_ssize_t k) { return (size_t)(5 * k * k + rows_of_block(k) * k); }

void raise_matrix(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, void *W, const void *D,
                  double omega, void *room)
{
    if (entry == sizeof(double))
        d_raise_index(n, k, X, W, D, omega, room);
    else
        z_raise_index(n, k, X, W, D, omega, room);
}

/* raise_index(X, W, D or None, ω): φ(W) in place of W */
PyObject *raise_index(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    if (!counted(count, 4))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    void *W = array(&a, args[1], n * k, e, WRITE);
    const void *D = optional_array(&a, args[2], k * k, e);
    double omega = number(&a, args[3]);
    void *room = workspace(&a, e * aim_room(k));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS raise_matrix(e, n, k, X, W, D, omega, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* lower_span_gradient(X, E, G, level) -> ‖G‖² */
PyObject *lower_span_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    double square = 0.0;
    if (!counted(count, 4))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *E = array(&a, args[1], n * k, e, READ);
    void *G = array(&a, args[2], n * k, e, WRITE);
    void *level = array(&a, args[3], k * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(k * k));
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, square = d_lower_span_gradient(n, k, X, E, G, level, room),
                square = z_lower_span_gradient(n, k, X, E, G, level, room))
    return finish(&a, PyFloat_FromDouble(square));
}

/* extrapolate(X, Y, τ, out) */
PyObject *extrapolate(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    if (!counted(count, 4))
        return NULL;
    const void *X = point_like(&a, args[0], &n, &k, &e);
    const void *Y = array(&a, args[1], n * k, e, READ);
    double tau = number(&a, args[2]);
    void *out = array(&a, args[3], n * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(24 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, d_extrapolate(n, k, X, Y, tau, out, room),
                z_extrapolate(n, k, X, Y, tau, out, room))
    return finish(&a, Py_NewRef(Py_None));
}

/* squares(t, gram, basis, K, B, yᴴy, SᴴS, TᴴT) -> ‖S‖², ‖T‖², ‖A‖², ‖B‖² */
PyObject *squares(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t k;
    size_t e;
    double out[4];
    if (!counted(count, 8))
        return NULL;
    double t = number(&a, args[0]);
    const void *B = square_like(&a, args[4], &k, &e), *f[3];
    const void *yy = array(&a, args[5], k * k, e, READ);
    for (int i = 0; i < 3; i++)
        f[i] = array(&a, args[1 + i], 4 * k * k, e, READ);
    void *SS = array(&a, args[6], k * k, e, WRITE), *TT = array(&a, args[7], k * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(4 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, d_squares(k, t, f[0], f[1], f[2], B, yy, SS, TT, out, room),
                z_squares(k, t, f[0], f[1], f[2], B, yy, SS, TT, out, room))
    return finish(&a, Py_BuildValue("dddd", out[0], out[1], out[2], out[3]));
}

double change_of_matrix(size_t entry, Py_ssize_t k, const void *B, const void *yy, const void *D,
                        double omega, void *room)
{
    return entry == sizeof(double) ? d_squared_change(k, B, yy, D, omega, room)
                                   : z_squared_change(k, B, yy, D, omega, room);
}

/* squared_change(B, yᴴy, D or None, ω) -> ⟨y, φ(y)⟩ */
PyObject *squared_change(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t k;
    size_t e;
    double square = 0.0;
    if (!counted(count, 4))
        return NULL;
    const void *B = square_like(&a, args[0], &k, &e);
    const void *yy = array(&a, args[1], k * k, e, READ);
    const void *D = optional_array(&a, args[2], k * k, e);
    double omega = number(&a, args[3]);
    void *room = workspace(&a, e * (size_t)(k * k));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS square = change_of_matrix(e, k, B, yy, D, omega, room);
    Py_END_ALLOW_THREADS
    return finish(&a, PyFloat_FromDouble(square));
}

/* framed_gradient(Q, E, G) -> ‖G‖²_g* */
PyObject *framed_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    double square = 0.0;
    if (!counted(count, 3))
        return NULL;
    const void *E = point_like(&a, args[1], &n, &k, &e);
    const void *Q = array(&a, args[0], n * n, e, READ);
    void *G = array(&a, args[2], n * k, e, WRITE);
    if (a.failed || !upright(&a, n, k))
        return finish(&a, NULL);
    FOR_ENTRIES(e, square = d_framed_gradient(n, k, Q, E, G),
                square = z_framed_gradient(n, k, Q, E, G))
    return finish(&a, PyFloat_FromDouble(square));
}

/* framed_ray(Q, T, horizontal, E) -> ‖E‖², ‖T‖²: T becomes the nearest tangent, E is XᴴX − I */
PyObject *framed_ray(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    double out[2];
    if (!counted(count, 4))
        return NULL;
    point_like(&a, args[1], &n, &k, &e);
    const void *Q = array(&a, args[0], n * n, e, READ);
    void *W = array(&a, args[1], n * k, e, WRITE), *E = array(&a, args[3], k * k, e, WRITE);
    long horizontal = integer(&a, args[2]);
    if (a.failed || !upright(&a, n, k))
        return finish(&a, NULL);
    FOR_ENTRIES(e, d_framed_ray(n, k, Q, W, (int)horizontal, E, out),
                z_framed_ray(n, k, Q, W, (int)horizontal, E, out))
    return finish(&a, Py_BuildValue("dd", out[0], out[1]));
}

/* framed_point(Q, T, t, Q(t)) */
PyObject *framed_point(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n, k;
    size_t e;
    if (!counted(count, 4))
        return NULL;
    const void *tangent = point_like(&a, args[1], &n, &k, &e);
    const void *Q = array(&a, args[0], n * n, e, READ);
    double t = number(&a, args[2]);
    void *out = array(&a, args[3], n * n, e, WRITE);
    void *room = workspace(&a, e * (size_t)(k * k + 2 * n * k));
    if (a.failed || !upright(&a, n, k))
        return finish(&a, NULL);
    FOR_ENTRIES(e, d_framed_point(n, k, Q, tangent, t, out, room),
                z_framed_point(n, k, Q, tangent, t, out, room))
    return finish(&a, Py_NewRef(Py_None));
}
