/* The recursion of every matrix of a stack, `solvers.stack_pairs`: blocks S and Y of m rows, each of
 * B matrices of n real numbers.
 *
 * The numbers of a matrix, or of some small ones, stay in the nearest cache through both loops.
 */
#include "stack_pairs.h"

#include <math.h>
#include <string.h>

#include "arrays.h"
#include "processors.h"

/* Sums that do not wait for each other, of so many numbers that it pays. */
enum { SUMS = 16, LONG = 32 };

INLINE double long_product(Py_ssize_t n, const double *x, const double *y)
{
    double sums[SUMS] = {0.0}, sum = 0.0;
    Py_ssize_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++)
            sums[j] += x[i + j] * y[i + j];
    for (; i < n; i++)
        sum += x[i] * y[i];
    for (int half = SUMS / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            sums[j] += sums[j + half];
    return sums[0] + sum;
}

/* A call of BLAS takes longer than the few numbers of a matrix. */
INLINE double product(Py_ssize_t n, const double *x, const double *y)
{
    double a = 0.0, b = 0.0, c = 0.0, d = 0.0;
    Py_ssize_t i = 0;
    if (n >= LONG)
        return long_product(n, x, y);
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

INLINE void add(Py_ssize_t n, double a, const double *x, double *y)
{
    for (Py_ssize_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

Stack stack_of(Arrays *a, PyObject *S, PyObject *Y, PyObject *curvatures, PyObject *rows,
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

/* Steps of one matrix wait for each other, and those of several do not: small ones are taken together,
 * as many as stay in the nearest cache. */
static Py_ssize_t together(const Stack *s)
{
    return s->n > 0 ? 1 + 255 / s->n : 1;
}

/* The first loop of the matrices from b on; weights of rows and matrices. */
INLINE void without(Py_ssize_t n, const Stack *s, Py_ssize_t b, Py_ssize_t count, double *q,
                    double *weights)
{
    for (Py_ssize_t i = s->count - 1; i >= 0; i--) {
        const double *curvatures = s->curvatures + s->rows[i] * s->B + b;
        const double *S = s->S + s->rows[i] * s->N + b * n, *Y = s->Y + s->rows[i] * s->N + b * n;
        double *w = weights + i * count;
        for (Py_ssize_t j = 0; j < count; j++)
            if (curvatures[j] > 0.0) {
                w[j] = product(n, S + j * n, q + j * n) / curvatures[j];
                add(n, -w[j], Y + j * n, q + j * n);
            }
    }
}

/* The second one, of r that was multiplied by γ. */
INLINE void with(Py_ssize_t n, const Stack *s, Py_ssize_t b, Py_ssize_t count, double *r,
                 const double *weights, double longest)
{
    for (Py_ssize_t i = 0; i < s->count; i++) {
        const double *curvatures = s->curvatures + s->rows[i] * s->B + b, *w = weights + i * count;
        const double *S = s->S + s->rows[i] * s->N + b * n, *Y = s->Y + s->rows[i] * s->N + b * n;
        for (Py_ssize_t j = 0; j < count; j++)
            if (curvatures[j] > 0.0)
                add(n, w[j] - product(n, Y + j * n, r + j * n) / curvatures[j], S + j * n, r + j * n);
    }
    for (Py_ssize_t j = 0; j < count; j++, r += n) {
        double length = sqrt(product(n, r, r)), scale = length > longest ? longest / length : 1.0;
        for (Py_ssize_t i = 0; i < n; i++)
            r[i] *= -scale;
    }
}

/* Rotations have one number or three. */
#define FOR_FEW(n, formula, ...)                                                                   \
    do {                                                                                           \
        if ((n) == 3)                                                                              \
            formula(3, __VA_ARGS__);                                                               \
        else if ((n) == 1)                                                                         \
            formula(1, __VA_ARGS__);                                                               \
        else                                                                                       \
            formula(n, __VA_ARGS__);                                                               \
    } while (0)

FOR_PROCESSORS void without_pairs(const Stack *s, double *q, double *weights)
{
    Py_ssize_t most = together(s);
    for (Py_ssize_t b = 0; b < s->B; b += most) {
        Py_ssize_t count = s->B - b < most ? s->B - b : most;
        FOR_FEW(s->n, without, s, b, count, q + b * s->n, weights + b * s->count);
    }
}

FOR_PROCESSORS void with_pairs(const Stack *s, double *r, const double *weights,
                               const double *gammas, double gamma, double factor, double longest)
{
    Py_ssize_t most = together(s);
    for (Py_ssize_t b = 0; b < s->B; b += most) {
        Py_ssize_t count = s->B - b < most ? s->B - b : most;
        for (Py_ssize_t j = b; j < b + count; j++) {
            double scale = factor * (gammas[j] > 0.0 ? gammas[j] : gamma);
            for (Py_ssize_t i = j * s->n; i < (j + 1) * s->n; i++)
                r[i] *= scale;
        }
        FOR_FEW(s->n, with, s, b, count, r + b * s->n, weights + b * s->count, longest);
    }
}

/* The number that would stand at `place` if they were in order; they are moved.  None is NaN. */
static double ranked(Py_ssize_t count, double *numbers, Py_ssize_t place)
{
    Py_ssize_t low = 0, high = count - 1;
    while (low < high) {
        double pivot = numbers[place];
        Py_ssize_t i = low, j = high;
        while (i <= j) {
            while (numbers[i] < pivot)
                i++;
            while (pivot < numbers[j])
                j--;
            if (i <= j) {
                double moved = numbers[i];
                numbers[i++] = numbers[j], numbers[j--] = moved;
            }
        }
        low = j < place ? i : low;
        high = place < i ? j : high;
    }
    return numbers[place];
}

/* The mean of the middle one or two. */
static double median(Py_ssize_t count, double *numbers)
{
    double upper = ranked(count, numbers, count / 2), lower = numbers[0];
    if (count % 2)
        return upper;
    for (Py_ssize_t i = 1; i < count / 2; i++) /* what stands before it is no larger */
        lower = numbers[i] > lower ? numbers[i] : lower;
    return 0.5 * (lower + upper);
}

void asymmetry(Py_ssize_t B, double *cross, const double *sizes, double least, double out[2])
{
    double largest = 0.0, sum = 0.0;
    Py_ssize_t moved = 0;
    out[0] = out[1] = 1.0;
    for (Py_ssize_t b = 0; b < B; b++) {
        if (isnan(sizes[b]))
            return;
        largest = sizes[b] > largest ? sizes[b] : largest;
    }
    for (Py_ssize_t b = 0; b < B; b++)
        if (sizes[b] > least * largest) {
            double each = cross[b] / sizes[b];
            cross[moved] = each < 1.0 ? each : 1.0; /* of NaN, too */
            sum += cross[moved++];
        }
    if (moved)
        out[0] = median(moved, cross), out[1] = sum / (double)moved;
}

/* stack_look(S, Y, row, row before, g, c₂, least, ⟨s, y⟩ of rows and matrices) -> the median and the mean
 * of the asymmetries of the two pairs; the curvatures of the row become those of its pair, and zero
 * where that is not to be used */
PyObject *stack_look(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t N = ANY, shape[2] = {0, 0}, all;
    size_t entry = 0;
    double out[2] = {1.0, 1.0};
    if (!counted(count, 8))
        return NULL;
    const double *g = real_numbers(&a, args[4], &N, READ);
    double *curvatures = writable_array(&a, args[7], 2, shape, &entry);
    Py_ssize_t m = shape[0], B = shape[1];
    all = m * N;
    const double *S = real_numbers(&a, args[0], &all, READ), *Y = real_numbers(&a, args[1], &all, READ);
    long row = integer(&a, args[2]), before = integer(&a, args[3]);
    double c2 = number(&a, args[5]), least = number(&a, args[6]);
    if (!a.failed && (entry != sizeof(double) || B == 0 || N % B))
        refuse(&a, "expected curvatures of every matrix");
    if (!a.failed && (row < 0 || row >= m || before < 0 || before >= m))
        refuse(&a, "the memory has no such row");
    double *cross = workspace(&a, a.failed ? 0 : 2 * sizeof(double) * (size_t)B), *sizes = cross + B;
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    Py_ssize_t n = N / B;
    const double *s = S + row * N, *y = Y + row * N, *s0 = S + before * N, *y0 = Y + before * N;
    double *kept = curvatures + row * B;
    for (Py_ssize_t b = 0; b < B; b++, s += n, y += n, s0 += n, y0 += n, g += n) {
        double sy = product(n, s, y), sG = product(n, s, g);
        kept[b] = sy > 0.0 && (1.0 - c2) * sG + c2 * sy >= 0.0 ? sy : 0.0;
        cross[b] = fabs(product(n, s, y0) - product(n, s0, y));
        sizes[b] = sqrt(fabs(sy) * fabs(product(n, s0, y0)));
    }
    asymmetry(B, cross, sizes, least, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dd", out[0], out[1]));
}

/* stack_gammas(y, φ(y), ⟨s, y⟩ of matrices or 0, γ of matrices, out): √(γ⟨s, y⟩/⟨y, φ(y)⟩) where both are
 * known, or the one that is */
PyObject *stack_gammas(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t N = ANY, B = ANY;
    if (!counted(count, 5))
        return NULL;
    const double *y = real_numbers(&a, args[0], &N, READ), *z = real_numbers(&a, args[1], &N, READ);
    const double *kept = real_numbers(&a, args[2], &B, READ);
    const double *old = real_numbers(&a, args[3], &B, READ);
    double *out = real_numbers(&a, args[4], &B, WRITE);
    if (!a.failed && (B == 0 || N % B))
        refuse(&a, "expected a number of every matrix");
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    Py_ssize_t n = N / B;
    for (Py_ssize_t b = 0; b < B; b++, y += n, z += n) {
        double yy = product(n, y, z), new = kept[b] / yy;
        if (!(kept[b] > 0.0 && yy > 0.0))
            out[b] = old[b];
        else
            out[b] = old[b] > 0.0 ? sqrt(old[b] * new) : new;
    }
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* stack_first_loop(S, Y, ⟨s, y⟩ of rows and matrices, rows, g, q, a), with a number in a for every matrix
 * and row in use */
PyObject *stack_first_loop(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t N = ANY;
    if (!counted(count, 7))
        return NULL;
    const double *g = real_numbers(&a, args[4], &N, READ);
    double *q = real_numbers(&a, args[5], &N, WRITE);
    Stack s = stack_of(&a, args[0], args[1], args[2], args[3], N);
    Py_ssize_t all = s.count * s.B;
    double *weights = real_numbers(&a, args[6], &all, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    memcpy(q, g, sizeof(double) * (size_t)N);
    without_pairs(&s, q, weights);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* stack_second_loop(S, Y, ⟨s, y⟩ of rows and matrices, rows, γ of matrices, γ, a, longest, r): r becomes
 * the direction, no matrix of which is longer than `longest`; γ is that of matrices without one */
PyObject *stack_second_loop(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t N = ANY;
    if (!counted(count, 9))
        return NULL;
    double *r = real_numbers(&a, args[8], &N, WRITE);
    Stack s = stack_of(&a, args[0], args[1], args[2], args[3], N);
    Py_ssize_t all = s.count * s.B, B = s.B;
    const double *gammas = real_numbers(&a, args[4], &B, READ);
    double gamma = number(&a, args[5]), longest = number(&a, args[7]);
    const double *weights = real_numbers(&a, args[6], &all, READ);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS with_pairs(&s, r, weights, gammas, gamma, 1.0, longest);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}
