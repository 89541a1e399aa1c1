/* Real vectors: one of them, or the unit columns or rows of a matrix; see vectors.inc for the formulas,
 * vectors_memory.inc for pairs of them, vectors.c and vectors_memory.c for the arguments. */
#ifndef STIEFEL_VECTORS_H
#define STIEFEL_VECTORS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "arrays.h"

PyObject *vector_gradient(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *vector_prepare(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *vector_point(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *vector_pair(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *units_gradient(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *units_prepare(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *units_point(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *units_pair(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *vectors_apart(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_vector_pair(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_units_landing(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_units_pair(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_products(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_squares(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_remember(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_units_direction(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *plain_direction(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *vector_stride(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *units_stride(PyObject *, PyObject *const *, Py_ssize_t);

enum { PART = 1024 }; /* numbers of a long vector that are dealt with at a time, from its end */

/* ⟨x, x⟩, ⟨x, u⟩, ⟨u, u⟩ and ⟨g, u⟩ of n numbers, added to `out`. */
void add_grams(Py_ssize_t n, const double *x, const double *u, const double *g, double *out);

/* A block of 2·most rows, S above Y, and which of its pairs are in use. */
typedef struct {
    char *start;
    size_t entry;
    Py_ssize_t most, n;
    int count;
    Py_ssize_t *used; /* the rows of S, oldest first */
    void **rows;      /* those of S and then those of Y that are in use */
} Block;

Block block_of(Arrays *a, PyObject *object, PyObject *used, enum Access access);

/* How many of PART columns there are from `start` on. */
Py_ssize_t width_of(const Block *b, Py_ssize_t start);

/* The row of the newest s, or of the newest y: the last of those in use. */
char *newest(const Block *b, int is_y);

/* An array for the products of every row in use, first those of S, with y and with g. */
double *room_for_products(Arrays *a, PyObject *object, const Block *b);

/* The numbers beside a block: R⁻¹, ⟨s_i, y_i⟩ and YᵀY in the order of the rings. */
typedef struct {
    double *inverse, *diagonal, *changes;
} Numbers;

/* A direction −H g from (block, rows in use, found, ⟨s, y⟩ of a new pair or None, R⁻¹, ⟨s_i, y_i⟩, YᵀDY,
 * γ, D of unit vectors or None, g, out): its weights come first, and then any part of it. */
typedef struct {
    int is_new;
    Block block;
    Numbers numbers;
    const double *found, *D, *g;
    double sy, gamma, *out;
} Combination;

Combination combination_of(Arrays *a, PyObject *const *args);
Numbers numbers_beside(Arrays *a, PyObject *const *args, const Block *b, enum Access access);
void weigh_pairs(const Combination *c);
void combine(const Combination *c, Py_ssize_t start, Py_ssize_t n);

/* All of it, with ⟨x, x⟩, ⟨x, u⟩, ⟨u, u⟩ and ⟨g, u⟩ of u = out. */
void direction_of_vector(const Combination *c, const double *x, double *grams);

/* The products of PART columns of all rows in use with the newest y and with g, added to `found`;
 * of rows of Y with Dy and Dg, if D is not NULL. */
void add_products(const Block *b, Py_ssize_t start, const double *g, const double *D, double *found);

/* A look at unit vectors: (N, W, D) as they are known, or NULL, D in use, or NULL, and the rules of
 * `solvers.vector_scales`; what is learned takes the place of ‖s_i‖² and ‖y_i‖².  None if that is NULL. */
typedef struct {
    const double *before, *used;
    double least, most, huge, *learned;
} Look;

/* From a tuple of the others, or None, and from an array to be written. */
Look look_of(Arrays *a, PyObject *object, PyObject *learned, Py_ssize_t k);

/* The score of D for the step and what is new in the D with it; NaN if it tells nothing. */
void look_at_vectors(Py_ssize_t k, const Look *look, double *out);

/* One real vector. */

/* ⟨x, x⟩, ⟨x, w⟩, ⟨w, w⟩, M and ⟨g, u⟩ of the ray that leaves x along w = u − Mx. */
typedef struct {
    double a, b, c, M, gu;
} VectorRay;

/* The point of the ray at t. */
void point_of_vector(Py_ssize_t n, const double *x, const double *u, const VectorRay *ray, double t,
                     double *out);

/* A step whose pair goes into a block: (x, u, (⟨x, x⟩, ⟨x, w⟩, ⟨w, w⟩), M, ⟨g, u⟩, t, G) and (block, rows in
 * use, found). */
typedef struct {
    const double *x, *u, *G;
    VectorRay ray;
    double t, *found;
    Block to;
} VectorStep;

VectorStep vector_step(Arrays *a, PyObject *const *step, PyObject *const *place);

/* ‖G⁺‖² at Y, of the Euclidean gradient there, with the pair in the last of the rows and the products of all
 * of them; ⟨y, y⟩ and ⟨G⁺, s⟩. */
double land_vector(const VectorStep *s, const double *Y, const double *E, double *G_new, double *out);

/* Many unit vectors. */

/* k vectors of n entries: the columns of a matrix, or its rows. */
typedef struct {
    Py_ssize_t n, k;
    int rows;
} Layout;

/* What a circle knows of every vector; see `RealCircle`. */
typedef struct {
    double *half_excess, *xw, *squares, *M, *gu;
} Units;

Units units_known(Arrays *a, PyObject *object, Py_ssize_t k, enum Access access);

/* The same of unit vectors: (X, by_rows, U, known, t, G), and (block, rows in use, found, D, look, learned),
 * of which D, a number for each of a row, and the look may be None. */
typedef struct {
    Layout by;
    const double *X, *U, *G, *D;
    Units of;
    double t, *found;
    Block to;
    Look look;
} UnitStep;

UnitStep unit_step(Arrays *a, PyObject *const *step, PyObject *const *place);

/* ‖G⁺‖² at X⁺, of the Euclidean gradient there; ⟨y, Dy⟩, ⟨G⁺, s⟩, and what `look_at_vectors` finds. */
double land_units(const UnitStep *s, const double *Y, const double *E, double *G_new, double *out);

/* `plain_direction` and then `units_prepare` of it, which is owned. */
void aim_units(Layout by, const double *X, const Combination *c, const Units *of, double lossy, double *out);

void points_of_units(Layout by, const double *X, const double *U, const Units *of, double t, double *Y);

/* Every kernel is compiled twice where that pays: for any machine of its kind, and for those with
 * AVX2 and fused multiplication.  Which one runs is asked once; the same machine, the same bits. */
#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_WIDE 1
#define WIDE __attribute__((target("avx2,fma")))
#define IS_WIDE (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#define PICK(name) (IS_WIDE ? wide_##name : usual_##name)
#else
#define HAS_WIDE 0
#define PICK(name) usual_##name
#endif

#endif
