/* The three memory functions a freestanding compiler may call. Dropped by --gc-sections where a kernel uses none.
   Compiled with -fno-builtin, so that their loops are not turned back into calls of themselves. */
#include <stddef.h>

void *memset(void *to, int byte, size_t count) {
  unsigned char *out = to;
  for (size_t i = 0; i < count; i++) out[i] = (unsigned char)byte;
  return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t count) {
  unsigned char *out = to;
  const unsigned char *in = from;
  for (size_t i = 0; i < count; i++) out[i] = in[i];
  return to;
}

void *memmove(void *to, const void *from, size_t count) {
  unsigned char *out = to;
  const unsigned char *in = from;
  if (out < in) {
    for (size_t i = 0; i < count; i++) out[i] = in[i];
  } else {
    for (size_t i = count; i > 0; i--) out[i - 1] = in[i - 1];
  }
  return to;
}
