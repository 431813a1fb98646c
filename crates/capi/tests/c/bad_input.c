/* Wrong arguments: every one is an error with a sentence, and none a crash. */
#include "check.h"

static void *other_thread(void *unused) {
    (void)unused;
    IS(strcmp(hydrant_last_error(), ""), 0);
    return NULL;
}

int main(void) {
    FAILS(hydrant_join(NULL), HYDRANT_ERROR_NULL, "hydrant_join: the place of the job is null");
    begin();
    void *own;
    char data[64] = {0};
    hydrant_memory *memory = shared(64, &own);
    FAILS(hydrant_put(NULL, 0, 0, data, 8), HYDRANT_ERROR_NULL, "the handle of memory is null");
    FAILS(hydrant_put(memory, 0, 0, NULL, 8), HYDRANT_ERROR_NULL, "hydrant_put: the source is null");
    WORKS(hydrant_put(memory, 0, 0, NULL, 0));
    FAILS(hydrant_get(memory, 0, 0, NULL, 8), HYDRANT_ERROR_NULL, "hydrant_get: the target is null");
    FAILS(hydrant_put(memory, ranks, 0, data, 8), HYDRANT_ERROR_RANK, "is out of range: the job has ranks 0 to");
    FAILS(hydrant_put(memory, UINT32_MAX, 0, data, 8), HYDRANT_ERROR_RANK, "out of range");
    FAILS(hydrant_put(memory, right, 57, data, 8), HYDRANT_ERROR_BOUNDS, "8 elements at index 57 are out of bounds: there are 64");
    FAILS(hydrant_put(memory, right, SIZE_MAX - 3, data, 8), HYDRANT_ERROR_BOUNDS, "out of bounds");
    FAILS(hydrant_put(memory, right, 0, data, SIZE_MAX), HYDRANT_ERROR_OVERFLOW, "more bytes than any memory");
    FAILS(hydrant_put(memory, me, 0, (char *)own + 4, 8), HYDRANT_ERROR_OVERLAP, "overlap");
    hydrant_operation *operation = NULL;
    FAILS(hydrant_put_nb(memory, ranks, 0, data, 8, &operation), HYDRANT_ERROR_RANK, "out of range");
    FAILS(hydrant_put_nb(memory, right, 60, data, 8, &operation), HYDRANT_ERROR_BOUNDS, "out of bounds");
    FAILS(hydrant_put_nb(memory, right, 0, data, 8, NULL), HYDRANT_ERROR_NULL, "operation");
    FAILS(hydrant_put_nbi(memory, right, 60, data, 8), HYDRANT_ERROR_BOUNDS, "out of bounds");
    FAILS(hydrant_get_nb(memory, right, 0, NULL, 8, &operation), HYDRANT_ERROR_NULL, "target");
    /* Pointers that are no handles, and handles of other things. */
    int nothing = 0;
    FAILS(hydrant_put((hydrant_memory *)(void *)&nothing, 0, 0, data, 8), HYDRANT_ERROR_HANDLE, "a handle of memory is needed");
    FAILS(hydrant_put((hydrant_memory *)(void *)world, 0, 0, data, 8), HYDRANT_ERROR_HANDLE, "this one is of a team");
    FAILS(hydrant_barrier((hydrant_team *)(void *)memory), HYDRANT_ERROR_HANDLE, "a handle of a team is needed, and this one is of memory");
    FAILS(hydrant_quiet((hydrant_job *)(uintptr_t)UINTPTR_MAX), HYDRANT_ERROR_HANDLE, "a handle of a job is needed");
    hydrant_operation *foreign = (hydrant_operation *)(void *)memory;
    FAILS(hydrant_wait(&foreign), HYDRANT_ERROR_HANDLE, "a handle of an operation is needed");
    CHECK(foreign, "it stays");
    FAILS(hydrant_wait(NULL), HYDRANT_ERROR_NULL, "operation");
    operation = NULL;
    WORKS(hydrant_wait(&operation));
    WORKS(hydrant_wait_local(NULL));
    WORKS(hydrant_wait_all(NULL, 0));
    size_t index;
    FAILS(hydrant_wait_any(&operation, 0, &index), HYDRANT_ERROR_ARGUMENT, "no operations");
    FAILS(hydrant_wait_any(&operation, 1, NULL), HYDRANT_ERROR_NULL, "index");
    FAILS(hydrant_test(&operation, NULL), HYDRANT_ERROR_NULL, "answer");
    FAILS(hydrant_rank(job, NULL), HYDRANT_ERROR_NULL, "the place of the rank");
    FAILS(hydrant_rank(NULL, &me), HYDRANT_ERROR_NULL, "the handle of a job is null");
    FAILS(hydrant_world(job, NULL), HYDRANT_ERROR_NULL, "team");
    FAILS(hydrant_host_ranks(job, NULL, 4, NULL), HYDRANT_ERROR_NULL, "list of ranks");
    FAILS(hydrant_get_capabilities(job, NULL, 4), HYDRANT_ERROR_NULL, "capabilities");
    FAILS(hydrant_check_present(job, ranks), HYDRANT_ERROR_RANK, "out of range");
    FAILS(hydrant_alloc(job, 8, NULL), HYDRANT_ERROR_NULL, "the place of the memory");
    FAILS(hydrant_free(NULL), HYDRANT_ERROR_NULL, "the handle of memory is null");
    hydrant_exposed *lent;
    FAILS(hydrant_expose(job, NULL, 8, &lent), HYDRANT_ERROR_NULL, "buffer");
    FAILS(hydrant_put_to(job, NULL, data, 8), HYDRANT_ERROR_NULL, "pointer");
    FAILS(hydrant_broadcast(world, 0, NULL, 8), HYDRANT_ERROR_NULL, "the data is null");
    FAILS(hydrant_all_gather(world, data, SIZE_MAX / 2, data), ranks > 2 ? HYDRANT_ERROR_OVERFLOW : HYDRANT_ERROR_OVERLAP, "");
    FAILS(hydrant_gather_v(world, me, data, 1, data, NULL, NULL), HYDRANT_ERROR_NULL, "counts");
    /* The sentence is this thread's own. */
    pthread_t thread;
    IS(pthread_create(&thread, NULL, other_thread, NULL), 0);
    IS(pthread_join(thread, NULL), 0);
    CHECK(strstr(hydrant_last_error(), "counts"), "it stays");
    /* Each status has a name and a text. */
    for (int status = 0; status >= HYDRANT_ERROR_FULL; status--) {
        CHECK(strncmp(hydrant_error_name(status), "HYDRANT_", 8) == 0, "%d", status);
        CHECK(strcmp(hydrant_strerror(status), hydrant_strerror(1)) != 0, "%d", status);
    }
    IS(strcmp(hydrant_error_name(HYDRANT_ERROR_FULL - 1), "unknown"), 0);
    IS(strcmp(hydrant_strerror(7), "no status of Hydrant"), 0);
    barrier();
    return end();
}
