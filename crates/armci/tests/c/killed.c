/* A process is killed while others wait for its lock or for operations on its memory. They get an error
   and end. */
#include "check.h"

enum { BYTES = 4 << 20 };

/* One handle has an operation on a process that is killed and one on a slow process. Both are over when
   the wait returns. */
static void gets(void) {
    void **all = shared(BYTES), **over = shared(sizeof(int)), **ready = shared(3 * sizeof(int));
    int *pids = room(2 * sizeof(int)), victim = getpid();
    memset(all[me], me + 1, BYTES);
    if (me == 1) pids[0] = victim;
    if (me == 2) pids[1] = victim;
    armci_msg_igop(pids, 2, "+");
    ARMCI_Barrier();
    /* A process still in the barrier when another one is killed would get the error there. */
    if (me > 0) WORKS(ARMCI_PutValueInt(1, (int *) ready[0] + me, 0));
    if (me == 1) {
        ARMCI_Fence(0);
        pause();
    }
    if (me == 2) {
        until(over[me], 1);
        _exit(1);
    }
    for (int other = 1; other < 3; other++) until((int *) ready[0] + other, 1);
    char *back = room(2 * BYTES);
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    kill(pids[0], SIGSTOP);
    WORKS(ARMCI_NbGet(all[1], back, BYTES, 1, &handle));
    WORKS(ARMCI_NbGet(all[2], back + BYTES, BYTES, 2, &handle));
    kill(pids[0], SIGKILL);
    int code = ARMCI_Wait(&handle);
    for (int at = 0; at < BYTES; at++) CHECK(back[BYTES + at] == 3, "the byte %d when the wait returned", at);
    /* On mapped memory no operation was in flight. */
    if (code == 0) fprintf(stderr, "0: ARMCI_Wait: all is there\n");
    /* Process 2 may end before this put is done. */
    WORKS(ARMCI_PutValueInt(1, over[2], 2));
    ARMCI_Fence(2);
    _exit(1);
}

int main(int argc, char **argv) {
    begin();
    if (argc > 1 && !strcmp(argv[1], "gets")) gets();
    int procedures = argc > 1 && !strcmp(argv[1], "procedures");
    WORKS(ARMCI_Create_mutexes(1));
    if (me == 1) {
        if (procedures) ARMCI_Gpc_lock(0);
        else ARMCI_Lock(0, 0);
    }
    ARMCI_Barrier();
    if (me == 1) {
        usleep(200000);
        kill(getpid(), SIGKILL);
    }
    if (procedures) ARMCI_Gpc_lock(0);
    else ARMCI_Lock(0, 0);
    fprintf(stderr, "the lock of a process that was killed\n");
    return 0;
}
