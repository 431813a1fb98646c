/* Locks: a sum that is not atomic comes out right. */
#include "check.h"

int main(void) {
    begin();
    void *own;
    hydrant_memory *memory = shared(64, &own);
    hydrant_locks *locks = NULL;
    WORKS(hydrant_locks_make(job, me == 0 ? 2 : 1, &locks));
    uint32_t last = ranks - 1;
    for (int i = 0; i < 50; i++) {
        uint64_t sum = 0;
        WORKS(hydrant_lock(locks, last, 0));
        WORKS(hydrant_get(memory, 0, 8, &sum, 8));
        sum++;
        WORKS(hydrant_put(memory, 0, 8, &sum, 8));
        WORKS(hydrant_unlock(locks, last, 0));
    }
    barrier();
    uint64_t sum = 0;
    WORKS(hydrant_get(memory, 0, 8, &sum, 8));
    IS(sum, 50 * ranks);
    barrier();
    FAILS(hydrant_unlock(locks, 0, 0), HYDRANT_ERROR_LOCK, "not held");
    FAILS(hydrant_lock(locks, 0, 2), HYDRANT_ERROR_BOUNDS, "out of bounds");
    FAILS(hydrant_lock(locks, ranks, 0), HYDRANT_ERROR_RANK, "out of range");
    if (me == 0) {
        WORKS(hydrant_lock(locks, 0, 1));
        FAILS(hydrant_lock(locks, 0, 1), HYDRANT_ERROR_LOCK, "held already");
    }
    FAILS(hydrant_locks_free(locks), HYDRANT_ERROR_LOCK, "held already");
    if (me == 0) WORKS(hydrant_unlock(locks, 0, 1));
    WORKS(hydrant_locks_free(locks));
    FAILS(hydrant_lock(locks, 0, 0), HYDRANT_ERROR_HANDLE, "was freed");
    return end();
}
