/* What a step teaches of the metric in the call that takes it, as `LearnedMetric` says. */
#include "lessons.h"

#include <math.h>

void parts_of_frame(void *frame, Py_ssize_t k, size_t entry, void **parts)
{
    for (int i = 0; i < 4; i++)
        parts[i] = frame == NULL ? NULL : (char *)frame + (size_t)(i * 4 * k * k) * entry;
}

Lesson lesson_of(Arrays *a, PyObject *given, Py_ssize_t k, size_t entry, const void *B,
                 const void *yy, const void *const *wide)
{
    Lesson l = {.told = {.B = B, .yy = yy}};
    double n[15] = {0.0};
    if (a->failed || !PyTuple_Check(given) || PyTuple_Size(given) != 20) {
        refuse(a, "a lesson has twenty parts");
        return l;
    }
    l.told.t = number(a, PyTuple_GetItem(given, 0));
    if (wide != NULL)
        l.told.gram = wide[0], l.told.basis = wide[1];
    else {
        void *frame[4];
        parts_of_frame(array(a, PyTuple_GetItem(given, 1), 16 * k * k, entry, READ), k, entry, frame);
        l.told.gram = frame[0], l.told.basis = frame[1], l.told.K = frame[3];
    }
    l.P = array(a, PyTuple_GetItem(given, 2), k * k, entry, READ);
    l.R = array(a, PyTuple_GetItem(given, 3), k * k, entry, READ);
    char *out = array(a, PyTuple_GetItem(given, 4), 3 * k * k, entry, WRITE);
    for (int i = 0; out != NULL && i < 3; i++)
        l.out[i] = out + (size_t)(i * k * k) * entry;
    for (int i = 0; i < 15; i++)
        n[i] = number(a, PyTuple_GetItem(given, 5 + i));
    l.sums = (Sums){n[0], n[1], n[2], {n[3], n[4], n[5], n[6]}, 0, 0};
    l.told.power = n[7], l.told.memory = n[8], l.told.news = n[9], l.told.change = n[10];
    l.told.range = n[11], l.told.least = n[12], l.rotation_change = n[13], l.rotation_range = n[14];
    return l;
}

/* ω after a step, of Σ‖A‖², Σ‖B‖², Σ‖S‖², Σ‖T‖², as `LearnedMetric._rotated` finds it; 0 of a
 * horizontal metric. */
static double rotated(const double s[4], double omega, double change, double range)
{
    if (omega == 0.0 || !(s[1] > 0.0 && s[2] > 0.0))
        return omega;
    double found = fmin(fmax(sqrt(s[3] * s[0] / (s[2] * s[1])), 1.0), range);
    return fmax(found / omega, omega / found) > change ? found : omega;
}

void take_lesson(size_t entry, Py_ssize_t k, Lesson *l, const void **D, double *omega, void *room)
{
    learn_from_step(entry, 1, k, &l->told, l->P, l->R, *D, &l->sums, l->out, room);
    if (!l->sums.seen)
        return;
    *D = l->sums.replaced ? l->out[2] : *D;
    if (isfinite(l->told.news))
        *omega = rotated(l->sums.sums, *omega, l->rotation_change, l->rotation_range);
}

SplitLesson split_lesson_of(Arrays *a, PyObject *given)
{
    double n[8] = {0.0};
    few_numbers(a, given, 8, n);
    return (SplitLesson){{n[0], n[1], n[2], n[3]}, n[4], n[5], n[6], n[7] != 0.0, 0};
}

void take_split_lesson(SplitLesson *l, double ss, double tt, double aa, double bb, double *omega)
{
    double *sums = l->sums, unit = ss + aa, new[4] = {aa, bb, ss, tt};
    l->seen = ss > 1e-30 && tt > 0.0 && isfinite(ss + tt + aa + bb);
    if (!l->seen)
        return;
    for (int i = 0; i < 4; i++)
        sums[i] = l->memory * sums[i] + new[i] / unit;
    if (l->enough)
        *omega = rotated(sums, *omega, l->change, l->range);
}

PyObject *told_of_split(const SplitLesson *l, double omega)
{
    if (l == NULL || !l->seen)
        return Py_NewRef(Py_None);
    const double *s = l->sums;
    return Py_BuildValue("ddddd", s[0], s[1], s[2], s[3], omega);
}

PyObject *told_of(const Lesson *l, double omega)
{
    if (l == NULL || !l->sums.seen)
        return Py_NewRef(Py_None);
    const Sums *s = &l->sums;
    return Py_BuildValue("dddddddid", s->weight, s->judged, s->ratio, s->sums[0], s->sums[1],
                         s->sums[2], s->sums[3], s->replaced, omega);
}
