/* Several problems side by side: one number of each in a vector, and one instruction for all.
 *
 * With a compiler that knows vectors a V holds LANES numbers; with another one it holds one, and
 * the same text computes one problem after the other.  Lanes do not mix: a problem
 * depends on its neighbours only by how often an iteration is repeated, to the last bits.
 *
 * Arrays of a batch have the problems last: entry i of problem b is at [i * all + b].  A part of
 * them, `Part`, is loaded into vectors, computed with, and stored.
 */
#ifndef STIEFEL_BATCH_LANES_H
#define STIEFEL_BATCH_LANES_H

#include <stddef.h>
#include <string.h>

#include "processors.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are never handed from one file to another */
enum { LANES = 8 };
typedef double V __attribute__((vector_size(8 * LANES)));
typedef float F __attribute__((vector_size(4 * LANES)));
typedef long long Mask __attribute__((vector_size(8 * LANES))); /* all bits or none in a lane */
#define TO_SINGLE(v) __builtin_convertvector(v, F)
#define TO_DOUBLE(f) __builtin_convertvector(f, V)
#define LANE(v, l) ((v)[l])
#define SOON(address) __builtin_prefetch(address)
#else
enum { LANES = 1 };
typedef double V;
typedef float F;
typedef int Mask;
#define TO_SINGLE(v) ((float)(v))
#define TO_DOUBLE(f) ((double)(f))
#define LANE(v, l) (v)
#define SOON(address)
#endif

enum { ALIGNMENT = 64 };

/* The problems first … first + count − 1 of all; count ≤ LANES. */
typedef struct {
    ptrdiff_t all, first;
    int count;
} Part;

INLINE Part part_at(ptrdiff_t all, ptrdiff_t first)
{
    ptrdiff_t left = all - first;
    return (Part){all, first, (int)(left < LANES ? left : LANES)};
}

INLINE V same(double a)
{
    V v;
    for (int l = 0; l < LANES; l++)
        LANE(v, l) = a;
    return v;
}

/* a where the mask is set, else b; without a jump. */
INLINE V where(Mask mask, V a, V b)
{
#if defined(__GNUC__)
    return (V)((mask & (Mask)a) | (~mask & (Mask)b));
#else
    return mask ? a : b;
#endif
}

INLINE Mask opposite(Mask mask)
{
#if defined(__GNUC__)
    return ~mask;
#else
    return !mask;
#endif
}

INLINE int some(Mask mask)
{
    int any = 0;
    for (int l = 0; l < LANES; l++)
        any |= LANE(mask, l) != 0;
    return any;
}

/* Lanes beyond the batch are zero. */
INLINE void load(Part p, ptrdiff_t rows, const double *from, V *to)
{
    for (ptrdiff_t i = 0; i < rows; i++) {
        const double *at = from + i * p.all + p.first;
        SOON(at + LANES); /* of the next part, on a page of its own as every row is */
        if (p.count == LANES)
            memcpy(&to[i], at, sizeof(V));
        else {
            to[i] = same(0.0);
            for (int l = 0; l < p.count; l++)
                LANE(to[i], l) = at[l];
        }
    }
}

INLINE void store(Part p, ptrdiff_t rows, const V *from, double *to)
{
    for (ptrdiff_t i = 0; i < rows; i++) {
        double *at = to + i * p.all + p.first;
        if (p.count == LANES)
            memcpy(at, &from[i], sizeof(V));
        else
            for (int l = 0; l < p.count; l++)
                at[l] = LANE(from[i], l);
    }
}

/* Of the user's arrays, which have the problems first. */
INLINE void load_shown(Part p, ptrdiff_t size, const double *from, V *to)
{
    for (ptrdiff_t i = 0; i < size; i++) {
        to[i] = same(0.0);
        for (int l = 0; l < p.count; l++)
            LANE(to[i], l) = from[(p.first + l) * size + i];
    }
}

INLINE V number_of(Part p, const double *from)
{
    V v;
    load(p, 1, from, &v);
    return v;
}

INLINE void put_number(Part p, V v, double *to) { store(p, 1, &v, to); }

/* Row i of a block of pairs in single precision. */
INLINE F single(Part p, const float *from, ptrdiff_t i)
{
    F f;
    const float *at = from + i * p.all + p.first;
    if (p.count == LANES) {
        SOON(at + LANES);
        memcpy(&f, at, sizeof(F));
        return f;
    }
    f = TO_SINGLE(same(0.0));
    for (int l = 0; l < p.count; l++)
        LANE(f, l) = at[l];
    return f;
}

INLINE void put_single(Part p, F f, float *to, ptrdiff_t i)
{
    float *at = to + i * p.all + p.first;
    if (p.count == LANES)
        memcpy(at, &f, sizeof(F));
    else
        for (int l = 0; l < p.count; l++)
            at[l] = LANE(f, l);
}

/* Once for each part: a compiler does not know that what is stored leaves the flags alone. */
INLINE Mask mask_of(Part p, const unsigned char *flags)
{
    Mask mask = {0};
    for (int l = 0; l < p.count; l++)
        LANE(mask, l) = flags[p.first + l] ? -1 : 0;
    return mask;
}

INLINE int how_many(Part p, const unsigned char *mask)
{
    int hits = 0;
    for (int l = 0; l < p.count; l++)
        hits += mask[p.first + l] != 0;
    return hits;
}

#endif
