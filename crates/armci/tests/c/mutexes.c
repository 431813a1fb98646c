/* Mutexes exclude other processes. Each process has another number of mutexes, and errors are reported. */
#include "check.h"

enum { ROUNDS = 150 };

int main(void) {
    begin();
    void **all = shared(4 * sizeof(long));
    for (int set = 0; set < 2; set++) {
        WORKS(ARMCI_Create_mutexes(me + 1));
        long *own = room(4 * sizeof(long));
        int turns = 0;
        double since = armci_timer();
        for (int round = 0; round < ROUNDS; round++) {
            int proc = round % processes, mutex = round / processes % (proc + 1);
            long *counter = (long *)all[proc] + mutex % 4;
            ARMCI_Lock(mutex, proc);
            long value;
            WORKS(ARMCI_Get(counter, &value, sizeof value, proc));
            if (round % 16 == 0) sched_yield();
            value++;
            WORKS(ARMCI_Put(&value, counter, sizeof value, proc));
            ARMCI_Unlock(mutex, proc);
            own[0]++;
        }
        CHECK(armci_timer() >= since, "time goes on");
        ARMCI_Barrier();
        long sum = 0;
        for (int at = 0; at < 4; at++) sum += ((long *)all[me])[at];
        armci_msg_lgop(&sum, 1, "+");
        IS(sum, (long)(set + 1) * ROUNDS * processes);

        /* Prints how often each process held one mutex until one had held it a hundred times, for a reader. */
        ARMCI_Barrier();
        long *stop = (long *)all[0] + 3;
        long kept = ARMCI_GetValueLong(stop, 0);
        ARMCI_Barrier();
        for (;;) {
            ARMCI_Lock(0, 0);
            long done = ARMCI_GetValueLong(stop, 0) != kept;
            if (!done && ++turns == 100) WORKS(ARMCI_PutValueLong(kept - 1, stop, 0));
            ARMCI_Unlock(0, 0);
            if (done || turns == 100) break;
        }
        ARMCI_Barrier();
        if (me == 0) *stop = kept;
        int *by = room((size_t)processes * sizeof(int));
        by[me] = turns;
        armci_msg_igop(by, processes, "+");
        if (me == 0)
            for (int at = 0; at < processes; at++) printf("process %d had %d turns\n", at, by[at]);

        /* Two mutexes held at once, of two processes. */
        if (processes > 1 && me == 0) {
            ARMCI_Lock(0, 1);
            ARMCI_Lock(1, 1);
            ARMCI_Lock(0, 0);
            ARMCI_Unlock(0, 1);
            ARMCI_Unlock(0, 0);
            ARMCI_Unlock(1, 1);
        }
        ARMCI_Barrier();
        IS(ARMCI_Create_mutexes(1), FAIL7);
        WORKS(ARMCI_Destroy_mutexes());
        IS(ARMCI_Destroy_mutexes(), FAIL7);
        free(own);
        free(by);
    }
    /* If one process may not make mutexes, none are made. */
    IS(ARMCI_Create_mutexes(me == processes - 1 ? -1 : 2), me == processes - 1 ? FAIL3 : FAIL7);
    WORKS(ARMCI_Create_mutexes(0));
    WORKS(ARMCI_Destroy_mutexes());
    /* While one process holds a mutex, none are destroyed. */
    WORKS(ARMCI_Create_mutexes(1));
    if (me == 0) ARMCI_Lock(0, processes - 1);
    IS(ARMCI_Destroy_mutexes(), FAIL7);
    if (me == 0) ARMCI_Unlock(0, processes - 1);
    ARMCI_Barrier();
    WORKS(ARMCI_Destroy_mutexes());
    release(all);
    return end();
}
