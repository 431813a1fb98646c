/* Threads that use the same memory at once, each with its own operations, while handlers run. */
#include "check.h"

#define THREADS 4
#define PART 20000
#define ROUNDS 30

static hydrant_memory *memory, *other;
static unsigned char *own;
static uint32_t count_up;
static uint64_t counted;

static void on_count(void *user, hydrant_message *message, const uint64_t *arguments, size_t count, const void *payload, size_t bytes) {
    (void)user, (void)message, (void)arguments, (void)count, (void)payload, (void)bytes;
    uint64_t word = 1;
    /* A handler uses memory in the middle of another call of its thread. */
    if (hydrant_put(other, me, 8, &word, 8) == HYDRANT_SUCCESS) __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
}

static void *work(void *argument) {
    size_t number = (size_t)argument, at = number * PART;
    unsigned char *mine = room(PART), *got = room(PART);
    for (int round = 0; round < ROUNDS; round++) {
        hydrant_operation *operation = NULL;
        fill(mine, PART, me + (uint32_t)number, round);
        switch (round % 3) {
        case 0:
            WORKS(hydrant_put(memory, right, at, mine, PART));
            break;
        case 1:
            WORKS(hydrant_put_nb(memory, right, at, mine, PART, &operation));
            WORKS(hydrant_wait(&operation));
            break;
        default:
            for (size_t i = 0; i < PART; i += 500) WORKS(hydrant_put_nbi(memory, right, at + i, mine + i, 500));
            WORKS(hydrant_quiet(job));
        }
        WORKS(hydrant_request(job, right, count_up, NULL, 0, NULL, 0));
        WORKS(hydrant_get(memory, right, at, got, PART));
        IS(memcmp(got, mine, PART), 0);
        WORKS(hydrant_fetch_add_u64(other, right, 0, 1, NULL));
        /* The sentence of a thread's error is its own. */
        char words[32];
        snprintf(words, sizeof words, "at index %zu ", number + 1000);
        FAILS(hydrant_put(other, right, number + 1000, mine, 8), HYDRANT_ERROR_BOUNDS, words);
    }
    free(mine);
    free(got);
    return NULL;
}

int main(void) {
    begin();
    void *unused;
    memory = shared(THREADS * PART, &own);
    other = shared(64, &unused);
    WORKS(hydrant_register_handler(job, on_count, NULL, &count_up));
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) IS(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (size_t i = 0; i < THREADS; i++) IS(pthread_join(threads[i], NULL), 0);
    WORKS(hydrant_request_quiet(job));
    barrier();
    uint64_t sum = 0;
    WORKS(hydrant_load_u64(other, me, 0, &sum));
    IS(sum, THREADS * ROUNDS);
    IS(counted, THREADS * ROUNDS);
    for (uint32_t i = 0; i < THREADS; i++) IS(differs(own + i * PART, PART, left + i, ROUNDS - 1), -1);
    barrier();
    return end();
}
