/* Memory of all processes, of groups and of one process: its addresses, its access, and its reuse. */
#include "check.h"

static char zeros[256];

int main(void) {
    begin();
    void **all = room((size_t)processes * sizeof *all);

    /* Each process asks for a different size, and one for none. */
    for (int none = 0; none < processes; none++) {
        long bytes = me == none ? 0 : 100 * (me + 1);
        WORKS(ARMCI_Malloc(all, bytes));
        for (int proc = 0; proc < processes; proc++) {
            int have = proc == none ? 0 : 100 * (proc + 1);
            CHECK(!all[proc] == !have, "the process %d has %d bytes", proc, have);
            if (!have) continue;
            char last = (char)me;
            if (me == (proc + 1) % processes) WORKS(ARMCI_Put(&last, (char *)all[proc] + have - 1, 1, proc));
        }
        ARMCI_Barrier();
        if (bytes) IS(((char *)all[me])[bytes - 1], (me + 1) % processes);
        ARMCI_Barrier();
        WORKS(ARMCI_Free(all[me]));
    }

    /* Mapped memory can be loaded and stored directly. */
    WORKS(ARMCI_Malloc(all, 4096));
    int near = 0;
    for (int proc = 0; proc < processes; proc++) {
        near += ARMCI_Same_node(proc);
        IS(armci_sameclusnode(proc), ARMCI_Same_node(proc));
    }
    IS(ARMCI_Uses_shm(), near > 1);
    CHECK(ARMCI_Same_node(me), "a process is on its own node");
    fill(all[me], 4096, me, 1);
    ARMCI_Barrier();
    for (int proc = 0; proc < processes; proc++)
        if (ARMCI_Same_node(proc)) {
            CHECK(differs(all[proc], 4096, proc, 1) < 0, "loads from the process %d", proc);
        }
    ARMCI_Barrier();
    for (int proc = 0; proc < processes; proc++)
        if (ARMCI_Same_node(proc)) ((char *)all[proc])[me] = (char)(me + 60);
    ARMCI_Barrier();
    for (int proc = 0; proc < processes; proc++)
        if (ARMCI_Same_node(proc)) IS(((char *)all[me])[proc], proc + 60);
    ARMCI_Barrier();
    WORKS(ARMCI_Free(all[me]));

    /* Memory of one process is a source and a destination, and its owner describes it to others. */
    int right = (me + 1) % processes, last_one = processes - 1;
    char *own = ARMCI_Malloc_local(5000);
    CHECK(own, "local memory");
    armci_meminfo_t *infos = room((size_t)processes * sizeof *infos);
    ARMCI_Memget(3000, &infos[me], 0);
    CHECK(infos[me].size == 3000 && infos[me].cpid == me && infos[me].addr, "what memory is told as");
    fill(infos[me].addr, 3000, me, 7);
    for (int proc = 0; proc < processes; proc++) armci_msg_bcast(&infos[proc], sizeof *infos, proc);
    char *there = ARMCI_Memat(&infos[right], 0);
    IS((char *)ARMCI_Memat(&infos[right], 10) - there, 10);
    ARMCI_Barrier();
    WORKS(ARMCI_Get(there, own, 3000, right));
    CHECK(differs(own, 3000, right, 7) < 0, "memory that was told of");
    if (ARMCI_Same_node(right)) CHECK(differs(there, 3000, right, 7) < 0, "loads from there");
    IS(ARMCI_Get(there, own, 3001, right), FAIL6);
    ARMCI_Memdt(&infos[right], 0);
    ARMCI_Barrier();
    ARMCI_Memctl(&infos[right]);
    ARMCI_Barrier();
    if (right != me) ARMCI_Memctl(&infos[me]);
    IS(ARMCI_Get(infos[me].addr, own, 1, me), FAIL6);
    WORKS(ARMCI_Free_local(own));
    IS(ARMCI_Free_local(own), FAIL6);
    WORKS(ARMCI_Free(NULL));

    /* An allocation of no bytes is null, and accesses of no bytes change nothing. */
    CHECK(!ARMCI_Malloc_local(0), "memory of no bytes");
    WORKS(ARMCI_Free_local(NULL));
    armci_meminfo_t none;
    ARMCI_Memget(0, &none, 0);
    CHECK(!none.addr && !ARMCI_Memat(&none, 0), "memory of no bytes is told of");
    ARMCI_Memctl(&none);
    WORKS(ARMCI_Malloc(all, 256));
    none = (armci_meminfo_t){.armci_addr = (char *)all[me] + 64, .addr = (char *)all[me] + 64, .cpid = me};
    for (int proc = 0; proc < processes; proc++) {
        armci_meminfo_t told = none;
        armci_msg_bcast(&told, sizeof told, proc);
        ARMCI_Memat(&told, 0);
    }
    WORKS(ARMCI_Put(zeros, all[right], 256, right));
    ARMCI_Barrier();
    WORKS(ARMCI_Free(all[me]));

    /* Memory of the members of a group. */
    int *members = room((size_t)processes * sizeof(int)), number = 0;
    for (int proc = processes - 1; proc >= 0; proc -= 2) members[number++] = proc;
    ARMCI_Group group;
    int is_member = me % 2 == (processes - 1) % 2;
    ARMCI_Group_create(number, members, &group);
    if (is_member) {
        int rank, near_members = 0;
        WORKS(ARMCI_Group_rank(&group, &rank));
        void **theirs = room((size_t)number * sizeof *theirs);
        WORKS(ARMCI_Malloc_group(theirs, 64 * (rank + 1), &group));
        fill(theirs[rank], 64, me, 3);
        armci_msg_group_barrier(&group);
        for (int at = 0; at < number; at++) {
            char got[64];
            WORKS(ARMCI_Get(theirs[at], got, 64, ARMCI_Absolute_id(&group, at)));
            CHECK(differs(got, 64, members[at], 3) < 0, "memory of the member %d", at);
            near_members += ARMCI_Same_node(members[at]);
        }
        IS(ARMCI_Uses_shm_grp(&group), near_members > 1);
        armci_msg_group_barrier(&group);
        WORKS(ARMCI_Free_group(theirs[rank], &group));
        free(theirs);
    } else {
        IS(ARMCI_Malloc_group(all, 64, &group), FAIL5);
    }
    ARMCI_Group_free(&group);

    /* A process frees its part before the others do. A new allocation may cover that memory, and stays when
       the others free theirs. */
    void **first = shared(4096), **early = shared(64);
    armci_msg_barrier();
    if (me == last_one) {
        WORKS(ARMCI_Free(first[me]));
        WORKS(ARMCI_Free(early[me]));
    }
    armci_msg_barrier();
    void **late = shared(8192);
    if (me != last_one) {
        WORKS(ARMCI_Free(early[me]));
        WORKS(ARMCI_Free(first[me]));
    }
    WORKS(ARMCI_Put(zeros, late[last_one], sizeof zeros, last_one));
    release(late);
    free(early);
    free(first);

    /* Memory is reused in any order: the sum of all sizes is far more than the arena. */
    enum { LIVE = 20 };
    void **live[LIVE] = {0};
    uint64_t seed = 5;
    for (int round = 0; round < 600; round++) {
        int at = between(&seed, 0, LIVE - 1);
        if (live[at]) {
            armci_msg_barrier();
            WORKS(ARMCI_Free(live[at][me]));
            free(live[at]);
            live[at] = NULL;
        } else {
            long bytes = between(&seed, 1, 2 << 20);
            live[at] = room((size_t)processes * sizeof(void *));
            WORKS(ARMCI_Malloc(live[at], bytes));
            char value = (char)round, got = 0;
            WORKS(ARMCI_Put(&value, (char *)live[at][right] + bytes - 1, 1, right));
            WORKS(ARMCI_Get((char *)live[at][right] + bytes - 1, &got, 1, right));
            IS(got, value);
            IS(ARMCI_Get((char *)live[at][right] + bytes - 1, members, 2, right), FAIL6);
        }
    }
    ARMCI_Barrier();
    ARMCI_Cleanup();
    return end();
}
