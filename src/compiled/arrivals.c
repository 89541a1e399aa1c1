/* What a step of a small tree, or of a small stack, teaches, and where it leads, in one call:
 * `LearnedMetric.observe`, `solvers.memory.remember`, γ, and the direction that follows.
 */
#include <math.h>
#include <string.h>

#include "arrays.h"
#include "blas.h"
#include "leaf.h"
#include "leaves.h"
#include "matrices.h"
#include "metric.h"
#include "pairs.h"
#include "strides.h"

/* The fields of `LearnedMetric`, in the order in which they are handed in. */
typedef struct {
    double power, memory, news, column_change, late_change, column_range, rotation_change;
    double rotation_range, least_share, dwarfed, early, least;
} Rules;

/* What the step says of a leaf: ‖y‖² where φ is plain, or else the squares of the parts of s and y, or
 * small matrices. */
typedef struct {
    enum { PLAINLY, SPLIT, IN_COLUMNS } kind;
    double square, split[4]; /* ‖S‖², ‖T‖², ‖A‖², ‖B‖² */
    Told told;
    const void *P, *R;
    char *found; /* P⁺, R⁺ and D⁺ */
    Sums sums;
    double steps;
} Lesson;

static Rules rules_of(Arrays *a, PyObject *object)
{
    Rules r;
    double *each = &r.power;
    for (Py_ssize_t i = 0; i < (Py_ssize_t)(sizeof(Rules) / sizeof(double)); i++)
        each[i] = number(a, leaf_item(a, object, i, (Py_ssize_t)(sizeof(Rules) / sizeof(double))));
    return r;
}

/* Item i of a record with at least so many fields. */
static PyObject *part_of(Arrays *a, PyObject *record, Py_ssize_t i, Py_ssize_t fields)
{
    if (!a->failed && (!PyTuple_Check(record) || PyTuple_Size(record) < fields))
        refuse(a, "a record has too few fields");
    return a->failed ? NULL : PyTuple_GetItem(record, i);
}

/* `ray.Curvature`, of a leaf with columns: t, frame, B, yᴴy. */
static void told_of(Arrays *a, PyObject *seen, const Leaf *leaf, Told *told)
{
    Py_ssize_t bytes = leaf->many * leaf->k * leaf->k * (Py_ssize_t)leaf->entry;
    PyObject *frame = part_of(a, seen, 1, 4);
    told->t = a->failed ? 0.0 : number(a, part_of(a, seen, 0, 4));
    told->gram = leaf_memory(a, part_of(a, frame, 0, 4), 4 * bytes, READ);
    told->basis = leaf_memory(a, part_of(a, frame, 1, 4), 4 * bytes, READ);
    told->K = leaf_memory(a, part_of(a, frame, 3, 4), 4 * bytes, READ);
    told->B = leaf_memory(a, part_of(a, seen, 2, 4), bytes, READ);
    told->yy = leaf_memory(a, part_of(a, seen, 3, 4), bytes, READ);
}

/* The `Secant` of a leaf. */
static void lesson_of(Arrays *a, PyObject *pair, const Leaf *leaf, Lesson *l)
{
    memset(l, 0, sizeof(*l));
    PyObject *seen = part_of(a, pair, 2, 4), *square = part_of(a, pair, 3, 4);
    if (a->failed)
        return;
    if (square != Py_None) {
        l->square = number(a, square);
    } else if (has_columns(leaf)) {
        l->kind = IN_COLUMNS;
        told_of(a, seen, leaf, &l->told);
    } else {
        l->kind = SPLIT;
        for (int i = 0; i < 4; i++)
            l->split[i] = number(a, leaf_item(a, seen, i, 4));
    }
}

/* What was known of a leaf, from its `Learned`: P, R, weight, judged, ratio, rotations, normals, steps. */
static void known_of(Arrays *a, PyObject *known, PyObject *room, const Leaf *leaf, Lesson *l)
{
    Py_ssize_t bytes = leaf->many * leaf->k * leaf->k * (Py_ssize_t)leaf->entry;
    PyObject *P = part_of(a, known, 1, 13), *rotations = part_of(a, known, 6, 13);
    if (a->failed)
        return;
    if (l->kind == IN_COLUMNS && P != Py_None) {
        l->P = leaf_memory(a, P, bytes, READ);
        l->R = leaf_memory(a, PyTuple_GetItem(known, 2), bytes, READ);
        l->found = leaf_memory(a, room, 3 * bytes, WRITE);
    }
    PyObject *normals = PyTuple_GetItem(known, 7);
    l->sums.weight = number(a, PyTuple_GetItem(known, 3));
    l->sums.judged = number(a, PyTuple_GetItem(known, 4));
    l->sums.ratio = number(a, PyTuple_GetItem(known, 5));
    for (int i = 0; i < 2; i++) {
        PyObject *turned = leaf_item(a, rotations, i, 2), *moved = leaf_item(a, normals, i, 2);
        l->sums.sums[i] = turned == NULL ? 0.0 : number(a, turned);
        l->sums.sums[2 + i] = moved == NULL ? 0.0 : number(a, moved);
    }
    l->steps = number(a, PyTuple_GetItem(known, 8)) + 1.0;
}

/* `LearnedMetric._weigh`, without ω */
static void weigh_parts(const Rules *r, Lesson *l)
{
    double ss = l->split[0], tt = l->split[1], aa = l->split[2], bb = l->split[3], unit = ss + aa;
    double *s = l->sums.sums;
    l->sums.seen = ss > 1e-30 && tt > 0.0 && isfinite(ss + tt + aa + bb);
    if (!l->sums.seen)
        return;
    s[0] = r->memory * s[0] + aa / unit, s[1] = r->memory * s[1] + bb / unit;
    s[2] = r->memory * s[2] + ss / unit, s[3] = r->memory * s[3] + tt / unit;
}

/* `LearnedMetric._rotated` */
static void rotate(const Rules *r, const double *s, Leaf *leaf)
{
    if (leaf->horizontal || !(s[1] > 0.0 && s[2] > 0.0))
        return;
    double omega = fmin(fmax(sqrt(s[3] * s[0] / (s[2] * s[1])), 1.0), r->rotation_range);
    if (fmax(omega / leaf->omega, leaf->omega / omega) > r->rotation_change)
        leaf->omega = omega;
}

/* `LearnedMetric._look`: the metric of the leaf becomes the new one; room for 7k² entries. */
static void look(const Rules *r, Leaf *leaf, Lesson *l, void *room)
{
    if (l->kind == SPLIT)
        weigh_parts(r, l);
    else if (l->P != NULL) {
        int late = leaf->D == NULL && l->steps > r->early;
        size_t bytes = (size_t)(leaf->many * leaf->k * leaf->k) * leaf->entry;
        Told *told = &l->told;
        told->power = r->power, told->memory = r->memory, told->range = r->column_range;
        told->news = l->steps >= r->least ? r->news : INFINITY;
        told->change = late ? r->late_change : r->column_change, told->least = r->dwarfed;
        void *out[3] = {l->found, l->found + bytes, l->found + 2 * bytes};
        learn_from_step(leaf->entry, leaf->many, leaf->k, told, l->P, l->R, leaf->D, &l->sums, out, room);
        leaf->D = l->sums.replaced ? out[2] : leaf->D;
    }
    if (l->sums.seen && l->steps >= r->least)
        rotate(r, l->sums.sums, leaf);
}

/* ‖y‖² of the matrices of a leaf. */
static void changes(const Leaf *leaf, const Lesson *l, double *yy)
{
    const Py_ssize_t k = leaf->k, step = leaf->stride;
    for (Py_ssize_t i = 0; i < leaf->many; i++) {
        yy[i] = l->kind == PLAINLY ? l->square : l->split[1] + l->split[3];
        if (l->kind == IN_COLUMNS) {
            const double *gram = (const double *)l->told.yy + i * k * k * step;
            for (Py_ssize_t j = 0; j < k; j++)
                yy[i] += gram[j * (k + 1) * step];
        }
    }
}

/* ⟨y, φ(y)⟩ of a leaf, and of its matrices unless `each` is NULL; room for k² entries. */
static double raised_change(const Leaf *leaf, const Lesson *l, double *each, void *room)
{
    double omega = leaf->horizontal ? 0.0 : leaf->omega, sum = 0.0;
    size_t bytes = (size_t)(leaf->k * leaf->k) * leaf->entry;
    if (l->kind == PLAINLY)
        return leaf->scale * l->square;
    if (l->kind == SPLIT)
        return leaf->scale * (l->split[1] + omega * l->split[3]);
    const char *B = l->told.B, *yy = l->told.yy, *D = leaf->D;
    for (Py_ssize_t i = 0; i < leaf->many; i++, B += bytes, yy += bytes) {
        double scale = leaf->scales == NULL ? 1.0 : leaf->scales[i * leaf->stride];
        double change = scale * change_of_matrix(leaf->entry, leaf->k, B, yy, D, omega, room);
        sum += change;
        if (each != NULL)
            each[i] = leaf->scale * change;
        D = D == NULL ? NULL : D + bytes;
    }
    return leaf->scale * sum;
}

/* `solvers.leaves.balanced` of all parts, whose s stand one after the other; `found` gets N, W and the
 * scales, which become those of the leaves.  The unit, or 0 if the step tells nothing. */
static double balance(Arrays *a, const Rules *r, PyObject *learned, Leaf *leaves, const Lesson *lessons,
                      Py_ssize_t count, const double *s, Py_ssize_t parts, double *found, double *room)
{
    double *ss = room, *yy = ss + parts, *N = found, *W = N + parts, *scales = W + parts;
    double step = 0.0, change = 0.0, unit = number(a, part_of(a, leaf_item(a, learned, 0, count), 12, 13));
    Py_ssize_t at = 0;
    memset(found, 0, sizeof(double) * (size_t)(2 * parts));
    for (Py_ssize_t i = 0; i < count && !a->failed; at += leaves[i++].many) {
        Py_ssize_t each = leaves[i].numbers / leaves[i].many;
        PyObject *old = leaf_item(a, learned, i, count), *weights = part_of(a, old, 10, 13);
        changes(leaves + i, lessons + i, yy + at);
        for (Py_ssize_t j = 0; j < leaves[i].many; j++, s += each) {
            ss[at + j] = d_dot(each, s, s);
            step += ss[at + j], change += yy[at + j];
        }
        if (weights == NULL || weights == Py_None)
            continue;
        Py_ssize_t bytes = leaves[i].many * (Py_ssize_t)sizeof(double);
        const double *known = leaf_memory(a, weights, bytes, READ);
        const double *stiffness = leaf_memory(a, PyTuple_GetItem(old, 11), bytes, READ);
        if (!a->failed) {
            memcpy(N + at, known, (size_t)bytes);
            memcpy(W + at, stiffness, (size_t)bytes);
        }
    }
    unit = step > 0.0 ? (unit != 0.0 ? unit : change / step) : 0.0;
    if (a->failed || !(unit > 0.0 && isfinite(unit)))
        return 0.0;
    weigh(parts, ss, yy, N, W, unit, r->memory, r->least_share, scales);
    for (Py_ssize_t i = 0; i < count; scales += leaves[i++].many) {
        if (leaves[i].many > 1)
            leaves[i].scales = scales, leaves[i].stride = 1;
        else
            leaves[i].scale = scales[0];
    }
    return unit;
}

/* weight, judged, ratio, sums (4), ω, whether the step told something, and whether D is another; None of
 * leaves of which nothing is learned but a scale. */
static PyObject *learned_of(Py_ssize_t count, const Leaf *leaves, const Lesson *lessons)
{
    PyObject *all = PyTuple_New(count);
    for (Py_ssize_t i = 0; all != NULL && i < count; i++) {
        const Sums *s = &lessons[i].sums;
        int plain = lessons[i].kind == PLAINLY || (lessons[i].kind == IN_COLUMNS && !lessons[i].P);
        PyTuple_SetItem(all, i,
                        plain ? Py_NewRef(Py_None)
                              : Py_BuildValue("ddd(dd)(dd)dii", s->weight, s->judged, s->ratio,
                                              s->sums[0], s->sums[1], s->sums[2], s->sums[3],
                                              leaves[i].omega, s->seen, s->replaced));
    }
    return all;
}

/* leaves_arrival(S, Y, R⁻¹, diagonal, γ or 0, G, T or None, X, metrics, kinds, frames, row, gone, ⟨s, y⟩,
 * s, y, pairs, rules or None, learned, (P⁺, R⁺, D⁺) of leaves or None, (N, W, scales) or None, ⟨y, φ(y)⟩
 * of the matrices of a stack or None)
 * -> γ, the unit or 0, what is learned of leaves or None, and as `leaves_aim`.
 * Without rules the step is not looked at.  Without T there is no aim, but the shapes are those of X. */
PyObject *leaves_arrival(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t leaves = 0, parts = 0;
    if (!counted(count, 22))
        return NULL;
    int looked = args[17] != Py_None, aimed = args[6] != Py_None;
    PyObject *shaped[5] = {aimed ? args[6] : args[7], args[7], args[8], args[9], args[10]};
    Ring r = ring_of(&a, args, WRITE);
    double gamma = number(&a, args[4]), sy = number(&a, args[13]), unit = 0.0, square = 0.0;
    long row = integer(&a, args[11]), gone = integer(&a, args[12]);
    Rules rules = {0};
    if (looked)
        rules = rules_of(&a, args[17]);
    if (!a.failed && (row < 0 || row >= r.m || gone < -1 || gone >= r.m))
        refuse(&a, "the memory has no such row");
    Leaf *all = leaves_of(&a, shaped, r.N, &leaves);
    size_t most = 0;
    for (Py_ssize_t i = 0; !a.failed && i < leaves; i++) {
        size_t needed = 7 * (size_t)(all[i].k * all[i].k) * all[i].entry;
        parts += all[i].many;
        most = has_columns(all + i) && needed > most ? needed : most;
    }
    if (!a.failed)
        most += room_of_leaves(all, leaves);
    Lesson *lessons = a.failed ? NULL : PyMem_Malloc(sizeof(Lesson) * (size_t)leaves);
    double *g = a.failed ? NULL
                         : PyMem_Malloc(sizeof(double) * (size_t)(2 * r.N + 3 * r.m + 2 * parts) + most);
    if (lessons == NULL || g == NULL)
        refuse(&a, "there is no memory for an arrival");
    double *s = a.failed ? NULL : r.S + row * r.N, *room = g == NULL ? NULL : g + 2 * r.N + 3 * r.m;
    for (Py_ssize_t i = 0; i < leaves && !a.failed; i++) {
        lesson_of(&a, leaf_item(&a, args[16], i, leaves), all + i, lessons + i);
        if (looked)
            known_of(&a, leaf_item(&a, args[18], i, leaves), leaf_item(&a, args[19], i, leaves), all + i,
                     lessons + i);
    }
    double *found = looked && args[20] != Py_None ? array(&a, args[20], 3 * parts, sizeof(double), WRITE)
                                                  : NULL;
    double *each = args[21] == Py_None ? NULL : array(&a, args[21], parts, sizeof(double), WRITE);
    if (!a.failed && each != NULL && (leaves != 1 || lessons->kind != IN_COLUMNS))
        refuse(&a, "only the matrices of a stack are told of one by one");
    if (!a.failed) {
        gather_leaves(&a, args[14], r.N, s);
        gather_leaves(&a, args[15], r.N, r.Y + row * r.N);
        gather_leaves(&a, args[5], r.N, g);
    }
    for (Py_ssize_t i = 0; looked && i < leaves && !a.failed; i++)
        look(&rules, all + i, lessons + i, room);
    if (found != NULL && !a.failed)
        unit = balance(&a, &rules, args[18], all, lessons, leaves, s, parts, found, room);
    PyObject *result = NULL;
    if (!a.failed) {
        border(r.m, r.N, r.S, r.Y, row, gone, sy, r.inverse, r.diagonal, g + 2 * r.N);
        for (Py_ssize_t i = 0; i < leaves; i++)
            square += raised_change(all + i, lessons + i, each, room);
        gamma = averaged(gamma, sy, square);
        if (aimed)
            aim_leaves(&a, &r, gamma, all, leaves, args[6], g);
    }
    if (!a.failed)
        result = Py_BuildValue("ddNNN", gamma, unit,
                               looked ? learned_of(leaves, all, lessons) : Py_NewRef(Py_None),
                               aimed ? slopes_of(leaves, all, g, g + r.N) : Py_NewRef(Py_None),
                               aimed ? small_of(leaves, all) : Py_NewRef(Py_None));
    PyMem_Free(g);
    PyMem_Free(lessons);
    return finish(&a, result);
}
