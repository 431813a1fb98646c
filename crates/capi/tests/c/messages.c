/* Active messages: requests, replies, long requests, and what handlers may not do. */
#include "check.h"

static hydrant_memory *memory;
static unsigned char *own;
static uint32_t add, answer, arrived, curious;
static uint64_t sum, answers;
static unsigned char got[4096];
static size_t got_bytes;
static int wrong;
static hydrant_message *kept;

/* Adds its arguments, and replies with their sum and the payload. */
static void on_add(void *user, hydrant_message *message, const uint64_t *arguments, size_t count, const void *payload, size_t bytes) {
    uint32_t source = 99;
    uint64_t all = 0;
    if (hydrant_message_source(message, &source) != HYDRANT_SUCCESS || source != left) wrong++;
    for (size_t i = 0; i < count; i++) all += arguments[i];
    __atomic_add_fetch((uint64_t *)user, all, __ATOMIC_SEQ_CST);
    uint64_t told[2] = {all, source};
    if (hydrant_reply(message, answer, told, 2, payload, bytes) != HYDRANT_SUCCESS) wrong++;
    /* A second reply is refused. */
    if (hydrant_reply(message, answer, told, 2, NULL, 0) != HYDRANT_ERROR_REPLY) wrong++;
}

static void on_answer(void *user, hydrant_message *message, const uint64_t *arguments, size_t count, const void *payload, size_t bytes) {
    if (count != 2 || arguments[1] != me || bytes > sizeof got) wrong++;
    memcpy(got, payload, bytes);
    got_bytes = bytes;
    __atomic_add_fetch((uint64_t *)user, arguments[0], __ATOMIC_SEQ_CST);
    if (hydrant_reply(message, add, NULL, 0, NULL, 0) != HYDRANT_ERROR_REPLY) wrong++;
    kept = message;
}

static void on_arrived(void *user, hydrant_message *message, const uint64_t *arguments, size_t count, const void *payload, size_t bytes) {
    (void)user, (void)message, (void)payload;
    if (count != 3 || arguments[0] != 5 || arguments[1] != 100 || arguments[2] != 3000 || bytes != 0) wrong++;
    if (differs(own + 100, 3000, left, 8) != -1) wrong++;
    __atomic_add_fetch(&sum, 1, __ATOMIC_SEQ_CST);
}

/* Calls what waits. */
static void on_curious(void *user, hydrant_message *message, const uint64_t *arguments, size_t count, const void *payload, size_t bytes) {
    (void)user, (void)message, (void)arguments, (void)count, (void)payload, (void)bytes;
    hydrant_memory *more;
    uint64_t word = 3;
    if (hydrant_barrier(world) != HYDRANT_ERROR_IN_HANDLER) wrong++;
    if (!strstr(hydrant_last_error(), "a handler may not wait")) wrong++;
    if (hydrant_alloc(job, 8, &more) != HYDRANT_ERROR_IN_HANDLER) wrong++;
    if (hydrant_quiet(job) != HYDRANT_ERROR_IN_HANDLER) wrong++;
    if (hydrant_finalize(job) != HYDRANT_ERROR_IN_HANDLER) wrong++;
    if (hydrant_free(memory) != HYDRANT_ERROR_IN_HANDLER) wrong++;
    /* Own memory is mapped. */
    if (hydrant_put(memory, me, 0, &word, 8) != HYDRANT_SUCCESS) wrong++;
    __atomic_add_fetch(&sum, 1, __ATOMIC_SEQ_CST);
}

static void until(uint64_t *word, uint64_t wanted) {
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != wanted) WORKS(hydrant_poll(job, NULL));
}

int main(void) {
    begin();
    memory = shared(1 << 16, &own);
    WORKS(hydrant_register_handler(job, on_add, &sum, &add));
    WORKS(hydrant_register_handler(job, on_answer, &answers, &answer));
    WORKS(hydrant_register_handler(job, on_arrived, NULL, &arrived));
    WORKS(hydrant_register_handler(job, on_curious, NULL, &curious));
    CHECK(add != answer, "handlers have numbers");
    FAILS(hydrant_register_handler(job, NULL, NULL, &add), HYDRANT_ERROR_NULL, "the function is null");
    uint64_t arguments[] = {1, 20, 300};
    unsigned char payload[1000];
    fill(payload, sizeof payload, me, 4);
    WORKS(hydrant_request(job, right, add, arguments, 3, payload, sizeof payload));
    until(&sum, 321);
    until(&answers, 321);
    IS(got_bytes, sizeof payload);
    IS(differs(got, got_bytes, me, 4), -1);
    barrier();
    for (int i = 0; i < 1000; i++) WORKS(hydrant_request(job, right, add, arguments, 1, NULL, 0));
    WORKS(hydrant_request_quiet(job));
    IS(answers, 1321);
    barrier();
    IS(sum, 1321);
    sum = 0;
    barrier();
    unsigned char *data = room(3000);
    fill(data, 3000, me, 8);
    WORKS(hydrant_request_long(memory, right, arrived, (uint64_t[]){5}, 1, 100, data, 3000));
    WORKS(hydrant_request_quiet(job));
    barrier();
    IS(sum, 1);
    barrier();
    WORKS(hydrant_request(job, right, curious, NULL, 0, NULL, 0));
    WORKS(hydrant_request_quiet(job));
    barrier();
    IS(sum, 2);
    IS(wrong, 0);
    uint32_t source;
    FAILS(hydrant_message_source(kept, &source), HYDRANT_ERROR_HANDLE, "in its handler alone");
    FAILS(hydrant_reply(kept, answer, NULL, 0, NULL, 0), HYDRANT_ERROR_HANDLE, "in its handler alone");
    FAILS(hydrant_reply(NULL, answer, NULL, 0, NULL, 0), HYDRANT_ERROR_NULL, "message");
    FAILS(hydrant_request(job, right, 900, NULL, 0, NULL, 0), HYDRANT_ERROR_HANDLER, "number 900");
    FAILS(hydrant_request(job, ranks, add, NULL, 0, NULL, 0), HYDRANT_ERROR_RANK, "out of range");
    FAILS(hydrant_request(job, right, add, NULL, 2, NULL, 0), HYDRANT_ERROR_NULL, "arguments");
    hydrant_capabilities known;
    WORKS(hydrant_get_capabilities(job, &known, sizeof known));
    unsigned char *long_ = room(known.max_payload + 1);
    FAILS(hydrant_request(job, right, add, NULL, 0, long_, known.max_payload + 1), HYDRANT_ERROR_TOO_LONG, "above the limit");
    uint64_t many[256] = {0};
    FAILS(hydrant_request(job, right, add, many, known.max_arguments + 1, NULL, 0), HYDRANT_ERROR_TOO_LONG, "above the limit");
    FAILS(hydrant_request_long(memory, right, arrived, NULL, 0, 1 << 16, data, 1), HYDRANT_ERROR_BOUNDS, "out of bounds");
    free(long_);
    free(data);
    barrier();
    return end();
}
