/* A step of one matrix: where it ends and how it goes on, `solvers.aims` and `LandingRay`.
 *
 * The formulas are those of matrices.inc and pairs.c; here they follow each other in one call.
 */
#include "landings.h"

#include <math.h>

#include "arrays.h"
#include "blas.h"
#include "lessons.h"
#include "matrices.h"
#include "pairs.h"
#include "strides.h"

/* One matrix, its pairs and its metric, from which it aims. */
typedef struct {
    Py_ssize_t m, n, k, N;
    size_t entry;
    double *S, *Y, *inverse, *diagonal, *room; /* room for 3m numbers, what `aim_room` says and 2k² */
    const void *X, *G, *D;
    double omega, theta;
    void *T, *frame[4];
} Archer;

/* From args: S, Y, R⁻¹, diagonal, G, X, D or None, ω, θ, T, (gram, basis, cobasis, K). */
static Archer archer_of(Arrays *a, PyObject *const *args, enum Access access)
{
    Archer c = {.m = ANY, .entry = sizeof(double)};
    c.diagonal = real_numbers(a, args[3], &c.m, access);
    c.X = point_like(a, args[5], &c.n, &c.k, &c.entry);
    c.N = c.n * c.k * (Py_ssize_t)(c.entry / sizeof(double));
    Py_ssize_t all = c.m * c.N, square = c.m * c.m;
    c.S = real_numbers(a, args[0], &all, access), c.Y = real_numbers(a, args[1], &all, access);
    c.inverse = real_numbers(a, args[2], &square, access);
    c.G = array(a, args[4], c.n * c.k, c.entry, READ);
    c.D = optional_array(a, args[6], c.k * c.k, c.entry);
    c.omega = number(a, args[7]), c.theta = number(a, args[8]);
    c.T = array(a, args[9], c.n * c.k, c.entry, WRITE);
    char *frame = array(a, args[10], 16 * c.k * c.k, c.entry, WRITE);
    parts_of_frame(frame, c.k, c.entry, c.frame);
    if (!a->failed)
        c.room = workspace(a, sizeof(double) * (size_t)(3 * c.m) +
                                  c.entry * (aim_room(c.k) + (size_t)(2 * c.k * c.k)));
    return c;
}

/* T = −H G by both loops with φ(q) between them, and its ray; ⟨G, T⟩. */
static double aim(const Archer *c, double gamma, double *out)
{
    double *weights = c->room + 2 * c->m, *rest = c->room + 3 * c->m;
    first_of_two_loops(c->m, c->N, c->S, c->Y, c->inverse, c->G, c->T, weights, c->room);
    raise_matrix(c->entry, c->n, c->k, c->X, c->T, c->D, c->omega, rest);
    second_of_two_loops(c->m, c->N, c->S, c->Y, c->inverse, c->diagonal, gamma, weights, c->T,
                        c->room);
    double slope = d_dot(c->N, c->G, c->T);
    prepare_matrix(c->entry, c->n, c->k, c->X, c->T, c->theta, c->frame, out, rest);
    return slope;
}

/* matrix_aim(S, Y, R⁻¹, diagonal, G, X, D or None, ω, θ, T, frame, γ) -> ⟨G, T⟩ and what
 * `prepare_tangent` returns */
PyObject *matrix_aim(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double out[3], slope = 0.0;
    if (!counted(count, 12))
        return NULL;
    Archer c = archer_of(&a, args, READ);
    double gamma = number(&a, args[11]);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS slope = aim(&c, gamma, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", slope, out[0], out[1], out[2]));
}

/* A pair that is kept, and what follows from it. */
typedef struct {
    long row, gone;
    const double *s, *y;
    double sy, gamma, longest;
    const void *B, *yy;
    void *next, *moved;         /* the first point to be tried, and its displacement */
    double slope, ray[3], t;    /* ⟨G, T⟩, what `prepare_tangent` says, and the step to that point */
} Arrival;

/* The step is learned from, the pair remembered, γ averaged with the old one, aimed and a point tried. */
static void arrive(Archer *c, Lesson *l, Arrival *v)
{
    double *rest = c->room + 3 * c->m;
    if (l != NULL)
        take_lesson(c->entry, c->k, l, &c->D, &c->omega, rest);
    keep_pair(c->m, c->N, c->S, c->Y, v->row, v->gone, v->s, v->y, v->sy, c->inverse, c->diagonal,
              c->room);
    double square = change_of_matrix(c->entry, c->k, v->B, v->yy, c->D, c->omega, rest);
    v->gamma = averaged(v->gamma, v->sy, square);
    v->slope = aim(c, v->gamma, v->ray);
    v->t = first_trial(v->ray[1], v->longest);
    point_of_matrix(c->entry, c->n, c->k, c->X, c->T, c->frame, v->t, v->next, v->moved, rest);
}

static PyObject *arrived(const Arrival *v, const Lesson *l, double omega)
{
    PyObject *told = told_of(l, omega);
    if (told == NULL)
        return NULL;
    return Py_BuildValue("ddddddN", v->gamma, v->slope, v->ray[0], v->ray[1], v->ray[2], v->t, told);
}

/* matrix_arrival(…, as matrix_aim, old γ or 0, row, gone, s, y, ⟨s, y⟩, B, yᴴy, longest, Y, N, lesson or
 * None) -> γ, ⟨G, T⟩, what `prepare_tangent` returns, t, and what `learn` returns with ω at its end:
 * the step is learned from, the pair remembered, γ averaged with the old one, aimed, and Y the point
 * at t, the first to be tried */
PyObject *matrix_arrival(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    if (!counted(count, 23))
        return NULL;
    Archer c = archer_of(&a, args, WRITE);
    Py_ssize_t N = c.N, kk = c.k * c.k;
    Arrival v = {.gamma = number(&a, args[11]), .row = integer(&a, args[12]),
                 .gone = integer(&a, args[13]), .sy = number(&a, args[16])};
    v.s = real_numbers(&a, args[14], &N, READ), v.y = real_numbers(&a, args[15], &N, READ);
    v.B = array(&a, args[17], kk, c.entry, READ), v.yy = array(&a, args[18], kk, c.entry, READ);
    v.longest = number(&a, args[19]);
    v.next = array(&a, args[20], c.n * c.k, c.entry, WRITE);
    v.moved = array(&a, args[21], 4 * kk, c.entry, WRITE);
    Lesson given, *l = args[22] == Py_None ? NULL : &given;
    if (l != NULL)
        given = lesson_of(&a, args[22], c.k, c.entry, v.B, v.yy, NULL);
    if (a.failed || !has_rows(&a, c.m, v.row, v.gone))
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS arrive(&c, l, &v);
    Py_END_ALLOW_THREADS
    return finish(&a, arrived(&v, l, c.omega));
}

/* From args: X, U, frame, N, t, G, rotation, Y, E, span, G⁺, s, y, (rotation⁺, level⁺, B, yᴴy). */
static Landing landing_of(Arrays *a, PyObject *const *args, size_t *e)
{
    Landing l = {.span = 0};
    l.X = point_like(a, args[0], &l.n, &l.k, e);
    Py_ssize_t nk = l.n * l.k, kk = l.k * l.k;
    l.U = array(a, args[1], nk, *e, READ);
    parts_of_frame(array(a, args[2], 16 * kk, *e, READ), l.k, *e, l.frame);
    l.N = array(a, args[3], 4 * kk, *e, READ);
    l.t = number(a, args[4]);
    l.G = array(a, args[5], nk, *e, READ), l.rotation = array(a, args[6], kk, *e, READ);
    l.Y = array(a, args[7], nk, *e, READ), l.E = array(a, args[8], nk, *e, READ);
    l.span = (int)integer(a, args[9]);
    l.G_new = array(a, args[10], nk, *e, WRITE);
    l.s = array(a, args[11], nk, *e, WRITE), l.y = array(a, args[12], nk, *e, WRITE);
    char *small = array(a, args[13], 4 * kk, *e, WRITE);
    size_t size = *e * (size_t)kk;
    l.rotation_new = small, l.level = small + size, l.B = small + 2 * size, l.yy = small + 3 * size;
    return l;
}

/* matrix_landing(as `landing_of` has it) -> ‖G⁺‖²_g*, ⟨G⁺, s⟩, ‖y‖²: the gradient at Y = X(t), of the
 * Euclidean one E, and the pair */
PyObject *matrix_landing(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    size_t e = sizeof(double);
    if (!counted(count, 14))
        return NULL;
    Landing l = landing_of(&a, args, &e);
    void *room = a.failed ? NULL : workspace(&a, e * (size_t)(6 * l.k * l.k));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS land_matrix(e, &l, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddd", l.square, l.slope, l.change));
}

/* matrix_stride(14 of a landing, 11 of `matrix_aim` at its end, old γ, row, gone, longest, Y, N, lesson
 * or None, 5 terms) -> what `matrix_landing` returns and, of an ordinary step, what `matrix_arrival`
 * returns, or None */
PyObject *matrix_stride(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    size_t e = sizeof(double);
    int ordinary = 0;
    if (!counted(count, 37))
        return NULL;
    Landing d = landing_of(&a, args, &e);
    Archer c = archer_of(&a, args + 14, WRITE);
    Arrival v = {.gamma = number(&a, args[25]), .row = integer(&a, args[26]),
                 .gone = integer(&a, args[27]), .longest = number(&a, args[28]),
                 .s = d.s, .y = d.y, .B = d.B, .yy = d.yy};
    Py_ssize_t kk = c.k * c.k;
    v.next = array(&a, args[29], c.n * c.k, c.entry, WRITE);
    v.moved = array(&a, args[30], 4 * kk, c.entry, WRITE);
    Lesson given, *l = args[31] == Py_None ? NULL : &given;
    if (l != NULL)
        given = lesson_of(&a, args[31], c.k, c.entry, d.B, d.yy, NULL);
    Terms q = {number(&a, args[32]), number(&a, args[33]), (int)integer(&a, args[34]),
               number(&a, args[35])};
    double turn = number(&a, args[36]);
    if (!a.failed && (c.entry != e || c.n != d.n || c.k != d.k))
        refuse(&a, "a step begins and ends in matrices of one shape");
    if (a.failed || !has_rows(&a, c.m, v.row, v.gone))
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    land_matrix(e, &d, c.room + 3 * c.m);
    ordinary = is_ordinary(&q, d.t, d.square, d.slope, d.change) && !has_turned(e, d.k, d.rotation_new, turn);
    v.sy = paired(&q, d.t, d.slope);
    if (ordinary)
        arrive(&c, l, &v);
    Py_END_ALLOW_THREADS
    PyObject *ahead = ordinary ? arrived(&v, l, c.omega) : Py_NewRef(Py_None);
    return finish(&a, ahead == NULL ? NULL : Py_BuildValue("dddN", d.square, d.slope, d.change, ahead));
}
