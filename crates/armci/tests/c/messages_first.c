/* A program that begins with messages. ARMCI begins and ends meanwhile, and begins again. */
#include "check.h"

int main(int argc, char **argv) {
    armci_msg_init(&argc, &argv);
    me = armci_msg_me();
    processes = armci_msg_nproc();
    armci_msg_barrier();
    IS(ARMCI_Initialized(), 0);
    int word = me;
    IS(ARMCI_Put(&word, &word, 4, me), FAIL8);
    for (int round = 0; round < 3; round++) {
        begin();
        CHECK(ARMCI_Initialized(), "in round %d", round);
        void **all = shared(8);
        WORKS(ARMCI_PutValueInt(me + round, all[(me + 1) % processes], (me + 1) % processes));
        ARMCI_Barrier();
        IS(*(int *)all[me], (me + processes - 1) % processes + round);
        if (round == 0) release(all);
        ARMCI_Finalize();
        IS(ARMCI_Initialized(), 0);
        IS(ARMCI_Put(&word, all, 4, me), FAIL8);
        word = 1;
        armci_msg_igop(&word, 1, "+");
        IS(word, processes);
    }
    armci_msg_finalize();
    if (me == 0) puts("ok");
    return 0;
}
