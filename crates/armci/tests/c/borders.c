/* Accesses past an allocation are refused, even if the next allocation is close behind it. */
#include "check.h"

/* Sizes of whole lines and whole pages, which leave no rest. */
static const int SIZES[] = {64, 128, 4096, 8192, 8, 63, 1};
enum { KINDS = sizeof SIZES / sizeof *SIZES, NEAR = 3 };

static char own[16384];
static int proc;

/* All operations on a location that is refused. None of them does anything. */
static void refused(char *there, int bytes, void *flag) {
    int one = 1, count[2] = {bytes, 1}, stride[1] = {bytes};
    long wide = 1;
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    IS(ARMCI_Put(own, there, bytes, proc), FAIL6);
    IS(ARMCI_Get(there, own, bytes, proc), FAIL6);
    IS(ARMCI_NbPut(own, there, bytes, proc, &handle), FAIL6);
    IS(ARMCI_NbGet(there, own, bytes, proc, &handle), FAIL6);
    IS(ARMCI_Put_flag(own, there, bytes, flag, 1, proc), FAIL6);
    IS(ARMCI_PutS(own, stride, there, stride, count, 1, proc), FAIL6);
    IS(ARMCI_GetS(there, stride, own, stride, count, 1, proc), FAIL6);
    IS(ARMCI_NbPutS(own, stride, there, stride, count, 1, proc, &handle), FAIL6);
    IS(ARMCI_PutS_flag(own, stride, there, stride, count, 1, flag, 1, proc), FAIL6);
    void *here[1] = {own}, *place[1] = {there};
    armci_giov_t out = {here, place, 1, bytes}, in = {place, here, 1, bytes};
    IS(ARMCI_PutV(&out, 1, proc), FAIL6);
    IS(ARMCI_GetV(&in, 1, proc), FAIL6);
    IS(ARMCI_NbPutV(&out, 1, proc, &handle), FAIL6);
    WORKS(ARMCI_Wait(&handle));
    if (bytes == sizeof(int)) {
        IS(ARMCI_Acc(ARMCI_ACC_INT, &one, own, there, bytes, proc), FAIL6);
        IS(ARMCI_AccS(ARMCI_ACC_INT, &one, own, stride, there, stride, count, 1, proc), FAIL6);
        IS(ARMCI_AccV(ARMCI_ACC_INT, &one, &out, 1, proc), FAIL6);
    }
    if (bytes == sizeof(int) && (uintptr_t)there % sizeof(int) == 0) {
        IS(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &one, there, 1, proc), FAIL6);
        IS(ARMCI_PutValueInt(1, there, proc), FAIL6);
    }
    if (bytes == sizeof(int) && (uintptr_t)there % sizeof(long) == 0) {
        IS(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &wide, there, 1, proc), FAIL6);
        IS(ARMCI_PutValueLong(1, there, proc), FAIL6);
    }
    if (bytes == sizeof(int)) IS(ARMCI_Put_flag(own, flag, 1, (int *)(void *)there, 1, proc), FAIL6);
}

/* Accesses just past the end, just before the start, and of one byte too many. The whole allocation works. */
static void borders(char *at, int bytes, void *flag) {
    WORKS(ARMCI_Get(at, own, bytes, proc));
    WORKS(ARMCI_Put(own, at, bytes, proc));
    WORKS(ARMCI_Put(own, at + bytes, 0, proc));
    refused(at + bytes, 1, flag);
    refused(at + bytes, (int)sizeof(int), flag);
    refused(at - 1, 1, flag);
    refused(at, bytes + 1, flag);
    refused(at + bytes - 1, 2, flag);
}

int main(void) {
    begin();
    proc = (me + 1) % processes;
    void **flag = shared(sizeof(int)), **parts[KINDS][NEAR], *alone[KINDS][NEAR];
    int same = 1;
    ARMCI_Group world, group;
    ARMCI_Group_get_world(&world);
    int *all = room((size_t)processes * sizeof *all);
    for (int at = 0; at < processes; at++) all[at] = at;
    ARMCI_Group_create(processes, all, &group);
    for (int kind = 0; kind < KINDS; kind++) {
        /* Of three in a row, the first is of all processes, the second of a group, the third of each process alone. */
        for (int at = 0; at < NEAR; at++) {
            parts[kind][at] = room((size_t)processes * sizeof(void *));
            if (at == 0) WORKS(ARMCI_Malloc(parts[kind][at], SIZES[kind]));
            if (at == 1) WORKS(ARMCI_Malloc_group(parts[kind][at], SIZES[kind], &group));
            armci_meminfo_t *infos = room((size_t)processes * sizeof *infos);
            if (at == 2) {
                ARMCI_Memget((size_t)SIZES[kind], &infos[me], 0);
                for (int of = 0; of < processes; of++) armci_msg_bcast(&infos[of], sizeof *infos, of);
                for (int of = 0; of < processes; of++) parts[kind][at][of] = ARMCI_Memat(&infos[of], 0);
            }
            free(infos);
            alone[kind][at] = ARMCI_Malloc_local(SIZES[kind]);
            CHECK(alone[kind][at], "local memory");
            fill(alone[kind][at], SIZES[kind], me, kind + 20);
            fill(parts[kind][at][me], SIZES[kind], me, kind);
        }
    }
    ARMCI_Barrier();
    for (int kind = 0; kind < KINDS; kind++)
        for (int at = 0; at < NEAR; at++) {
            char *there = parts[kind][at][proc];
            borders(there, SIZES[kind], flag[proc]);
        }
    ARMCI_AllFence();
    ARMCI_Barrier();
    for (int kind = 0; kind < KINDS; kind++)
        for (int at = 0; at < NEAR; at++) {
            same &= differs(parts[kind][at][me], SIZES[kind], me, kind) < 0;
            same &= differs(alone[kind][at], SIZES[kind], me, kind + 20) < 0;
        }
    CHECK(same, "what was allocated");
    IS(*(int *)flag[me], 0);
    /* The same for memory of this process. */
    proc = me;
    for (int kind = 0; kind < KINDS; kind++)
        for (int at = 0; at < NEAR; at++) borders(alone[kind][at], SIZES[kind], flag[me]);
    IS(ARMCI_Free_local((char *)alone[0][0] + SIZES[0]), FAIL6);
    for (int kind = 0; kind < KINDS; kind++)
        for (int at = 0; at < NEAR; at++) WORKS(ARMCI_Free_local(alone[kind][at]));
    ARMCI_Barrier();
    release(flag);
    return end();
}
