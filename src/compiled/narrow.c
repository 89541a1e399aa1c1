/* Products of tall matrices with k×k ones, by plain loops that the compiler makes vectors of. */
#include "narrow.h"

#include "processors.h"

/* C = ±A B, added to what is there if that is asked for, of k×k matrices B of a size that the compiler
 * knows. */
INLINE void few_products(Py_ssize_t rows, const Py_ssize_t k, double sign, const double *A,
                         Py_ssize_t rows_a, const double *B, int add, double *restrict C, Py_ssize_t rows_c)
{
    double signed_B[NARROW * NARROW];
    for (Py_ssize_t i = 0; i < k * k; i++)
        signed_B[i] = sign * B[i];
    for (Py_ssize_t r = 0; r < rows; r++, A += rows_a, C += rows_c) {
        double sum[NARROW];
        for (Py_ssize_t j = 0; j < k; j++)
            sum[j] = add ? C[j] : 0.0;
        for (Py_ssize_t i = 0; i < k; i++)
            for (Py_ssize_t j = 0; j < k; j++)
                sum[j] += A[i] * signed_B[i * k + j];
        for (Py_ssize_t j = 0; j < k; j++)
            C[j] = sum[j];
    }
}

FOR_PROCESSORS void narrow_product(Py_ssize_t rows, Py_ssize_t k, double sign, const double *A,
                                   Py_ssize_t rows_a, const double *B, int add, double *C,
                                   Py_ssize_t rows_c)
{
    switch (k) {
    case 2: few_products(rows, 2, sign, A, rows_a, B, add, C, rows_c); break;
    case 3: few_products(rows, 3, sign, A, rows_a, B, add, C, rows_c); break;
    case 4: few_products(rows, 4, sign, A, rows_a, B, add, C, rows_c); break;
    case 5: few_products(rows, 5, sign, A, rows_a, B, add, C, rows_c); break;
    case 6: few_products(rows, 6, sign, A, rows_a, B, add, C, rows_c); break;
    default: few_products(rows, NARROW, sign, A, rows_a, B, add, C, rows_c);
    }
}
