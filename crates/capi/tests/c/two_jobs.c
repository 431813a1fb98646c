/* A process that nobody launched may join several jobs, each of one rank. What belongs to one is refused by the other. */
#include "check.h"

int main(void) {
    begin();
    void *own;
    hydrant_job *second = NULL;
    hydrant_memory *memory = shared(64, &own), *other = NULL;
    WORKS(hydrant_join(&second));
    CHECK(second != job, "another handle");
    WORKS(hydrant_alloc(second, 64, &other));
    uint64_t word = 5;
    hydrant_section all = {.start = 0, .run = 8};
    hydrant_pointer pointer;
    FAILS(hydrant_put_signal(memory, 0, 0, &word, 8, other, 0, HYDRANT_SIGNAL_SET, 1), HYDRANT_ERROR_HANDLE, "another job");
    FAILS(hydrant_put_section_signal(memory, 0, &all, &word, &all, other, 0, HYDRANT_SIGNAL_SET, 1), HYDRANT_ERROR_HANDLE,
          "another job");
    IS(*(uint64_t *)own, 0);
    WORKS(hydrant_memory_pointer(memory, 0, 0, &pointer));
    FAILS(hydrant_put_to(second, &pointer, &word, 8), HYDRANT_ERROR_POINTER, "another job");
    WORKS(hydrant_put_to(job, &pointer, &word, 8));
    IS(*(uint64_t *)own, 5);
    /* The end of one leaves the other. */
    WORKS(hydrant_finalize(second));
    FAILS(hydrant_put(other, 0, 0, &word, 8), HYDRANT_ERROR_HANDLE, "its job is over");
    WORKS(hydrant_put(memory, 0, 8, &word, 8));
    return end();
}
