/* Reductions on what stable Rust has no type for: long double and the 128-bit float, real, complex and paired with an int.
 * One loop per operator; elements have no alignment and no padding between them (the packed form), so they are moved by
 * memcpy. The numbers of kinds and operators are those of `reduce.rs`, which checked that the operator suits the kind. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <complex.h>
#include <stddef.h>
#include <string.h>

#if defined(__SIZEOF_FLOAT128__) && defined(__powerpc64__)
/* Its long double, whose complex numbers have the mode TC, is a pair of doubles. */
typedef __float128 quad;
typedef _Complex float __attribute__((mode(KC))) complex_quad;
#define HAS_QUAD 1
#elif defined(__SIZEOF_FLOAT128__)
typedef __float128 quad;
typedef _Complex float __attribute__((mode(TC))) complex_quad;
#define HAS_QUAD 1
#elif __LDBL_MANT_DIG__ == 113
typedef long double quad;
typedef _Complex long double complex_quad;
#define HAS_QUAD 1
#else
#define HAS_QUAD 0
#endif

enum kind { LONG_DOUBLE, COMPLEX_LONG_DOUBLE, LONG_DOUBLE_INT, QUAD, COMPLEX_QUAD };
enum op { MAX, MIN, SUM, PROD, MAXLOC, MINLOC };

int outboard_has_quad(void) { return HAS_QUAD; }

/* Bytes of a long double that carry its value; the rest of an x87 number is padding, of which a store leaves whatever was there. */
#define LONG_DOUBLE_BYTES (__LDBL_MANT_DIG__ == 64 ? 10 : sizeof(long double))

#define EACH(type, value_bytes, expression)                                                             \
    for (size_t i = 0; i < count; i++) {                                                                \
        type a, b, result;                                                                              \
        memcpy(&a, left + i * sizeof(type), sizeof(type));                                              \
        memcpy(&b, right + i * sizeof(type), sizeof(type));                                             \
        result = (expression);                                                                          \
        memcpy(into + i * sizeof(type), &result, sizeof(type));                                         \
        for (size_t part = 0; part < sizeof(type); part += 16)                                          \
            memset(into + i * sizeof(type) + part + value_bytes, 0, 16 - value_bytes);                  \
    }                                                                                                   \
    return

#define REAL(name, type, value_bytes)                                                                   \
    static void name(int op, size_t count, const char *left, const char *right, char *into) {           \
        switch (op) {                                                                                   \
        case MAX: EACH(type, value_bytes, a > b ? a : b);                                               \
        case MIN: EACH(type, value_bytes, a < b ? a : b);                                               \
        case SUM: EACH(type, value_bytes, a + b);                                                       \
        case PROD: EACH(type, value_bytes, a * b);                                                      \
        }                                                                                               \
    }

#define COMPLEX(name, type, value_bytes)                                                                \
    static void name(int op, size_t count, const char *left, const char *right, char *into) {           \
        switch (op) {                                                                                   \
        case SUM: EACH(type, value_bytes, a + b);                                                       \
        case PROD: EACH(type, value_bytes, a * b);                                                      \
        }                                                                                               \
    }

REAL(reduce_long_double, long double, LONG_DOUBLE_BYTES)
COMPLEX(reduce_complex_long_double, long double _Complex, LONG_DOUBLE_BYTES)
#if HAS_QUAD
REAL(reduce_quad, quad, sizeof(quad))
COMPLEX(reduce_complex_quad, complex_quad, sizeof(quad))
#endif

/* MPI 5.0, section 6.9.4: of equal values the lowest index counts. */
static void reduce_long_double_int(int op, size_t count, const char *left, const char *right, char *into) {
    const size_t bytes = sizeof(long double) + sizeof(int);
    for (size_t i = 0; i < count; i++) {
        long double a, b;
        int index_a, index_b;
        memcpy(&a, left + i * bytes, sizeof a);
        memcpy(&b, right + i * bytes, sizeof b);
        memcpy(&index_a, left + i * bytes + sizeof a, sizeof index_a);
        memcpy(&index_b, right + i * bytes + sizeof b, sizeof index_b);
        int take_left = op == MAXLOC ? a > b : a < b;
        if (a == b) take_left = index_a <= index_b;
        memmove(into + i * bytes, (take_left ? left : right) + i * bytes, bytes);
    }
}

void outboard_reduce_extended(int kind, int op, size_t count, const char *left, const char *right, char *into) {
    switch (kind) {
    case LONG_DOUBLE: reduce_long_double(op, count, left, right, into); break;
    case COMPLEX_LONG_DOUBLE: reduce_complex_long_double(op, count, left, right, into); break;
    case LONG_DOUBLE_INT: reduce_long_double_int(op, count, left, right, into); break;
#if HAS_QUAD
    case QUAD: reduce_quad(op, count, left, right, into); break;
    case COMPLEX_QUAD: reduce_complex_quad(op, count, left, right, into); break;
#endif
    }
}
