/* What Rust's ThreadSanitizer calls and the C compiler's runtime, if it is older, does not have: it watches these by their plain names. */
#include <stddef.h>
#include <string.h>

#define UNWATCHED __attribute__((no_sanitize_thread))

UNWATCHED void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return memcpy(to, from, bytes); }
UNWATCHED void *__tsan_memmove(void *to, const void *from, size_t bytes) { return memmove(to, from, bytes); }
UNWATCHED void *__tsan_memset(void *to, int byte, size_t bytes) { return memset(to, byte, bytes); }
