/* Puts and gets: blocking, with handles, without; by memory and by pointers. */
#include "check.h"

static const size_t SIZES[] = {0, 1, 7, 8, 100, 4096, 70001, 1 << 20};
#define MANY (sizeof SIZES / sizeof *SIZES)
#define MOST (1 << 20)

static hydrant_memory *memory;
static unsigned char *own, *mine, *got;

static void blocking(void) {
    for (size_t i = 0; i < MANY; i++) {
        size_t bytes = SIZES[i], at = MOST - bytes;
        fill(mine, bytes, me, (int)i);
        WORKS(hydrant_put(memory, right, at, mine, bytes));
        barrier();
        IS(differs(own + at, bytes, left, (int)i), -1);
        WORKS(hydrant_get(memory, right, at, got, bytes));
        IS(memcmp(got, mine, bytes), 0);
        barrier();
    }
}

static void with_handles(void) {
    hydrant_operation *operations[MANY];
    size_t at = 0;
    for (size_t i = 0; i + 1 < MANY; i++) {
        fill(mine + at, SIZES[i], me, (int)i + 20);
        WORKS(hydrant_put_nb(memory, right, at, mine + at, SIZES[i], &operations[i]));
        WORKS(hydrant_wait_local(operations[i]));
        at += SIZES[i];
    }
    WORKS(hydrant_wait_all(operations, MANY - 1));
    for (size_t i = 0; i + 1 < MANY; i++) CHECK(!operations[i], "operation %zu is over", i);
    barrier();
    at = 0;
    for (size_t i = 0; i + 1 < MANY; i++) {
        IS(differs(own + at, SIZES[i], left, (int)i + 20), -1);
        at += SIZES[i];
    }
    barrier();
    memset(got, 0, at);
    at = 0;
    for (size_t i = 0; i + 1 < MANY; i++) {
        WORKS(hydrant_get_nb(memory, right, at, got + at, SIZES[i], &operations[i]));
        at += SIZES[i];
    }
    /* One after the other, in the order in which they end. */
    int left_over = (int)MANY - 1, seen[MANY] = {0};
    while (left_over > 0) {
        size_t index = 99;
        size_t first = 0;
        while (first < MANY - 1 && seen[first]) first++;
        /* Operations that were seen are null, and a null one is complete. */
        WORKS(hydrant_wait_any(operations + first, MANY - 1 - first, &index));
        CHECK(index < MANY - 1 - first && !operations[first + index], "index %zu", index);
        if (!seen[first + index]) left_over--;
        else {
            /* A null operation comes first, so the list is made shorter by waiting for the rest. */
            for (size_t i = 0; i + 1 < MANY; i++) {
                WORKS(hydrant_wait(&operations[i]));
                seen[i] = 1;
            }
            left_over = 0;
        }
        seen[first + index] = 1;
    }
    IS(memcmp(got, mine, at), 0);
    bool done = false;
    fill(mine, MOST, me, 40);
    WORKS(hydrant_put_nb(memory, right, 0, mine, MOST, &operations[0]));
    while (!done) WORKS(hydrant_test(&operations[0], &done));
    CHECK(!operations[0], "the operation is over");
    WORKS(hydrant_test(&operations[0], &done));
    IS(done, 1);
    barrier();
    IS(differs(own, MOST, left, 40), -1);
    for (int i = 0; i < 3; i++)
        WORKS(hydrant_get_nb(memory, right, (size_t)i * 1000, got + i * 1000, 1000, &operations[i]));
    for (done = false; !done;) WORKS(hydrant_test_all(operations, 3, &done));
    IS(differs(got, 3000, me, 40), -1);
    barrier();
    /* A handle may be given up. */
    fill(mine, MOST, me, 41);
    WORKS(hydrant_put_nb(memory, right, 0, mine, MOST, &operations[0]));
    WORKS(hydrant_detach(&operations[0]));
    CHECK(!operations[0], "the handle is gone");
    WORKS(hydrant_quiet(job));
    barrier();
    IS(differs(own, MOST, left, 41), -1);
    barrier();
}

static void without_handles(void) {
    const size_t piece = 1000, pieces = 500;
    fill(mine, piece * pieces, me, 60);
    for (size_t i = 0; i < pieces; i++) WORKS(hydrant_put_nbi(memory, right, i * piece, mine + i * piece, piece));
    WORKS(hydrant_quiet(job));
    barrier();
    IS(differs(own, piece * pieces, left, 60), -1);
    memset(got, 0, piece * pieces);
    for (size_t i = 0; i < pieces; i++) WORKS(hydrant_get_nbi(memory, right, i * piece, got + i * piece, piece));
    WORKS(hydrant_fence(job));
    IS(differs(got, piece * pieces, me, 60), -1);
    barrier();
    /* The fence orders data and flag. */
    volatile uint64_t *flag = (volatile uint64_t *)(void *)(own + MOST - 8);
    *flag = 0;
    barrier();
    fill(mine, 100000, me, 61);
    WORKS(hydrant_put_nbi(memory, right, 0, mine, 100000));
    WORKS(hydrant_fence(job));
    uint64_t one = 1;
    WORKS(hydrant_put_nbi(memory, right, MOST - 8, &one, 8));
    WORKS(hydrant_quiet(job));
    WORKS(hydrant_wait_until(memory, MOST - 8, HYDRANT_EQ, 1, HYDRANT_FOREVER, NULL));
    IS(differs(own, 100000, left, 61), -1);
    barrier();
}

static void by_pointers(void) {
    unsigned char *buffer = room(MOST);
    hydrant_exposed *lent;
    hydrant_pointer pointers[2], theirs[2];
    WORKS(hydrant_expose(job, buffer, MOST, &lent));
    WORKS(hydrant_exposed_pointer(lent, 0, &pointers[0]));
    WORKS(hydrant_memory_pointer(memory, me, 0, &pointers[1]));
    hydrant_status status;
    WORKS(hydrant_send_receive(job, left, 1, pointers, sizeof pointers, right, 1, theirs, sizeof theirs, &status));
    IS(status.bytes, sizeof theirs);
    for (int kind = 0; kind < 2; kind++) {
        unsigned char *target = kind ? own : buffer;
        hydrant_operation *operation;
        fill(mine, MOST, me, 70 + kind);
        WORKS(hydrant_put_to_nb(job, &theirs[kind], mine, MOST, &operation));
        WORKS(hydrant_wait(&operation));
        barrier();
        IS(differs(target, MOST, left, 70 + kind), -1);
        memset(got, 0, MOST);
        WORKS(hydrant_get_from_nb(job, &theirs[kind], got, MOST, &operation));
        WORKS(hydrant_wait(&operation));
        IS(memcmp(got, mine, MOST), 0);
        barrier();
        fill(mine, 50000, me, 80 + kind);
        WORKS(hydrant_put_to_nbi(job, &theirs[kind], mine, 50000));
        WORKS(hydrant_quiet(job));
        barrier();
        IS(differs(target, 50000, left, 80 + kind), -1);
        WORKS(hydrant_get_from_nbi(job, &theirs[kind], got, 50000));
        WORKS(hydrant_quiet(job));
        IS(memcmp(got, mine, 50000), 0);
        barrier();
    }
    WORKS(hydrant_unexpose(lent));
    free(buffer);
}

int main(void) {
    begin();
    memory = shared(MOST, &own);
    mine = room(MOST);
    got = room(MOST);
    blocking();
    with_handles();
    without_handles();
    by_pointers();
    barrier();
    WORKS(hydrant_free(memory));
    free(mine);
    free(got);
    return end();
}
