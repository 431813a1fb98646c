/* Shared by the programs: checks, and a job that begins and ends. */
#ifndef CHECK_H
#define CHECK_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hydrant.h"

#define UNUSED __attribute__((unused))

static hydrant_job *job UNUSED;
static hydrant_team *world UNUSED;
static uint32_t me UNUSED, ranks UNUSED, right UNUSED, left UNUSED;

#define CHECK(condition, ...) do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: rank %u: %s: ", __FILE__, __LINE__, me, #condition); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, " (last error: %s)\n", hydrant_last_error()); \
            _exit(1); \
        } \
    } while (0)

/* Checks a number. */
#define IS(value, wanted) do { \
        long long is_ = (long long)(value), wanted_ = (long long)(wanted); \
        CHECK(is_ == wanted_, "%s is %lld, and not %lld", #value, is_, wanted_); \
    } while (0)

/* Checks that a call succeeds. */
#define WORKS(call) do { \
        int status_ = (call); \
        CHECK(status_ == HYDRANT_SUCCESS, "%s is %s", #call, hydrant_error_name(status_)); \
    } while (0)

/* Checks the status of a call that fails, and that its sentence has some words. */
#define FAILS(call, wanted, words) do { \
        int status_ = (call); \
        CHECK(status_ == (wanted), "%s is %s, and not %s", #call, hydrant_error_name(status_), #wanted); \
        CHECK(strstr(hydrant_last_error(), words), "%s does not say \"%s\"", #call, words); \
    } while (0)

static inline void begin(void) {
    WORKS(hydrant_join(&job));
    WORKS(hydrant_rank(job, &me));
    WORKS(hydrant_size(job, &ranks));
    WORKS(hydrant_world(job, &world));
    right = (me + 1) % ranks;
    left = (me + ranks - 1) % ranks;
}

static inline void barrier(void) { WORKS(hydrant_barrier(world)); }

static inline int end(void) {
    WORKS(hydrant_finalize(job));
    if (me == 0) puts("ok");
    return 0;
}

/* The byte at an offset that a rank writes in a round. */
static inline unsigned char pattern(uint32_t rank, int round, size_t at) {
    return (unsigned char)(rank * 89 + (uint32_t)round * 31 + at * 7 + at / 251 + 1);
}

static inline void fill(void *at, size_t bytes, uint32_t rank, int round) {
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)at)[i] = pattern(rank, round, i);
}

/* The first offset that differs, or -1. */
static inline long differs(const void *at, size_t bytes, uint32_t rank, int round) {
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)at)[i] != pattern(rank, round, i)) return (long)i;
    return -1;
}

static inline void *room(size_t bytes) {
    void *at = calloc(bytes ? bytes : 1, 1);
    CHECK(at, "no memory for %zu bytes", bytes);
    return at;
}

/* Symmetric memory, and the address of this rank's part. */
static inline hydrant_memory *shared(size_t bytes, void *own) {
    hydrant_memory *memory = NULL;
    WORKS(hydrant_alloc(job, bytes, &memory));
    void *address = NULL;
    WORKS(hydrant_address(memory, me, &address));
    CHECK(address, "the own part is mapped");
    *(void **)own = address;
    return memory;
}

#endif
