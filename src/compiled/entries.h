/* Formulas for real and for complex entries: a text is included twice, each time after one of
 *
 *     real_entries.inc      complex_entries.inc
 *
 * which say what T, its numbers and its operations are, and how names begin.
 */
#ifndef STIEFEL_ENTRIES_H
#define STIEFEL_ENTRIES_H

#include <complex.h>

#include "blas.h"
#include "processors.h"

INLINE double squared(zdouble x) { return creal(x) * creal(x) + cimag(x) * cimag(x); }

/* Without the checks for infinite parts that a compiler has to add. */
INLINE zdouble times(zdouble x, zdouble y)
{
    double a = creal(x), b = cimag(x), c = creal(y), d = cimag(y);
    return a * c - b * d + (a * d + b * c) * I;
}

/* The kernel for entries of so many bytes, without the interpreter's lock. */
#define FOR_ENTRIES(entry, real, complex)                                                          \
    Py_BEGIN_ALLOW_THREADS if ((entry) == sizeof(double)) { real; } else { complex; }              \
    Py_END_ALLOW_THREADS

#endif
