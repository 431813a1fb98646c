/* Shared by the programs: checks, pseudo-random numbers, and memory of all processes. */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "armci.h"
#include "gpc.h"
#include "message.h"

#define UNUSED __attribute__((unused))

static int me UNUSED, processes UNUSED;

#define CHECK(condition, ...) do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: process %d: %s: ", __FILE__, __LINE__, me, #condition); \
            fprintf(stderr, __VA_ARGS__); \
            fputc('\n', stderr); \
            _exit(1); \
        } \
    } while (0)

/* Checks the result of a call. */
#define IS(call, wanted) do { \
        long is_ = (long)(call), wanted_ = (long)(wanted); \
        CHECK(is_ == wanted_, "%s is %ld, and not %ld", #call, is_, wanted_); \
    } while (0)

#define WORKS(call) IS(call, 0)

static inline void begin(void) {
    WORKS(ARMCI_Init());
    me = armci_msg_me();
    processes = armci_msg_nproc();
}

static inline int end(void) {
    ARMCI_Barrier();
    ARMCI_Finalize();
    if (me == 0) puts("ok");
    return 0;
}

/* Pseudo-random numbers, the same at every process with the same seed. */
static inline uint64_t draw(uint64_t *seed) {
    *seed = *seed * 0x5851f42d4c957f2dull + 0x14057b7ef767814full;
    return *seed >> 33;
}

/* A number from low to high, both included. */
static inline int between(uint64_t *seed, int low, int high) {
    return low + (int)(draw(seed) % (uint64_t)(high - low + 1));
}

/* The byte at an offset that a process writes in a round. */
static inline unsigned char pattern(int process, int round, size_t at) {
    return (unsigned char)(process * 89 + round * 31 + (int)(at * 7 + at / 251) + 1);
}

static inline void fill(void *at, size_t bytes, int process, int round) {
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)at)[i] = pattern(process, round, i);
}

/* The first offset that differs, or -1. */
static inline long differs(const void *at, size_t bytes, int process, int round) {
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)at)[i] != pattern(process, round, i)) return (long)i;
    return -1;
}

static inline void *room(size_t bytes) {
    void *at = calloc(bytes ? bytes : 1, 1);
    CHECK(at, "no memory for %zu bytes", bytes);
    return at;
}

/* Zeroed memory, with the same size at each process. */
static inline void **shared(size_t bytes) {
    void **all = room((size_t)processes * sizeof *all);
    WORKS(ARMCI_Malloc(all, (armci_size_t)bytes));
    if (bytes) memset(all[me], 0, bytes);
    ARMCI_Barrier();
    return all;
}

/* Frees memory from `shared`, after all processes are done with it. */
static inline void release(void **all) {
    ARMCI_Barrier();
    WORKS(ARMCI_Free(all[me]));
    free(all);
}

/* Waits until another process has written a number. */
static inline void until(volatile int *at, int wanted) {
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) != wanted) sched_yield();
}

#endif
