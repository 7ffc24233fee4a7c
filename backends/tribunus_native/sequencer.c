// Walks launch lists: see tribunus/plan/launch_list.py for the contract.
//
// Part 0 publishes a generation number; the other parts copy it when they have seen it.  A barrier counts arrivals; the
// last one opens it by a new phase number.  Waiting spins for a bounded time and then parks with futex, the only system
// call here; waking costs a system call only while somebody is parked.
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

typedef void step_function(int64_t, int64_t, int64_t, int64_t);

typedef struct {
  int64_t function, a0, a1, a2, a3;
} record;

// One cache line for each word that is waited on.  Zeroed before the first call.
typedef struct {
  uint32_t generation;        // of the replay, written by part 0
  uint32_t generation_parked; // threads parked on it
  uint32_t pad0[14];
  uint32_t halt;              // at byte 64: not 0 ends SERVE
  uint32_t pad1[15];
  uint32_t arrived;           // parts that reached the barrier
  uint32_t pad2[15];
  uint32_t phase;             // number of barriers passed
  uint32_t phase_parked;
  uint32_t pad3[14];
} sync_block;

typedef struct {
  int64_t seconds, nanoseconds;
} timespec;

constexpr int SPINS = 20000;
constexpr int64_t SERVE = 1;
constexpr int64_t WAIT_PRIVATE = 128, WAKE_PRIVATE = 129;

#if defined(__x86_64__)
INLINE void pause_cpu(void) { __asm__ volatile("pause"); }
INLINE void futex(uint32_t *word, int64_t operation, uint32_t value, const timespec *limit) {
  int64_t result = 202; // number of the call, then its answer
  register const timespec *timeout __asm__("r10") = limit;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"(word), "S"(operation), "d"((int64_t)value), "r"(timeout)
                   : "rcx", "r11", "memory");
}
#elif defined(__aarch64__)
INLINE void pause_cpu(void) { __asm__ volatile("yield"); }
INLINE void futex(uint32_t *word, int64_t operation, uint32_t value, const timespec *limit) {
  register int64_t x0 __asm__("x0") = (int64_t)word;
  register int64_t x1 __asm__("x1") = operation;
  register int64_t x2 __asm__("x2") = (int64_t)value;
  register const timespec *x3 __asm__("x3") = limit;
  register int64_t x8 __asm__("x8") = 98;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x1), "r"(x2), "r"(x3), "r"(x8) : "memory");
}
#endif

INLINE uint32_t read_word(uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

// Returns once *word differs from `old`, or *halt is not 0.  A parked thread looks at *halt ten times a second, so that
// whoever sets it need not wake anybody.
INLINE void wait_while(uint32_t *word, uint32_t *parked, uint32_t old, uint32_t *halt) {
  for (int spin = 0; spin < SPINS; spin++) {
    if (read_word(word) != old || read_word(halt) != 0) return;
    pause_cpu();
  }
  const timespec limit = {0, 100000000};
  __atomic_fetch_add(parked, 1, __ATOMIC_SEQ_CST);
  while (read_word(word) == old && read_word(halt) == 0) futex(word, WAIT_PRIVATE, old, &limit);
  __atomic_fetch_sub(parked, 1, __ATOMIC_SEQ_CST);
}

INLINE void publish(uint32_t *word, uint32_t *parked) {
  __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
  if (read_word(parked) != 0) futex(word, WAKE_PRIVATE, 0x7fffffff, 0);
}

INLINE void barrier(sync_block *sync, int64_t parts) {
  const uint32_t now = read_word(&sync->phase);
  if (__atomic_add_fetch(&sync->arrived, 1, __ATOMIC_SEQ_CST) == (uint32_t)parts) {
    __atomic_store_n(&sync->arrived, 0, __ATOMIC_SEQ_CST);
    publish(&sync->phase, &sync->phase_parked);
  } else {
    wait_while(&sync->phase, &sync->phase_parked, now, &sync->halt);
  }
}

INLINE void walk(const record *list, int64_t count, sync_block *sync, int64_t parts) {
  for (const record *r = list; r < list + count; r++) {
    if (r->function) ((step_function *)r->function)(r->a0, r->a1, r->a2, r->a3);
    else barrier(sync, parts);
  }
}

__attribute__((section(".text.kernel"), visibility("default"), used)) void kernel(
    void *const *buffers, const int64_t *params, int64_t part, int64_t parts) {
  const record *const list = buffers[part];
  const int64_t count = params[part];
  if (parts == 1) {
    for (const record *r = list; r < list + count; r++)
      if (r->function) ((step_function *)r->function)(r->a0, r->a1, r->a2, r->a3);
    return;
  }
  sync_block *const sync = buffers[parts];
  if (params[parts] != SERVE) {
    publish(&sync->generation, &sync->generation_parked);
    if (read_word(&sync->halt) != 0) return; // the others have left
    walk(list, count, sync, parts);
    barrier(sync, parts); // every part is done
    return;
  }
  // No replay ends without this part, so it counts from the first: none is missed, however late the thread starts.
  uint32_t served = 0;
  for (;;) {
    wait_while(&sync->generation, &sync->generation_parked, served, &sync->halt);
    if (read_word(&sync->halt) != 0) return;
    served++;
    walk(list, count, sync, parts);
    barrier(sync, parts);
  }
}
