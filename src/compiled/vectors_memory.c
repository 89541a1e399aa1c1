/* Plain pairs of L-BFGS: arguments in, the loops of vectors_memory.inc, small matrices here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "vectors.h"

/* Compilers like to read a row once for each of its products. */
#if HAS_WIDE
#define READ_ONCE(row) __asm__("" : "+x"(row))
#else
#define READ_ONCE(row)
#endif

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

Block block_of(Arrays *a, PyObject *object, PyObject *used, enum Access access)
{
    Block b = {.entry = sizeof(double)};
    Py_ssize_t shape[2] = {0, 0};
    b.start = access == WRITE ? writable_array(a, object, 2, shape, &b.entry)
                              : shaped_array(a, object, 2, shape, &b.entry);
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

Py_ssize_t width_of(const Block *b, Py_ssize_t start)
{
    return b->n - start < PART ? b->n - start : PART;
}

char *newest(const Block *b, int is_y)
{
    return b->rows[is_y ? 2 * b->count - 1 : b->count - 1];
}

/* The products of a part of all rows in use with the newest y and with g, added to `found`; of Y with
 * those times D, which may be NULL. */
static void part_products(const Block *b, Py_ssize_t start, const double *g, const double *scales,
                          const double *D, double *found)
{
    void *y = newest(b, 1);
    if (b->entry == sizeof(float))
        PICK(single_part_products)(width_of(b, start), (float **)b->rows, 2 * b->count, start, y, g,
                                   scales, D, found);
    else
        PICK(double_part_products)(width_of(b, start), (double **)b->rows, 2 * b->count, start, y, g,
                                   scales, D, found);
}

double *room_for_products(Arrays *a, PyObject *object, const Block *b)
{
    double *found = array(a, object, 4 * b->most, sizeof(double), WRITE);
    if (found != NULL)
        memset(found, 0, sizeof(double) * (size_t)(4 * b->most));
    return found;
}

void add_products(const Block *b, Py_ssize_t start, const double *g, const double *D, double *found)
{
    static const double scales[2] = {1.0, 1.0};
    part_products(b, start, g, scales, D, found);
}

/* plain_products(block, rows in use, s, y, g, scales, found, D or None): the products of all those rows with g,
 * and with y if there is one: the pair goes into the last of the rows first */
PyObject *plain_products(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double scales[2];
    if (!counted(count, 8))
        return NULL;
    few_numbers(&a, args[5], 2, scales);
    int has_pair = args[2] != Py_None;
    if (has_pair != (args[3] != Py_None))
        refuse(&a, "a pair is s and y, or neither of them");
    Block b = block_of(&a, args[0], args[1], has_pair ? WRITE : READ);
    const double *s = optional_array(&a, args[2], b.n, sizeof(double));
    const double *y = optional_array(&a, args[3], b.n, sizeof(double));
    const double *g = array(&a, args[4], b.n, sizeof(double), READ);
    double *found = room_for_products(&a, args[6], &b);
    const double *D = optional_array(&a, args[7], b.n, sizeof(double));
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    if (has_pair && b.entry == sizeof(float))
        PICK(single_kept)(b.n, s, y, (float *)newest(&b, 0), (float *)newest(&b, 1));
    else if (has_pair)
        PICK(double_kept)(b.n, s, y, (double *)newest(&b, 0), (double *)newest(&b, 1));
    for (Py_ssize_t i = 0; i < b.n; i += PART)
        part_products(&b, i, g, scales, D, found);
    for (int i = 0; i < 2 * b.count; i++)
        found[2 * i] /= scales[0], found[2 * i + 1] /= scales[1];
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

/* plain_squares(block, rows in use, D or None, (small, large, finest), YᵀDY before, out): YᵀDY of those
 * rows in the order of the ring, zero elsewhere.  In single precision squares of rows are lost that are
 * smaller or larger: they are multiplied by a scale as `plain_pairs._scale` has it. */
PyObject *plain_squares(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double limits[3];
    if (!counted(count, 6))
        return NULL;
    few_numbers(&a, args[3], 3, limits);
    const double small = limits[0], large = limits[1], finest = limits[2];
    Block b = block_of(&a, args[0], args[1], READ);
    const double *D = optional_array(&a, args[2], b.n, sizeof(double));
    const double *before = array(&a, args[4], b.most * b.most, sizeof(double), READ);
    double *out = array(&a, args[5], b.most * b.most, sizeof(double), WRITE);
    double *sums = a.failed ? NULL : calloc((size_t)(b.count * b.count), sizeof(double));
    if (!a.failed && sums == NULL) {
        PyErr_NoMemory();
        a.failed = 1;
    }
    if (a.failed)
        return finish(&a, NULL);
    double *scales = numbers_of(&b), *found = scales + b.most;
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < b.count; i++) {
        double length = sqrt(before[b.used[i] * (b.most + 1)]);
        int usual = b.entry == sizeof(double) || (length > small && length < large);
        scales[i] = usual ? 1.0 : 1.0 / (length > finest ? length : finest);
    }
    for (Py_ssize_t i = 0; i < b.n; i += PART)
        if (b.entry == sizeof(float))
            PICK(single_part_squares)(width_of(&b, i), (float **)b.rows + b.count, b.count, i, D,
                                      scales, found, sums);
        else
            PICK(double_part_squares)(width_of(&b, i), (double **)b.rows + b.count, b.count, i, D,
                                      scales, found, sums);
    memset(out, 0, sizeof(double) * (size_t)(b.most * b.most));
    for (int i = 0; i < b.count; i++)
        for (int j = 0; j <= i; j++)
            out[b.used[i] * b.most + b.used[j]] = out[b.used[j] * b.most + b.used[i]] =
                sums[i * b.count + j] / scales[i];
    Py_END_ALLOW_THREADS
    free(sums);
    return finish(&a, Py_NewRef(Py_None));
}

Numbers numbers_beside(Arrays *a, PyObject *const *args, const Block *b, enum Access access)
{
    return (Numbers){array(a, args[0], b->most * b->most, sizeof(double), access),
                     array(a, args[1], b->most, sizeof(double), access),
                     array(a, args[2], b->most * b->most, sizeof(double), access)};
}

/* plain_remember(block, rows in use, found, ⟨s, y⟩, R⁻¹, ⟨s_i, y_i⟩, YᵀY): with the pair in the last
 * of those rows, and with the products that were found */
PyObject *plain_remember(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    if (!counted(count, 7))
        return NULL;
    Block b = block_of(&a, args[0], args[1], READ);
    const double *found = array(&a, args[2], 4 * b.most, sizeof(double), READ);
    double sy = number(&a, args[3]);
    Numbers of = numbers_beside(&a, args + 4, &b, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    border(&b, b.used[b.count - 1], sy, found, of.inverse, of.diagonal, of.changes);
    return finish(&a, Py_NewRef(Py_None));
}

/* The weights of the rows in use, c of those of S and γa of those of Y, from their products with g;
 * see `solvers.plain_pairs`. */
static void weigh(const Block *b, Numbers of, const double *found, double gamma, double *weights,
                  double *room)
{
    Py_ssize_t m = b->most;
    double *a = room, *v = room + m;
    for (int i = 0; i < b->count; i++) {
        double sum = 0.0;
        for (int j = 0; j < b->count; j++)
            sum += of.inverse[b->used[i] * m + b->used[j]] * found[2 * j + 1];
        a[b->used[i]] = sum;
    }
    for (int i = 0; i < b->count; i++) {
        Py_ssize_t row = b->used[i];
        double sum = 0.0;
        for (int j = 0; j < b->count; j++)
            sum += of.changes[row * m + b->used[j]] * a[b->used[j]];
        v[row] = gamma * (found[2 * (b->count + i) + 1] - sum) - of.diagonal[row] * a[row];
    }
    for (int i = 0; i < b->count; i++) {
        double sum = 0.0;
        for (int j = 0; j < b->count; j++)
            sum += v[b->used[j]] * of.inverse[b->used[j] * m + b->used[i]];
        weights[i] = sum, weights[b->count + i] = gamma * a[b->used[i]];
    }
}

Combination combination_of(Arrays *a, PyObject *const *args)
{
    Combination c = {.is_new = args[3] != Py_None, .block = block_of(a, args[0], args[1], READ)};
    const Block *b = &c.block;
    c.found = array(a, args[2], 4 * b->most, sizeof(double), READ);
    c.sy = c.is_new ? number(a, args[3]) : 0.0;
    c.numbers = numbers_beside(a, args + 4, b, c.is_new ? WRITE : READ);
    c.gamma = number(a, args[7]);
    c.D = optional_array(a, args[8], b->n, sizeof(double));
    c.g = array(a, args[9], b->n, sizeof(double), READ);
    c.out = array(a, args[10], b->n, sizeof(double), WRITE);
    return c;
}

void weigh_pairs(const Combination *c)
{
    const Block *b = &c->block;
    Numbers of = c->numbers;
    double *weights = numbers_of(b), *room = weights + 2 * (b->most + 2);
    if (c->is_new)
        border(b, b->used[b->count - 1], c->sy, c->found, of.inverse, of.diagonal, of.changes);
    weigh(b, of, c->found, c->gamma, weights, room);
}

void combine(const Combination *c, Py_ssize_t start, Py_ssize_t n)
{
    const Block *b = &c->block;
    const double *weights = numbers_of(b);
    for (Py_ssize_t end = start + n; start < end; start += PART) {
        Py_ssize_t width = end - start < PART ? end - start : PART;
        if (b->entry == sizeof(float))
            PICK(single_part_combined)(width, (float **)b->rows, 2 * b->count, start, weights,
                                       c->gamma, c->g, c->D, c->out);
        else
            PICK(double_part_combined)(width, (double **)b->rows, 2 * b->count, start, weights,
                                       c->gamma, c->g, c->D, c->out);
    }
}

void direction_of_vector(const Combination *c, const double *x, double *grams)
{
    weigh_pairs(c);
    for (Py_ssize_t i = (c->block.n - 1) / PART * PART; i >= 0; i -= PART) { /* what was read last is near */
        Py_ssize_t width = width_of(&c->block, i);
        combine(c, i, width);
        add_grams(width, x + i, c->out + i, c->g + i, grams);
    }
}

/* plain_direction(block, rows in use, found, ⟨s, y⟩, R⁻¹, ⟨s_i, y_i⟩, YᵀDY, γ, D or None, g, out, x) ->
 * ⟨x, x⟩, ⟨x, u⟩, ⟨u, u⟩, ⟨g, u⟩ of u = out, which is −H g; x may be g.  After `plain_remember`, if
 * ⟨s, y⟩ is given. */
PyObject *plain_direction(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double grams[4] = {0};
    if (!counted(count, 12))
        return NULL;
    Combination c = combination_of(&a, args);
    const double *x = array(&a, args[11], c.block.n, sizeof(double), READ);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS direction_of_vector(&c, x, grams);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_BuildValue("dddd", grams[0], grams[1], grams[2], grams[3]));
}
