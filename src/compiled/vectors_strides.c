/* A step of one real vector, or of many unit vectors, from its end to the first trial of the next:
 * `solvers.strides`.  The formulas are those of vectors.c and vectors_memory.c.
 */
#include <math.h>

#include "arrays.h"
#include "strides.h"
#include "vectors.h"

/* Lengths that need no scale in single precision are between the first two, squared; see
 * `plain_pairs._scale`.  Rays that keep no more than `lossy` of their direction are made anew. */
typedef struct {
    double small, large, lossy, longest;
} Limits;

/* What follows from the pair of an ordinary step. */
typedef struct {
    Terms terms;
    Limits limits;
    Combination aim;
    double *next, t; /* the first point to be tried, and the step to it */
} Ahead;

/* From args: X⁺, E⁺, G⁺, R⁻¹, ⟨s_i, y_i⟩, YᵀDY, γ, T, Z, (⟨∇f, T⟩ at the start, c₂, far, least ⟨s, y⟩ beside
 * ‖y‖), (small, large, lossy, longest). */
enum { ARGUMENTS_AHEAD = 11 };

static Ahead ahead_of(Arrays *a, PyObject *const *args, const Block *to, double *found, const double *D)
{
    double terms[4] = {0.0}, limits[4] = {0.0};
    Ahead v = {.aim = {.is_new = 1, .block = *to, .found = found, .D = D}};
    v.aim.g = array(a, args[2], to->n, sizeof(double), WRITE);
    v.aim.numbers = numbers_beside(a, args + 3, to, WRITE);
    v.aim.gamma = number(a, args[6]);
    v.aim.out = array(a, args[7], to->n, sizeof(double), WRITE);
    v.next = array(a, args[8], to->n, sizeof(double), WRITE);
    few_numbers(a, args[9], 4, terms), few_numbers(a, args[10], 4, limits);
    v.terms = (Terms){terms[0], terms[1], terms[2] != 0.0, terms[3]};
    v.limits = (Limits){limits[0], limits[1], limits[2], limits[3]};
    return v;
}

/* Whether a length of this square is safe in the block's precision. */
static int is_safe(const Block *to, const Limits *l, double square)
{
    return to->entry == sizeof(double) || (square > l->small * l->small && square < l->large * l->large);
}

/* Whether the step needs no question; `pair` is ⟨y, Dy⟩ and ⟨G⁺, s⟩.  If so, ⟨s, y⟩ and γ are known. */
static int goes_on(Ahead *v, double t, double square, const double *pair)
{
    const Block *to = &v->aim.block;
    double norm = sqrt(square);
    if (!is_ordinary(&v->terms, t, square, pair[1], pair[0]) || !is_safe(to, &v->limits, pair[0]) ||
        !is_safe(to, &v->limits, norm * norm))
        return 0;
    v->aim.sy = paired(&v->terms, t, pair[1]);
    v->aim.gamma = averaged(v->aim.gamma, v->aim.sy, pair[0]);
    return 1;
}

/* Aims from x along u = T, and tries a point; ⟨x, x⟩, ⟨x, u⟩, ⟨u, u⟩ and ⟨g, u⟩.  t = 0 where the ray has
 * to be made anew: `RealVectorRay._know` does. */
static void aim_vector(Ahead *v, const double *x, double *grams)
{
    direction_of_vector(&v->aim, x, grams);
    double a = grams[0], b = grams[1], c = grams[2], bb = b * b * (2.0 - a);
    if (!(c - bb > v->limits.lossy * c))
        return;
    VectorRay ray = {a, b - b * a, c - bb, b, 0.0};
    v->t = first_trial(ray.c + 3.0 * (ray.b * ray.b), v->limits.longest);
    point_of_vector(v->aim.block.n, x, v->aim.out, &ray, v->t, v->next);
}

/* vector_stride(as `VectorStep` has it, as `ahead_of` has it) -> ‖G⁺‖², ⟨y, y⟩, ⟨G⁺, s⟩ and, of an
 * ordinary step, (γ, t, ⟨x, x⟩, ⟨x, u⟩, ⟨u, u⟩, ⟨g, u⟩), or None */
PyObject *vector_stride(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double pair[2] = {0.0}, grams[4] = {0.0}, square = 0.0;
    int ordinary = 0;
    if (!counted(count, 10 + ARGUMENTS_AHEAD))
        return NULL;
    VectorStep s = vector_step(&a, args, args + 7);
    const double *Y = array(&a, args[10], s.to.n, sizeof(double), READ);
    const double *E = array(&a, args[11], s.to.n, sizeof(double), READ);
    Ahead v = ahead_of(&a, args + 10, &s.to, s.found, NULL);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    square = land_vector(&s, Y, E, (double *)v.aim.g, pair);
    ordinary = goes_on(&v, s.t, square, pair);
    if (ordinary)
        aim_vector(&v, Y, grams);
    Py_END_ALLOW_THREADS
    PyObject *on = ordinary ? Py_BuildValue("dddddd", v.aim.gamma, v.t, grams[0], grams[1], grams[2], grams[3])
                            : Py_NewRef(Py_None);
    return finish(&a, on == NULL ? NULL : Py_BuildValue("dddN", square, pair[0], pair[1], on));
}

/* When unit vectors get another D, or none; see `VectorScales.due`. */
typedef struct {
    double score, memory, least, change; /* the score before and its memory, the least of it that keeps */
    int uses, may;                       /* whether there is a D, and whether another may take its place */
} Due;

static Due due_of(Arrays *a, PyObject *tuple)
{
    double n[6] = {0.0};
    few_numbers(a, tuple, 6, n);
    return (Due){n[0], n[1], n[2], n[3], n[4] != 0.0, n[5] != 0.0};
}

/* Whether what a look has told, a score and a change, is to be acted on; also if it told nothing. */
static int is_due(const Due *d, const double *seen)
{
    double score = d->memory * d->score + (1.0 - d->memory) * seen[0];
    if (isnan(seen[0]) || (d->uses && !(score >= d->least)))
        return 1;
    return d->may && (d->uses ? seen[1] > d->change : score >= d->least);
}

/* units_stride(as `UnitStep` has it, as `ahead_of` has it, known⁺, six numbers of `due_of`) -> ‖G⁺‖², ⟨y, Dy⟩,
 * ⟨G⁺, s⟩, what the look says and, of an ordinary step, (γ, t, as `units_prepare`), or None */
PyObject *units_stride(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double pair[4] = {0.0}, out[6] = {0.0}, square = 0.0;
    int ordinary = 0;
    if (!counted(count, 12 + ARGUMENTS_AHEAD + 2))
        return NULL;
    UnitStep s = unit_step(&a, args, args + 6);
    const double *Y = array(&a, args[12], s.to.n, sizeof(double), READ);
    const double *E = array(&a, args[13], s.to.n, sizeof(double), READ);
    Ahead v = ahead_of(&a, args + 12, &s.to, s.found, s.D);
    Units of = units_known(&a, args[23], s.by.k, WRITE);
    Due due = due_of(&a, args[24]);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    square = land_units(&s, Y, E, (double *)v.aim.g, pair);
    ordinary = !(s.look.learned != NULL && is_due(&due, pair + 2)) && goes_on(&v, s.t, square, pair);
    if (ordinary) {
        aim_units(s.by, Y, &v.aim, &of, v.limits.lossy, out);
        if (!(out[3] > 0.0)) { /* every circle keeps its direction */
            v.t = first_trial(out[1], v.limits.longest);
            points_of_units(s.by, Y, v.aim.out, &of, v.t, v.next);
        }
    }
    Py_END_ALLOW_THREADS
    PyObject *on = ordinary ? Py_BuildValue("dddddddd", v.aim.gamma, v.t, out[0], out[1], out[2], out[3],
                                            out[4], out[5])
                            : Py_NewRef(Py_None);
    return finish(&a, on == NULL ? NULL : Py_BuildValue("dddddN", square, pair[0], pair[1], pair[2], pair[3], on));
}
