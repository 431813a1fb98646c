/* What a rank knows about its job. */
#include "check.h"

int main(void) {
    IS(strcmp(hydrant_last_error(), ""), 0);
    begin();
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", HYDRANT_VERSION_MAJOR, HYDRANT_VERSION_MINOR, HYDRANT_VERSION_PATCH);
    IS(strcmp(version, hydrant_version()), 0);
    CHECK(me < ranks, "%u of %u", me, ranks);

    uint32_t here[64];
    size_t count = 0;
    WORKS(hydrant_host_ranks(job, here, 64, &count));
    CHECK(count >= 1 && count <= ranks, "%zu ranks here", count);
    int found = 0;
    for (size_t i = 0; i < count; i++) found += here[i] == me;
    IS(found, 1);
    /* The number is known without room for any. */
    size_t again = 0;
    WORKS(hydrant_host_ranks(job, NULL, 0, &again));
    IS(again, count);

    hydrant_capabilities known;
    memset(&known, 0x5a, sizeof known);
    WORKS(hydrant_get_capabilities(job, &known, sizeof known));
    const char *wanted = getenv("HYDRANT_CONDUIT");
    if (wanted && strcmp(wanted, "auto")) IS(strcmp(known.conduit, wanted), 0);
    CHECK(known.max_arguments >= 4 && known.max_payload >= 64, "%zu, %zu", known.max_arguments, known.max_payload);
    CHECK(known.heap >= 64 << 20, "%zu", known.heap);
    CHECK(known.max_tag > 1000, "%llu", (unsigned long long)known.max_tag);
    IS(known.anywhere, 0);
    /* A program of an older header has a shorter structure. */
    struct { char conduit[32]; uint32_t host_ranks, after; } shorter;
    memset(&shorter, 0x5a, sizeof shorter);
    WORKS(hydrant_get_capabilities(job, (hydrant_capabilities *)(void *)&shorter, 36));
    IS(shorter.host_ranks, known.host_ranks);
    IS(shorter.after, 0x5a5a5a5a);

    uint64_t first = 0, second = 0;
    WORKS(hydrant_now(job, &first));
    WORKS(hydrant_now(job, &second));
    CHECK(second >= first, "time goes on");
    size_t handled = 1234567;
    WORKS(hydrant_poll(job, &handled));
    CHECK(handled < 1234567, "%zu", handled);
    WORKS(hydrant_poll(job, NULL));
    for (uint32_t rank = 0; rank < ranks; rank++) WORKS(hydrant_check_present(job, rank));

    void *own;
    hydrant_memory *memory = shared(64, &own);
    uint64_t word = 7;
    for (int i = 0; i < 3; i++) WORKS(hydrant_put(memory, right, 8, &word, 8));
    hydrant_counter counters[128];
    WORKS(hydrant_counters(job, counters, 128, &count));
    CHECK(count > 20 && count <= 128, "%zu counters", count);
    uint64_t puts_ = 0, bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(counters[i].name, "puts")) puts_ = counters[i].value;
        if (!strcmp(counters[i].name, "put_bytes")) bytes = counters[i].value;
    }
    IS(puts_, 3);
    IS(bytes, 24);
    barrier();

    /* What is still open ends with the job. */
    static char lent_buffer[1000], received[8];
    hydrant_exposed *lent = NULL;
    hydrant_loan *loan = NULL;
    hydrant_locks *locks = NULL;
    hydrant_team *part = NULL;
    hydrant_operation *open = NULL;
    WORKS(hydrant_expose(job, lent_buffer, sizeof lent_buffer, &lent));
    WORKS(hydrant_lend_anywhere(job, lent_buffer, sizeof lent_buffer, &loan));
    WORKS(hydrant_locks_make(job, 1, &locks));
    WORKS(hydrant_team_split(world, me % 2, 0, &part));
    WORKS(hydrant_receive_nb(job, HYDRANT_ANY_SOURCE, 77, received, sizeof received, NULL, &open));
    WORKS(hydrant_put_nbi(memory, right, 16, &word, 8));

    /* Handles of a job that is over are errors. */
    hydrant_job *over = job;
    hydrant_team *team = world;
    WORKS(hydrant_finalize(job));
    FAILS(hydrant_finalize(over), HYDRANT_ERROR_HANDLE, "its job is over");
    uint32_t rank = 9;
    FAILS(hydrant_rank(over, &rank), HYDRANT_ERROR_HANDLE, "hydrant_rank: this handle of a job");
    IS(rank, 9);
    FAILS(hydrant_put(memory, 0, 0, &word, 8), HYDRANT_ERROR_HANDLE, "hydrant_put: this handle of memory");
    FAILS(hydrant_barrier(team), HYDRANT_ERROR_HANDLE, "this handle of a team");
    FAILS(hydrant_barrier(part), HYDRANT_ERROR_HANDLE, "this handle of a team");
    FAILS(hydrant_wait(&open), HYDRANT_ERROR_HANDLE, "this handle of an operation");
    FAILS(hydrant_lock(locks, 0, 0), HYDRANT_ERROR_HANDLE, "this handle of locks");
    FAILS(hydrant_unexpose(lent), HYDRANT_ERROR_HANDLE, "this handle of exposed memory");
    FAILS(hydrant_end_loan(loan), HYDRANT_ERROR_HANDLE, "this handle of a loan");
    if (me == 0) puts("ok");
    return 0;
}
