/* What a step teaches of the metric in the call that takes it; see lessons.c. */
#ifndef STIEFEL_LESSONS_H
#define STIEFEL_LESSONS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "arrays.h"
#include "metric.h"

/* What is known of a metric, the rules by which it is learned, and what a step tells. */
typedef struct {
    Told told;
    Sums sums;
    const void *P, *R;
    void *out[3];
    double rotation_change, rotation_range;
} Lesson;

/* Γ, B, A and K of one array. */
void parts_of_frame(void *frame, Py_ssize_t k, size_t entry, void **parts);

/* From a tuple: t and frame of the step, P, R, (P⁺, R⁺, D⁺), and fifteen numbers.  Of a step with many
 * columns the frame is not read: `wide` is its C and A. */
Lesson lesson_of(Arrays *a, PyObject *given, Py_ssize_t k, size_t entry, const void *B,
                 const void *yy, const void *const *wide);

/* Learns from the step: D and ω are those of the metric after it.  Room for 7k² entries. */
void take_lesson(size_t entry, Py_ssize_t k, Lesson *l, const void **D, double *omega, void *room);

/* The same of a step in a frame, where ω alone is learned: Σ‖A‖², Σ‖B‖², Σ‖S‖², Σ‖T‖², the rules, and
 * whether enough steps were seen. */
typedef struct {
    double sums[4], memory, change, range;
    int enough, seen;
} SplitLesson;

/* From a tuple of eight numbers. */
SplitLesson split_lesson_of(Arrays *a, PyObject *given);

/* Learns from a step with ‖S‖², ‖T‖² of its normal part and ‖A‖², ‖B‖² of its rotation. */
void take_split_lesson(SplitLesson *l, double ss, double tt, double aa, double bb, double *omega);

/* The sums and ω; None of no lesson, and of a step that tells nothing. */
PyObject *told_of_split(const SplitLesson *l, double omega);

/* What `learn` returns, with ω; None of no lesson, and of a step that tells nothing. */
PyObject *told_of(const Lesson *l, double omega);

#endif
