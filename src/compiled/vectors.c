/* Kernels for real vectors and for unit columns: arguments in, the formulas of vectors.inc. */
#include "vectors.h"

#include <math.h>

#include "arrays.h"

enum { SOME = 256 }; /* vectors whose numbers fit into the smallest cache, with a few rows of them */

/* k vectors of n entries: the columns of a matrix, or its rows. */
typedef struct {
    Py_ssize_t n, k;
    int rows;
} Layout;

/* What a circle knows of every vector; see `RealCircle`. */
typedef struct {
    double *half_excess, *xw, *squares, *M, *gu;
} Units;

#define FN(name) usual_##name
#define TARGET
#define BYTES 16
#include "vectors.inc"
#undef FN
#undef TARGET
#undef BYTES

#if HAS_WIDE
#define FN(name) wide_##name
#define TARGET WIDE
#define BYTES 32
#include "vectors.inc"
#endif

static double *doubles(Arrays *a, PyObject *object, Py_ssize_t entries, enum Access access)
{
    return array(a, object, entries, sizeof(double), access);
}

/* An array of any shape, and its number of entries. */
static const double *flat(Arrays *a, PyObject *object, Py_ssize_t *entries)
{
    *entries = ANY;
    return real_numbers(a, object, entries, READ);
}

/* The unit vectors of a matrix, which are its columns, or its rows if `by_rows` is True. */
static const double *units(Arrays *a, PyObject *object, PyObject *by_rows, Layout *by)
{
    Py_ssize_t shape[2] = {0, 0};
    size_t entry = sizeof(double);
    const double *X = shaped_array(a, object, 2, shape, &entry);
    if (entry != sizeof(double)) {
        PyErr_SetString(PyExc_ValueError, "expected double precision");
        a->failed = 1;
    }
    by->rows = by_rows == Py_True;
    by->n = shape[by->rows], by->k = shape[!by->rows];
    return X;
}

/* vector_gradient(x, E, G) -> ‖G‖² */
PyObject *vector_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n;
    double square;
    if (!counted(count, 3))
        return NULL;
    const double *x = flat(&a, args[0], &n), *E = doubles(&a, args[1], n, READ);
    double *G = doubles(&a, args[2], n, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    square = PICK(vector_gradient)(n, x, E, G);
    Py_END_ALLOW_THREADS
    return finish(&a, PyFloat_FromDouble(square));
}

/* vector_prepare(x, u, g) -> ⟨x, x⟩, ⟨x, u⟩, ⟨u, u⟩, ⟨g, u⟩ */
PyObject *vector_prepare(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t n;
    double out[4];
    if (!counted(count, 3))
        return NULL;
    const double *x = flat(&a, args[0], &n), *u = doubles(&a, args[1], n, READ);
    const double *g = doubles(&a, args[2], n, READ);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    PICK(grams)(n, x, u, g, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", out[0], out[1], out[2], out[3]));
}

/* vector_point(x, u, (⟨x, x⟩, ⟨x, w⟩, ⟨w, w⟩), M, t, out): `RealVectorRay.__call__` */
PyObject *vector_point(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays o = {.count = 0};
    Py_ssize_t n;
    double a, b, c;
    if (!counted(count, 6) || !PyArg_ParseTuple(args[2], "ddd", &a, &b, &c))
        return NULL;
    const double *x = flat(&o, args[0], &n), *u = doubles(&o, args[1], n, READ);
    double M = number(&o, args[3]), t = number(&o, args[4]);
    double *out = doubles(&o, args[5], n, WRITE);
    if (o.failed)
        return finish(&o, NULL);
    Py_BEGIN_ALLOW_THREADS
    double h = 0.5 * t, minus = 1.0 - h * b, hhac = h * h * (a * c);
    double D = minus * (1.0 + h * b) + hhac, P = (minus * minus - hhac) / D, Q = t * a / D;
    double grown = 1.5 - 0.5 * (P * P * a + 2.0 * (P * b * Q) + Q * Q * c);
    Q *= grown;
    PICK(vector_combined)(n, P * grown - Q * M, x, Q, u, out);
    Py_END_ALLOW_THREADS
    return finish(&o, Py_NewRef(Py_None));
}

/* Where a pair is kept: two arrays in single or in double precision. */
typedef struct {
    void *s, *y;
    int is_single;
} Kept;

static Kept kept(Arrays *a, PyObject *s, PyObject *y, Py_ssize_t entries)
{
    size_t entry = entry_of(a, s) == sizeof(float) ? sizeof(float) : sizeof(double);
    return (Kept){array(a, s, entries, entry, WRITE), array(a, y, entries, entry, WRITE),
                  entry == sizeof(float)};
}

/* vector_pair(x, u, (⟨x, x⟩, ⟨x, w⟩, ⟨w, w⟩), M, ⟨g, u⟩, t, G, G⁺, s, y) -> ⟨y, y⟩, ⟨G⁺, s⟩:
 * `RealVectorRay.secant_pair` */
PyObject *vector_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays o = {.count = 0};
    Py_ssize_t n;
    double a, b, c, out[2];
    if (!counted(count, 10) || !PyArg_ParseTuple(args[2], "ddd", &a, &b, &c))
        return NULL;
    const double *x = flat(&o, args[0], &n), *u = doubles(&o, args[1], n, READ);
    double M = number(&o, args[3]), gu = number(&o, args[4]), t = number(&o, args[5]);
    const double *G = doubles(&o, args[6], n, READ), *G_new = doubles(&o, args[7], n, READ);
    Kept to = kept(&o, args[8], args[9], n);
    if (o.failed)
        return finish(&o, NULL);
    Py_BEGIN_ALLOW_THREADS
    double h = 0.5 * t, minus = 1.0 - h * b, plus = 1.0 + h * b;
    double D = minus * plus + h * h * (a * c), p = b + b * a, q = -h * (c + b * b);
    double up = (plus * p + a * q) / D, low = (minus * q - h * h * c * p) / D;
    double along_w = t + t * t * up, along_x = t * (b + 2.0 * low) - along_w * M;
    q = -h * gu;
    up = t * a * q / D, low = 2.0 * minus * q / D - M * up;
    if (to.is_single)
        PICK(vector_pair_single)(n, x, u, G, G_new, along_x, along_w, low, up, to.s, to.y, out);
    else
        PICK(vector_pair_double)(n, x, u, G, G_new, along_x, along_w, low, up, to.s, to.y, out);
    Py_END_ALLOW_THREADS
    return finish(&o, Py_BuildValue("dd", out[0], out[1]));
}

static Units units_known(Arrays *a, PyObject *object, Py_ssize_t k, enum Access access)
{
    double *known = doubles(a, object, 5 * k, access);
    return (Units){known, known + k, known + 2 * k, known + 3 * k, known + 4 * k};
}

/* units_gradient(X, by_rows, E, G) -> ‖G‖² */
PyObject *units_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Layout by;
    double square;
    if (!counted(count, 4))
        return NULL;
    const double *X = units(&a, args[0], args[1], &by), *E = doubles(&a, args[2], by.n * by.k, READ);
    double *G = doubles(&a, args[3], by.n * by.k, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    square = PICK(units_gradient)(by, X, E, G);
    Py_END_ALLOW_THREADS
    return finish(&a, PyFloat_FromDouble(square));
}

/* units_prepare(X, by_rows, U, G, known, is_tangent, lossy) -> Σθ², the largest θ² and |⟨x, x⟩ − 1|,
 * how many θ² are less than so little of ⟨u, u⟩, and ⟨G, U⟩; `known` becomes (⟨x, x⟩ − 1)/2, ⟨x, w⟩, θ²,
 * M and ⟨g, u⟩ of every vector */
PyObject *units_prepare(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Layout by;
    double out[5];
    if (!counted(count, 7))
        return NULL;
    const double *X = units(&a, args[0], args[1], &by), *U = doubles(&a, args[2], by.n * by.k, READ);
    const double *G = doubles(&a, args[3], by.n * by.k, READ);
    Units of = units_known(&a, args[4], by.k, WRITE);
    double tangent = args[5] == Py_True ? 0.0 : 1.0, lossy = number(&a, args[6]);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    PICK(units_prepare)(by, X, U, G, &of, tangent, lossy, out);
    if (isnan(out[0])) /* comparisons hide a NaN */
        out[1] = out[2] = out[0];
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddddd", out[0], out[1], out[2], out[3], out[4]));
}

/* units_point(X, by_rows, U, known, t, Y) */
PyObject *units_point(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Layout by;
    if (!counted(count, 6))
        return NULL;
    const double *X = units(&a, args[0], args[1], &by), *U = doubles(&a, args[2], by.n * by.k, READ);
    Units of = units_known(&a, args[3], by.k, READ);
    double t = number(&a, args[4]);
    double *Y = doubles(&a, args[5], by.n * by.k, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    PICK(units_point)(by, X, U, &of, t, Y);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* units_pair(X, by_rows, U, known, t, G, G⁺, s, y) -> ⟨y, y⟩, ⟨G⁺, s⟩ */
PyObject *units_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Layout by;
    double out[2];
    if (!counted(count, 9))
        return NULL;
    const double *X = units(&a, args[0], args[1], &by), *U = doubles(&a, args[2], by.n * by.k, READ);
    Units of = units_known(&a, args[3], by.k, READ);
    double t = number(&a, args[4]);
    const double *G = doubles(&a, args[5], by.n * by.k, READ);
    const double *G_new = doubles(&a, args[6], by.n * by.k, READ);
    Kept to = kept(&a, args[7], args[8], by.n * by.k);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    if (to.is_single)
        PICK(units_pair_single)(by, X, U, &of, t, G, G_new, to.s, to.y, out);
    else
        PICK(units_pair_double)(by, X, U, &of, t, G, G_new, to.s, to.y, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dd", out[0], out[1]));
}
