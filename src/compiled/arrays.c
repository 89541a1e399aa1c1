#include "arrays.h"

#include <stdlib.h>
#include <string.h>

void refuse_objects(Arrays *a, const Py_buffer *view)
{
    if (view->format != NULL && strchr(view->format, 'O') != NULL)
        refuse(a, "an array of objects is not one of numbers");
}

static Py_buffer *opened(Arrays *a, PyObject *object, int flags)
{
    if (a->failed || a->count == MOST_ARRAYS) {
        a->failed = 1;
        return NULL;
    }
    int written = (flags & PyBUF_WRITABLE) != 0;
    Py_buffer *view = &a->views[a->count];
    if (PyObject_GetBuffer(object, view, flags | (written ? PyBUF_FORMAT : 0)) < 0) {
        a->failed = 1;
        return NULL;
    }
    a->count++;
    if (written)
        refuse_objects(a, view);
    return a->failed ? NULL : view;
}

void *array(Arrays *a, PyObject *object, Py_ssize_t entries, size_t entry, enum Access access)
{
    int flags = PyBUF_C_CONTIGUOUS | (access == WRITE ? PyBUF_WRITABLE : 0);
    Py_buffer *view = opened(a, object, flags);
    if (view == NULL)
        return NULL;
    if (entry == 0 || view->itemsize != (Py_ssize_t)entry || view->len / view->itemsize != entries) {
        PyErr_Format(PyExc_ValueError, "an array has %zd bytes in entries of %zd; expected %zd entries "
                     "of %zd", view->len, view->itemsize, entries, (Py_ssize_t)entry);
        a->failed = 1;
        return NULL;
    }
    return view->buf;
}

void *optional_array(Arrays *a, PyObject *object, Py_ssize_t entries, size_t entry)
{
    return object == Py_None ? NULL : array(a, object, entries, entry, READ);
}

size_t entry_of(Arrays *a, PyObject *object)
{
    Py_buffer view;
    if (a->failed || PyObject_GetBuffer(object, &view, PyBUF_C_CONTIGUOUS) < 0) {
        a->failed = 1;
        return 0;
    }
    size_t entry = (size_t)view.itemsize;
    PyBuffer_Release(&view);
    return entry;
}

static void *with_shape(Arrays *a, PyObject *object, int flags, int axes, Py_ssize_t *shape,
                        size_t *entry)
{
    Py_buffer *view = opened(a, object, flags);
    if (view == NULL)
        return NULL;
    if (view->ndim != axes) {
        PyErr_Format(PyExc_ValueError, "an array has %d axes; expected %d", view->ndim, axes);
        a->failed = 1;
        return NULL;
    }
    for (int i = 0; i < axes; i++)
        shape[i] = view->shape[i];
    *entry = (size_t)view->itemsize;
    return view->buf;
}

void *shaped_array(Arrays *a, PyObject *object, int axes, Py_ssize_t *shape, size_t *entry)
{
    return with_shape(a, object, PyBUF_C_CONTIGUOUS, axes, shape, entry);
}

void *writable_array(Arrays *a, PyObject *object, int axes, Py_ssize_t *shape, size_t *entry)
{
    return with_shape(a, object, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE, axes, shape, entry);
}

void *stacked_array(Arrays *a, PyObject *object, Py_ssize_t *many, Py_ssize_t *n, Py_ssize_t *k,
                    size_t *entry)
{
    Py_buffer *view = opened(a, object, PyBUF_C_CONTIGUOUS);
    *many = *n = *k = 0, *entry = sizeof(double);
    if (view == NULL)
        return NULL;
    if (view->ndim < 2) {
        PyErr_Format(PyExc_ValueError, "an array has %d axes; expected at least 2", view->ndim);
        a->failed = 1;
        return NULL;
    }
    *many = 1, *n = view->shape[view->ndim - 2], *k = view->shape[view->ndim - 1];
    for (int i = 0; i < view->ndim - 2; i++)
        *many *= view->shape[i];
    *entry = (size_t)view->itemsize;
    return view->buf;
}

double *real_numbers(Arrays *a, PyObject *object, Py_ssize_t *count, enum Access access)
{
    int flags = PyBUF_C_CONTIGUOUS | (access == WRITE ? PyBUF_WRITABLE : 0);
    Py_buffer *view = opened(a, object, flags);
    if (view == NULL)
        return NULL;
    Py_ssize_t found = view->len / (Py_ssize_t)sizeof(double);
    if (*count == ANY)
        *count = found;
    if (found != *count || view->itemsize % (Py_ssize_t)sizeof(double)) {
        PyErr_Format(PyExc_ValueError, "an array has %zd bytes in entries of %zd; expected %zd doubles",
                     view->len, view->itemsize, *count);
        a->failed = 1;
        return NULL;
    }
    return view->buf;
}

void *workspace(Arrays *a, size_t bytes)
{
    if (a->failed)
        return NULL;
    a->work = malloc(bytes ? bytes : 1);
    if (a->work == NULL) {
        PyErr_NoMemory();
        a->failed = 1;
    }
    return a->work;
}

double number(Arrays *a, PyObject *object)
{
    if (a->failed) /* the first error is the one to be told */
        return 0.0;
    double value = PyFloat_AsDouble(object);
    if (value == -1.0 && PyErr_Occurred())
        a->failed = 1;
    return value;
}

long integer(Arrays *a, PyObject *object)
{
    if (a->failed)
        return 0;
    long value = PyLong_AsLong(object);
    if (value == -1 && PyErr_Occurred())
        a->failed = 1;
    return value;
}

void few_numbers(Arrays *a, PyObject *tuple, int count, double *out)
{
    if (!a->failed && (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count)) {
        PyErr_Format(PyExc_TypeError, "expected a tuple of %d numbers", count);
        a->failed = 1;
    }
    for (int i = 0; i < count; i++)
        out[i] = a->failed ? 0.0 : number(a, PyTuple_GetItem(tuple, i));
}

void refuse(Arrays *a, const char *why)
{
    if (!a->failed && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, why);
    a->failed = 1;
}

PyObject *finish(Arrays *a, PyObject *result)
{
    free(a->work);
    for (int i = 0; i < a->count; i++)
        PyBuffer_Release(&a->views[i]);
    if (!a->failed)
        return result;
    Py_XDECREF(result);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "a kernel has more arrays than it may open");
    return NULL;
}

int counted(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments were given; expected %zd", given, wanted);
    return 0;
}
