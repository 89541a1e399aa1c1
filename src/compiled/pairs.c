/* The memory of L-BFGS, `solvers.memory`: blocks S and Y of m rows of N real numbers each.
 *
 * Complex pairs are read as real ones of twice the length: Re⟨·, ·⟩ is their inner product.
 */
#include "pairs.h"

#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "matrices.h"
#include "wide.h"

void border(Py_ssize_t m, Py_ssize_t N, const double *S, const double *Y, Py_ssize_t row,
            Py_ssize_t gone, double sy, double *inverse, double *diagonal, double *room)
{
    double *products = room, *column = room + m;
    for (Py_ssize_t i = 0; gone >= 0 && i < m; i++)
        inverse[gone * m + i] = inverse[i * m + gone] = 0.0;
    if (gone >= 0)
        diagonal[gone] = 0.0;
    d_times(m, N, 1.0, S, Y + row * N, 0.0, products);
    d_times(m, m, 1.0, inverse, products, 0.0, column);
    for (Py_ssize_t i = 0; i < m; i++)
        inverse[i * m + row] = column[i] / -sy;
    inverse[row * m + row] = 1.0 / sy;
    diagonal[row] = sy;
}

/* The pair in its row, and its column of R⁻¹; room for 2m. */
static void keep(Py_ssize_t m, Py_ssize_t N, double *S, double *Y, Py_ssize_t row, Py_ssize_t gone,
                 const double *s, const double *y, double sy, double *inverse, double *diagonal,
                 double *room)
{
    memcpy(S + row * N, s, sizeof(double) * (size_t)N);
    memcpy(Y + row * N, y, sizeof(double) * (size_t)N);
    border(m, N, S, Y, row, gone, sy, inverse, diagonal, room);
}

static int has_rows(Arrays *a, Py_ssize_t m, long row, long gone)
{
    if (row >= 0 && row < m && gone < m)
        return 1;
    PyErr_SetString(PyExc_IndexError, "the memory has no such row");
    a->failed = 1;
    return 0;
}

/* remember_pair(S, Y, row, gone, s, y, ⟨s, y⟩, R⁻¹, diagonal): the pair in its row, with its column
 * of R⁻¹; a row `gone` counts no more, unless it is −1 */
PyObject *remember_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY, N = ANY;
    if (!counted(count, 9))
        return NULL;
    double *diagonal = real_numbers(&a, args[8], &m, WRITE);
    const double *s = real_numbers(&a, args[4], &N, READ), *y = real_numbers(&a, args[5], &N, READ);
    Py_ssize_t all = m * N, square = m * m;
    double *S = real_numbers(&a, args[0], &all, WRITE), *Y = real_numbers(&a, args[1], &all, WRITE);
    double *inverse = real_numbers(&a, args[7], &square, WRITE);
    long row = integer(&a, args[2]), gone = integer(&a, args[3]);
    double sy = number(&a, args[6]);
    double *room = workspace(&a, sizeof(double) * (size_t)(2 * m));
    if (a.failed || !has_rows(&a, m, row, gone))
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS keep(m, N, S, Y, row, gone, s, y, sy, inverse, diagonal, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

void first_of_two_loops(Py_ssize_t m, Py_ssize_t N, const double *S, const double *Y,
                        const double *inverse, const double *g, double *q, double *weights,
                        double *room)
{
    d_times(m, N, 1.0, S, g, 0.0, room);
    d_times(m, m, 1.0, inverse, room, 0.0, weights);
    memcpy(q, g, sizeof(double) * (size_t)N);
    d_transpose_times(m, N, -1.0, Y, weights, 1.0, q);
}

void second_of_two_loops(Py_ssize_t m, Py_ssize_t N, const double *S, const double *Y,
                         const double *inverse, const double *diagonal, double gamma,
                         const double *weights, double *r, double *room)
{
    double *c = room + m;
    d_times(m, N, 1.0, Y, r, 0.0, room);
    for (Py_ssize_t i = 0; i < m; i++)
        room[i] = gamma * room[i] - diagonal[i] * weights[i];
    d_transpose_times(m, m, 1.0, inverse, room, 0.0, c);
    d_transpose_times(m, N, 1.0, S, c, -gamma, r);
}

/* first_loop(S, Y, R⁻¹, g, q, a) */
PyObject *first_loop(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY, N = ANY;
    if (!counted(count, 6))
        return NULL;
    double *weights = real_numbers(&a, args[5], &m, WRITE);
    const double *g = real_numbers(&a, args[3], &N, READ);
    Py_ssize_t all = m * N, square = m * m;
    const double *S = real_numbers(&a, args[0], &all, READ);
    const double *Y = real_numbers(&a, args[1], &all, READ);
    const double *inverse = real_numbers(&a, args[2], &square, READ);
    double *q = real_numbers(&a, args[4], &N, WRITE);
    double *room = workspace(&a, sizeof(double) * (size_t)m);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS first_of_two_loops(m, N, S, Y, inverse, g, q, weights, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* second_loop(S, Y, R⁻¹, diagonal, γ, a, r) */
PyObject *second_loop(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY, N = ANY;
    if (!counted(count, 7))
        return NULL;
    const double *diagonal = real_numbers(&a, args[3], &m, READ);
    const double *weights = real_numbers(&a, args[5], &m, READ);
    double *r = real_numbers(&a, args[6], &N, WRITE);
    Py_ssize_t all = m * N, square = m * m;
    const double *S = real_numbers(&a, args[0], &all, READ);
    const double *Y = real_numbers(&a, args[1], &all, READ);
    const double *inverse = real_numbers(&a, args[2], &square, READ);
    double gamma = number(&a, args[4]);
    double *room = workspace(&a, sizeof(double) * (size_t)(2 * m));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS second_of_two_loops(m, N, S, Y, inverse, diagonal, gamma, weights, r, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* One matrix, its pairs and its metric, from which it aims. */
typedef struct {
    Py_ssize_t m, n, k, N;
    size_t entry;
    double *S, *Y, *inverse, *diagonal, *room; /* room for 3m numbers and what `aim_room` says */
    const void *X, *G, *D;
    double omega, theta;
    int wide; /* whether the ray is one of many columns; see wide.h */
    void *T, *frame[4];
} Archer;

/* From args: S, Y, R⁻¹, diagonal, G, X, D or None, ω, θ, T, gram, basis, cobasis, K; of many columns
 * U, A, C are the last three. */
static Archer archer_of(Arrays *a, PyObject *const *args, enum Access access, int wide)
{
    Archer c = {.m = ANY, .entry = sizeof(double), .wide = wide};
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
    for (int i = 0; i < (wide ? 3 : 4); i++) {
        Py_ssize_t size = !wide ? 4 * c.k * c.k : i == 0 ? c.n * c.k : c.k * c.k;
        c.frame[i] = array(a, args[10 + i], size, c.entry, WRITE);
    }
    if (!a->failed)
        c.room = workspace(a, sizeof(double) * (size_t)(3 * c.m) + c.entry * aim_room(c.k));
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
    (c->wide ? prepare_wide_matrix : prepare_matrix)(c->entry, c->n, c->k, c->X, c->T, c->theta,
                                                     c->frame, out, rest);
    return slope;
}

/* matrix_aim(S, Y, R⁻¹, diagonal, G, X, D or None, ω, θ, T, gram, basis, cobasis, K, γ) -> ⟨G, T⟩ and
 * what `prepare_tangent` returns */
static PyObject *aimed(PyObject *const *args, Py_ssize_t count, int wide)
{
    Arrays a = {.count = 0};
    double out[3], slope = 0.0;
    if (!counted(count, wide ? 14 : 15))
        return NULL;
    Archer c = archer_of(&a, args, READ, wide);
    double gamma = number(&a, args[count - 1]);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS slope = aim(&c, gamma, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", slope, out[0], out[1], out[2]));
}

/* matrix_arrival(…, as matrix_aim, old γ or 0, row, gone, s, y, ⟨s, y⟩, B, yᴴy) -> γ, ⟨G, T⟩ and what
 * `prepare_tangent` returns: the pair is remembered, γ averaged with the old one, and aimed */
static PyObject *arrived(PyObject *const *args, Py_ssize_t count, int wide)
{
    Arrays a = {.count = 0};
    double out[3], slope = 0.0;
    if (!counted(count, wide ? 21 : 22))
        return NULL;
    Archer c = archer_of(&a, args, WRITE, wide);
    Py_ssize_t N = c.N;
    PyObject *const *of_pair = args + count - 8;
    double gamma = number(&a, of_pair[0]), sy = number(&a, of_pair[5]);
    long row = integer(&a, of_pair[1]), gone = integer(&a, of_pair[2]);
    const double *s = real_numbers(&a, of_pair[3], &N, READ);
    const double *y = real_numbers(&a, of_pair[4], &N, READ);
    const void *B = array(&a, of_pair[6], c.k * c.k, c.entry, READ);
    const void *yy = array(&a, of_pair[7], c.k * c.k, c.entry, READ);
    if (a.failed || !has_rows(&a, c.m, row, gone))
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    keep(c.m, N, c.S, c.Y, row, gone, s, y, sy, c.inverse, c.diagonal, c.room);
    double square = change_of_matrix(c.entry, c.k, B, yy, c.D, c.omega, c.room + 3 * c.m);
    if (square > 0.0)
        gamma = gamma != 0.0 ? sqrt(gamma * (sy / square)) : sy / square;
    slope = aim(&c, gamma, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddddd", gamma, slope, out[0], out[1], out[2]));
}

PyObject *matrix_aim(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return aimed(args, count, 0);
}

PyObject *wide_aim(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return aimed(args, count, 1);
}

PyObject *matrix_arrival(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return arrived(args, count, 0);
}

PyObject *wide_arrival(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    return arrived(args, count, 1);
}

/* framed_arrival(S, Y, R⁻¹, diagonal, G, Q, ω, T, U, E, old γ or 0, row, gone, s, y, ⟨s, y⟩, ⟨y, φ(y)⟩)
 * -> γ, ⟨G, T⟩, ‖E‖², ‖U‖²: the same in a frame, where φ multiplies the upper block by ω, which is 0 in a
 * horizontal metric; U is the tangent nearest to T */
PyObject *framed_arrival(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY, n, k;
    size_t e = sizeof(double);
    double out[2], slope = 0.0;
    if (!counted(count, 17))
        return NULL;
    double *diagonal = real_numbers(&a, args[3], &m, WRITE);
    const void *G = point_like(&a, args[4], &n, &k, &e);
    if (!a.failed && n < k)
        refuse(&a, "a cotangent in a frame has more columns than rows");
    Py_ssize_t numbers = (Py_ssize_t)(e / sizeof(double)), N = n * k * numbers;
    Py_ssize_t all = m * N, square = m * m;
    double *S = real_numbers(&a, args[0], &all, WRITE), *Y = real_numbers(&a, args[1], &all, WRITE);
    double *inverse = real_numbers(&a, args[2], &square, WRITE);
    const void *Q = array(&a, args[5], n * n, e, READ);
    double omega = number(&a, args[6]), gamma = number(&a, args[10]), sy = number(&a, args[15]);
    double *T = array(&a, args[7], n * k, e, WRITE), *U = array(&a, args[8], n * k, e, WRITE);
    void *E = array(&a, args[9], k * k, e, WRITE);
    long row = integer(&a, args[11]), gone = integer(&a, args[12]);
    const double *s = array(&a, args[13], n * k, e, READ), *y = array(&a, args[14], n * k, e, READ);
    double change = number(&a, args[16]);
    if (a.failed || !has_rows(&a, m, row, gone))
        return finish(&a, NULL);
    double *room = workspace(&a, sizeof(double) * (size_t)(3 * m));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    double *weights = room + 2 * m;
    keep(m, N, S, Y, row, gone, s, y, sy, inverse, diagonal, room);
    if (change > 0.0)
        gamma = gamma != 0.0 ? sqrt(gamma * (sy / change)) : sy / change;
    first_of_two_loops(m, N, S, Y, inverse, G, T, weights, room);
    for (Py_ssize_t i = 0; i < k * k * numbers; i++)
        T[i] *= omega;
    second_of_two_loops(m, N, S, Y, inverse, diagonal, gamma, weights, T, room);
    slope = d_dot(N, G, T);
    memcpy(U, T, sizeof(double) * (size_t)N);
    framed_ray_of_matrix(e, n, k, Q, U, omega == 0.0, E, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", gamma, slope, out[0], out[1]));
}

/* straight_pair(T, t, G, G⁺, head, s, y) -> ⟨G⁺, s⟩ and ‖s‖², ‖y‖² of the first `head` real numbers,
 * and then of the rest: s = tT and y = G⁺ − G, where transport is the identity */
PyObject *straight_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t N = ANY;
    double out[5] = {0};
    if (!counted(count, 7))
        return NULL;
    const double *T = real_numbers(&a, args[0], &N, READ), *G = real_numbers(&a, args[2], &N, READ);
    const double *G_new = real_numbers(&a, args[3], &N, READ);
    double t = number(&a, args[1]);
    Py_ssize_t head = (Py_ssize_t)integer(&a, args[4]);
    double *s = real_numbers(&a, args[5], &N, WRITE), *y = real_numbers(&a, args[6], &N, WRITE);
    if (!a.failed && (head < 0 || head > N))
        refuse(&a, "an array has fewer numbers than its head");
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < N; i++)
        s[i] = t * T[i], y[i] = G_new[i] - G[i];
    out[0] = d_dot(N, G_new, s);
    out[1] = d_dot(head, s, s), out[2] = d_dot(head, y, y);
    out[3] = d_dot(N - head, s + head, s + head), out[4] = d_dot(N - head, y + head, y + head);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddddd", out[0], out[1], out[2], out[3], out[4]));
}
