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
#include "matrices.h"
#include "pairs.h"
#include "wide.h"

/* One matrix, its pairs and its metric, from which it aims. */
typedef struct {
    Py_ssize_t m, n, k, N;
    size_t entry;
    double *S, *Y, *inverse, *diagonal, *room; /* room for 3m numbers and what `aim_room` says */
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
    if (square > 0.0)
        gamma = gamma != 0.0 ? sqrt(gamma * (sy / square)) : sy / square;
    slope = aim(&c, gamma, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddddd", gamma, slope, out[0], out[1], out[2]));
}

/* framed_arrival(S, Y, R⁻¹, diagonal, G, Q, ω, T, U, E, probe or None, old γ or 0, row, gone, s, y,
 * ⟨s, y⟩, ⟨y, φ(y)⟩) -> γ, ⟨G, T⟩ and what `set_out_in_frames` tells: the same in frames, where φ
 * multiplies the upper block by ω, which is 0 in a horizontal metric; U is the tangent nearest to T */
PyObject *framed_arrival(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY, many, n, k;
    size_t e = sizeof(double);
    double out[SETTING_OUT], slope = 0.0;
    if (!counted(count, 18))
        return NULL;
    double *diagonal = real_numbers(&a, args[3], &m, WRITE);
    const void *G = stack_like(&a, args[4], &many, &n, &k, &e);
    if (!a.failed && n < k)
        refuse(&a, "a cotangent in a frame has more columns than rows");
    Py_ssize_t numbers = (Py_ssize_t)(e / sizeof(double)), size = n * k * numbers, N = many * size;
    Py_ssize_t all = m * N, square = m * m;
    double *S = real_numbers(&a, args[0], &all, WRITE), *Y = real_numbers(&a, args[1], &all, WRITE);
    double *inverse = real_numbers(&a, args[2], &square, WRITE);
    const void *Q = array(&a, args[5], many * n * n, e, READ);
    double omega = number(&a, args[6]), gamma = number(&a, args[11]), sy = number(&a, args[16]);
    double *T = real_numbers(&a, args[7], &N, WRITE), *U = real_numbers(&a, args[8], &N, WRITE);
    void *E = array(&a, args[9], many * k * k, e, WRITE);
    const double *probe = optional_array(&a, args[10], n, sizeof(double));
    long row = integer(&a, args[12]), gone = integer(&a, args[13]);
    const double *s = real_numbers(&a, args[14], &N, READ), *y = real_numbers(&a, args[15], &N, READ);
    double change = number(&a, args[17]);
    if (a.failed || !has_rows(&a, m, row, gone))
        return finish(&a, NULL);
    double *room = workspace(&a, sizeof(double) * (size_t)(3 * m + 3 * n * numbers));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    double *weights = room + 2 * m;
    keep_pair(m, N, S, Y, row, gone, s, y, sy, inverse, diagonal, room);
    if (change > 0.0)
        gamma = gamma != 0.0 ? sqrt(gamma * (sy / change)) : sy / change;
    first_of_two_loops(m, N, S, Y, inverse, G, T, weights, room);
    for (Py_ssize_t top = 0; top < N; top += size)
        for (Py_ssize_t i = 0; i < k * k * numbers; i++)
            T[top + i] *= omega;
    second_of_two_loops(m, N, S, Y, inverse, diagonal, gamma, weights, T, room);
    slope = d_dot(N, G, T);
    memcpy(U, T, sizeof(double) * (size_t)N);
    set_out_in_frames(e, many, n, k, Q, U, omega == 0.0, E, probe, out, room + 3 * m);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddddd", gamma, slope, out[0], out[1], out[2], out[3]));
}
