/* If one process lacks memory, no process gets any. All get an error, and the program goes on. */
#include "check.h"

int main(void) {
    ARMCI_Set_shm_limit(8 << 20);
    begin();
    void **all = room((size_t)processes * sizeof *all);
    for (int lacks = 0; lacks < processes; lacks++) {
        IS(ARMCI_Malloc(all, me == lacks ? 9L << 20 : 100), FAIL7);
        IS(ARMCI_Malloc(all, me == lacks ? LONG_MAX : 100), FAIL7);
        IS(ARMCI_Malloc(all, me == lacks ? -1 : 100), me == lacks ? FAIL3 : FAIL7);
        IS(ARMCI_Malloc(me == lacks ? NULL : all, 100), me == lacks ? FAIL : FAIL7);
    }
    CHECK(!ARMCI_Malloc_local(9L << 20), "more than the limit");
    CHECK(!ARMCI_Malloc_local(-1), "less than nothing");
    /* No process kept memory, so the whole limit is still free. */
    for (int round = 0; round < 20; round++) {
        WORKS(ARMCI_Malloc(all, 7L << 20));
        IS(ARMCI_Malloc(all + 0, 7L << 20), FAIL7);
        ARMCI_Barrier();
        WORKS(ARMCI_Free(all[me]));
    }
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    IS(ARMCI_Malloc_group(all, me == 0 ? 9L << 20 : 100, &world), FAIL7);
    IS(ARMCI_Malloc_group(me == 0 ? NULL : all, 100, &world), me == 0 ? FAIL : FAIL7);
    WORKS(ARMCI_Malloc_group(all, 7L << 20, &world));
    WORKS(ARMCI_Free_group(all[me], &world));
    return end();
}
