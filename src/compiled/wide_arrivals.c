/* Where L-BFGS goes next from a matrix with many columns, and in a frame: `solvers.aims`.
 *
 * The same as landings.c does for others: the pair of a step is kept, and the direction and the ray
 * along it follow in the same call.
 */
#include "wide_arrivals.h"

#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "frames.h"
#include "lessons.h"
#include "matrices.h"
#include "pairs.h"
#include "strides.h"
#include "wide.h"

/* One matrix, its pairs and its metric, from which it aims. */
typedef struct {
    Py_ssize_t m, n, k, N;
    size_t entry;
    double *S, *Y, *inverse, *diagonal, *room; /* room for 3m numbers, what `aim_room` says, 2k² and nk */
    const void *X, *G, *D;
    double omega, theta;
    void *T, *ray[3];
} Archer;

/* From args: S, Y, R⁻¹, diagonal, G, X, D or None, ω, θ, T, U, A, C. */
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
    for (int i = 0; i < 3; i++)
        c.ray[i] = array(a, args[10 + i], i == 0 ? c.n * c.k : c.k * c.k, c.entry, WRITE);
    if (!a->failed)
        c.room = workspace(a, sizeof(double) * (size_t)(3 * c.m) +
                                  c.entry * (aim_room(c.k) + (size_t)(2 * c.k * c.k + c.n * c.k)));
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
    prepare_wide_matrix(c->entry, c->n, c->k, c->X, c->T, c->theta, c->ray, out, rest);
    return slope;
}

/* wide_aim(S, Y, R⁻¹, diagonal, G, X, D or None, ω, θ, T, U, A, C, γ) -> ⟨G, T⟩ and what `prepare_wide`
 * returns */
PyObject *wide_aim(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double out[3], slope = 0.0;
    if (!counted(count, 14))
        return NULL;
    Archer c = archer_of(&a, args, READ);
    double gamma = number(&a, args[13]);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS slope = aim(&c, gamma, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", slope, out[0], out[1], out[2]));
}

/* wide_arrival(…, as wide_aim, old γ or 0, row, gone, s, y, ⟨s, y⟩, B, yᴴy) -> γ, ⟨G, T⟩ and what
 * `prepare_wide` returns: the pair is remembered, γ averaged with the old one, and aimed */
PyObject *wide_arrival(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double out[3], slope = 0.0;
    if (!counted(count, 21))
        return NULL;
    Archer c = archer_of(&a, args, WRITE);
    Py_ssize_t N = c.N;
    PyObject *const *of_pair = args + 13;
    double gamma = number(&a, of_pair[0]), sy = number(&a, of_pair[5]);
    long row = integer(&a, of_pair[1]), gone = integer(&a, of_pair[2]);
    const double *s = real_numbers(&a, of_pair[3], &N, READ);
    const double *y = real_numbers(&a, of_pair[4], &N, READ);
    const void *B = array(&a, of_pair[6], c.k * c.k, c.entry, READ);
    const void *yy = array(&a, of_pair[7], c.k * c.k, c.entry, READ);
    if (a.failed || !has_rows(&a, c.m, row, gone))
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    keep_pair(c.m, N, c.S, c.Y, row, gone, s, y, sy, c.inverse, c.diagonal, c.room);
    double square = change_of_matrix(c.entry, c.k, B, yy, c.D, c.omega, c.room + 3 * c.m);
    gamma = averaged(gamma, sy, square);
    slope = aim(&c, gamma, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddddd", gamma, slope, out[0], out[1], out[2]));
}

/* From args: X, U, A, C, V, t, G, rotation, Y, E, span, G⁺, s, y, (rotation⁺, level⁺, B, yᴴy). */
static WideLanding landing_of(Arrays *a, PyObject *const *args, size_t *e)
{
    WideLanding l = {.span = 0};
    l.X = point_like(a, args[0], &l.n, &l.k, e);
    Py_ssize_t nk = l.n * l.k, kk = l.k * l.k;
    l.U = array(a, args[1], nk, *e, READ);
    l.A = array(a, args[2], kk, *e, READ), l.C = array(a, args[3], kk, *e, READ);
    l.V = array(a, args[4], nk, *e, READ), l.t = number(a, args[5]);
    l.G = array(a, args[6], nk, *e, READ), l.rotation = array(a, args[7], kk, *e, READ);
    l.Y = array(a, args[8], nk, *e, READ), l.E = array(a, args[9], nk, *e, READ);
    l.span = (int)integer(a, args[10]);
    l.G_new = array(a, args[11], nk, *e, WRITE);
    l.s = array(a, args[12], nk, *e, WRITE), l.y = array(a, args[13], nk, *e, WRITE);
    char *small = array(a, args[14], 4 * kk, *e, WRITE);
    size_t size = *e * (size_t)kk;
    l.rotation_new = small, l.level = small + size, l.B = small + 2 * size, l.yy = small + 3 * size;
    return l;
}

/* wide_stride(15 of a landing, 13 of `wide_aim` at its end, old γ, row, gone, longest, Y, V, lesson or
 * None, 5 terms) -> ‖G⁺‖²_g*, ⟨G⁺, s⟩, ‖y‖² and, of an ordinary step, what `wide_arrival` returns, the
 * step to the first point to be tried, and what is learned, or None; see `matrix_stride` */
PyObject *wide_stride(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    size_t e = sizeof(double);
    int ordinary = 0;
    double out[3], slope = 0.0, next_t = 0.0;
    if (!counted(count, 40))
        return NULL;
    WideLanding d = landing_of(&a, args, &e);
    Archer c = archer_of(&a, args + 15, WRITE);
    double gamma = number(&a, args[28]), longest = number(&a, args[31]);
    long row = integer(&a, args[29]), gone = integer(&a, args[30]);
    void *next = array(&a, args[32], c.n * c.k, c.entry, WRITE);
    void *moved = array(&a, args[33], c.n * c.k, c.entry, WRITE);
    const void *of_ray[2] = {d.C, d.A};
    Lesson given, *l = args[34] == Py_None ? NULL : &given;
    if (l != NULL)
        given = lesson_of(&a, args[34], c.k, c.entry, d.B, d.yy, of_ray);
    Terms q = {number(&a, args[35]), number(&a, args[36]), (int)integer(&a, args[37]),
               number(&a, args[38])};
    double turn = number(&a, args[39]);
    if (!a.failed && (c.entry != e || c.n != d.n || c.k != d.k))
        refuse(&a, "a step begins and ends in matrices of one shape");
    if (a.failed || !has_rows(&a, c.m, row, gone))
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    double *rest = c.room + 3 * c.m;
    land_wide(e, &d, rest);
    ordinary = is_ordinary(&q, d.t, d.square, d.slope, d.change) &&
               !has_turned(e, d.k, d.rotation_new, turn);
    if (ordinary) {
        double sy = paired(&q, d.t, d.slope);
        if (l != NULL)
            take_lesson(e, c.k, l, &c.D, &c.omega, rest);
        keep_pair(c.m, c.N, c.S, c.Y, row, gone, d.s, d.y, sy, c.inverse, c.diagonal, c.room);
        gamma = averaged(gamma, sy, change_of_matrix(e, c.k, d.B, d.yy, c.D, c.omega, rest));
        slope = aim(&c, gamma, out);
        next_t = first_trial(out[1], longest);
        point_of_wide(e, c.n, c.k, c.X, c.ray, next_t, next, moved, rest);
    }
    Py_END_ALLOW_THREADS
    PyObject *told = ordinary ? told_of(l, c.omega) : NULL;
    PyObject *ahead = !ordinary      ? Py_NewRef(Py_None)
                      : told == NULL ? NULL
                                     : Py_BuildValue("ddddddN", gamma, slope, out[0], out[1], out[2],
                                                     next_t, told);
    return finish(&a, ahead == NULL ? NULL : Py_BuildValue("dddN", d.square, d.slope, d.change, ahead));
}

/* A pair that is kept in frames, where φ multiplies the upper block by ω, which is 0 in a horizontal
 * metric, and what follows from it. */
typedef struct {
    Py_ssize_t m, many, n, k;
    size_t e;
    double *S, *Y, *inverse, *diagonal, *room; /* room for 3m numbers and 3n entries */
    const void *G, *Q;
    double omega, gamma, sy, change; /* ⟨s, y⟩ and ⟨y, φ(y)⟩ */
    double *T, *U;                   /* U is the tangent nearest to T */
    void *E;
    const double *probe, *s, *y;
    long row, gone;
    double slope, out[SETTING_OUT]; /* ⟨G, T⟩ and what `set_out_in_frames` tells */
} Framed;

static void arrive_in_frames(Framed *v)
{
    Py_ssize_t numbers = (Py_ssize_t)(v->e / sizeof(double)), size = v->n * v->k * numbers;
    Py_ssize_t m = v->m, N = v->many * size;
    double *weights = v->room + 2 * m;
    keep_pair(m, N, v->S, v->Y, v->row, v->gone, v->s, v->y, v->sy, v->inverse, v->diagonal, v->room);
    v->gamma = averaged(v->gamma, v->sy, v->change);
    first_of_two_loops(m, N, v->S, v->Y, v->inverse, v->G, v->T, weights, v->room);
    for (Py_ssize_t top = 0; top < N; top += size)
        for (Py_ssize_t i = 0; i < v->k * v->k * numbers; i++)
            v->T[top + i] *= v->omega;
    second_of_two_loops(m, N, v->S, v->Y, v->inverse, v->diagonal, v->gamma, weights, v->T, v->room);
    v->slope = d_dot(N, v->G, v->T);
    memcpy(v->U, v->T, sizeof(double) * (size_t)N);
    set_out_in_frames(v->e, v->many, v->n, v->k, v->Q, v->U, v->omega == 0.0, v->E, v->probe, v->out,
                      v->room + 3 * m);
}

static PyObject *arrived_in_frames(const Framed *v)
{
    const double *out = v->out;
    return Py_BuildValue("dddddd", v->gamma, v->slope, out[0], out[1], out[2], out[3]);
}

/* From args: S, Y, R⁻¹, diagonal, G, Q, ω, T, U, E, probe or None, old γ or 0, row, gone, s, y, of which
 * the last two are read or written. */
static Framed framed_of(Arrays *a, PyObject *const *args, enum Access access)
{
    Framed v = {.m = ANY, .e = sizeof(double)};
    v.diagonal = real_numbers(a, args[3], &v.m, WRITE);
    v.G = stack_like(a, args[4], &v.many, &v.n, &v.k, &v.e);
    if (!a->failed && v.n < v.k)
        refuse(a, "a cotangent in a frame has more columns than rows");
    Py_ssize_t numbers = (Py_ssize_t)(v.e / sizeof(double)), N = v.many * v.n * v.k * numbers;
    Py_ssize_t all = v.m * N, square = v.m * v.m;
    v.S = real_numbers(a, args[0], &all, WRITE), v.Y = real_numbers(a, args[1], &all, WRITE);
    v.inverse = real_numbers(a, args[2], &square, WRITE);
    v.Q = array(a, args[5], v.many * v.n * v.n, v.e, READ);
    v.omega = number(a, args[6]), v.gamma = number(a, args[11]);
    v.T = real_numbers(a, args[7], &N, WRITE), v.U = real_numbers(a, args[8], &N, WRITE);
    v.E = array(a, args[9], v.many * v.k * v.k, v.e, WRITE);
    v.probe = optional_array(a, args[10], v.n, sizeof(double));
    v.row = integer(a, args[12]), v.gone = integer(a, args[13]);
    v.s = real_numbers(a, args[14], &N, access), v.y = real_numbers(a, args[15], &N, access);
    if (!a->failed && has_rows(a, v.m, v.row, v.gone))
        v.room = workspace(a, sizeof(double) * (size_t)(3 * v.m + 3 * v.n * numbers));
    return v;
}

/* framed_arrival(as `framed_of` has it, ⟨s, y⟩, ⟨y, φ(y)⟩) -> γ, ⟨G, T⟩ and what `set_out_in_frames`
 * tells: the same in frames */
PyObject *framed_arrival(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    if (!counted(count, 18))
        return NULL;
    Framed v = framed_of(&a, args, READ);
    v.sy = number(&a, args[16]), v.change = number(&a, args[17]);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS arrive_in_frames(&v);
    Py_END_ALLOW_THREADS
    return finish(&a, arrived_in_frames(&v));
}

/* framed_stride(as `framed_of` has it, Euclidean gradient at Q, G to be written, old T, t, old G, 4
 * terms, the largest ‖rotation‖ of an f of the span, lesson or None) -> ‖G‖²_g*, ⟨G, s⟩, ‖s‖² and ‖y‖² of
 * the normal parts and of the rotations and, of an ordinary step, what `framed_arrival` returns with what
 * is learned, or None: of one matrix, or of a stack of square ones; see `matrix_stride` */
PyObject *framed_stride(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double square = 0.0, slope = 0.0, ss = 0.0, tt = 0.0, aa = 0.0, bb = 0.0;
    int ordinary = 0;
    if (!counted(count, 27))
        return NULL;
    Framed v = framed_of(&a, args, WRITE);
    if (!a.failed && v.n != v.k && v.many != 1)
        refuse(&a, "expected one matrix, or square ones");
    Py_ssize_t numbers = (Py_ssize_t)(v.e / sizeof(double)), size = v.n * v.k * numbers;
    Py_ssize_t N = v.many * size, head = v.k * v.k * numbers, rest = size - head;
    const double *E = real_numbers(&a, args[16], &N, READ), *Q = v.Q;
    double *G = real_numbers(&a, args[17], &N, WRITE);
    const double *T = real_numbers(&a, args[18], &N, READ);
    double t = number(&a, args[19]);
    const double *old = real_numbers(&a, args[20], &N, READ);
    double *s = (double *)v.s, *y = (double *)v.y;
    Terms q = {number(&a, args[21]), number(&a, args[22]), (int)integer(&a, args[23]),
               number(&a, args[24])};
    double turn = number(&a, args[25]);
    SplitLesson given, *l = args[26] == Py_None ? NULL : &given;
    if (l != NULL)
        given = split_lesson_of(&a, args[26]);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t top = 0; top < N; top += size)
        square += gradient_in_frame(v.e, v.n, v.k, Q + top, E + top, G + top);
    for (Py_ssize_t i = 0; i < N; i++)
        s[i] = t * T[i], y[i] = G[i] - old[i];
    slope = d_dot(N, G, s);
    for (Py_ssize_t top = 0; top < N; top += size) {
        const double *of_s = s + top, *of_y = y + top;
        aa += d_dot(head, of_s, of_s), bb += d_dot(head, of_y, of_y);
        ss += d_dot(rest, of_s + head, of_s + head), tt += d_dot(rest, of_y + head, of_y + head);
    }
    v.sy = paired(&q, t, slope);
    ordinary = is_ordinary(&q, t, square, slope, tt + bb) && !has_turned(v.e, v.k, G, turn);
    if (ordinary) {
        if (l != NULL)
            take_split_lesson(l, ss, tt, aa, bb, &v.omega);
        v.change = tt + v.omega * bb;
        arrive_in_frames(&v);
    }
    Py_END_ALLOW_THREADS
    PyObject *told = ordinary ? told_of_split(l, v.omega) : NULL;
    const double *out = v.out;
    PyObject *ahead = !ordinary      ? Py_NewRef(Py_None)
                      : told == NULL ? NULL
                                     : Py_BuildValue("ddddddN", v.gamma, v.slope, out[0], out[1], out[2],
                                                     out[3], told);
    return finish(&a, ahead == NULL
                          ? NULL
                          : Py_BuildValue("ddddddN", square, slope, ss, tt, aa, bb, ahead));
}
