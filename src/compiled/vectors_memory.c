/* Plain pairs of L-BFGS: arguments in, the loops of vectors_memory.inc, small matrices here. */
#include <string.h>

#include "arrays.h"
#include "vectors.h"

enum { PIECE = 4096 };

#define FN(name) usual_single_##name
#define TARGET
#define BYTES 16
#define S float
#include "vectors_memory.inc"
#undef FN
#undef TARGET
#undef BYTES
#if HAS_WIDE
#define FN(name) wide_single_##name
#define TARGET WIDE
#define BYTES 32
#include "vectors_memory.inc"
#undef FN
#undef TARGET
#undef BYTES
#endif
#undef S

#define S double
#define FN(name) usual_double_##name
#define TARGET
#define BYTES 16
#include "vectors_memory.inc"
#undef FN
#undef TARGET
#undef BYTES
#if HAS_WIDE
#define FN(name) wide_double_##name
#define TARGET WIDE
#define BYTES 32
#include "vectors_memory.inc"
#endif
#undef S

/* A block of 2·most rows, S above Y, and which of its pairs are in use. */
typedef struct {
    char *start;
    size_t entry;
    Py_ssize_t most, n;
    int count;
    Py_ssize_t *used; /* the rows of S, oldest first */
    void **rows;      /* those of S and then those of Y that are in use */
} Block;

static Block block(Arrays *a, PyObject *object, PyObject *used)
{
    Block b = {.entry = sizeof(double)};
    Py_ssize_t shape[2] = {0, 0};
    b.start = shaped_array(a, object, 2, shape, &b.entry);
    if (a->failed)
        return b;
    b.most = shape[0] / 2, b.n = shape[1];
    b.count = PyTuple_Check(used) ? (int)PyTuple_Size(used) : 0;
    if ((b.entry != sizeof(double) && b.entry != sizeof(float)) || b.count == 0 ||
        b.count > b.most) {
        PyErr_SetString(PyExc_ValueError, "expected a block of real pairs, and a tuple of some that are in use");
        a->failed = 1;
        return b;
    }
    char *room = workspace(a, (size_t)(b.most + 2) * (sizeof(Py_ssize_t) + 2 * sizeof(void *) +
                                                      4 * sizeof(double)));
    if (a->failed)
        return b;
    b.used = (Py_ssize_t *)room;
    b.rows = (void **)(b.used + b.most + 2);
    for (int i = 0; i < b.count; i++) {
        Py_ssize_t row = PyLong_AsSsize_t(PyTuple_GetItem(used, i));
        if (row < 0 || row >= b.most) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "a pair stands in no row of the block");
            a->failed = 1;
            return b;
        }
        b.used[i] = row;
        b.rows[i] = b.start + (size_t)(row * b.n) * b.entry;
        b.rows[b.count + i] = b.start + (size_t)((b.most + row) * b.n) * b.entry;
    }
    return b;
}

/* Room for numbers behind the rows: 4·most of them, and more. */
static double *numbers_of(const Block *b) { return (double *)(b->rows + 2 * (b->most + 2)); }

static void products(const Block *b, const double *s, const double *y, Py_ssize_t row,
                     const double *g, const double *scales, double *found)
{
    void *row_s = row < 0 ? NULL : b->start + (size_t)(row * b->n) * b->entry;
    void *row_y = row < 0 ? NULL : b->start + (size_t)((b->most + row) * b->n) * b->entry;
    if (b->entry == sizeof(float))
        PICK(single_products)(b->n, (float **)b->rows, 2 * b->count, s, row_s, y,
                              row_y, g, scales, found);
    else
        PICK(double_products)(b->n, (double **)b->rows, 2 * b->count, s, row_s, y,
                              row_y, g, scales, found);
}

/* plain_products(block, rows in use, g, scale, slopes): the products of all those rows with g */
PyObject *plain_products(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    if (!counted(count, 5))
        return NULL;
    Block b = block(&a, args[0], args[1]);
    const double *g = array(&a, args[2], b.n, sizeof(double), READ);
    double scales[2] = {1.0, number(&a, args[3])};
    double *slopes = array(&a, args[4], 2 * b.most, sizeof(double), WRITE);
    if (a.failed)
        return finish(&a, NULL);
    double *found = numbers_of(&b);
    Py_BEGIN_ALLOW_THREADS
    products(&b, NULL, NULL, -1, g, scales, found);
    memset(slopes, 0, sizeof(double) * (size_t)(2 * b.most));
    for (int i = 0; i < b.count; i++) {
        slopes[b.used[i]] = found[2 * i + 1];
        slopes[b.most + b.used[i]] = found[2 * (b.count + i) + 1];
    }
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* R⁻¹, ⟨s_i, y_i⟩ and YᵀY with a new pair in `row`, of its products with all pairs in use, and with
 * zeros for pairs that are not. */
static void border(const Block *b, Py_ssize_t row, double sy, const double *found, double *inverse,
                   double *diagonal, double *changes)
{
    Py_ssize_t m = b->most;
    for (Py_ssize_t i = 0; i < m; i++) {
        int is_used = 0;
        for (int j = 0; j < b->count; j++)
            is_used |= b->used[j] == i && i != row;
        for (Py_ssize_t j = 0; !is_used && j < m; j++)
            inverse[i * m + j] = inverse[j * m + i] = 0.0;
        diagonal[i] = is_used ? diagonal[i] : 0.0;
    }
    for (int i = 0; i < b->count; i++) {
        Py_ssize_t to = b->used[i];
        double sum = 0.0;
        for (int j = 0; j < b->count; j++)
            sum += inverse[to * m + b->used[j]] * found[2 * j];
        inverse[to * m + row] = sum / -sy;
        changes[row * m + to] = changes[to * m + row] = found[2 * (b->count + i)];
    }
    inverse[row * m + row] = 1.0 / sy, diagonal[row] = sy;
}

/* plain_remember(block, rows in use, s, y, g, ⟨s, y⟩, scales, R⁻¹, ⟨s_i, y_i⟩, YᵀY, slopes): the pair
 * goes into the last of the rows in use, or is there already where s and y are None */
PyObject *plain_remember(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double scales[2];
    if (!counted(count, 11) || !PyArg_ParseTuple(args[6], "dd", &scales[0], &scales[1]))
        return NULL;
    Block b = block(&a, args[0], args[1]);
    const double *s = NULL, *y = NULL, *g = array(&a, args[4], b.n, sizeof(double), READ);
    if (args[2] != Py_None) {
        array(&a, args[0], 2 * b.most * b.n, b.entry, WRITE);
        s = array(&a, args[2], b.n, sizeof(double), READ);
        y = array(&a, args[3], b.n, sizeof(double), READ);
    }
    double sy = number(&a, args[5]);
    double *inverse = array(&a, args[7], b.most * b.most, sizeof(double), WRITE);
    double *diagonal = array(&a, args[8], b.most, sizeof(double), WRITE);
    double *changes = array(&a, args[9], b.most * b.most, sizeof(double), WRITE);
    double *slopes = array(&a, args[10], 2 * b.most, sizeof(double), WRITE);
    if (a.failed)
        return finish(&a, NULL);
    double *found = numbers_of(&b);
    Py_ssize_t row = b.used[b.count - 1];
    Py_BEGIN_ALLOW_THREADS
    products(&b, s, y, row, g, scales, found);
    border(&b, row, sy, found, inverse, diagonal, changes);
    memset(slopes, 0, sizeof(double) * (size_t)(2 * b.most));
    for (int i = 0; i < b.count; i++) {
        slopes[b.used[i]] = found[2 * i + 1];
        slopes[b.most + b.used[i]] = found[2 * (b.count + i) + 1];
    }
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* The weights of the rows in use: c of those of S, γa of those of Y; see `solvers.plain_pairs`. */
static void weigh(const Block *b, const double *inverse, const double *diagonal,
                  const double *changes, const double *slopes, double gamma, double *weights,
                  double *room)
{
    Py_ssize_t m = b->most;
    double *a = room, *v = room + m;
    memset(room, 0, sizeof(double) * (size_t)(2 * m));
    for (int i = 0; i < b->count; i++)
        for (int j = 0; j < b->count; j++)
            a[b->used[i]] += inverse[b->used[i] * m + b->used[j]] * slopes[b->used[j]];
    for (int i = 0; i < b->count; i++) {
        Py_ssize_t row = b->used[i];
        double sum = 0.0;
        for (int j = 0; j < b->count; j++)
            sum += changes[row * m + b->used[j]] * a[b->used[j]];
        v[row] = gamma * (slopes[m + row] - sum) - diagonal[row] * a[row];
    }
    for (int i = 0; i < b->count; i++) {
        double sum = 0.0;
        for (int j = 0; j < b->count; j++)
            sum += v[b->used[j]] * inverse[b->used[j] * m + b->used[i]];
        weights[i] = sum, weights[b->count + i] = gamma * a[b->used[i]];
    }
}

/* plain_direction(block, rows in use, R⁻¹, ⟨s_i, y_i⟩, YᵀY, slopes, γ, g, out) -> ⟨g, out⟩ */
PyObject *plain_direction(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double slope = 0.0;
    if (!counted(count, 9))
        return NULL;
    Block b = block(&a, args[0], args[1]);
    const double *inverse = array(&a, args[2], b.most * b.most, sizeof(double), READ);
    const double *diagonal = array(&a, args[3], b.most, sizeof(double), READ);
    const double *changes = array(&a, args[4], b.most * b.most, sizeof(double), READ);
    const double *slopes = array(&a, args[5], 2 * b.most, sizeof(double), READ);
    double gamma = number(&a, args[6]);
    const double *g = array(&a, args[7], b.n, sizeof(double), READ);
    double *out = array(&a, args[8], b.n, sizeof(double), WRITE);
    if (a.failed)
        return finish(&a, NULL);
    double *weights = numbers_of(&b), *room = weights + 2 * (b.most + 2);
    Py_BEGIN_ALLOW_THREADS
    weigh(&b, inverse, diagonal, changes, slopes, gamma, weights, room);
    if (b.entry == sizeof(float))
        slope = PICK(single_combined)(b.n, (float **)b.rows, 2 * b.count, weights, gamma, g, out);
    else
        slope = PICK(double_combined)(b.n, (double **)b.rows, 2 * b.count, weights, gamma, g, out);
    Py_END_ALLOW_THREADS
    return finish(&a, PyFloat_FromDouble(slope));
}
