#include "blas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Gemm)(char *, char *, int *, int *, int *, void *, void *, int *, void *, int *,
                     void *, void *, int *);
typedef void (*Syrk)(char *, char *, int *, int *, double *, void *, int *, double *, void *, int *);
typedef void (*Gesv)(int *, int *, void *, int *, int *, void *, int *, int *);
typedef void (*Gemv)(char *, int *, int *, double *, double *, int *, double *, int *, double *,
                     double *, int *);
typedef double (*Dot)(int *, double *, int *, double *, int *);
typedef void (*Syevd)(char *, char *, int *, double *, int *, double *, double *, int *, int *,
                      int *, int *);
typedef void (*Heevd)(char *, char *, int *, void *, int *, double *, void *, int *, double *, int *,
                      int *, int *, int *);
typedef void (*Potrf)(char *, int *, void *, int *, int *);
typedef void (*Pocon)(char *, int *, double *, int *, double *, double *, double *, int *, int *);
typedef void (*Potrs)(char *, int *, int *, double *, int *, double *, int *, int *);
typedef void (*Pstrf)(char *, int *, void *, int *, int *, int *, double *, double *, int *);
typedef void (*Trtri)(char *, char *, int *, void *, int *, int *);
typedef void (*Dgeev)(char *, char *, int *, double *, int *, double *, double *, double *, int *,
                      double *, int *, double *, int *, int *);
typedef void (*Zgeev)(char *, char *, int *, void *, int *, zdouble *, void *, int *, void *, int *,
                      void *, int *, double *, int *);

static Gemm dgemm, zgemm;
static Syrk dsyrk, zherk;
static Gesv dgesv, zgesv;
static Gemv dgemv;
static Dot ddot;
static Syevd dsyevd;
static Heevd zheevd;
static Potrf dpotrf, zpotrf;
static Pocon dpocon;
static Potrs dpotrs;
static Pstrf dpstrf, zpstrf;
static Trtri dtrtri, ztrtri;
static Dgeev dgeev;
static Zgeev zgeev;

/* What Cython publishes under a name; SciPy with 64-bit integers would say so in the signature. */
static void *published(PyObject *table, const char *name)
{
    PyObject *capsule = PyMapping_GetItemString(table, name);
    if (capsule == NULL)
        return NULL;
    const char *signature = PyCapsule_GetName(capsule);
    void *found = NULL;
    if (signature != NULL && strstr(signature, "int *") != NULL && strstr(signature, "long") == NULL)
        found = PyCapsule_GetPointer(capsule, signature);
    else
        PyErr_Format(PyExc_ImportError, "SciPy's %s is not the expected one", name);
    Py_DECREF(capsule);
    return found;
}

static PyObject *table_of(const char *module)
{
    PyObject *imported = PyImport_ImportModule(module);
    if (imported == NULL)
        return NULL;
    PyObject *table = PyObject_GetAttrString(imported, "__pyx_capi__");
    Py_DECREF(imported);
    return table;
}

int load_blas(void)
{
    PyObject *blas = table_of("scipy.linalg.cython_blas");
    PyObject *lapack = blas == NULL ? NULL : table_of("scipy.linalg.cython_lapack");
    int loaded = lapack != NULL && (dgemm = (Gemm)published(blas, "dgemm")) &&
                 (zgemm = (Gemm)published(blas, "zgemm")) &&
                 (dsyrk = (Syrk)published(blas, "dsyrk")) &&
                 (zherk = (Syrk)published(blas, "zherk")) &&
                 (dgemv = (Gemv)published(blas, "dgemv")) &&
                 (ddot = (Dot)published(blas, "ddot")) &&
                 (dgesv = (Gesv)published(lapack, "dgesv")) &&
                 (zgesv = (Gesv)published(lapack, "zgesv")) &&
                 (dsyevd = (Syevd)published(lapack, "dsyevd")) &&
                 (zheevd = (Heevd)published(lapack, "zheevd")) &&
                 (dpotrf = (Potrf)published(lapack, "dpotrf")) &&
                 (zpotrf = (Potrf)published(lapack, "zpotrf")) &&
                 (dpocon = (Pocon)published(lapack, "dpocon")) &&
                 (dpotrs = (Potrs)published(lapack, "dpotrs")) &&
                 (dpstrf = (Pstrf)published(lapack, "dpstrf")) &&
                 (zpstrf = (Pstrf)published(lapack, "zpstrf")) &&
                 (dtrtri = (Trtri)published(lapack, "dtrtri")) &&
                 (ztrtri = (Trtri)published(lapack, "ztrtri")) &&
                 (dgeev = (Dgeev)published(lapack, "dgeev")) &&
                 (zgeev = (Zgeev)published(lapack, "zgeev"));
    Py_XDECREF(blas);
    Py_XDECREF(lapack);
    return loaded ? 0 : -1;
}

static int at_least_one(Py_ssize_t rows) { return rows > 0 ? (int)rows : 1; } /* BLAS insists */

/* Row-major matrices are the transposes of column-major ones: Cᵀ = op(B)ᵀ op(A)ᵀ. */
static void multiply(Gemm gemm, enum Form a, enum Form b, Py_ssize_t m, Py_ssize_t n,
                     Py_ssize_t inner, void *alpha, const void *A, Py_ssize_t rows_a,
                     const void *B, Py_ssize_t rows_b, void *beta, void *C, Py_ssize_t rows_c)
{
    char form_a = a == PLAIN ? 'N' : 'C', form_b = b == PLAIN ? 'N' : 'C';
    int m_ = (int)m, n_ = (int)n, inner_ = (int)inner;
    int a_ = at_least_one(rows_a), b_ = at_least_one(rows_b), c_ = at_least_one(rows_c);
    gemm(&form_b, &form_a, &n_, &m_, &inner_, alpha, (void *)B, &b_, (void *)A, &a_, beta, C, &c_);
}

void d_multiply(enum Form a, enum Form b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t inner,
                double alpha, const double *A, Py_ssize_t rows_a, const double *B,
                Py_ssize_t rows_b, double beta, double *C, Py_ssize_t rows_c)
{
    multiply(dgemm, a, b, m, n, inner, &alpha, A, rows_a, B, rows_b, &beta, C, rows_c);
}

void z_multiply(enum Form a, enum Form b, Py_ssize_t m, Py_ssize_t n, Py_ssize_t inner,
                zdouble alpha, const zdouble *A, Py_ssize_t rows_a, const zdouble *B,
                Py_ssize_t rows_b, zdouble beta, zdouble *C, Py_ssize_t rows_c)
{
    multiply(zgemm, a, b, m, n, inner, &alpha, A, rows_a, B, rows_b, &beta, C, rows_c);
}

/* To BLAS A is its transpose, and what is below the diagonal here is above it there. */
static void self_gram(Syrk syrk, Py_ssize_t n, Py_ssize_t k, const void *A, Py_ssize_t rows, void *C)
{
    char half = 'U', form = 'N';
    int size = (int)k, inner = (int)n, apart = at_least_one(rows);
    double one = 1.0, zero = 0.0;
    syrk(&half, &form, &size, &inner, &one, (void *)A, &apart, &zero, C, &size);
}

void d_self_gram(Py_ssize_t n, Py_ssize_t k, const double *A, Py_ssize_t rows, double *C)
{
    self_gram(dsyrk, n, k, A, rows, C);
    for (Py_ssize_t i = 0; i < k; i++)
        for (Py_ssize_t j = 0; j < i; j++)
            C[j * k + i] = C[i * k + j];
}

void z_self_gram(Py_ssize_t n, Py_ssize_t k, const zdouble *A, Py_ssize_t rows, zdouble *C)
{
    self_gram(zherk, n, k, A, rows, C);
    for (Py_ssize_t i = 0; i < k; i++)
        for (Py_ssize_t j = 0; j < i; j++)
            C[j * k + i] = conj(C[i * k + j]);
}

enum { MOST_PIVOTS = 512 };

/* To LAPACK both are their transposes: Aᵀ(BA⁻¹)ᵀ = Bᵀ.  By gesv: OpenBLAS starts threads for a
 * getrs of any size. */
static int divide(Gesv gesv, Py_ssize_t n, Py_ssize_t m, void *B, void *A)
{
    int few[MOST_PIVOTS], size = (int)m, sides = (int)n, info = 0;
    int apart = at_least_one(m), *pivots = m <= MOST_PIVOTS ? few : malloc(sizeof(int) * (size_t)m);
    if (pivots == NULL)
        return 1;
    gesv(&size, &sides, A, &apart, pivots, B, &apart, &info);
    if (pivots != few)
        free(pivots);
    return info;
}

void d_divide(Py_ssize_t n, Py_ssize_t m, double *B, double *A)
{
    if (divide(dgesv, n, m, B, A))
        for (Py_ssize_t i = 0; i < n * m; i++)
            B[i] = NAN;
}

void z_divide(Py_ssize_t n, Py_ssize_t m, zdouble *B, zdouble *A)
{
    if (divide(zgesv, n, m, B, A))
        for (Py_ssize_t i = 0; i < n * m; i++)
            B[i] = NAN;
}

static int real_eigen(char vectors, Py_ssize_t m, double *A, double *values)
{
    char half = 'U';
    int size = (int)m, length = 1 + 6 * size + 2 * size * size, integers = 3 + 5 * size, info = 0;
    double *room = malloc(sizeof(double) * (size_t)length + sizeof(int) * (size_t)integers);
    if (room == NULL)
        return 1;
    dsyevd(&vectors, &half, &size, A, &size, values, room, &length, (int *)(room + length),
           &integers, &info);
    free(room);
    return info;
}

static int complex_eigen(char vectors, Py_ssize_t m, zdouble *A, double *values)
{
    char half = 'U';
    int size = (int)m, length = 2 * size + size * size, integers = 3 + 5 * size, info = 0;
    int reals = 1 + 5 * size + 2 * size * size;
    size_t bytes = sizeof(zdouble) * (size_t)length + sizeof(double) * (size_t)reals;
    zdouble *room = malloc(bytes + sizeof(int) * (size_t)integers);
    if (room == NULL)
        return 1;
    double *real = (double *)(room + length);
    zheevd(&vectors, &half, &size, A, &size, values, room, &length, real, &reals,
           (int *)(real + reals), &integers, &info);
    free(room);
    return info;
}

int d_lapack_eigh(Py_ssize_t m, double *A, double *values) { return real_eigen('V', m, A, values); }
int z_lapack_eigh(Py_ssize_t m, zdouble *A, double *values)
{
    return complex_eigen('V', m, A, values);
}

int d_lapack_eigenvalues(Py_ssize_t m, double *A, double *values)
{
    return real_eigen('N', m, A, values);
}
int z_lapack_eigenvalues(Py_ssize_t m, zdouble *A, double *values)
{
    return complex_eigen('N', m, A, values);
}

/* The left eigenvectors u of the transpose that LAPACK sees have P conj(u) = λ conj(u). */
int d_real_eigenvectors(Py_ssize_t m, double *A, double *V, double least, double *room)
{
    char no = 'N', yes = 'V';
    int size = (int)m, one = 1, length = 4 * size, info = 0;
    double *real = room, *imaginary = real + m, *vectors = imaginary + m, *work = vectors + m * m;
    dgeev(&yes, &no, &size, A, &size, real, imaginary, vectors, &size, NULL, &one, work, &length, &info);
    for (Py_ssize_t i = 0; i < m; i++) {
        if (imaginary[i] != 0.0) /* pairs that errors have made are no eigenvectors of use */
            return 0;
        for (Py_ssize_t j = 0; j < m; j++)
            V[i * m + j] = vectors[j * m + i];
    }
    return info == 0;
}

int z_real_eigenvectors(Py_ssize_t m, zdouble *A, zdouble *V, double least, zdouble *room)
{
    char no = 'N', yes = 'V';
    int size = (int)m, one = 1, length = 2 * size, info = 0;
    zdouble *values = room, *vectors = values + m, *work = vectors + m * m;
    double *reals = (double *)(work + 2 * m), imaginary = 0.0, largest = 0.0;
    zgeev(&yes, &no, &size, A, &size, values, vectors, &size, NULL, &one, work, &length, reals, &info);
    for (Py_ssize_t i = 0; i < m; i++) {
        imaginary = fmax(imaginary, fabs(cimag(values[i]))), largest = fmax(largest, cabs(values[i]));
        for (Py_ssize_t j = 0; j < m; j++)
            V[i * m + j] = conj(vectors[j * m + i]);
    }
    return info == 0 && imaginary <= least * largest;
}

int d_cholesky(Py_ssize_t m, double *A)
{
    char half = 'U'; /* of the transpose */
    int size = (int)m, info = 0;
    dpotrf(&half, &size, A, &size, &info);
    for (Py_ssize_t i = 0; i < m; i++)
        for (Py_ssize_t j = i + 1; j < m; j++)
            A[i * m + j] = 0.0;
    return info;
}

int z_cholesky(Py_ssize_t m, zdouble *A)
{
    char half = 'U';
    int size = (int)m, info = 0;
    zpotrf(&half, &size, A, &size, &info);
    for (Py_ssize_t i = 0; i < m; i++)
        for (Py_ssize_t j = i + 1; j < m; j++)
            A[i * m + j] = 0.0;
    return info;
}

int d_well_conditioned_cholesky(Py_ssize_t m, double *A, double least)
{
    char half = 'U';
    int size = (int)m, info = 0;
    double norm = 0.0, estimate = 0.0, *room = malloc(sizeof(double) * (size_t)(4 * m));
    if (room == NULL)
        return 0;
    for (Py_ssize_t i = 0; i < m; i++) {
        double sum = 0.0;
        for (Py_ssize_t j = 0; j < m; j++)
            sum += fabs(A[i * m + j]);
        norm = fmax(norm, sum);
    }
    dpotrf(&half, &size, A, &size, &info);
    if (info == 0)
        dpocon(&half, &size, A, &size, &norm, &estimate, room, (int *)(room + 3 * m), &info);
    free(room);
    return info == 0 && estimate >= least;
}

void d_solve_cholesky(Py_ssize_t m, double *L, double *x)
{
    char half = 'U';
    int size = (int)m, one = 1, info = 0;
    dpotrs(&half, &size, &one, L, &size, x, &size, &info);
}

/* To LAPACK the matrix is its transpose: there the factor is the upper triangle. */
static Py_ssize_t pivoted(Pstrf pstrf, Py_ssize_t m, void *A, int *pivots, double least,
                          double *room)
{
    char half = 'U';
    int size = (int)m, rank = 0, info = 0;
    pstrf(&half, &size, A, &size, pivots, &rank, &least, room, &info);
    for (Py_ssize_t i = 0; i < m; i++)
        pivots[i]--; /* they count from one */
    return rank;
}

Py_ssize_t d_pivoted_cholesky(Py_ssize_t m, double *A, int *pivots, double least, double *room)
{
    return pivoted(dpstrf, m, A, pivots, least, room);
}

Py_ssize_t z_pivoted_cholesky(Py_ssize_t m, zdouble *A, int *pivots, double least, double *room)
{
    return pivoted(zpstrf, m, A, pivots, least, room);
}

static void invert(Trtri trtri, Py_ssize_t m, void *L, Py_ssize_t rows)
{
    char half = 'U', diagonal = 'N';
    int size = (int)m, apart = at_least_one(rows), info = 0;
    trtri(&half, &diagonal, &size, L, &apart, &info);
}

void d_invert_lower(Py_ssize_t m, double *L, Py_ssize_t rows) { invert(dtrtri, m, L, rows); }
void z_invert_lower(Py_ssize_t m, zdouble *L, Py_ssize_t rows) { invert(ztrtri, m, L, rows); }

static void gemv(char form, Py_ssize_t m, Py_ssize_t n, double alpha, const double *A,
                 const double *x, double beta, double *y)
{
    int rows = (int)n, columns = (int)m, apart = at_least_one(n), one = 1;
    dgemv(&form, &rows, &columns, &alpha, (double *)A, &apart, (double *)x, &one, &beta, y, &one);
}

void d_times(Py_ssize_t m, Py_ssize_t n, double alpha, const double *A, const double *x,
             double beta, double *y)
{
    if (n == 0 && beta == 0.0) /* BLAS leaves y as it was */
        memset(y, 0, sizeof(double) * (size_t)m);
    gemv('T', m, n, alpha, A, x, beta, y);
}

void d_transpose_times(Py_ssize_t m, Py_ssize_t n, double alpha, const double *A, const double *x,
                       double beta, double *y)
{
    gemv('N', m, n, alpha, A, x, beta, y);
}

double d_dot(Py_ssize_t n, const double *x, const double *y)
{
    int size = (int)n, one = 1;
    return ddot(&size, (double *)x, &one, (double *)y, &one);
}
