/* Functions that Rust's ThreadSanitizer calls and that an older runtime of the C compiler lacks. That runtime
   intercepts the functions under their usual names. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>
#include <string.h>

#define UNWATCHED __attribute__((no_sanitize_thread))

UNWATCHED void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return memcpy(to, from, bytes); }
UNWATCHED void *__tsan_memmove(void *to, const void *from, size_t bytes) { return memmove(to, from, bytes); }
UNWATCHED void *__tsan_memset(void *to, int byte, size_t bytes) { return memset(to, byte, bytes); }
