/* Kernels for real vectors and for unit columns: arguments in, the formulas of vectors.inc. */
#include "vectors.h"

#include <math.h>
#include <stdlib.h>

#include "arrays.h"

enum { SOME = 256 }; /* vectors whose numbers fit into the smallest cache, with a few rows of them */

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
    if (entry != sizeof(double))
        refuse(a, "expected double precision");
    else if (shape[0] < 1 || shape[1] < 1)
        refuse(a, "a matrix has no entries");
    by->rows = by_rows == Py_True;
    by->n = shape[by->rows], by->k = shape[!by->rows];
    return X;
}

void add_grams(Py_ssize_t n, const double *x, const double *u, const double *g, double *out)
{
    double part[4];
    PICK(grams)(n, x, u, g, part);
    for (int i = 0; i < 4; i++)
        out[i] += part[i];
}

/* s = p x + q u and y = G⁺ − G − (c x + d u) of the ray along w = u − Mx, with (a, b, c) =
 * (⟨x, x⟩, ⟨x, w⟩, ⟨w, w⟩) and gu = ⟨g, u⟩. */
typedef struct {
    double p, q, c, d;
} Turn;

static Turn vector_turn(const VectorRay *ray, double t)
{
    double a = ray->a, b = ray->b, c = ray->c, M = ray->M, gu = ray->gu;
    double h = 0.5 * t, minus = 1.0 - h * b, plus = 1.0 + h * b;
    double D = minus * plus + h * h * (a * c), p = b + b * a, q = -h * (c + b * b);
    double up = (plus * p + a * q) / D, low = (minus * q - h * h * c * p) / D;
    double along_w = t + t * t * up;
    q = -h * gu;
    Turn by = {t * (b + 2.0 * low) - along_w * M, along_w, 0.0, t * a * q / D};
    by.c = 2.0 * minus * q / D - M * by.d;
    return by;
}

/* n numbers of a pair, in single or in double precision; ⟨y, y⟩ and ⟨G⁺, s⟩ are added to `out`. */
static void add_pair(Py_ssize_t n, const double *x, const double *u, const double *G, const double *G_new,
              const Turn *by, void *s, void *y, int is_single, double *out)
{
    double part[2];
    if (is_single)
        PICK(vector_pair_single)(n, x, u, G, G_new, by->p, by->q, by->c, by->d, s, y, part);
    else
        PICK(vector_pair_double)(n, x, u, G, G_new, by->p, by->q, by->c, by->d, s, y, part);
    out[0] += part[0], out[1] += part[1];
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
    double out[4] = {0};
    if (!counted(count, 3))
        return NULL;
    const double *x = flat(&a, args[0], &n), *u = doubles(&a, args[1], n, READ);
    const double *g = doubles(&a, args[2], n, READ);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t start = (n - 1) / PART * PART; start >= 0; start -= PART)
        add_grams(n - start < PART ? n - start : PART, x + start, u + start, g + start, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", out[0], out[1], out[2], out[3]));
}

void point_of_vector(Py_ssize_t n, const double *x, const double *u, const VectorRay *ray, double t,
                     double *out)
{
    double a = ray->a, b = ray->b, c = ray->c;
    double h = 0.5 * t, minus = 1.0 - h * b, hhac = h * h * (a * c);
    double D = minus * (1.0 + h * b) + hhac, P = (minus * minus - hhac) / D, Q = t * a / D;
    double grown = 1.5 - 0.5 * (P * P * a + 2.0 * (P * b * Q) + Q * Q * c);
    Q *= grown;
    PICK(vector_combined)(n, P * grown - Q * ray->M, x, Q, u, out);
}

/* vector_point(x, u, (⟨x, x⟩, ⟨x, w⟩, ⟨w, w⟩), M, t, out): `RealVectorRay.__call__` */
PyObject *vector_point(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays o = {.count = 0};
    Py_ssize_t n;
    double squares[3];
    if (!counted(count, 6))
        return NULL;
    few_numbers(&o, args[2], 3, squares);
    const double *x = flat(&o, args[0], &n), *u = doubles(&o, args[1], n, READ);
    double M = number(&o, args[3]), t = number(&o, args[4]);
    double *out = doubles(&o, args[5], n, WRITE);
    if (o.failed)
        return finish(&o, NULL);
    Py_BEGIN_ALLOW_THREADS
    VectorRay ray = {squares[0], squares[1], squares[2], M, 0.0};
    point_of_vector(n, x, u, &ray, t, out);
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
    double squares[3], out[2] = {0};
    if (!counted(count, 10))
        return NULL;
    few_numbers(&o, args[2], 3, squares);
    const double *x = flat(&o, args[0], &n), *u = doubles(&o, args[1], n, READ);
    double M = number(&o, args[3]), gu = number(&o, args[4]), t = number(&o, args[5]);
    const double *G = doubles(&o, args[6], n, READ), *G_new = doubles(&o, args[7], n, READ);
    Kept to = kept(&o, args[8], args[9], n);
    if (o.failed)
        return finish(&o, NULL);
    Py_BEGIN_ALLOW_THREADS
    VectorRay ray = {squares[0], squares[1], squares[2], M, gu};
    Turn by = vector_turn(&ray, t);
    add_pair(n, x, u, G, G_new, &by, to.s, to.y, to.is_single, out);
    Py_END_ALLOW_THREADS
    return finish(&o, Py_BuildValue("dd", out[0], out[1]));
}

VectorStep vector_step(Arrays *a, PyObject *const *step, PyObject *const *place)
{
    double squares[3] = {0.0};
    VectorStep s = {.to = block_of(a, place[0], place[1], WRITE)};
    few_numbers(a, step[2], 3, squares);
    s.x = doubles(a, step[0], s.to.n, READ), s.u = doubles(a, step[1], s.to.n, READ);
    s.ray = (VectorRay){squares[0], squares[1], squares[2], number(a, step[3]), number(a, step[4])};
    s.t = number(a, step[5]), s.G = doubles(a, step[6], s.to.n, READ);
    s.found = room_for_products(a, place[2], &s.to);
    return s;
}

/* PART columns of the pair in the last of the rows, and their products with all of them. */
static void keep_part(const VectorStep *s, const Turn *by, Py_ssize_t i, const double *G_new, double *out)
{
    const Block *to = &s->to;
    size_t at = (size_t)i * to->entry;
    add_pair(width_of(to, i), s->x + i, s->u + i, s->G + i, G_new + i, by, newest(to, 0) + at,
             newest(to, 1) + at, to->entry == sizeof(float), out);
    add_products(to, i, G_new, NULL, s->found);
}

/* ⟨y, y⟩ and ⟨G⁺, s⟩ of the pair that is kept. */
static void keep_vector_pair(const VectorStep *s, const double *G_new, double *out)
{
    Turn by = vector_turn(&s->ray, s->t);
    for (Py_ssize_t i = 0; i < s->to.n; i += PART)
        keep_part(s, &by, i, G_new, out);
}

double land_vector(const VectorStep *s, const double *Y, const double *E, double *G_new, double *out)
{
    Py_ssize_t n = s->to.n;
    double square = 0.0, *squares = malloc(sizeof(double) * (size_t)((n + PART - 1) / PART));
    if (squares == NULL) {
        square = PICK(vector_gradient)(n, Y, E, G_new);
        keep_vector_pair(s, G_new, out);
        return square;
    }
    double level = PICK(inner)(n, Y, E);
    Turn by = vector_turn(&s->ray, s->t);
    for (Py_ssize_t i = 0; i < n; i += PART) { /* a part of G⁺ is near when the pair asks for it */
        squares[i / PART] = PICK(vector_projected)(width_of(&s->to, i), level, Y + i, E + i, G_new + i);
        keep_part(s, &by, i, G_new, out);
    }
    for (Py_ssize_t i = (n - 1) / PART; i >= 0; i--) /* as `vector_gradient` adds them */
        square += squares[i];
    free(squares);
    return square;
}

/* plain_vector_pair(as `VectorStep` has it, G⁺) -> ⟨y, y⟩, ⟨G⁺, s⟩: `vector_pair` into the last of those
 * rows, with the products of all of them */
PyObject *plain_vector_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double out[2] = {0};
    if (!counted(count, 11))
        return NULL;
    VectorStep s = vector_step(&a, args, args + 7);
    const double *G_new = doubles(&a, args[10], s.to.n, READ);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS keep_vector_pair(&s, G_new, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dd", out[0], out[1]));
}

static PyObject *six(const double *out)
{
    return Py_BuildValue("dddddd", out[0], out[1], out[2], out[3], out[4], out[5]);
}

Units units_known(Arrays *a, PyObject *object, Py_ssize_t k, enum Access access)
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

/* units_prepare(X, by_rows, U, G, known, lossy, owned) -> Σθ², the largest θ² and |⟨x, x⟩ − 1|, how
 * many θ² are less than so little of ⟨u, u⟩, ⟨G, U⟩ and Σ(⟨x, x⟩ − 1)²; `known` becomes (⟨x, x⟩ − 1)/2, ⟨x, w⟩, θ², M
 * and ⟨g, u⟩ of every vector.  If U is `owned`, lossy vectors of it are made tangent first. */
PyObject *units_prepare(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Layout by;
    double out[6];
    if (!counted(count, 7))
        return NULL;
    int owned = args[6] == Py_True;
    const double *X = units(&a, args[0], args[1], &by);
    double *U = doubles(&a, args[2], by.n * by.k, owned ? WRITE : READ);
    const double *G = doubles(&a, args[3], by.n * by.k, READ);
    Units of = units_known(&a, args[4], by.k, WRITE);
    double lossy = number(&a, args[5]);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    PICK(units_prepare)(by, X, U, G, &of, lossy, owned, NULL, out);
    if (isnan(out[0])) /* comparisons hide a NaN */
        out[1] = out[2] = out[0];
    Py_END_ALLOW_THREADS
    return finish(&a, six(out));
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
        PICK(units_pair_single)(by, X, U, &of, t, G, G_new, NULL, NULL, to.s, to.y, out);
    else
        PICK(units_pair_double)(by, X, U, &of, t, G, G_new, NULL, NULL, to.s, to.y, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dd", out[0], out[1]));
}

static void refuse_others(Arrays *a, const Block *b, Layout by)
{
    if (a->failed || by.n * by.k == b->n)
        return;
    PyErr_SetString(PyExc_ValueError, "the block of pairs is one of other vectors");
    a->failed = 1;
}

UnitStep unit_step(Arrays *a, PyObject *const *step, PyObject *const *place)
{
    UnitStep s = {.to = block_of(a, place[0], place[1], WRITE)};
    s.X = units(a, step[0], step[1], &s.by), s.U = doubles(a, step[2], s.to.n, READ);
    s.of = units_known(a, step[3], s.by.k, READ);
    s.t = number(a, step[4]), s.G = doubles(a, step[5], s.to.n, READ);
    s.found = room_for_products(a, place[2], &s.to);
    s.D = optional_array(a, place[3], s.to.n, sizeof(double));
    s.look = look_of(a, place[4], place[5], s.by.k);
    refuse_others(a, &s.to, s.by);
    return s;
}

/* `units_pair` into the last of the rows, with the products of all of them; ⟨y, Dy⟩, ⟨G⁺, s⟩, and what
 * `look_at_vectors` finds. */
static void keep_pair(const UnitStep *s, const double *G_new, double *out)
{
    const Block *to = &s->to;
    char *row_s = newest(to, 0), *row_y = newest(to, 1);
    double *each = s->look.learned;
    if (to->entry == sizeof(float))
        PICK(units_pair_single)(s->by, s->X, s->U, &s->of, s->t, s->G, G_new, s->D, each,
                                (float *)row_s, (float *)row_y, out);
    else
        PICK(units_pair_double)(s->by, s->X, s->U, &s->of, s->t, s->G, G_new, s->D, each,
                                (double *)row_s, (double *)row_y, out);
    for (Py_ssize_t i = 0; i < to->n; i += PART)
        add_products(to, i, G_new, s->D, s->found);
    out[2] = out[3] = NAN;
    if (each != NULL)
        look_at_vectors(s->by.k, &s->look, out + 2);
}

double land_units(const UnitStep *s, const double *Y, const double *E, double *G_new, double *out)
{
    double square = PICK(units_gradient)(s->by, Y, E, G_new);
    keep_pair(s, G_new, out);
    return square;
}

/* plain_units_pair(X, by_rows, U, known, t, G, G⁺, block, rows in use, found, D, look, learned) ->
 * what `keep_pair` says */
PyObject *plain_units_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double out[4];
    if (!counted(count, 13))
        return NULL;
    UnitStep s = unit_step(&a, args, args + 7);
    const double *G_new = doubles(&a, args[6], s.to.n, READ);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    keep_pair(&s, G_new, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", out[0], out[1], out[2], out[3]));
}

/* plain_units_landing(X, by_rows, U, known, t, G, X⁺, E⁺, G⁺, block, rows in use, found, D, look, learned)
 * -> ‖G⁺‖² and what `keep_pair` says: `units_gradient` at X⁺ and the pair of the step to there */
PyObject *plain_units_landing(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double out[4], square;
    if (!counted(count, 15))
        return NULL;
    UnitStep s = unit_step(&a, args, args + 9);
    const double *Y = doubles(&a, args[6], s.to.n, READ), *E = doubles(&a, args[7], s.to.n, READ);
    double *G_new = doubles(&a, args[8], s.to.n, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    square = land_units(&s, Y, E, G_new, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddddd", square, out[0], out[1], out[2], out[3]));
}

void aim_units(Layout by, const double *X, const Combination *c, const Units *of, double lossy, double *out)
{
    weigh_pairs(c);
    PICK(units_prepare)(by, X, c->out, c->g, of, lossy, 1, c, out);
    if (isnan(out[0])) /* comparisons hide a NaN */
        out[1] = out[2] = out[0];
}

void points_of_units(Layout by, const double *X, const double *U, const Units *of, double t, double *Y)
{
    PICK(units_point)(by, X, U, of, t, Y);
}

/* plain_units_direction(block, rows in use, found, ⟨s, y⟩, R⁻¹, ⟨s_i, y_i⟩, YᵀDY, γ, D or None, g, out, X,
 * by_rows, known, lossy): `plain_direction` and then `units_prepare` of it, which is owned */
PyObject *plain_units_direction(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Layout by;
    double out[6];
    if (!counted(count, 15))
        return NULL;
    Combination c = combination_of(&a, args);
    const double *X = units(&a, args[11], args[12], &by);
    Units of = units_known(&a, args[13], by.k, WRITE);
    double lossy = number(&a, args[14]);
    refuse_others(&a, &c.block, by);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    aim_units(by, X, &c, &of, lossy, out);
    Py_END_ALLOW_THREADS
    return finish(&a, six(out));
}
