/* Eigenvalues of Hermitian matrices: small ones by eigen.inc, others by LAPACK. */
#include "eigen.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arrays.h"
#include "entries.h"

enum { SMALL = 72, SMALL_COMPLEX = 32 }; /* columns: LAPACK is faster from there on */
enum { FEWEST = 24 }; /* the same without eigenvectors */
#define NEGLIGIBLE 1e-290 /* of squares */

#include "real_entries.inc"
#include "eigen.inc"

#include "complex_entries.inc"
#include "eigen.inc"

int d_eigh(Py_ssize_t m, double *A, double *values)
{
    if (m > SMALL)
        return d_lapack_eigh(m, A, values);
    double room[SMALL * (SMALL + 5) / 2 + 1];
    return m > 0 ? d_small_eigh(m, A, values, room) : 0;
}

int z_eigh(Py_ssize_t m, zdouble *A, double *values)
{
    if (m > SMALL_COMPLEX)
        return z_lapack_eigh(m, A, values);
    zdouble room[SMALL_COMPLEX * (SMALL_COMPLEX + 5) / 2 + 1];
    return m > 0 ? z_small_eigh(m, A, values, room) : 0;
}

int d_eigenvalues(Py_ssize_t m, double *A, double *values)
{
    return m > FEWEST ? d_lapack_eigenvalues(m, A, values) : d_eigh(m, A, values);
}

int z_eigenvalues(Py_ssize_t m, zdouble *A, double *values)
{
    return m > FEWEST ? z_lapack_eigenvalues(m, A, values) : z_eigh(m, A, values);
}

/* eigh_rows(A, values): A's rows become the eigenvectors, conjugated */
PyObject *eigh_rows(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Arrays a = {.count = 0};
    Py_ssize_t shape[2] = {0, 0};
    size_t entry = 0;
    int info = 0;
    if (!counted(count, 2))
        return NULL;
    void *A = writable_array(&a, args[0], 2, shape, &entry);
    double *values = array(&a, args[1], shape[0], sizeof(double), WRITE);
    if (!a.failed && (shape[0] != shape[1] || (entry != sizeof(double) && entry != sizeof(zdouble)))) {
        PyErr_Format(PyExc_ValueError, "a matrix is %zd by %zd in entries of %zd bytes; expected a "
                     "square one of double precision", shape[0], shape[1], (Py_ssize_t)entry);
        a.failed = 1;
    }
    if (a.failed)
        return finish(&a, NULL);
    Py_BEGIN_ALLOW_THREADS
    info = entry == sizeof(double) ? d_eigh(shape[0], A, values) : z_eigh(shape[0], A, values);
    Py_END_ALLOW_THREADS
    if (info != 0) {
        PyErr_SetString(PyExc_ArithmeticError, "Eigenvalues did not converge");
        a.failed = 1;
    }
    return finish(&a, a.failed ? NULL : Py_NewRef(Py_None));
}
