/* Mutexes keep others out; there are several, not as many of each process, and errors are told. */
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

        /* How many turns each has until one had a hundred, of one mutex: for whoever reads. */
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

        /* Two at once, of one process and of another. */
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
    /* What one process may not, none does. */
    IS(ARMCI_Create_mutexes(me == processes - 1 ? -1 : 2), me == processes - 1 ? FAIL3 : FAIL7);
    WORKS(ARMCI_Create_mutexes(0));
    WORKS(ARMCI_Destroy_mutexes());
    /* Held by one, they are not destroyed by any. */
    WORKS(ARMCI_Create_mutexes(1));
    if (me == 0) ARMCI_Lock(0, processes - 1);
    IS(ARMCI_Destroy_mutexes(), FAIL7);
    if (me == 0) ARMCI_Unlock(0, processes - 1);
    ARMCI_Barrier();
    WORKS(ARMCI_Destroy_mutexes());
    release(all);
    return end();
}
