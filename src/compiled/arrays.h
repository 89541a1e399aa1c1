/* Arguments of the kernels: arrays that offer the buffer protocol, and numbers.
 *
 * A kernel opens its arrays, computes without the interpreter's lock, and closes them:
 *
 *     Arrays a = {0};
 *     double *X = array(&a, args[0], n * k, sizeof(double), READ);
 *     if (a.failed) return finish(&a, NULL);
 *
 * Arrays are C-contiguous and as long as the kernel expects, or an error says what was given:
 * no kernel reads or writes beyond what it was handed.
 */
#ifndef STIEFEL_ARRAYS_H
#define STIEFEL_ARRAYS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

enum { MOST_ARRAYS = 32 };
enum Access { READ, WRITE };

typedef struct {
    Py_buffer views[MOST_ARRAYS];
    int count;
    int failed;
    void *work; /* freed by `finish` */
} Arrays;

/* The memory of an array of so many entries, or NULL with a.failed set. */
void *array(Arrays *a, PyObject *object, Py_ssize_t entries, size_t entry, enum Access access);

/* The same, or NULL for None. */
void *optional_array(Arrays *a, PyObject *object, Py_ssize_t entries, size_t entry);

/* The bytes of an entry of an array; nothing is opened. */
size_t entry_of(Arrays *a, PyObject *object);

/* An array whose shape the kernel learns from it. */
void *shaped_array(Arrays *a, PyObject *object, int axes, Py_ssize_t *shape, size_t *entry);

/* A stack of so many n×k matrices, with any number of axes before the last two. */
void *stacked_array(Arrays *a, PyObject *object, Py_ssize_t *many, Py_ssize_t *n, Py_ssize_t *k,
                    size_t *entry);

/* The same as `shaped_array`, to be written. */
void *writable_array(Arrays *a, PyObject *object, int axes, Py_ssize_t *shape, size_t *entry);

/* An array of doubles or of complex doubles, of any shape, as its real numbers.  `count` is how many
 * are expected, or ANY: then it is set. */
enum { ANY = -1 };
double *real_numbers(Arrays *a, PyObject *object, Py_ssize_t *count, enum Access access);

/* Room for so many bytes until `finish`. */
void *workspace(Arrays *a, size_t bytes);

double number(Arrays *a, PyObject *object);
long integer(Arrays *a, PyObject *object);

/* The numbers of a tuple of so many. */
void few_numbers(Arrays *a, PyObject *tuple, int count, double *out);

/* Refuses what was opened with its format, to be written to, and holds references. */
void refuse_objects(Arrays *a, const Py_buffer *view);

/* Marks the call as failed, with a ValueError; the first error is the one to be told. */
void refuse(Arrays *a, const char *why);

/* Closes the arrays; `result` unless something failed. */
PyObject *finish(Arrays *a, PyObject *result);

/* Whether there are so many arguments; sets an error if not. */
int counted(Py_ssize_t given, Py_ssize_t wanted);

#endif
