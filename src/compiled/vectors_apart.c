/* Whether unit vectors know of each other, as `stack_pairs.vectors_apart` sees it in plain pairs. */
#include <math.h>
#include <stdlib.h>

#include "stack_pairs.h"
#include "vectors.h"

#define ASYMMETRIES(name, S)                                                                       \
    /* |⟨s, y'⟩ − ⟨s', y⟩| and (|⟨s, y⟩| |⟨s', y'⟩|)^½ of k vectors of n numbers. */                 \
    static void name(Py_ssize_t k, Py_ssize_t n, const S *s, const S *y, const S *s_, const S *y_, \
                     double *cross, double *sizes)                                                 \
    {                                                                                              \
        for (Py_ssize_t j = 0; j < k; j++, s += n, y += n, s_ += n, y_ += n) {                      \
            double now = 0.0, before = 0.0, over = 0.0, under = 0.0;                               \
            for (Py_ssize_t i = 0; i < n; i++) {                                                   \
                double a = s[i], b = y[i], c = s_[i], d = y_[i];                                   \
                now += a * b, before += c * d, over += a * d, under += c * b;                      \
            }                                                                                      \
            cross[j] = fabs(over - under), sizes[j] = sqrt(fabs(now) * fabs(before));              \
        }                                                                                          \
    }

ASYMMETRIES(single_asymmetries, float)
ASYMMETRIES(double_asymmetries, double)

/* vectors_apart(block, rows in use, n, least, most) -> the mean of the medians of the asymmetries of each
 * of those pairs and the next one, of vectors of n numbers; or a part of it that is `most` or more */
PyObject *vectors_apart(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    double typical = 0.0;
    if (!counted(count, 5))
        return NULL;
    Block b = block_of(&a, args[0], args[1], READ);
    Py_ssize_t n = integer(&a, args[2]), k = n > 0 ? b.n / n : 0;
    double least = number(&a, args[3]), most = number(&a, args[4]);
    if (!a.failed && (k == 0 || k * n != b.n || b.count < 2))
        refuse(&a, "expected two pairs or more, of vectors of so many numbers");
    double *cross = a.failed ? NULL : malloc(2 * sizeof(double) * (size_t)k);
    if (!a.failed && cross == NULL) {
        PyErr_NoMemory();
        a.failed = 1;
    }
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    for (int i = b.count - 1; i > 0 && typical < most; i--) {
        void *const *S = b.rows + i, *const *Y = b.rows + b.count + i;
        double found[2];
        if (b.entry == sizeof(float))
            single_asymmetries(k, n, S[0], Y[0], S[-1], Y[-1], cross, cross + k);
        else
            double_asymmetries(k, n, S[0], Y[0], S[-1], Y[-1], cross, cross + k);
        asymmetry(k, cross, cross + k, least, found);
        typical += found[0] / (double)(b.count - 1);
    }
    Py_END_ALLOW_THREADS
    free(cross);
    return finish(&a, PyFloat_FromDouble(typical));
}
