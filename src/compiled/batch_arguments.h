/* Arguments of the kernels of a batch. */
#ifndef STIEFEL_BATCH_ARGUMENTS_H
#define STIEFEL_BATCH_ARGUMENTS_H

#include <stdint.h>

#include "arrays.h"
#include "batch_lanes.h"

/* Room for so many vectors, and more to begin at a multiple of ALIGNMENT. */
static inline V *vectors(Arrays *a, Py_ssize_t count)
{
    char *room = workspace(a, sizeof(V) * (size_t)count + ALIGNMENT);
    uintptr_t beyond = (uintptr_t)room % ALIGNMENT;
    return (V *)(void *)(room + (beyond ? ALIGNMENT - beyond : 0));
}

static inline double *doubles(Arrays *a, PyObject *object, Py_ssize_t entries, enum Access access)
{
    return array(a, object, entries, sizeof(double), access);
}

static inline unsigned char *flags(Arrays *a, PyObject *object, Py_ssize_t entries,
                                   enum Access access)
{
    return array(a, object, entries, 1, access);
}

#endif
