/* Calls of Global Arrays and of ARMCI-MPI programs beyond ARMCI's paper. */
#include "check.h"
#include "armcix.h"

enum { ROWS = 5, COLUMNS = 7, DEEP = 3 };

/* Sections of this process's memory, copied to a buffer and back. */
static void sections(void) {
    int array[DEEP][ROWS][COLUMNS], other[DEEP][ROWS][COLUMNS], packed[2 * 3 * 4], at = 0;
    for (int k = 0; k < DEEP; k++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) array[k][i][j] = 100 * k + 10 * i + j, other[k][i][j] = -1;
    /* Columns 2 to 5 of rows 1 to 3 of the second and the third plane. */
    int strides[2] = {sizeof array[0][0], sizeof array[0]}, counts[3] = {4 * sizeof(int), 3, 2};
    armci_write_strided(&array[1][1][2], 2, strides, counts, (char *)packed);
    for (int k = 1; k < 3; k++)
        for (int i = 1; i < 4; i++)
            for (int j = 2; j < 6; j++) IS(packed[at++], 100 * k + 10 * i + j);
    armci_read_strided(&other[1][1][2], 2, strides, counts, (char *)packed);
    for (int k = 0; k < DEEP; k++)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) {
                int is_in = k >= 1 && i >= 1 && i < 4 && j >= 2 && j < 6;
                IS(other[k][i][j], is_in ? array[k][i][j] : -1);
            }
    int bytes[1] = {3 * sizeof(int)}, few[4] = {1, 2, 3, 4};
    armci_write_strided(few, 0, NULL, bytes, (char *)packed);
    CHECK(packed[0] == 1 && packed[2] == 3 && packed[3] == 100 + 10 * 1 + 5, "a section of one run");
    counts[1] = 0;
    armci_write_strided(array, 1, strides, counts, (char *)few);
    IS(few[0], 1);
}

/* Groups by color and key, and mutexes of a group. */
static void extensions(void) {
    ARMCI_Group world, part, same;
    int rank, size;
    ARMCI_Group_get_world(&world);
    WORKS(ARMCIX_Group_split(&world, me % 2, -me, &part));
    WORKS(ARMCI_Group_rank(&part, &rank));
    ARMCI_Group_size(&part, &size);
    IS(size, (processes + 1 - me % 2) / 2);
    for (int at = 0; at < size; at++) IS(ARMCI_Absolute_id(&part, at), me % 2 + 2 * (size - 1 - at));
    WORKS(ARMCIX_Group_dup(&part, &same));
    IS(ARMCI_Absolute_id(&same, rank), me);
    ARMCI_Group none;
    WORKS(ARMCIX_Group_split(&world, me == 0 ? -1 : 5, 0, &none));
    CHECK((none == -1) == (me == 0), "a group of no color: %d", none);
    /* A process without room for the group takes part, so the others do not wait for it. */
    CHECK(ARMCIX_Group_split(&world, 0, 0, me ? &none : NULL), "a group without room for it");
    CHECK(ARMCIX_Group_dup(&world, me ? &none : NULL), "a copy without room for it");

    enum { ROUNDS = 200 };
    armcix_mutex_hdl_t set = ARMCIX_Create_mutexes_hdl(me == 0 ? 3 : 1, &part);
    CHECK(set, "mutexes");
    long **all = (long **)room((size_t)size * sizeof *all), value, more;
    WORKS(ARMCI_Malloc_group((void **)all, sizeof(long), &part));
    *all[rank] = 0;
    armci_msg_group_barrier(&part);
    int first = ARMCI_Absolute_id(&part, 0);
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 2) ARMCIX_Lock_hdl(set, 0, first);
        else while (ARMCIX_Trylock_hdl(set, 0, first)) sched_yield();
        WORKS(ARMCI_Get(all[0], &value, sizeof value, first));
        more = value + 1;
        WORKS(ARMCI_Put(&more, all[0], sizeof more, first));
        CHECK(round || ARMCIX_Trylock_hdl(set, 0, first) == 1, "locked twice");
        ARMCIX_Unlock_hdl(set, 0, first);
    }
    armci_msg_group_barrier(&part);
    if (rank == 0) IS(*all[0], (long)ROUNDS * size);
    ARMCIX_Progress();
    WORKS(ARMCIX_Destroy_mutexes_hdl(set));
    IS(ARMCIX_Destroy_mutexes_hdl(set), -2);
    IS(ARMCIX_Destroy_mutexes_hdl((armcix_mutex_hdl_t)(void *)&part), -2);
    IS(ARMCIX_Destroy_mutexes_hdl(NULL), -1);
    WORKS(ARMCI_Free_group(all[rank], &part));
    ARMCI_Group_free(&same);
    ARMCI_Group_free(&part);
    free(all);
}

int main(void) {
    begin();
    sections();
    extensions();
    int right = (me + 1) % processes, left = (me + processes - 1) % processes;
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    void **all = room((size_t)processes * sizeof *all), **more = room((size_t)processes * sizeof *more);
    for (int round = 0; round < 2; round++) {
        WORKS(ARMCI_Malloc_memdev(all, 64, round ? NULL : "/dev/shm"));
        WORKS(ARMCI_Malloc_group_memdev(more, 64, &world, "memory"));
        armci_set_mem_offset(all[me]);
        ARMCI_Access_begin(all[me]);
        memset(all[me], 0, 64);
        memset(more[me], 0, 64);
        ARMCI_Access_end(all[me]);
        ARMCI_Barrier();
        WORKS(ARMCI_PutValueLong(me + 1, more[right], right));
        int scale = 3, own[16];
        for (int at = 0; at < 16; at++) own[at] = me + at;
        armci_hdl_t handle;
        ARMCI_INIT_HANDLE(&handle);
        WORKS(ARMCI_NbAcc(ARMCI_ACC_INT, &scale, own, all[right], sizeof own, right, &handle));
        WORKS(ARMCI_NbAcc(ARMCI_ACC_INT, &scale, own, all[right], 8, right, NULL));
        WORKS(ARMCI_Wait(&handle));
        WORKS(ARMCI_WaitAll());
        IS(ARMCI_NbAcc(ARMCI_ACC_INT, &scale, own, all[right], 68, right, NULL), FAIL6);
        IS(ARMCI_NbAcc(99, &scale, own, all[right], 8, right, NULL), FAIL2);
        ARMCI_Barrier();
        ARMCI_Access_begin(all[me]);
        int *mine = all[me];
        for (int at = 0; at < 16; at++) IS(mine[at], (at < 2 ? 6 : 3) * (left + at));
        IS(*(long *)more[me], left + 1);
        ARMCI_Access_end(all[me]);
        ARMCI_Barrier();
        WORKS(ARMCI_Free_memdev(all[me]));
        WORKS(ARMCI_Free_memdev(more[me]));
    }
    int from = 7, to = 0;
    (void)(ARMCI_Put1(&from, &to, sizeof from, me));
    IS(to, 7);
    free(all);
    free(more);
    return end();
}
