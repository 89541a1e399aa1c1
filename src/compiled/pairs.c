/* The memory of L-BFGS, `solvers.memory`: blocks S and Y of m rows of N real numbers each.
 *
 * Complex pairs are read as real ones of twice the length: Re⟨·, ·⟩ is their inner product.
 */
#include "pairs.h"

#include <string.h>

#include "arrays.h"
#include "blas.h"

/* How many rows there are up to the last that is used: rings are filled from the first row on. */
static Py_ssize_t rows_in_use(Py_ssize_t m, const double *inverse)
{
    Py_ssize_t used = m;
    while (used > 1 && inverse[(used - 1) * (m + 1)] == 0.0)
        used--;
    return used;
}

/* out = A x of the rows in use, and zero for the others. */
static void times_used(Py_ssize_t used, Py_ssize_t m, Py_ssize_t N, const double *A, const double *x,
                       double *out)
{
    d_times(used, N, 1.0, A, x, 0.0, out);
    memset(out + used, 0, sizeof(double) * (size_t)(m - used));
}

void border(Py_ssize_t m, Py_ssize_t N, const double *S, const double *Y, Py_ssize_t row,
            Py_ssize_t gone, double sy, double *inverse, double *diagonal, double *room)
{
    double *products = room, *column = room + m;
    for (Py_ssize_t i = 0; gone >= 0 && i < m; i++)
        inverse[gone * m + i] = inverse[i * m + gone] = 0.0;
    if (gone >= 0)
        diagonal[gone] = 0.0;
    times_used(rows_in_use(m, inverse), m, N, S, Y + row * N, products);
    d_times(m, m, 1.0, inverse, products, 0.0, column);
    for (Py_ssize_t i = 0; i < m; i++)
        inverse[i * m + row] = column[i] / -sy;
    inverse[row * m + row] = 1.0 / sy;
    diagonal[row] = sy;
}

void keep_pair(Py_ssize_t m, Py_ssize_t N, double *S, double *Y, Py_ssize_t row, Py_ssize_t gone,
               const double *s, const double *y, double sy, double *inverse, double *diagonal,
               double *room)
{
    memcpy(S + row * N, s, sizeof(double) * (size_t)N);
    memcpy(Y + row * N, y, sizeof(double) * (size_t)N);
    border(m, N, S, Y, row, gone, sy, inverse, diagonal, room);
}

int has_rows(Arrays *a, Py_ssize_t m, long row, long gone)
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
    Py_BEGIN_ALLOW_THREADS keep_pair(m, N, S, Y, row, gone, s, y, sy, inverse, diagonal, room);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

void first_of_two_loops(Py_ssize_t m, Py_ssize_t N, const double *S, const double *Y,
                        const double *inverse, const double *g, double *q, double *weights,
                        double *room)
{
    Py_ssize_t used = rows_in_use(m, inverse);
    times_used(used, m, N, S, g, room);
    d_times(m, m, 1.0, inverse, room, 0.0, weights);
    memcpy(q, g, sizeof(double) * (size_t)N);
    d_transpose_times(used, N, -1.0, Y, weights, 1.0, q);
}

void second_of_two_loops(Py_ssize_t m, Py_ssize_t N, const double *S, const double *Y,
                         const double *inverse, const double *diagonal, double gamma,
                         const double *weights, double *r, double *room)
{
    double *c = room + m;
    Py_ssize_t used = rows_in_use(m, inverse);
    times_used(used, m, N, Y, r, room);
    for (Py_ssize_t i = 0; i < m; i++)
        room[i] = gamma * room[i] - diagonal[i] * weights[i];
    d_transpose_times(m, m, 1.0, inverse, room, 0.0, c);
    d_transpose_times(used, N, 1.0, S, c, -gamma, r);
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

/* straight_pair(T, t, G, G⁺, many, head, s, y) -> ⟨G⁺, s⟩ and ‖s‖², ‖y‖² of the first `head` real
 * numbers of each of so many equal parts, and then of the rest: s = tT and y = G⁺ − G, where transport
 * is the identity */
PyObject *straight_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t N = ANY;
    double out[5] = {0};
    if (!counted(count, 8))
        return NULL;
    const double *T = real_numbers(&a, args[0], &N, READ), *G = real_numbers(&a, args[2], &N, READ);
    const double *G_new = real_numbers(&a, args[3], &N, READ);
    double t = number(&a, args[1]);
    Py_ssize_t many = (Py_ssize_t)integer(&a, args[4]), head = (Py_ssize_t)integer(&a, args[5]);
    double *s = real_numbers(&a, args[6], &N, WRITE), *y = real_numbers(&a, args[7], &N, WRITE);
    if (!a.failed && (many < 1 || N % many))
        refuse(&a, "an array has no such number of equal parts");
    if (!a.failed && (head < 0 || head > N / many))
        refuse(&a, "an array has fewer numbers than its head");
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < N; i++)
        s[i] = t * T[i], y[i] = G_new[i] - G[i];
    out[0] = d_dot(N, G_new, s);
    for (Py_ssize_t part = 0, size = N / many; part < many; part++) {
        const double *of_s = s + part * size, *of_y = y + part * size;
        Py_ssize_t rest = size - head;
        out[1] += d_dot(head, of_s, of_s), out[2] += d_dot(head, of_y, of_y);
        out[3] += d_dot(rest, of_s + head, of_s + head), out[4] += d_dot(rest, of_y + head, of_y + head);
    }
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddddd", out[0], out[1], out[2], out[3], out[4]));
}
