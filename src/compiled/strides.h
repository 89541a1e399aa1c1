/* What every step decides that is taken in one call; see strides.c. */
#ifndef STIEFEL_STRIDES_H
#define STIEFEL_STRIDES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* When the first trial of a step is taken without a question; `secant_search` says why. */
typedef struct {
    double start;    /* ⟨∇f, T⟩ where it began */
    double flattest; /* the part of it that may be left at its end … */
    int far;         /* … unless it went as far as a step may go */
    double caution;  /* the least ⟨s, y⟩, relative to ‖y‖ */
} Terms;

/* Of a step of t with ‖G⁺‖², ⟨G⁺, s⟩ and ‖y‖² at its end. */
int is_ordinary(const Terms *q, double t, double square, double slope, double change);

/* ⟨s, y⟩ of that step: the transport is isometric. */
double paired(const Terms *q, double t, double slope);

/* γ after a pair of ⟨s, y⟩ and ⟨y, φ(y)⟩: the geometric mean with the old one, or 0 for none. */
double averaged(double gamma, double sy, double square);

/* As far as t = 1, but no further than `longest`; `speed` is squared. */
double first_trial(double speed, double longest);

/* Whether f is seen not to be one of the span; `turn` is the largest ‖rotation‖ of such an f. */
int has_turned(size_t entry, Py_ssize_t k, const void *rotation, double turn);

#endif
