/* Square and nearly square matrices in a frame: see frames.inc for the formulas. */
#ifndef STIEFEL_FRAMES_H
#define STIEFEL_FRAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* What is told of rays that set out, of a stack: ‖E‖² of all, of the matrix that is furthest, the
 * square of the fastest tangent, and how far the frame that is furthest has drifted. */
enum { DRIFT_OF_ALL, LARGEST_DRIFT, FASTEST, FRAME_DRIFT, SETTING_OUT };

/* `framed.CompiledFramedRay` of so many matrices whose entries have so many bytes: the tangents
 * nearest to W in its place, E = XᴴX − I, and the numbers above.  The probe of a frame's drift has n
 * real numbers, or is NULL; room for 3n entries. */
void set_out_in_frames(size_t entry, Py_ssize_t many, Py_ssize_t n, Py_ssize_t k, const void *Q, void *W,
                       int horizontal, void *E, const double *probe, double *out, void *room);

/* `framed.gradient` of one matrix: G of the Euclidean gradient E; ‖G‖²_g*. */
double gradient_in_frame(size_t entry, Py_ssize_t n, Py_ssize_t k, const void *Q, const void *E, void *G);

PyObject *framed_gradient(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *framed_ray(PyObject *, PyObject *const *, Py_ssize_t);
PyObject *framed_point(PyObject *, PyObject *const *, Py_ssize_t);

#endif
