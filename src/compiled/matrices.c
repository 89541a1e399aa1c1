/* Kernels for a matrix or a stack of them: arguments in, the formulas of matrices.inc, numbers out. */
#include "matrices.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "entries.h"
#include "narrow.h"

enum { FEW = 4 }; /* columns */
enum { BLOCK = 4096 }; /* entries: 32 KiB of real numbers */

static Py_ssize_t rows_of_block(Py_ssize_t k) { return k < BLOCK / 16 ? BLOCK / k : 16; }

/* Tall matrices are read block by block, so that what is computed next is still in the cache. */
#define FOR_BLOCKS(n, k)                                                                           \
    for (Py_ssize_t top = 0, many = rows_of_block(k), rows = 0;                                    \
         rows = (n) - top < many ? (n) - top : many, rows > 0; top += rows)

#include "real_entries.inc"
#include "matrices.inc"

#include "complex_entries.inc"
#include "matrices.inc"

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

const void *stack_like(Arrays *a, PyObject *object, Py_ssize_t *many, Py_ssize_t *n, Py_ssize_t *k,
                       size_t *entry)
{
    const void *X = stacked_array(a, object, many, n, k, entry);
    if (X != NULL && *entry != sizeof(double) && *entry != sizeof(zdouble))
        refuse(a, "expected double precision");
    else if (X != NULL && (*many < 1 || *n < 1 || *k < 1))
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

/* lower_gradient(X, E, G, rotation, level) -> ‖G‖²_g* */
PyObject *lower_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    double square = 0.0;
    if (!counted(count, 5))
        return NULL;
    const void *X = stack_like(&a, args[0], &many, &n, &k, &e);
    const void *E = array(&a, args[1], many * n * k, e, READ);
    void *G = array(&a, args[2], many * n * k, e, WRITE);
    void *rotation = array(&a, args[3], many * k * k, e, WRITE);
    void *level = array(&a, args[4], many * k * k, e, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    FOR_MATRICES(many, e,
                 square += d_lower_gradient(n, k, OF(X, n * k), OF(E, n * k), OF(G, n * k),
                                            OF(rotation, k * k), OF(level, k * k)),
                 square += z_lower_gradient(n, k, OF(X, n * k), OF(E, n * k), OF(G, n * k),
                                            OF(rotation, k * k), OF(level, k * k)))
    return finish(&a, PyFloat_FromDouble(square));
}

/* prepare(X, W, gram, basis, cobasis, K) -> ‖W‖²_g*, ‖XᴴX − I‖² */
PyObject *prepare(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    double out[2], sums[2] = {0.0, 0.0};
    if (!counted(count, 6))
        return NULL;
    const void *X = stack_like(&a, args[0], &many, &n, &k, &e);
    const void *W = array(&a, args[1], many * n * k, e, READ);
    void *frame[4];
    for (int i = 0; i < 4; i++)
        frame[i] = array(&a, args[2 + i], many * 4 * k * k, e, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < many; i++) {
        void *f[4];
        for (int j = 0; j < 4; j++)
            f[j] = OF(frame[j], 4 * k * k);
        if (e == sizeof(double))
            d_prepare(n, k, OF(X, n * k), OF(W, n * k), f[0], f[1], f[2], f[3], out);
        else
            z_prepare(n, k, OF(X, n * k), OF(W, n * k), f[0], f[1], f[2], f[3], out);
        sums[0] += out[0], sums[1] += out[1];
    }
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dd", sums[0], sums[1]));
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
    Py_ssize_t many, n, k;
    size_t e;
    double out[3], sums[3] = {0.0, 0.0, 0.0};
    if (!counted(count, 7))
        return NULL;
    const void *X = stack_like(&a, args[0], &many, &n, &k, &e);
    const void *U = array(&a, args[1], many * n * k, e, READ);
    double theta = number(&a, args[2]);
    void *f[4];
    for (int i = 0; i < 4; i++)
        f[i] = array(&a, args[3 + i], many * 4 * k * k, e, WRITE);
    void *room = a.failed ? NULL : workspace(&a, e * aim_room(k));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < many; i++) {
        void *frame[4];
        for (int j = 0; j < 4; j++)
            frame[j] = OF(f[j], 4 * k * k);
        prepare_matrix(e, n, k, OF(X, n * k), OF(U, n * k), theta, frame, out, room);
        sums[0] += out[0], sums[2] += out[2];
        sums[1] = out[1] > sums[1] || isnan(out[1]) ? out[1] : sums[1]; /* the fastest */
    }
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddd", sums[0], sums[1], sums[2]));
}

/* displacement(K, t, N) */
PyObject *displacement(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, rows, two;
    size_t e;
    if (!counted(count, 3))
        return NULL;
    const void *K = stack_like(&a, args[0], &many, &rows, &two, &e);
    double t = number(&a, args[1]);
    void *N = array(&a, args[2], many * two * two, e, WRITE);
    if (!a.failed && rows != two)
        refuse(&a, "a generator is a square matrix");
    void *room = workspace(&a, e * (size_t)(two * two));
    if (a.failed)
        return finish(&a, NULL);
    FOR_MATRICES(many, e,
                 d_displacement(two / 2, OF(K, two * two), t, OF(N, two * two), room),
                 z_displacement(two / 2, OF(K, two * two), t, OF(N, two * two), room))
    return finish(&a, Py_NewRef(Py_None));
}

void point_of_matrix(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *X, const void *U,
                     void *const *f, double t, void *Y, void *N, void *room)
{
    if (entry == sizeof(double))
        d_point(n, k, X, U, f[0], f[1], f[3], t, Y, N, room);
    else
        z_point(n, k, X, U, f[0], f[1], f[3], t, Y, N, room);
}

double gradient_of_matrix(size_t entry, int span, Py_ssize_t n, Py_ssize_t k, const void *X,
                          const void *E, void *G, void *rotation, void *level, void *room)
{
    if (entry == sizeof(double))
        return d_lower(span, n, k, X, E, G, rotation, level, room);
    return z_lower(span, n, k, X, E, G, rotation, level, room);
}

void land_matrix(size_t entry, Landing *l, void *room)
{
    if (entry == sizeof(double))
        d_land(l, room);
    else
        z_land(l, room);
}

/* point(X, U, gram, basis, K, t, Y, N) */
PyObject *point(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    if (!counted(count, 8))
        return NULL;
    const void *X = stack_like(&a, args[0], &many, &n, &k, &e);
    const void *U = array(&a, args[1], many * n * k, e, READ), *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = array(&a, args[2 + i], many * 4 * k * k, e, READ);
    double t = number(&a, args[5]);
    void *Y = array(&a, args[6], many * n * k, e, WRITE);
    void *N = array(&a, args[7], many * 4 * k * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(5 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    const Py_ssize_t nk = n * k, kk = 4 * k * k;
    FOR_MATRICES(many, e,
                 d_point(n, k, OF(X, nk), OF(U, nk), OF(f[0], kk), OF(f[1], kk), OF(f[2], kk), t,
                         OF(Y, nk), OF(N, kk), room),
                 z_point(n, k, OF(X, nk), OF(U, nk), OF(f[0], kk), OF(f[1], kk), OF(f[2], kk), t,
                         OF(Y, nk), OF(N, kk), room))
    return finish(&a, Py_NewRef(Py_None));
}

/* secant_pair(X, U, basis, cobasis, K, N, t, G, rotation, G⁺, s, y, yᴴy) -> ⟨G⁺, s⟩, ‖y‖² */
PyObject *secant_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    double slope = 0.0, square = 0.0;
    if (!counted(count, 13))
        return NULL;
    const void *X = stack_like(&a, args[0], &many, &n, &k, &e);
    const void *U = array(&a, args[1], many * n * k, e, READ), *f[4];
    for (int i = 0; i < 4; i++)
        f[i] = array(&a, args[2 + i], many * 4 * k * k, e, READ);
    double t = number(&a, args[6]);
    const void *G = array(&a, args[7], many * n * k, e, READ);
    const void *rotation = array(&a, args[8], many * k * k, e, READ);
    const void *G_new = array(&a, args[9], many * n * k, e, READ);
    void *s = array(&a, args[10], many * n * k, e, WRITE), *y = array(&a, args[11], many * n * k, e, WRITE);
    void *yy = array(&a, args[12], many * k * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(6 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    const Py_ssize_t nk = n * k, kk = k * k;
    FOR_MATRICES(many, e,
                 d_secant_pair(n, k, OF(X, nk), OF(U, nk), OF(f[0], 4 * kk), OF(f[1], 4 * kk),
                               OF(f[2], 4 * kk), OF(f[3], 4 * kk), t, OF(G, nk), OF(rotation, kk),
                               OF(G_new, nk), OF(s, nk), OF(y, nk), OF(yy, kk), room),
                 z_secant_pair(n, k, OF(X, nk), OF(U, nk), OF(f[0], 4 * kk), OF(f[1], 4 * kk),
                               OF(f[2], 4 * kk), OF(f[3], 4 * kk), t, OF(G, nk), OF(rotation, kk),
                               OF(G_new, nk), OF(s, nk), OF(y, nk), OF(yy, kk), room))
    slope = d_dot(many * nk * (Py_ssize_t)(e / sizeof(double)), G_new, s);
    for (Py_ssize_t i = 0; i < many; i++)
        for (Py_ssize_t j = 0; j < kk; j += k + 1)
            square += *(const double *)((const char *)yy + (size_t)(i * kk + j) * e);
    return finish(&a, Py_BuildValue("dd", slope, square));
}

/* transport(X, U, basis, cobasis, N, t, V, Q(t)V) */
PyObject *transport(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    if (!counted(count, 8))
        return NULL;
    const void *X = stack_like(&a, args[0], &many, &n, &k, &e);
    const void *U = array(&a, args[1], many * n * k, e, READ), *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = array(&a, args[2 + i], many * 4 * k * k, e, READ);
    double t = number(&a, args[5]);
    const void *V = array(&a, args[6], many * n * k, e, READ);
    void *out = array(&a, args[7], many * n * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(6 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    const Py_ssize_t nk = n * k, kk = 4 * k * k;
    FOR_MATRICES(many, e,
                 d_transport(n, k, OF(X, nk), OF(U, nk), OF(f[0], kk), OF(f[1], kk), OF(f[2], kk), t,
                             OF(V, nk), OF(out, nk), room),
                 z_transport(n, k, OF(X, nk), OF(U, nk), OF(f[0], kk), OF(f[1], kk), OF(f[2], kk), t,
                             OF(V, nk), OF(out, nk), room))
    return finish(&a, Py_NewRef(Py_None));
}

/* velocity(X, U, basis, K, N, transported, out) */
PyObject *velocity(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    if (!counted(count, 7))
        return NULL;
    const void *X = stack_like(&a, args[0], &many, &n, &k, &e);
    const void *U = array(&a, args[1], many * n * k, e, READ), *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = array(&a, args[2 + i], many * 4 * k * k, e, READ);
    int transported = (int)integer(&a, args[5]);
    void *out = array(&a, args[6], many * n * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(4 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    const Py_ssize_t nk = n * k, kk = 4 * k * k;
    FOR_MATRICES(many, e,
                 d_velocity(n, k, OF(X, nk), OF(U, nk), OF(f[0], kk), OF(f[1], kk), OF(f[2], kk),
                            transported, OF(out, nk), room),
                 z_velocity(n, k, OF(X, nk), OF(U, nk), OF(f[0], kk), OF(f[1], kk), OF(f[2], kk),
                            transported, OF(out, nk), room))
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
    Py_ssize_t many, n, k;
    size_t e;
    if (!counted(count, 4))
        return NULL;
    const void *X = stack_like(&a, args[0], &many, &n, &k, &e);
    void *W = array(&a, args[1], many * n * k, e, WRITE);
    const void *D = optional_array(&a, args[2], many * k * k, e);
    double omega = number(&a, args[3]);
    void *room = a.failed ? NULL : workspace(&a, e * aim_room(k));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < many; i++)
        raise_matrix(e, n, k, OF(X, n * k), OF(W, n * k), OF(D, k * k), omega, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* lower_span_gradient(X, E, G, level) -> ‖G‖² */
PyObject *lower_span_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    double square = 0.0;
    if (!counted(count, 4))
        return NULL;
    const void *X = stack_like(&a, args[0], &many, &n, &k, &e);
    const void *E = array(&a, args[1], many * n * k, e, READ);
    void *G = array(&a, args[2], many * n * k, e, WRITE);
    void *level = array(&a, args[3], many * k * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(k * k));
    if (a.failed)
        return finish(&a, NULL);
    FOR_MATRICES(many, e,
                 square += d_lower_span_gradient(n, k, OF(X, n * k), OF(E, n * k), OF(G, n * k),
                                                 OF(level, k * k), room),
                 square += z_lower_span_gradient(n, k, OF(X, n * k), OF(E, n * k), OF(G, n * k),
                                                 OF(level, k * k), room))
    return finish(&a, PyFloat_FromDouble(square));
}

/* extrapolate(X, Y, τ, out) */
PyObject *extrapolate(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, n, k;
    size_t e;
    if (!counted(count, 4))
        return NULL;
    const void *X = stack_like(&a, args[0], &many, &n, &k, &e);
    const void *Y = array(&a, args[1], many * n * k, e, READ);
    double tau = number(&a, args[2]);
    void *out = array(&a, args[3], many * n * k, e, WRITE);
    void *room = workspace(&a, e * (size_t)(24 * k * k));
    if (a.failed)
        return finish(&a, NULL);
    FOR_MATRICES(many, e,
                 d_extrapolate(n, k, OF(X, n * k), OF(Y, n * k), tau, OF(out, n * k), room),
                 z_extrapolate(n, k, OF(X, n * k), OF(Y, n * k), tau, OF(out, n * k), room))
    return finish(&a, Py_NewRef(Py_None));
}

/* squares(t, gram, basis, K, B, yᴴy, SᴴS, TᴴT) -> ‖S‖², ‖T‖², ‖A‖², ‖B‖², of a stack their sums */
PyObject *squares(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t many, rows, k;
    size_t e;
    double out[4], sums[4] = {0.0, 0.0, 0.0, 0.0};
    if (!counted(count, 8))
        return NULL;
    double t = number(&a, args[0]);
    const void *B = stack_like(&a, args[4], &many, &rows, &k, &e), *f[3];
    const Py_ssize_t kk = k * k;
    const void *yy = array(&a, args[5], many * kk, e, READ);
    for (int i = 0; i < 3; i++)
        f[i] = array(&a, args[1 + i], many * 4 * kk, e, READ);
    void *SS = array(&a, args[6], many * kk, e, WRITE), *TT = array(&a, args[7], many * kk, e, WRITE);
    void *room = workspace(&a, e * (size_t)(4 * kk));
    if (!a.failed && rows != k)
        refuse(&a, "a rotation part is a square matrix");
    if (a.failed)
        return finish(&a, NULL);
    for (Py_ssize_t i = 0; i < many; i++) {
        const void *gram = OF(f[0], 4 * kk), *basis = OF(f[1], 4 * kk), *K = OF(f[2], 4 * kk);
        if (e == sizeof(double))
            d_squares(k, t, gram, basis, K, OF(B, kk), OF(yy, kk), OF(SS, kk), OF(TT, kk), out, room);
        else
            z_squares(k, t, gram, basis, K, OF(B, kk), OF(yy, kk), OF(SS, kk), OF(TT, kk), out, room);
        for (int j = 0; j < 4; j++)
            sums[j] += out[j];
    }
    return finish(&a, Py_BuildValue("dddd", sums[0], sums[1], sums[2], sums[3]));
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
