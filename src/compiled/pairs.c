/* The memory of L-BFGS, `solvers.memory`: blocks S and Y of m rows of N real numbers each.
 *
 * Complex pairs are read as real ones of twice the length: Re⟨·, ·⟩ is their inner product.
 */
#include "pairs.h"

#include <string.h>

#include "arrays.h"
#include "blas.h"

/* remember_pair(S, Y, row, gone, s, y, ⟨s, y⟩, R⁻¹, diagonal): the pair in its row, with its column
 * of R⁻¹; a row `gone` counts no more, unless it is −1 */
PyObject *remember_pair(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY, N = ANY;
    if (!counted(count, 9))
        return NULL;
    double *diagonal = real_numbers(&a, args[8], &m, WRITE);
    const double *s = real_numbers(&a, args[4], &N, READ), *y = real_numbers(&a, args[5], &N, READ);
    Py_ssize_t all = m * N, square = m * m;
    double *S = real_numbers(&a, args[0], &all, WRITE), *Y = real_numbers(&a, args[1], &all, WRITE);
    double *inverse = real_numbers(&a, args[7], &square, WRITE);
    long row = integer(&a, args[2]), gone = integer(&a, args[3]);
    double sy = number(&a, args[6]);
    double *products = workspace(&a, sizeof(double) * (size_t)(2 * m)), *column = products + m;
    if (!a.failed && (row < 0 || row >= m || gone >= m)) {
        PyErr_SetString(PyExc_IndexError, "the memory has no such row");
        a.failed = 1;
    }
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    memcpy(S + row * N, s, sizeof(double) * (size_t)N);
    memcpy(Y + row * N, y, sizeof(double) * (size_t)N);
    for (Py_ssize_t i = 0; gone >= 0 && i < m; i++)
        inverse[gone * m + i] = inverse[i * m + gone] = 0.0;
    if (gone >= 0)
        diagonal[gone] = 0.0;
    d_times(m, N, 1.0, S, y, 0.0, products);
    d_times(m, m, 1.0, inverse, products, 0.0, column);
    for (Py_ssize_t i = 0; i < m; i++)
        inverse[i * m + row] = column[i] / -sy;
    inverse[row * m + row] = 1.0 / sy;
    diagonal[row] = sy;
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* first_loop(S, Y, R⁻¹, g, q, a): a = R⁻¹Sᵀg and q = g − Ya */
PyObject *first_loop(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY, N = ANY;
    if (!counted(count, 6))
        return NULL;
    double *weights = real_numbers(&a, args[5], &m, WRITE);
    const double *g = real_numbers(&a, args[3], &N, READ);
    Py_ssize_t all = m * N, square = m * m;
    const double *S = real_numbers(&a, args[0], &all, READ);
    const double *Y = real_numbers(&a, args[1], &all, READ);
    const double *inverse = real_numbers(&a, args[2], &square, READ);
    double *q = real_numbers(&a, args[4], &N, WRITE);
    double *products = workspace(&a, sizeof(double) * (size_t)m);
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    d_times(m, N, 1.0, S, g, 0.0, products);
    d_times(m, m, 1.0, inverse, products, 0.0, weights);
    memcpy(q, g, sizeof(double) * (size_t)N);
    d_transpose_times(m, N, -1.0, Y, weights, 1.0, q);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}

/* second_loop(S, Y, R⁻¹, diagonal, γ, a, r): r ← −γr − S(R⁻ᵀ(diag(R)a − γYᵀr)) */
PyObject *second_loop(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t m = ANY, N = ANY;
    if (!counted(count, 7))
        return NULL;
    const double *diagonal = real_numbers(&a, args[3], &m, READ);
    const double *weights = real_numbers(&a, args[5], &m, READ);
    double *r = real_numbers(&a, args[6], &N, WRITE);
    Py_ssize_t all = m * N, square = m * m;
    const double *S = real_numbers(&a, args[0], &all, READ);
    const double *Y = real_numbers(&a, args[1], &all, READ);
    const double *inverse = real_numbers(&a, args[2], &square, READ);
    double gamma = number(&a, args[4]);
    double *products = workspace(&a, sizeof(double) * (size_t)(2 * m)), *c = products + m;
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    d_times(m, N, 1.0, Y, r, 0.0, products);
    for (Py_ssize_t i = 0; i < m; i++)
        products[i] = gamma * products[i] - diagonal[i] * weights[i];
    d_transpose_times(m, m, 1.0, inverse, products, 0.0, c);
    d_transpose_times(m, N, 1.0, S, c, -gamma, r);
    Py_END_ALLOW_THREADS
    return finish(&a, Py_NewRef(Py_None));
}
