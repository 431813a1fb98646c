/* Puts with signals, and waits for words. */
#include "check.h"

static hydrant_memory *memory, *signals;
static unsigned char *own, *mine;
static volatile uint64_t *words;

static void put_signal(void) {
    for (int round = 1; round < 20; round++) {
        size_t bytes = (size_t)round * 1500;
        uint64_t found = 0;
        fill(mine, bytes, me, round);
        WORKS(hydrant_put_signal(memory, right, 0, mine, bytes, signals, 0, HYDRANT_SIGNAL_SET, (uint64_t)round));
        WORKS(hydrant_wait_until(signals, 0, HYDRANT_GE, (uint64_t)round, HYDRANT_FOREVER, &found));
        IS(found, round);
        IS(differs(own, bytes, left, round), -1);
        hydrant_operation *operation = NULL;
        barrier();
        fill(mine, bytes, me, round + 1);
        WORKS(hydrant_put_signal_nb(memory, right, 0, mine, bytes, signals, 8, HYDRANT_SIGNAL_ADD, 2, &operation));
        /* The source is free at once. */
        memset(mine, 0, bytes);
        WORKS(hydrant_wait_until(signals, 8, HYDRANT_EQ, 2 * (uint64_t)round, HYDRANT_FOREVER, NULL));
        IS(differs(own, bytes, left, round + 1), -1);
        WORKS(hydrant_wait(&operation));
        barrier();
    }
}

static void sections_and_pointers(void) {
    hydrant_section to = {.start = 10, .run = 10, .levels = &(hydrant_level){5, 20}, .level_count = 1};
    hydrant_section from = {.start = 0, .run = 50};
    fill(mine, 50, me, 30);
    WORKS(hydrant_put_section_signal(memory, right, &to, mine, &from, signals, 16, HYDRANT_SIGNAL_SET, 5));
    WORKS(hydrant_wait_until(signals, 16, HYDRANT_NE, 0, HYDRANT_FOREVER, NULL));
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 10; j++) IS(own[10 + i * 20 + j], pattern(left, 30, i * 10 + j));
    barrier();
    hydrant_pointer data, word;
    WORKS(hydrant_memory_pointer(memory, right, 100, &data));
    WORKS(hydrant_memory_pointer(signals, right, 24, &word));
    fill(mine, 1000, me, 31);
    WORKS(hydrant_put_signal_to(job, &data, mine, 1000, &word, HYDRANT_SIGNAL_ADD, 3));
    WORKS(hydrant_wait_until(signals, 24, HYDRANT_EQ, 3, HYDRANT_FOREVER, NULL));
    IS(differs(own + 100, 1000, left, 31), -1);
    barrier();
    hydrant_operation *operation = NULL;
    fill(mine, 1000, me, 32);
    WORKS(hydrant_put_signal_to_nb(job, &data, mine, 1000, &word, HYDRANT_SIGNAL_ADD, 3, &operation));
    WORKS(hydrant_wait_until(signals, 24, HYDRANT_EQ, 6, HYDRANT_FOREVER, NULL));
    IS(differs(own + 100, 1000, left, 32), -1);
    WORKS(hydrant_wait(&operation));
    if (ranks > 1) {
        hydrant_pointer elsewhere;
        WORKS(hydrant_memory_pointer(signals, me, 24, &elsewhere));
        FAILS(hydrant_put_signal_to(job, &data, mine, 8, &elsewhere, HYDRANT_SIGNAL_SET, 1), HYDRANT_ERROR_ARGUMENT, "go together");
    }
    barrier();
}

static void waits(void) {
    size_t offsets[] = {64, 80, 96}, index = 99;
    uint64_t found = 0, all[3];
    bool met = true;
    WORKS(hydrant_test_until(signals, 64, HYDRANT_EQ, 1, &met, NULL));
    IS(met, 0);
    WORKS(hydrant_test_until_any(signals, offsets, 3, HYDRANT_GT, 6, &met, &index, &found));
    IS(met, 0);
    FAILS(hydrant_wait_until(signals, 64, HYDRANT_EQ, 1, 1000000, NULL), HYDRANT_ERROR_TIMEOUT, "within 1000000 ns");
    FAILS(hydrant_wait_until_any(signals, offsets, 3, HYDRANT_EQ, 1, 1000000, &index, &found), HYDRANT_ERROR_TIMEOUT, "within");
    barrier();
    WORKS(hydrant_signal(signals, right, 80, HYDRANT_SIGNAL_SET, 7));
    WORKS(hydrant_wait_until_any(signals, offsets, 3, HYDRANT_NE, 0, HYDRANT_FOREVER, &index, &found));
    IS(index, 1);
    IS(found, 7);
    WORKS(hydrant_test_until_any(signals, offsets, 3, HYDRANT_GT, 6, &met, NULL, NULL));
    IS(met, 1);
    WORKS(hydrant_test_until(signals, 80, HYDRANT_LE, 7, &met, &found));
    IS(met, 1);
    IS(found, 7);
    WORKS(hydrant_test_until(signals, 80, HYDRANT_LT, 7, &met, &found));
    IS(met, 0);
    barrier();
    WORKS(hydrant_signal(signals, right, 64, HYDRANT_SIGNAL_ADD, 8));
    WORKS(hydrant_signal(signals, right, 96, HYDRANT_SIGNAL_ADD, 9));
    WORKS(hydrant_wait_until_all(signals, offsets, 3, HYDRANT_GE, 7, all));
    IS(all[0] + all[1] + all[2], 24);
    WORKS(hydrant_wait_until_all(signals, offsets, 3, HYDRANT_GE, 7, NULL));
    barrier();
    FAILS(hydrant_wait_until(signals, 4, HYDRANT_EQ, 1, 0, NULL), HYDRANT_ERROR_ALIGNMENT, "multiple of 8");
    FAILS(hydrant_wait_until(signals, 128, HYDRANT_EQ, 1, 0, NULL), HYDRANT_ERROR_BOUNDS, "there are 128");
    FAILS(hydrant_wait_until(signals, 0, 77, 1, 0, NULL), HYDRANT_ERROR_ARGUMENT, "77 is no comparison");
    FAILS(hydrant_wait_until_any(signals, offsets, 0, HYDRANT_EQ, 1, 0, NULL, NULL), HYDRANT_ERROR_ARGUMENT, "no words");
    FAILS(hydrant_signal(signals, right, 0, 3, 1), HYDRANT_ERROR_ARGUMENT, "no change");
    FAILS(hydrant_put_signal(memory, right, 0, mine, 8, signals, 128, HYDRANT_SIGNAL_SET, 1), HYDRANT_ERROR_BOUNDS, "out of bounds");
    FAILS(hydrant_put_signal(memory, ranks, 0, mine, 8, signals, 0, HYDRANT_SIGNAL_SET, 1), HYDRANT_ERROR_RANK, "out of range");
    barrier();
}

int main(void) {
    begin();
    void *at;
    memory = shared(1 << 16, &own);
    signals = shared(128, &at);
    words = at;
    IS(words[0], 0);
    barrier();
    mine = room(1 << 16);
    put_signal();
    sections_and_pointers();
    waits();
    free(mine);
    return end();
}
