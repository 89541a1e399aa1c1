/* Stacks of 2×2 and 3×3 rotations, `geometry.turns`: B matrices Q of n² numbers, and a tangent or a
 * cotangent of one number (n = 2) or three (n = 3) for each.
 *
 * One rotation after the other: its numbers stay in registers.  The size is a constant to each copy
 * of a formula.
 */
#include "turns.h"

#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "pairs.h"
#include "processors.h"
#include "stack_pairs.h"
#include "strides.h"

static const double SQRT_HALF = 0.70710678118654752440, SQRT_EIGHTH = 0.35355339059327376220;

/* `turns._lowered`: √½ of what QᵀE is from being symmetric, which is −√½ Σ q × e over rows. */
INLINE double lowered(int n, Py_ssize_t B, const double *restrict Q, const double *restrict E,
                      double *restrict c)
{
    double square = 0.0;
    for (Py_ssize_t b = 0; b < B; b++, Q += n * n, E += n * n) {
        double x = 0.0, y = 0.0, z = 0.0;
        for (int r = 0; r < n; r++) {
            const double *q = Q + n * r, *e = E + n * r;
            z += q[1] * e[0] - q[0] * e[1];
            if (n == 3) {
                x += q[2] * e[1] - q[1] * e[2];
                y += q[0] * e[2] - q[2] * e[0];
            }
        }
        z *= SQRT_HALF;
        if (n == 3) {
            x *= SQRT_HALF, y *= SQRT_HALF;
            c[0] = x, c[1] = y, c[2] = z, c += 3;
            square += x * x + y * y + z * z;
        } else {
            *c++ = z;
            square += z * z;
        }
    }
    return 2.0 * square;
}

/* Cayley's rotation R of the velocity τ at t; see `turns`. */
INLINE void turn(int n, const double *tau, double t, double *R)
{
    double h = SQRT_EIGHTH * t, x = h * tau[0];
    if (n == 2) {
        double factor = 2.0 / (1.0 + x * x);
        R[0] = R[3] = factor - 1.0;
        R[2] = factor * x, R[1] = -R[2];
        return;
    }
    double y = h * tau[1], z = h * tau[2], factor = 2.0 / (1.0 + (x * x + y * y + z * z));
    double diagonal = factor - 1.0, a = factor * x, b = factor * y, c = factor * z;
    double xy = a * y, xz = a * z, yz = b * z;
    R[0] = diagonal + a * x, R[1] = xy - c, R[2] = xz + b;
    R[3] = xy + c, R[4] = diagonal + b * y, R[5] = yz - a;
    R[6] = xz - b, R[7] = yz + a, R[8] = diagonal + c * z;
}

/* `turns._turned_by`: QR. */
INLINE void turned(int n, Py_ssize_t B, const double *restrict Q, const double *restrict tau, double t,
                   double *restrict out)
{
    for (Py_ssize_t b = 0; b < B; b++, tau += n == 3 ? 3 : 1) {
        double R[9];
        turn(n, tau, t, R);
        for (int r = 0; r < n; r++, Q += n, out += n)
            for (int j = 0; j < n; j++) {
                double sum = Q[0] * R[j] + Q[1] * R[n + j];
                out[j] = n == 3 ? sum + Q[2] * R[2 * n + j] : sum;
            }
    }
}

/* E = QᵀQ − I, above and on the diagonal, of one matrix; its square. */
INLINE double drifted(int n, const double *Q, double *E)
{
    double square = 0.0;
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) {
            double sum = i == j ? -1.0 : 0.0;
            for (int r = 0; r < n; r++)
                sum += Q[n * r + i] * Q[n * r + j];
            E[n * i + j] = sum;
            square += (i == j ? 1.0 : 2.0) * sum * sum;
        }
    return square;
}

/* `framed._drift` and `turns._longest`: ‖E‖² of the stack, of the matrix that is furthest, and the
 * largest |τ|²; NaN is the largest of all. */
INLINE void surveyed(int n, Py_ssize_t B, const double *restrict Q, const double *restrict tau,
                     double out[3])
{
    double E[9], sum = 0.0, largest = 0.0, longest = 0.0, lengths = 0.0;
    for (Py_ssize_t b = 0; b < B; b++, Q += n * n, tau += n == 3 ? 3 : 1) {
        double square = drifted(n, Q, E), length = tau[0] * tau[0];
        if (n == 3)
            length += tau[1] * tau[1] + tau[2] * tau[2];
        sum += square, lengths += length;
        largest = square > largest ? square : largest;
        longest = length > longest ? length : longest;
    }
    out[0] = sum;
    out[1] = isnan(sum) ? sum : largest;
    out[2] = isnan(lengths) ? lengths : longest;
}

/* ‖E‖² of the matrix that is furthest, or NaN. */
INLINE double furthest(int n, Py_ssize_t B, const double *Q)
{
    double E[9], sum = 0.0, largest = 0.0;
    for (Py_ssize_t b = 0; b < B; b++, Q += n * n) {
        double square = drifted(n, Q, E);
        sum += square;
        largest = square > largest ? square : largest;
    }
    return isnan(sum) ? sum : largest;
}

/* `framed._straightened`: Q − QE/2. */
INLINE void straightened(int n, Py_ssize_t B, const double *restrict Q, double *restrict out)
{
    for (Py_ssize_t b = 0; b < B; b++) {
        double E[9];
        drifted(n, Q, E);
        for (int i = 1; i < n; i++)
            for (int j = 0; j < i; j++)
                E[n * i + j] = E[n * j + i];
        for (int r = 0; r < n; r++, Q += n, out += n)
            for (int j = 0; j < n; j++) {
                double sum = 0.0;
                for (int i = 0; i < n; i++)
                    sum += Q[i] * (0.5 * E[n * i + j]);
                out[j] = Q[j] - sum;
            }
    }
}

/* A copy of each formula for every size and processor. */
#define FOR_SIZE(n, formula, ...)                                                                  \
    do {                                                                                           \
        if ((n) == 3)                                                                              \
            formula(3, __VA_ARGS__);                                                               \
        else                                                                                       \
            formula(2, __VA_ARGS__);                                                               \
    } while (0)

FOR_PROCESSORS static double lowered_of(int n, Py_ssize_t B, const double *Q, const double *E, double *c)
{
    return n == 3 ? lowered(3, B, Q, E, c) : lowered(2, B, Q, E, c);
}

FOR_PROCESSORS static void turned_of(int n, Py_ssize_t B, const double *Q, const double *tau, double t,
                                     double *out)
{
    FOR_SIZE(n, turned, B, Q, tau, t, out);
}

FOR_PROCESSORS static void surveyed_of(int n, Py_ssize_t B, const double *Q, const double *tau,
                                       double out[3])
{
    FOR_SIZE(n, surveyed, B, Q, tau, out);
}

FOR_PROCESSORS static double furthest_of(int n, Py_ssize_t B, const double *Q)
{
    return n == 3 ? furthest(3, B, Q) : furthest(2, B, Q);
}

FOR_PROCESSORS static void straightened_of(int n, Py_ssize_t B, const double *Q, double *out)
{
    FOR_SIZE(n, straightened, B, Q, out);
}

/* What every kernel here begins with: the size, the matrices and how many they are. */
typedef struct {
    int n;
    Py_ssize_t B, numbers, N; /* of the matrices, and of a tangent */
    const double *Q;
} Turns;

static Turns turns_of(Arrays *a, PyObject *size, PyObject *Q)
{
    Turns s = {.numbers = ANY};
    long n = integer(a, size);
    s.Q = real_numbers(a, Q, &s.numbers, READ);
    if (!a->failed && ((n != 2 && n != 3) || s.numbers % (n * n)))
        refuse(a, "expected matrices of two or three rows and columns");
    if (a->failed)
        return s;
    s.n = (int)n, s.B = s.numbers / (n * n);
    s.N = s.B * (n == 3 ? 3 : 1);
    return s;
}

/* turns_gradient(n, Q, E, G) -> ‖G‖²_g* */
PyObject *turns_gradient(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double square = 0.0;
    if (!counted(count, 4))
        return NULL;
    Turns s = turns_of(&a, args[0], args[1]);
    const double *E = real_numbers(&a, args[2], &s.numbers, READ);
    double *c = real_numbers(&a, args[3], &s.N, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS square = lowered_of(s.n, s.B, s.Q, E, c);
    Py_END_ALLOW_THREADS
    return finish(&a, PyFloat_FromDouble(square));
}

/* turns_point(n, Q, T, t, Q(t)) */
PyObject *turns_point(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    if (!counted(count, 5))
        return NULL;
    Turns s = turns_of(&a, args[0], args[1]);
    const double *tau = real_numbers(&a, args[2], &s.N, READ);
    double t = number(&a, args[3]);
    double *out = real_numbers(&a, args[4], &s.numbers, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS turned_of(s.n, s.B, s.Q, tau, t, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* turns_defect(n, Q) -> the largest ‖QᵀQ − I‖² of the stack */
PyObject *turns_defect(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double largest = 0.0;
    if (!counted(count, 2))
        return NULL;
    Turns s = turns_of(&a, args[0], args[1]);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS largest = furthest_of(s.n, s.B, s.Q);
    Py_END_ALLOW_THREADS
    return finish(&a, PyFloat_FromDouble(largest));
}

/* turns_ray(n, Q, T) -> ‖QᵀQ − I‖² of the stack, of the furthest matrix, and the largest |τ|² */
PyObject *turns_ray(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double out[3] = {0.0};
    if (!counted(count, 3))
        return NULL;
    Turns s = turns_of(&a, args[0], args[1]);
    const double *tau = real_numbers(&a, args[2], &s.N, READ);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS surveyed_of(s.n, s.B, s.Q, tau, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("ddd", out[0], out[1], out[2]));
}

/* turns_straightened(n, Q, out) */
PyObject *turns_straightened(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    if (!counted(count, 3))
        return NULL;
    Turns s = turns_of(&a, args[0], args[1]);
    double *out = real_numbers(&a, args[2], &s.numbers, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS straightened_of(s.n, s.B, s.Q, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* T = −H G by both loops, with φ(q) = 2q between them; ⟨G, T⟩.  Room for 3m. */
static double aimed(const Turns *s, Py_ssize_t m, const double *S, const double *Y, const double *inverse,
                    const double *diagonal, double gamma, const double *G, double *T, double *room)
{
    first_of_two_loops(m, s->N, S, Y, inverse, G, T, room + 2 * m, room);
    for (Py_ssize_t i = 0; i < s->N; i++)
        T[i] *= 2.0;
    second_of_two_loops(m, s->N, S, Y, inverse, diagonal, gamma, room + 2 * m, T, room);
    return d_dot(s->N, G, T);
}

/* turns_aim(n, Q, G, S, Y, R⁻¹, diagonal, γ, T) -> ⟨G, T⟩ and what `turns_ray` returns: see `aimed` */
PyObject *turns_aim(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY;
    double slope = 0.0, out[3] = {0.0};
    if (!counted(count, 9))
        return NULL;
    Turns s = turns_of(&a, args[0], args[1]);
    const double *G = real_numbers(&a, args[2], &s.N, READ);
    const double *diagonal = real_numbers(&a, args[6], &m, READ);
    Py_ssize_t all = m * s.N, square = m * m;
    const double *S = real_numbers(&a, args[3], &all, READ), *Y = real_numbers(&a, args[4], &all, READ);
    const double *inverse = real_numbers(&a, args[5], &square, READ);
    double gamma = number(&a, args[7]), *T = real_numbers(&a, args[8], &s.N, WRITE);
    double *room = workspace(&a, sizeof(double) * (size_t)(3 * m));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    slope = aimed(&s, m, S, Y, inverse, diagonal, gamma, G, T, room);
    surveyed_of(s.n, s.B, s.Q, T, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", slope, out[0], out[1], out[2]));
}

/* turns_aim_apart(n, Q, G, S, Y, ⟨s, y⟩ of rows and matrices, rows, γ of matrices, γ, longest, T): the
 * same where every matrix has its own recursion, and γ before its first pair */
PyObject *turns_aim_apart(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double slope = 0.0, out[3] = {0.0};
    if (!counted(count, 11))
        return NULL;
    Turns s = turns_of(&a, args[0], args[1]);
    const double *G = real_numbers(&a, args[2], &s.N, READ);
    Stack stack = stack_of(&a, args[3], args[4], args[5], args[6], s.N);
    const double *gammas = real_numbers(&a, args[7], &s.B, READ);
    double gamma = number(&a, args[8]), longest = number(&a, args[9]);
    double *T = real_numbers(&a, args[10], &s.N, WRITE);
    double *room = workspace(&a, sizeof(double) * (size_t)(stack.count * stack.B));
    if (!a.failed && stack.B != s.B)
        refuse(&a, "expected curvatures of every matrix");
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    memcpy(T, G, sizeof(double) * (size_t)s.N);
    without_pairs(&stack, T, room);
    with_pairs(&stack, T, room, gammas, gamma, 2.0, longest);
    slope = d_dot(s.N, G, T);
    surveyed_of(s.n, s.B, s.Q, T, out);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", slope, out[0], out[1], out[2]));
}

/* turns_stride(n, Q, Euclidean gradient at Q, G to be written, old T, t, old G, s and y to be written, S,
 * Y, R⁻¹, diagonal, old γ or 0, row, gone, ω, T to be written, 4 terms) -> ‖G‖²_g*, ⟨G, s⟩, ‖s‖², ‖y‖²
 * and, of an ordinary step, γ and what `turns_aim` returns, or None; see `matrix_stride` */
PyObject *turns_stride(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY;
    double square = 0.0, end = 0.0, ss = 0.0, yy = 0.0, slope = 0.0, out[3] = {0.0};
    int ordinary = 0;
    if (!counted(count, 22))
        return NULL;
    Turns v = turns_of(&a, args[0], args[1]);
    const double *E = real_numbers(&a, args[2], &v.numbers, READ);
    double *G = real_numbers(&a, args[3], &v.N, WRITE);
    const double *old_T = real_numbers(&a, args[4], &v.N, READ);
    double t = number(&a, args[5]);
    const double *old = real_numbers(&a, args[6], &v.N, READ);
    double *s = real_numbers(&a, args[7], &v.N, WRITE), *y = real_numbers(&a, args[8], &v.N, WRITE);
    double *diagonal = real_numbers(&a, args[12], &m, WRITE);
    Py_ssize_t all = m * v.N, small = m * m;
    double *S = real_numbers(&a, args[9], &all, WRITE), *Y = real_numbers(&a, args[10], &all, WRITE);
    double *inverse = real_numbers(&a, args[11], &small, WRITE);
    double gamma = number(&a, args[13]), omega = number(&a, args[16]);
    long row = integer(&a, args[14]), gone = integer(&a, args[15]);
    double *T = real_numbers(&a, args[17], &v.N, WRITE);
    Terms q = {number(&a, args[18]), number(&a, args[19]), (int)integer(&a, args[20]),
               number(&a, args[21])};
    if (a.failed || !has_rows(&a, m, row, gone))
        return finish(&a, NULL);
    double *room = workspace(&a, sizeof(double) * (size_t)(3 * m));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    square = lowered_of(v.n, v.B, v.Q, E, G);
    for (Py_ssize_t i = 0; i < v.N; i++)
        s[i] = t * old_T[i], y[i] = G[i] - old[i];
    end = d_dot(v.N, G, s), ss = d_dot(v.N, s, s), yy = d_dot(v.N, y, y);
    ordinary = is_ordinary(&q, t, square, end, yy);
    if (ordinary) {
        double sy = paired(&q, t, end);
        keep_pair(m, v.N, S, Y, row, gone, s, y, sy, inverse, diagonal, room);
        gamma = averaged(gamma, sy, omega * yy);
        slope = aimed(&v, m, S, Y, inverse, diagonal, gamma, G, T, room);
        surveyed_of(v.n, v.B, v.Q, T, out);
    }
    Py_END_ALLOW_THREADS
    PyObject *ahead = ordinary ? Py_BuildValue("ddddd", gamma, slope, out[0], out[1], out[2])
                               : Py_NewRef(Py_None);
    return finish(&a, ahead == NULL ? NULL : Py_BuildValue("ddddN", square, end, ss, yy, ahead));
}
