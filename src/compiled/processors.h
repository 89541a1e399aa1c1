/* What a compiler may know about processors. */
#ifndef STIEFEL_PROCESSORS_H
#define STIEFEL_PROCESSORS_H

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline, unused))
#else
#define INLINE static inline
#endif

/* A kernel once for every generation of processors, where the loader can choose. */
#if defined(__GNUC__) && defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute)
#if __has_attribute(target_clones)
#define FOR_PROCESSORS __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef FOR_PROCESSORS
#define FOR_PROCESSORS
#endif

#endif
