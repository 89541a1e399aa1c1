/* What steps teach many problems: `stiefel.batched.learned.Observer` of small real matrices.
 *
 * Sums are kept in lanes.  Where traces do not show that D is near, which is rare, the mean of one
 * problem after the other is compared with it; see metric.inc.
 */
#include "batch.h"

#include <math.h>

#include "batch_arguments.h"
#include "batch_eigen.h"
#include "metric.h"

enum { WIDEST = 4, NUMBERS = 9 };

/* The names are those of `LearnedMetric`; `dwarfed` is what rounding leaves of a rotation part. */
typedef struct {
    double power, memory, news, column_change, late_change, early, least, column_range;
    double rotation_change, rotation_range, dwarfed;
} Rules;

/* What is known: in place, of all problems. */
typedef struct {
    double *P, *R, *D;
    double *omega, *weight, *judged, *ratio, *sums[4], *found;
} Known;

INLINE V larger(V a, V b) { return where(a > b, a, b); }

INLINE V powered(V x, double power)
{
    if (power == 0.5)
        return root(x);
    for (int l = 0; l < LANES; l++)
        LANE(x, l) = pow(LANE(x, l), power);
    return x;
}

/* `metric._regular` of A. */
INLINE void regular(Py_ssize_t k, double share, const V *A, V *out)
{
    V trace = same(0.0);
    for (Py_ssize_t i = 0; i < k; i++)
        trace += A[i * (k + 1)];
    for (Py_ssize_t i = 0; i < k * k; i++)
        out[i] = A[i];
    for (Py_ssize_t i = 0; i < k; i++)
        out[i * (k + 1)] += share / (double)k * trace + 1.4916681462400413e-154;
}

/* Tr A⁻¹B, by elimination without pivoting: A is positive definite. */
INLINE V trace_of_quotient(Py_ssize_t k, const V *A, const V *B)
{
    V M[WIDEST][2 * WIDEST], trace = same(0.0);
    for (Py_ssize_t i = 0; i < k; i++)
        for (Py_ssize_t j = 0; j < k; j++)
            M[i][j] = A[i * k + j], M[i][k + j] = B[i * k + j];
    for (Py_ssize_t j = 0; j < k; j++) {
        V inverse = 1.0 / M[j][j];
        for (Py_ssize_t c = j + 1; c < 2 * k; c++)
            M[j][c] *= inverse;
        for (Py_ssize_t i = 0; i < k; i++)
            for (Py_ssize_t c = j + 1; c < 2 * k && i != j; c++)
                M[i][c] -= M[i][j] * M[j][c];
    }
    for (Py_ssize_t i = 0; i < k; i++)
        trace += M[i][k + i];
    return trace;
}

INLINE V apart(V ratio) { return ratio + 1.0 / ratio - 2.0; }

/* `metric.surely_near`. */
INLINE Mask surely_near(Py_ssize_t k, const V *P, const V *R, const V *D, V ratio)
{
    V regular_P[WIDEST * WIDEST], regular_R[WIDEST * WIDEST], DR[WIDEST * WIDEST];
    V Q[WIDEST * WIDEST], size = same((double)k);
    regular(k, 1e-3, P, regular_P);
    regular(k, 1e-6, R, regular_R);
    for (Py_ssize_t i = 0; i < k * k; i++) {
        DR[i] = same(0.0);
        for (Py_ssize_t r = 0; r < k; r++)
            DR[i] += D[i / k * k + r] * regular_R[r * k + i % k];
    }
    for (Py_ssize_t i = 0; i < k * k; i++) {
        Q[i] = same(0.0);
        for (Py_ssize_t r = 0; r < k; r++)
            Q[i] += DR[i / k * k + r] * D[r * k + i % k];
    }
    V seen = trace_of_quotient(k, Q, regular_P) * trace_of_quotient(k, regular_P, Q);
    return seen <= size * size + apart(ratio * ratio) + 2.0 * (size - 2.0) * apart(ratio);
}

/* D of lane l, if the mean of P and R differs from it. */
static int replaced(Py_ssize_t k, int l, const V *P, const V *R, V *D, double range, double change)
{
    double one[4 * WIDEST * WIDEST] = {0.0}, room[6 * WIDEST * WIDEST];
    double *p = one, *r = p + k * k, *d = r + k * k, *found = d + k * k;
    for (Py_ssize_t i = 0; i < k * k; i++)
        p[i] = LANE(P[i], l), r[i] = LANE(R[i], l), d[i] = LANE(D[i], l);
    if (!mean_differs(k, p, r, range, d, change, found, room))
        return 0;
    for (Py_ssize_t i = 0; i < k * k; i++)
        LANE(D[i], l) = found[i];
    return 1;
}

/* `Observer._look`: `_accumulate`, and `_refresh` where it is time. */
FOR_PROCESSORS static void observe_part(Part p, Py_ssize_t k, const double *SSs, const double *TTs,
                                        const double *four, const unsigned char *looks,
                                        const int *steps, const unsigned char *horizontals,
                                        const Rules *r, const Known *known)
{
    Py_ssize_t kk = k * k;
    V SS[WIDEST * WIDEST], TT[WIDEST * WIDEST], P[WIDEST * WIDEST], R[WIDEST * WIDEST];
    V D[WIDEST * WIDEST], seen[4], sums[4], zero = same(0.0), count = same(0.0);
    load(p, 4, four, seen);
    V ss = seen[0], tt = seen[1], aa = seen[2], bb = seen[3], whole = ss + tt + aa + bb;
    Mask told = mask_of(p, looks) & (ss > larger(same(1e-30), r->dwarfed * aa)) &
                (tt > r->dwarfed * bb) & (whole - whole == zero);
    if (!some(told))
        return;
    load(p, kk, SSs, SS);
    load(p, kk, TTs, TT);
    load(p, kk, known->P, P);
    load(p, kk, known->R, R);
    for (int l = 0; l < p.count; l++)
        LANE(count, l) = steps[p.first + l];

    V ratio = tt / ss, before = number_of(p, known->ratio), largest = larger(ratio, before);
    V fade = powered(before / largest, r->power), own = powered(ratio / largest, r->power);
    V weight = number_of(p, known->weight), judged = number_of(p, known->judged), unit = ss + aa;
    weight = where(told, fade * weight + own, weight), judged = where(told, fade * judged, judged);
    for (Py_ssize_t i = 0; i < kk; i++) {
        P[i] = where(told, fade * P[i] + own / ss * SS[i], P[i]);
        R[i] = where(told, fade * R[i] + own / ss * TT[i], R[i]);
    }
    const V parts[4] = {aa, bb, ss, tt};
    for (int i = 0; i < 4; i++) {
        V sum = number_of(p, known->sums[i]);
        sums[i] = where(told, r->memory * sum + parts[i] / unit, sum);
        put_number(p, sums[i], known->sums[i]);
    }
    store(p, kk, P, known->P);
    store(p, kk, R, known->R);
    put_number(p, weight, known->weight);
    put_number(p, where(told, largest, before), known->ratio);

    Mask ripe = told & (count >= same(r->least)), news = ripe & (weight > r->news * judged);
    put_number(p, where(news, weight, judged), known->judged);
    if (some(news)) {
        V found = number_of(p, known->found);
        Mask late = (found == zero) & (count > same(r->early));
        V change = where(late, same(r->late_change), same(r->column_change));
        load(p, kk, known->D, D);
        Mask far = news & opposite(surely_near(k, P, R, D, change));
        for (int l = 0; l < p.count; l++)
            if (LANE(far, l) && replaced(k, l, P, R, D, r->column_range, LANE(change, l)))
                LANE(found, l) = 1.0;
        store(p, kk, D, known->D);
        put_number(p, found, known->found);
    }
    V omega = number_of(p, known->omega), turn = root(sums[3] * sums[0] / (sums[2] * sums[1]));
    Mask usable = ripe & (sums[1] > zero) & (sums[2] > zero) & opposite(mask_of(p, horizontals));
    turn = where(turn > same(1.0), turn, same(1.0));
    turn = where(turn < same(r->rotation_range), turn, same(r->rotation_range));
    Mask differs = larger(turn / omega, omega / turn) > same(r->rotation_change);
    put_number(p, where(usable & differs, turn, omega), known->omega);
}

/* observe(SᵀS, TᵀT, numbers, look, steps, horizontal, rules, P, R, D, ω, weight, judged, ratio,
 *         rotation step and change, normal step and change, found) */
PyObject *batch_observe(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t shape[3] = {0, 0, 0};
    size_t entry = sizeof(double);
    if (!counted(count, 10 + NUMBERS))
        return NULL;
    const double *SS = shaped_array(&a, args[0], 3, shape, &entry);
    Py_ssize_t k = shape[0], B = shape[2];
    if (SS != NULL && (entry != sizeof(double) || k != shape[1] || k < 2 || k > WIDEST))
        refuse(&a, "expected double precision and two to four columns");
    const double *TT = doubles(&a, args[1], k * k * B, READ);
    const double *four = doubles(&a, args[2], 5 * B, READ);
    const unsigned char *look = flags(&a, args[3], B, READ);
    const int *steps = array(&a, args[4], B, sizeof(int), READ);
    const unsigned char *horizontal = flags(&a, args[5], B, READ);
    const Rules *rules = (Rules *)doubles(&a, args[6], sizeof(Rules) / sizeof(double), READ);
    Known known;
    known.P = doubles(&a, args[7], k * k * B, WRITE);
    known.R = doubles(&a, args[8], k * k * B, WRITE);
    known.D = doubles(&a, args[9], k * k * B, WRITE);
    double **numbers[NUMBERS] = {&known.omega,   &known.weight,  &known.judged,
                                 &known.ratio,   &known.sums[0], &known.sums[1],
                                 &known.sums[2], &known.sums[3], &known.found};
    for (int i = 0; i < NUMBERS; i++)
        *numbers[i] = doubles(&a, args[10 + i], B, WRITE);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS for (Py_ssize_t b = 0; b < B; b += LANES)
        observe_part(part_at(B, b), k, SS, TT, four, look, steps, horizontal, rules, &known);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}
