/* A notification arrives after the puts before it. Each process counts for itself. */
#include "check.h"

enum { ROUNDS = 200, BYTES = 3000 };

int main(void) {
    begin();
    void **all = shared((size_t)processes * BYTES);
    char *own = room(BYTES), *mine = all[me];
    for (int round = 1; round <= ROUNDS; round++) {
        fill(own, BYTES, me, round);
        for (int turn = 0; turn < processes; turn++) {
            int proc = (me + turn) % processes;
            WORKS(ARMCI_Put(own, (char *)all[proc] + me * BYTES, BYTES, proc));
            IS(armci_notify(proc), round);
        }
        for (int proc = processes - 1; proc >= 0; proc--) {
            int value = -1;
            WORKS(armci_notify_wait(proc, round % 2 ? &value : NULL));
            if (round % 2) IS(value, round);
            CHECK(differs(mine + proc * BYTES, BYTES, proc, round) < 0, "of the process %d in round %d", proc, round);
        }
        ARMCI_Barrier();
    }
    /* Several notifications may arrive before the first wait. */
    int right = (me + 1) % processes, left = (me + processes - 1) % processes;
    for (int at = 0; at < 50; at++) armci_notify(right);
    for (int at = 0; at < 50; at++) WORKS(armci_notify_wait(left, NULL));
    IS(armci_notify_wait(processes, NULL), FAIL5);
    IS(armci_notify_wait(-1, NULL), FAIL5);
    release(all);
    return end();
}
