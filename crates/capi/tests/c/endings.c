/* Ends of a job that are not in good order. */
#include <signal.h>
#include <sys/wait.h>

#include "check.h"

int main(int argc, char **argv) {
    CHECK(argc == 2, "a way to end");
    /* Without a job only this process exits. */
    if (!strcmp(argv[1], "abort_alone")) hydrant_abort(NULL, 9);
    begin();
    void *own;
    hydrant_memory *memory = shared(64, &own);
    barrier();
    if (!strcmp(argv[1], "abort")) {
        if (me == 1) hydrant_abort(job, 17);
        (void)hydrant_wait_until(memory, 0, HYDRANT_EQ, 1, HYDRANT_FOREVER, NULL);
    } else if (!strcmp(argv[1], "killed")) {
        /* The survivors are told, by a status and a sentence. */
        if (me == 1) kill(getpid(), SIGKILL);
        FAILS(hydrant_barrier(world), HYDRANT_ERROR_PEER_LOST, "rank 1 is lost");
        FAILS(hydrant_wait_until(memory, 0, HYDRANT_EQ, 1, HYDRANT_FOREVER, NULL), HYDRANT_ERROR_PEER_LOST, "rank 1 is lost");
        FAILS(hydrant_check_present(job, 1), HYDRANT_ERROR_PEER_LOST, "rank 1 is lost");
        FAILS(hydrant_quiet(job), HYDRANT_ERROR_PEER_LOST, "rank 1 is lost");
        if (me == 0) puts("ok");
    } else if (!strcmp(argv[1], "early")) {
        /* Rank 1 comes to the end first. */
        if (me == 0) {
            char buffer[8];
            FAILS(hydrant_receive(job, 1, 5, buffer, 8, NULL), HYDRANT_ERROR_PEER_ENDED, "rank 1 came to the end");
            FAILS(hydrant_wait_until(memory, 0, HYDRANT_EQ, 1, HYDRANT_FOREVER, NULL), HYDRANT_ERROR_OTHERS_ENDED, "all other ranks");
            FAILS(hydrant_check_present(job, 1), HYDRANT_ERROR_PEER_ENDED, "rank 1 came to the end");
        }
        return end();
    } else if (!strcmp(argv[1], "forked")) {
        /* A child takes no part. */
        pid_t child = fork();
        if (child == 0) {
            uint64_t word = 1;
            int status = hydrant_put(memory, right, 0, &word, 8);
            _exit(status == HYDRANT_ERROR_FORKED && strstr(hydrant_last_error(), "was forked from rank") ? 0 : 1);
        }
        int ended = 1;
        CHECK(waitpid(child, &ended, 0) == child && ended == 0, "the child got an error");
        barrier();
        return end();
    }
    return 0;
}
