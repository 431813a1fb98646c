/* Two-sided messages. */
#include "check.h"

int main(void) {
    begin();
    const size_t sizes[] = {0, 1, 100, 5000, 300000, 3000000};
    unsigned char *mine = room(3000000), *got = room(3000001);
    hydrant_status status;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t bytes = sizes[i];
        fill(mine, bytes, me, (int)i);
        WORKS(hydrant_send_receive(job, right, i, mine, bytes, left, i, got, bytes + 1, &status));
        IS(status.source, left);
        IS(status.tag, i);
        IS(status.bytes, bytes);
        IS(differs(got, bytes, left, (int)i), -1);
        hydrant_operation *operations[2];
        memset(got, 0, bytes);
        memset(&status, 0xff, sizeof status);
        WORKS(hydrant_receive_nb(job, HYDRANT_ANY_SOURCE, HYDRANT_ANY_TAG, got, bytes, &status, &operations[0]));
        WORKS(hydrant_send_nb(job, right, 50 + i, mine, bytes, &operations[1]));
        WORKS(hydrant_wait_all(operations, 2));
        IS(status.source, left);
        IS(status.tag, 50 + i);
        IS(status.bytes, bytes);
        IS(differs(got, bytes, left, (int)i), -1);
        barrier();
    }
    if (ranks > 1) {
        /* Messages of one rank to another come in the order sent. */
        for (uint64_t i = 0; i < 100; i++) WORKS(hydrant_send(job, right, 7, &i, sizeof i));
        for (uint64_t i = 0; i < 100; i++) {
            uint64_t number = 999;
            WORKS(hydrant_receive(job, left, HYDRANT_ANY_TAG, &number, sizeof number, NULL));
            IS(number, i);
        }
        bool found = true;
        WORKS(hydrant_try_probe(job, left, 8, &found, NULL));
        IS(found, 0);
        barrier();
        WORKS(hydrant_send(job, right, 8, mine, 77));
        WORKS(hydrant_probe(job, HYDRANT_ANY_SOURCE, 8, &status));
        IS(status.bytes, 77);
        WORKS(hydrant_try_probe(job, left, HYDRANT_ANY_TAG, &found, &status));
        IS(found, 1);
        IS(status.tag, 8);
        WORKS(hydrant_receive(job, left, 8, got, 77, NULL));
        barrier();
        /* One of several, of which the second comes first. */
        hydrant_operation *both[2];
        char two[2][16];
        size_t index = 99;
        WORKS(hydrant_receive_nb(job, left, 20, two[0], 16, NULL, &both[0]));
        WORKS(hydrant_receive_nb(job, left, 21, two[1], 16, NULL, &both[1]));
        barrier();
        WORKS(hydrant_send(job, right, 21, "second", 7));
        WORKS(hydrant_wait_any(both, 2, &index));
        IS(index, 1);
        CHECK(both[0] && !both[1], "only the second is over");
        IS(strcmp(two[1], "second"), 0);
        barrier();
        WORKS(hydrant_send(job, right, 20, "first", 6));
        WORKS(hydrant_wait_any(both, 1, &index));
        IS(index, 0);
        IS(strcmp(two[0], "first"), 0);
        /* A null operation is complete. */
        WORKS(hydrant_wait_any(both, 2, &index));
        IS(index, 0);
        /* An operation that fails is over. */
        WORKS(hydrant_receive_nb(job, left, 22, two[0], 4, NULL, &both[0]));
        WORKS(hydrant_receive_nb(job, left, 23, two[1], 4, NULL, &both[1]));
        barrier();
        WORKS(hydrant_send(job, right, 22, "too long", 9));
        FAILS(hydrant_wait_any(both, 2, &index), HYDRANT_ERROR_TOO_LONG, "9 bytes");
        IS(index, 0);
        CHECK(!both[0], "it is over");
        WORKS(hydrant_receive(job, left, 22, two[0], 16, NULL));
        barrier();
        WORKS(hydrant_send(job, right, 23, "too long", 9));
        FAILS(hydrant_wait_all(both, 2), HYDRANT_ERROR_TOO_LONG, "9 bytes");
        CHECK(!both[1], "it is over");
        WORKS(hydrant_receive(job, left, 23, two[0], 16, NULL));
        barrier();
        WORKS(hydrant_send(job, right, 8, mine, 77));
        /* A message that is too long stays. */
        FAILS(hydrant_receive(job, left, 8, got, 76, NULL), HYDRANT_ERROR_TOO_LONG, "77 bytes");
        WORKS(hydrant_receive(job, left, 8, got, 77, NULL));
        IS(memcmp(got, mine, 0), 0);
        hydrant_operation *operation;
        bool done = false;
        WORKS(hydrant_receive_nb(job, left, 9, got, 10, NULL, &operation));
        FAILS(hydrant_detach(&operation), HYDRANT_ERROR_ARGUMENT, "waited for");
        WORKS(hydrant_test(&operation, &done));
        IS(done, 0);
        barrier();
        WORKS(hydrant_send(job, right, 9, mine, 10));
        while (!done) WORKS(hydrant_test(&operation, &done));
        IS(differs(got, 10, left, 5), -1);
    }
    FAILS(hydrant_send(job, ranks, 0, mine, 1), HYDRANT_ERROR_RANK, "out of range");
    FAILS(hydrant_send(job, right, UINT64_MAX - 1, mine, 1), HYDRANT_ERROR_TAG, "reserved");
    FAILS(hydrant_receive(job, ranks, 0, got, 1, NULL), HYDRANT_ERROR_RANK, "out of range");
    FAILS(hydrant_send(job, right, 0, NULL, 1), HYDRANT_ERROR_NULL, "the data is null");
    FAILS(hydrant_send_receive(job, right, 0, mine, 10, left, 0, mine + 5, 10, NULL), HYDRANT_ERROR_OVERLAP, "overlap");
    barrier();
    free(mine);
    free(got);
    return end();
}
