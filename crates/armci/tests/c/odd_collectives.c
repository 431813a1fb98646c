/* One process cannot take part in a collective call. All get an error, and none waits for ever. */
#include "check.h"

int main(void) {
    begin();
    void **all = room((size_t)processes * sizeof *all);
    for (int odd = 0; odd < processes; odd++) {
        int is_odd = me == odd;
        IS(ARMCI_Malloc(all, is_odd ? -5 : 64), is_odd ? FAIL3 : FAIL7);
        IS(ARMCI_Malloc(is_odd ? NULL : all, 64), is_odd ? FAIL : FAIL7);
        IS(ARMCI_Malloc(all, is_odd ? LONG_MAX : 0), FAIL7);
        IS(ARMCI_Create_mutexes(is_odd ? -1 : 1), is_odd ? FAIL3 : FAIL7);
        IS(ARMCI_Create_mutexes(is_odd ? INT_MAX : 1), FAIL7);
        WORKS(ARMCI_Create_mutexes(is_odd ? 0 : 3));
        IS(ARMCI_Create_mutexes(1), FAIL7);
        int other = (odd + 1) % processes;
        if (is_odd) ARMCI_Lock(2, other);
        IS(ARMCI_Destroy_mutexes(), FAIL7);
        ARMCI_Barrier();
        if (is_odd) ARMCI_Unlock(2, other);
        WORKS(ARMCI_Destroy_mutexes());
        ARMCI_Group world;
        ARMCI_Group_get_world(&world);
        IS(ARMCI_Malloc_group(all, is_odd ? -1 : 64, &world), is_odd ? FAIL3 : FAIL7);
        WORKS(ARMCI_Malloc(all, 64));
        ARMCI_Barrier();
        WORKS(ARMCI_Free(all[me]));
    }
    return end();
}
