/* The recursion of every matrix of a stack, `solvers.stack_pairs`: blocks S and Y of m rows, each of
 * B matrices of n real numbers.
 *
 * One matrix after the other: its n numbers stay in the nearest cache through both loops.
 */
#include "stack_pairs.h"

#include <math.h>
#include <string.h>

#include "arrays.h"

/* What the kernels share. */
typedef struct {
    const double *S, *Y;
    double *curvatures;    /* m × B */
    Py_ssize_t m, B, n, N; /* N = Bn, the length of a row */
    const Py_ssize_t *rows; /* in use, oldest first */
    Py_ssize_t count;
} Stack;

/* A call of BLAS takes longer than the few numbers of a matrix. */
static double product(Py_ssize_t n, const double *x, const double *y)
{
    double a = 0.0, b = 0.0, c = 0.0, d = 0.0;
    Py_ssize_t i = 0;
    for (; i + 4 <= n; i += 4) {
        a += x[i] * y[i];
        b += x[i + 1] * y[i + 1];
        c += x[i + 2] * y[i + 2];
        d += x[i + 3] * y[i + 3];
    }
    for (; i < n; i++)
        a += x[i] * y[i];
    return (a + b) + (c + d);
}

static void add(Py_ssize_t n, double a, const double *x, double *y)
{
    for (Py_ssize_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* From blocks, numbers of shape m × B, and B of them; N is known. */
static Stack stack_of(Arrays *a, PyObject *S, PyObject *Y, PyObject *curvatures, PyObject *rows,
                      Py_ssize_t N)
{
    Stack s = {.N = N};
    Py_ssize_t shape[2] = {0, 0}, all, used[1] = {0};
    size_t entry = 0, index = 0;
    s.curvatures = shaped_array(a, curvatures, 2, shape, &entry);
    s.m = shape[0], s.B = shape[1], all = s.m * N;
    s.S = real_numbers(a, S, &all, READ), s.Y = real_numbers(a, Y, &all, READ);
    s.rows = shaped_array(a, rows, 1, used, &index);
    s.count = used[0];
    if (a->failed)
        return s;
    if (entry != sizeof(double) || index != sizeof(Py_ssize_t) || s.B == 0 || N % s.B)
        refuse(a, "expected curvatures of every matrix, and indices of rows");
    for (Py_ssize_t i = 0; !a->failed && i < s.count; i++)
        if (s.rows[i] < 0 || s.rows[i] >= s.m)
            refuse(a, "the memory has no such row");
    s.n = a->failed ? 0 : N / s.B;
    return s;
}

/* stack_products(S, Y, row, row before or −1, g, out): of each matrix ⟨s, y⟩, ⟨s, g⟩,
 * ⟨s, y'⟩ − ⟨s', y⟩ and ⟨s', y'⟩ with the pair (s', y') before; out has shape 4 × B */
PyObject *stack_products(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t N = ANY, all = ANY, numbers = ANY;
    if (!counted(count, 6))
        return NULL;
    const double *g = real_numbers(&a, args[4], &N, READ);
    const double *S = real_numbers(&a, args[0], &all, READ);
    const double *Y = real_numbers(&a, args[1], &all, READ);
    double *out = real_numbers(&a, args[5], &numbers, WRITE);
    long row = integer(&a, args[2]), before = integer(&a, args[3]);
    if (a.failed)
        return finish(&a, NULL);
    Py_ssize_t B = numbers / 4, m = N ? all / N : 0;
    if (numbers % 4 || B == 0 || N % B || row < 0 || row >= m || before >= m) {
        refuse(&a, "the memory has no such row, or no such matrices");
        return finish(&a, NULL);
    }
    Py_ssize_t n = N / B;
    Py_BEGIN_ALLOW_THREADS
    const double *s = S + row * N, *y = Y + row * N;
    const double *s0 = before < 0 ? s : S + before * N, *y0 = before < 0 ? y : Y + before * N;
    for (Py_ssize_t b = 0; b < B; b++, s += n, y += n, s0 += n, y0 += n, g += n) {
        out[b] = product(n, s, y);
        out[B + b] = product(n, s, g);
        out[2 * B + b] = product(n, s, y0) - product(n, s0, y);
        out[3 * B + b] = product(n, s0, y0);
    }
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* stack_first_loop(S, Y, ⟨s, y⟩ of rows and matrices, rows, g, q, a) */
PyObject *stack_first_loop(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t N = ANY;
    if (!counted(count, 7))
        return NULL;
    const double *g = real_numbers(&a, args[4], &N, READ);
    double *q = real_numbers(&a, args[5], &N, WRITE);
    Stack s = stack_of(&a, args[0], args[1], args[2], args[3], N);
    Py_ssize_t all = s.m * s.B;
    double *weights = real_numbers(&a, args[6], &all, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    memcpy(q, g, sizeof(double) * (size_t)N);
    for (Py_ssize_t b = 0; b < s.B; b++)
        for (Py_ssize_t i = s.count - 1; i >= 0; i--) {
            Py_ssize_t at = s.rows[i] * s.B + b, start = s.rows[i] * N + b * s.n;
            if (s.curvatures[at] <= 0.0)
                continue;
            weights[at] = product(s.n, s.S + start, q + b * s.n) / s.curvatures[at];
            add(s.n, -weights[at], s.Y + start, q + b * s.n);
        }
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* stack_second_loop(S, Y, ⟨s, y⟩ of rows and matrices, rows, γ of matrices, a, longest, r): r becomes
 * the direction, no matrix of which is longer than `longest` */
PyObject *stack_second_loop(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t N = ANY;
    if (!counted(count, 8))
        return NULL;
    double *r = real_numbers(&a, args[7], &N, WRITE);
    Stack s = stack_of(&a, args[0], args[1], args[2], args[3], N);
    Py_ssize_t all = s.m * s.B, B = s.B;
    const double *gammas = real_numbers(&a, args[4], &B, READ);
    const double *weights = real_numbers(&a, args[5], &all, READ);
    double longest = number(&a, args[6]);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t b = 0; b < s.B; b++) {
        double *own = r + b * s.n;
        for (Py_ssize_t i = 0; i < s.n; i++)
            own[i] *= gammas[b];
        for (Py_ssize_t i = 0; i < s.count; i++) {
            Py_ssize_t at = s.rows[i] * s.B + b, start = s.rows[i] * N + b * s.n;
            if (s.curvatures[at] > 0.0)
                add(s.n, weights[at] - product(s.n, s.Y + start, own) / s.curvatures[at],
                    s.S + start, own);
        }
        double length = sqrt(product(s.n, own, own)), scale = length > longest ? longest / length : 1.0;
        for (Py_ssize_t i = 0; i < s.n; i++)
            own[i] *= -scale;
    }
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}
