/* Kernels of the row model: arguments in, the formulas of rows*.inc, numbers out. */
#include "rows.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "eigen.h"
#include "entries.h"
#include "matrices.h"
#include "narrow.h"

/* Tall matrices are read in blocks of so many of the `left` rows.  A product of them with five blocks
 * of vectors is then below the million multiplications up to which OpenBLAS copies nothing, which is
 * twice as fast, and what is read twice is still in the cache. */
static inline Py_ssize_t rows_of_block(Py_ssize_t left, Py_ssize_t k)
{
    Py_ssize_t most = k < 7 ? 1024 : k < 36 ? 40000 / (k * k) : 32;
    return left < most ? left : most;
}

enum { NO_TURNS, UNCOUPLED, COUPLED };

/* What one step of a model reads, and then what it fills; see rows_step.inc.  Without a direction, of
 * an inexact model, products with G are not asked for. */
typedef struct {
    Py_ssize_t n, k, p, m; /* sizes; vectors and Ritz pairs before */
    Py_ssize_t q, lowest;  /* vectors of the smaller memory, and the lowest Ritz vectors among them */
    double decay, agreed, least, dependent, unreliable, softest, left_out;
    int turns;
    void *W, *smaller; /* the memory; room for the smaller one, NULL if it is not full */
    const void *XA0, *WW0, *WX0, *normal0, *basis0;
    const void *X, *G, *rotation, *level, *offset; /* the point, and C₀ or NULL */
    const void *D, *half, *inverse_half, *vectors;
    const double *gaps;
    void *XA, *WW, *WX, *XX, *seen, *columns, *F, *normal, *basis, *direction, *frame;
    double *c, *theta;
} RowStep;

enum { UNUSUAL = -3 };

#include "real_entries.inc"
#include "rooms.inc"
#include "rows.inc"
#include "rows_ritz.inc"
#include "rows_rotations.inc"
#include "rows_inverse.inc"
#include "rows_step.inc"

#include "complex_entries.inc"
#include "rooms.inc"
#include "rows.inc"
#include "rows_ritz.inc"
#include "rows_rotations.inc"
#include "rows_inverse.inc"
#include "rows_step.inc"

/* An n×k point and the memory (blocks, 2k, n), of which `used` blocks count, at least so many. */
typedef struct {
    Py_ssize_t n, k, p, blocks;
    size_t e;
    void *W;
} Memory;

static Memory memory_of(Arrays *a, PyObject *W, PyObject *used, long least, int more)
{
    Memory m = {0};
    Py_ssize_t shape[3] = {0, 0, 0};
    long blocks = integer(a, used);
    m.W = more ? writable_array(a, W, 3, shape, &m.e) : shaped_array(a, W, 3, shape, &m.e);
    m.n = shape[2], m.k = shape[1] / 2, m.blocks = shape[0];
    if (!a->failed && (m.n < 1 || m.k < 1 || shape[1] % 2 || blocks < least || blocks > shape[0] - more ||
                       (m.e != sizeof(double) && m.e != sizeof(zdouble)))) {
        PyErr_Format(PyExc_ValueError, "a memory of %zd by %zd by %zd entries of %zd bytes does not "
                     "have %ld blocks and %d more", shape[0], shape[1], shape[2], (Py_ssize_t)m.e, blocks,
                     more);
        a->failed = 1;
    }
    m.p = a->failed ? 0 : (Py_ssize_t)blocks * m.k;
    return m;
}

/* What a formula returned: a number, or what went wrong. */
static int judged(Arrays *a, Py_ssize_t found)
{
    if (found == -1)
        PyErr_NoMemory();
    else if (found < 0)
        PyErr_SetString(PyExc_ArithmeticError, "Eigenvalues did not converge");
    a->failed = a->failed || found < 0;
    return found >= 0;
}

/* rows_grown(W, used, XA₀, X, E, G, D, level, WW₀, WX₀, least normal part, XA, WW, WX, XX, seen)
 * -> (whether a block was added, asymmetry of it, of all) */
PyObject *rows_grown(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double out[2] = {0.0, 0.0};
    int added = 0;
    if (!counted(count, 16))
        return NULL;
    Memory s = memory_of(&a, args[0], args[1], 1, 1);
    Py_ssize_t n = s.n, k = s.k, p = s.p, q = p + k;
    const void *XA0 = array(&a, args[2], n * 2 * k, s.e, READ);
    const void *X = array(&a, args[3], n * k, s.e, READ), *E = array(&a, args[4], n * k, s.e, READ);
    const void *G = array(&a, args[5], n * k, s.e, READ), *D = array(&a, args[6], k * k, s.e, READ);
    const void *level = array(&a, args[7], k * k, s.e, READ);
    const void *WW0 = array(&a, args[8], 4 * p * p, s.e, READ);
    const void *WX0 = array(&a, args[9], 4 * p * k, s.e, READ);
    double least = number(&a, args[10]);
    void *XA = array(&a, args[11], n * 2 * k, s.e, WRITE);
    void *WW = array(&a, args[12], 4 * q * q, s.e, WRITE);
    void *WX = array(&a, args[13], 4 * q * k, s.e, WRITE);
    void *XX = array(&a, args[14], 4 * k * k, s.e, WRITE);
    void *seen = array(&a, args[15], (2 * q + k) * k, s.e, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(s.e,
                added = d_grown(n, k, p, least, s.W, XA0, X, E, G, D, level, WW0, WX0, XA, WW, WX, XX,
                                seen, out),
                added = z_grown(n, k, p, least, s.W, XA0, X, E, G, D, level, WW0, WX0, XA, WW, WX, XX,
                                seen, out))
    if (!judged(&a, added))
        return finish(&a, NULL);
    return finish(&a, Py_BuildValue("idd", added, out[0], out[1]));
}

/* rows_grams(W, used, XA, G, WW, WX, XX, seen) */
PyObject *rows_grams(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    int info = 0;
    if (!counted(count, 8))
        return NULL;
    Memory s = memory_of(&a, args[0], args[1], 1, 0);
    Py_ssize_t n = s.n, k = s.k, p = s.p;
    const void *XA = array(&a, args[2], n * 2 * k, s.e, READ);
    const void *G = array(&a, args[3], n * k, s.e, READ);
    void *WW = array(&a, args[4], 4 * p * p, s.e, WRITE);
    void *WX = array(&a, args[5], 4 * p * k, s.e, WRITE);
    void *XX = array(&a, args[6], 4 * k * k, s.e, WRITE);
    void *seen = array(&a, args[7], (2 * p + k) * k, s.e, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(s.e, info = d_all_grams(n, k, p, s.W, XA, G, WW, WX, XX, seen),
                info = z_all_grams(n, k, p, s.W, XA, G, WW, WX, XX, seen))
    return finish(&a, judged(&a, info) ? Py_NewRef(Py_None) : NULL);
}

/* rows_combined(W, used, XA, C, along, W of the combinations) */
PyObject *rows_combined(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t shape[2] = {0, 0};
    size_t entry = 0;
    if (!counted(count, 6))
        return NULL;
    Memory s = memory_of(&a, args[0], args[1], 1, 0);
    Py_ssize_t n = s.n, k = s.k, p = s.p;
    const void *XA = array(&a, args[2], n * 2 * k, s.e, READ);
    const void *C = shaped_array(&a, args[3], 2, shape, &entry);
    Py_ssize_t q = shape[1];
    if (!a.failed && (shape[0] != p || entry != s.e || q < 1 || q > p)) {
        PyErr_Format(PyExc_ValueError, "combinations are %zd by %zd; expected %zd rows", shape[0], q, p);
        a.failed = 1;
    }
    const void *along = array(&a, args[4], q * k, s.e, READ);
    void *out = array(&a, args[5], q * 2 * n, s.e, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(s.e, d_combined_columns(n, k, p, q, n, s.W, XA, C, along, out),
                z_combined_columns(n, k, p, q, n, s.W, XA, C, along, out))
    return finish(&a, Py_NewRef(Py_None));
}

/* rows_ritz(D½, D^{-½}, level, WW, WX, XX, dependent, unreliable, c, W, F, normal, T, θ) -> count */
PyObject *rows_ritz(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t shape[2] = {0, 0}, found = 0;
    size_t e = 0;
    if (!counted(count, 14))
        return NULL;
    const void *WX = shaped_array(&a, args[4], 2, shape, &e);
    Py_ssize_t p = shape[0] / 2, k = shape[1] / 2;
    if (!a.failed && (p < 1 || k < 1 || shape[0] % 2 || shape[1] % 2 ||
                      (e != sizeof(double) && e != sizeof(zdouble)))) {
        PyErr_Format(PyExc_ValueError, "Gram matrices are %zd by %zd", shape[0], shape[1]);
        a.failed = 1;
    }
    const void *half = array(&a, args[0], k * k, e, READ);
    const void *inverse_half = array(&a, args[1], k * k, e, READ);
    const void *level = array(&a, args[2], k * k, e, READ);
    const void *WW = array(&a, args[3], 4 * p * p, e, READ), *XX = array(&a, args[5], 4 * k * k, e, READ);
    double dependent = number(&a, args[6]), unreliable = number(&a, args[7]);
    double *c = array(&a, args[8], k, sizeof(double), WRITE);
    void *W = array(&a, args[9], k * k, e, WRITE), *F = array(&a, args[10], k * k, e, WRITE);
    void *normal = array(&a, args[11], 4 * p * p, e, WRITE);
    void *out = array(&a, args[12], p * p, e, WRITE);
    double *theta = array(&a, args[13], p, sizeof(double), WRITE);
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e,
                found = d_ritz(k, p, half, inverse_half, level, WW, WX, XX, dependent, unreliable, c,
                               W, F, normal, out, theta),
                found = z_ritz(k, p, half, inverse_half, level, WW, WX, XX, dependent, unreliable, c,
                               W, F, normal, out, theta))
    return finish(&a, judged(&a, found) ? PyLong_FromSsize_t(found) : NULL);
}

/* rows_inverse(W, used, XA, G, seen or None, rotation or None, WX, XX, normal, T, θ, c, W, F, vectors, gaps, softest,
 * sign, turns, ±HG) */
PyObject *rows_inverse(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    int info = 0;
    Py_ssize_t m = ANY;
    if (!counted(count, 20))
        return NULL;
    Memory s = memory_of(&a, args[0], args[1], 1, 0);
    Py_ssize_t n = s.n, k = s.k, p = s.p;
    const void *XA = array(&a, args[2], n * 2 * k, s.e, READ);
    const void *G = array(&a, args[3], n * k, s.e, READ);
    const void *seen = optional_array(&a, args[4], (2 * p + k) * k, s.e);
    const void *rotation = optional_array(&a, args[5], k * k, s.e);
    if (!a.failed && (seen == NULL) != (rotation == NULL))
        refuse(&a, "what is seen and the rotation are known together");
    const void *WX = array(&a, args[6], 4 * p * k, s.e, READ);
    const void *XX = array(&a, args[7], 4 * k * k, s.e, READ);
    const void *normal = array(&a, args[8], 4 * p * p, s.e, READ);
    const double *theta = real_numbers(&a, args[10], &m, READ);
    const void *basis = array(&a, args[9], p * (m < 0 ? 0 : m), s.e, READ);
    const double *c = array(&a, args[11], k, sizeof(double), READ);
    const void *W = array(&a, args[12], k * k, s.e, READ), *F = array(&a, args[13], k * k, s.e, READ);
    const void *vectors = array(&a, args[14], k * k, s.e, READ);
    const double *gaps = array(&a, args[15], k * k, sizeof(double), READ);
    double softest = number(&a, args[16]), sign = number(&a, args[17]);
    int turns = (int)integer(&a, args[18]);
    void *out = array(&a, args[19], n * k, s.e, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    d_Model real = {k, p, m, WX, XX, normal, basis, theta, c, W, F, vectors, gaps, softest};
    z_Model complex_ = {k, p, m, WX, XX, normal, basis, theta, c, W, F, vectors, gaps, softest};
    FOR_ENTRIES(s.e, info = d_inverse(n, &real, s.W, XA, G, seen, rotation, sign, turns, out),
                info = z_inverse(n, &complex_, s.W, XA, G, seen, rotation, sign, turns, out))
    return finish(&a, judged(&a, info) ? Py_NewRef(Py_None) : NULL);
}

/* The room for a smaller memory, and which vectors it takes; None where the memory is not full. */
static void room_of(Arrays *a, RowStep *s, Memory w, PyObject *room, PyObject *q, PyObject *lowest)
{
    s->q = (Py_ssize_t)integer(a, q), s->lowest = (Py_ssize_t)integer(a, lowest);
    if (room == Py_None || a->failed)
        return;
    s->smaller = array(a, room, w.blocks * 2 * w.k * w.n, w.e, WRITE);
    Py_ssize_t low = s->m < s->lowest ? s->m : s->lowest, others = s->m - low;
    if (s->lowest < 0 || s->q < w.k || s->q % w.k || s->q > w.p || s->q + w.k > w.blocks * w.k ||
        low + (others < w.k ? others : w.k) > s->q) {
        refuse(a, "the smaller memory has no room for its vectors");
        s->q = 0; /* sizes follow from it */
    }
}

/* rows_step(W, used, room for a smaller memory or None, its vectors, how many of them are lowest Ritz
 * vectors; XA₀, WW₀, WX₀, normal₀, T₀, θ₀; X, G, rotation, level, C₀ or None; D, D½, D^{-½}, vectors,
 * gaps; decay of the newest block, of all, least normal part, dependent, unreliable, softest, rotation
 * left out; turns; XA, WW, WX, XX, seen, c, W, F, normal, T, θ, −HG, frame)
 * -> None if the step is unusual; the number of Ritz pairs, ⟨G, −HG⟩, what `prepare_tangent` returns.
 * With None for seen, −HG and frame there is no direction, and the numbers after the first are zero. */
PyObject *rows_step(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double out[4] = {0.0};
    Py_ssize_t found = 0, m = ANY;
    if (!counted(count, 42))
        return NULL;
    Memory w = memory_of(&a, args[0], args[1], 0, args[2] == Py_None);
    Py_ssize_t n = w.n, k = w.k, p = w.p, tall = n * k, square = k * k;
    size_t e = w.e;
    (void)real_numbers(&a, args[10], &m, READ);
    RowStep s = {.n = n, .k = k, .p = p, .m = m < 0 ? 0 : m, .W = w.W};
    room_of(&a, &s, w, args[2], args[3], args[4]);
    Py_ssize_t q = k + (s.smaller == NULL ? p : s.q);
    s.XA0 = array(&a, args[5], 2 * tall, e, READ), s.WW0 = array(&a, args[6], 4 * p * p, e, READ);
    s.WX0 = array(&a, args[7], 4 * p * k, e, READ), s.normal0 = array(&a, args[8], 4 * p * p, e, READ);
    s.basis0 = array(&a, args[9], p * s.m, e, READ);
    s.X = array(&a, args[11], tall, e, READ), s.G = array(&a, args[12], tall, e, READ);
    s.rotation = array(&a, args[13], square, e, READ), s.level = array(&a, args[14], square, e, READ);
    s.offset = optional_array(&a, args[15], tall, e);
    s.D = array(&a, args[16], square, e, READ), s.half = array(&a, args[17], square, e, READ);
    s.inverse_half = array(&a, args[18], square, e, READ);
    s.vectors = array(&a, args[19], square, e, READ);
    s.gaps = array(&a, args[20], square, sizeof(double), READ);
    s.decay = number(&a, args[21]), s.agreed = number(&a, args[22]), s.least = number(&a, args[23]);
    s.dependent = number(&a, args[24]), s.unreliable = number(&a, args[25]);
    s.softest = number(&a, args[26]), s.left_out = number(&a, args[27]);
    s.turns = (int)integer(&a, args[28]);
    s.XA = array(&a, args[29], 2 * tall, e, WRITE), s.WW = array(&a, args[30], 4 * q * q, e, WRITE);
    s.WX = array(&a, args[31], 4 * q * k, e, WRITE), s.XX = array(&a, args[32], 4 * square, e, WRITE);
    s.c = array(&a, args[34], k, sizeof(double), WRITE);
    s.columns = array(&a, args[35], square, e, WRITE), s.F = array(&a, args[36], square, e, WRITE);
    s.normal = array(&a, args[37], 4 * q * q, e, WRITE), s.basis = array(&a, args[38], q * q, e, WRITE);
    s.theta = array(&a, args[39], q, sizeof(double), WRITE);
    if (args[40] != Py_None) {
        s.seen = array(&a, args[33], (2 * q + k) * k, e, WRITE);
        s.direction = array(&a, args[40], tall, e, WRITE);
        s.frame = array(&a, args[41], 16 * square, e, WRITE);
    }
    if (a.failed)
        return finish(&a, NULL);
    FOR_ENTRIES(e, found = d_step(&s, out), found = z_step(&s, out))
    if (found == UNUSUAL)
        return finish(&a, Py_NewRef(Py_None));
    if (!judged(&a, found))
        return finish(&a, NULL);
    return finish(&a, Py_BuildValue("ndddd", found, out[0], out[1], out[2], out[3]));
}
