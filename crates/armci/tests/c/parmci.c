/* A profile: the program replaces ARMCI's functions by its own, which count and call the originals by their
   profiling names. */
#include "check.h"
#include "parmci.h"

static int put_calls, barriers, fences;

int ARMCI_Put(void *src, void *dst, int bytes, int proc) {
    put_calls++;
    return PARMCI_Put(src, dst, bytes, proc);
}
void ARMCI_Barrier(void) {
    barriers++;
    PARMCI_Barrier();
}
void ARMCI_AllFence(void) {
    fences++;
    PARMCI_AllFence();
}

/* Calls every other name, so that each is linked. */
static void call_all(void **parts) {
    int next = (me + 1) % processes;
    long *there = parts[next], here[64] = {1, 2, 3}, back[64] = {0}, scale = 2;
    int stride[] = {16}, count[] = {8, 2}, flag = 0;
    void *from = here, *to = there + 8, *into = back;
    armci_giov_t put = {&from, &to, 1, 8}, get = {&to, &into, 1, 8};
    armci_hdl_t handle;
    WORKS(PARMCI_PutS(here, stride, there, stride, count, 1, next));
    WORKS(PARMCI_GetS(there, stride, back, stride, count, 1, next));
    IS(back[2], 3);
    WORKS(PARMCI_AccS(ARMCI_ACC_LNG, &scale, here, stride, there, stride, count, 1, next));
    WORKS(PARMCI_Acc(ARMCI_ACC_LNG, &scale, here, there, 8, next));
    WORKS(PARMCI_Get(there, back, 24, next));
    CHECK(back[0] == 5 && back[2] == 9, "%ld and %ld", back[0], back[2]);
    WORKS(PARMCI_PutV(&put, 1, next));
    WORKS(PARMCI_AccV(ARMCI_ACC_LNG, &scale, &put, 1, next));
    WORKS(PARMCI_GetV(&get, 1, next));
    IS(back[0], 3);
    ARMCI_INIT_HANDLE(&handle);
    WORKS(PARMCI_NbPut(here, there, 8, next, &handle));
    WORKS(PARMCI_NbPutS(here, stride, there, stride, count, 1, next, &handle));
    WORKS(PARMCI_NbAccS(ARMCI_ACC_LNG, &scale, here, stride, there, stride, count, 1, next, &handle));
    WORKS(PARMCI_NbPutV(&put, 1, next, &handle));
    WORKS(PARMCI_NbAccV(ARMCI_ACC_LNG, &scale, &put, 1, next, &handle));
    WORKS(PARMCI_Wait(&handle));
    PARMCI_Fence(next);
    WORKS(PARMCI_NbGetV(&get, 1, next, &handle));
    WORKS(PARMCI_Wait(&handle));
    IS(back[0], 3);
    WORKS(PARMCI_NbGetS(there, stride, back, stride, count, 1, next, &handle));
    while (PARMCI_Test(&handle)) continue;
    WORKS(PARMCI_NbGet(there, back, 24, next, NULL));
    WORKS(PARMCI_WaitProc(next));
    WORKS(PARMCI_WaitAll());
    CHECK(back[0] == 3 && back[2] == 9, "%ld and %ld", back[0], back[2]);
    WORKS(PARMCI_PutValueInt(7, there, next));
    IS(PARMCI_GetValueInt(there, next), 7);
    WORKS(PARMCI_PutValueLong(8, there, next));
    IS(PARMCI_GetValueLong(there, next), 8);
    WORKS(PARMCI_PutValueFloat(2.5f, there, next));
    CHECK(PARMCI_GetValueFloat(there, next) == 2.5f, "a float");
    WORKS(PARMCI_PutValueDouble(3.5, there, next));
    CHECK(PARMCI_GetValueDouble(there, next) == 3.5, "a double");
    WORKS(PARMCI_NbPutValueInt(1, there, next, NULL));
    WORKS(PARMCI_NbPutValueFloat(1, there, next, NULL));
    WORKS(PARMCI_NbPutValueDouble(1, there, next, NULL));
    WORKS(PARMCI_NbPutValueLong(40, there, next, NULL));
    WORKS(PARMCI_WaitAll());
    PARMCI_Fence(next);
    WORKS(PARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, back, there, 2, next));
    IS(back[0], 40);
    int *flags = (int *)(there + 20);
    WORKS(PARMCI_Put_flag(here, there, 8, flags, 1, next));
    WORKS(PARMCI_PutS_flag(here, stride, there, stride, count, 1, flags, 2, next));
    WORKS(PARMCI_PutS_flag_dir(here, stride, there, stride, count, 1, flags, 3, next));
    WORKS(PARMCI_Get(flags, &flag, sizeof flag, next));
    IS(flag, 3);
    WORKS(PARMCI_Create_mutexes(1));
    PARMCI_Lock(0, next);
    PARMCI_Unlock(0, next);
    WORKS(PARMCI_Destroy_mutexes());
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    PARMCI_GroupFence(&world);
    parmci_msg_barrier();
    parmci_msg_group_barrier(&world);
    if (processes > 1) {
        int waited = 0;
        CHECK(parmci_notify(next) > 0, "a notification");
        WORKS(parmci_notify_wait((me + processes - 1) % processes, &waited));
    }
    void *own = PARMCI_Malloc_local(64);
    CHECK(own, "local memory");
    WORKS(PARMCI_Free_local(own));
    armci_meminfo_t info;
    PARMCI_Memget(64, &info, 0);
    CHECK(PARMCI_Memat(&info, 0), "memory by what is known of it");
    PARMCI_Memctl(&info);
    void **made = room((size_t)processes * sizeof *made);
    WORKS(PARMCI_Malloc_memdev(made, 8, "memory"));
    PARMCI_Access_begin(made[me]);
    *(int *)made[me] = 0;
    PARMCI_Access_end(made[me]);
    PARMCI_Barrier();
    int one = 1;
    WORKS(PARMCI_NbAcc(ARMCI_ACC_INT, &one, &one, made[next], sizeof one, next, NULL));
    WORKS(PARMCI_WaitAll());
    PARMCI_Barrier();
    IS(*(int *)made[me], 1);
    WORKS(PARMCI_Free_memdev(made[me]));
    WORKS(PARMCI_Malloc_group_memdev(made, 8, &world, NULL));
    WORKS(PARMCI_Free_memdev(made[me]));
    free(made);
}

int main(int argc, char **argv) {
    CHECK(!PARMCI_Initialized(), "before it is");
    WORKS(argc > 2 ? PARMCI_Init() : argc > 1 ? PARMCI_Init_thread(0) : PARMCI_Init_args(&argc, &argv));
    CHECK(PARMCI_Initialized(), "after it was");
    me = armci_msg_me();
    processes = armci_msg_nproc();
    void **parts = room((size_t)processes * sizeof *parts);
    WORKS(PARMCI_Malloc(parts, 1024));
    ARMCI_Barrier();
    call_all(parts);
    ARMCI_AllFence();
    ARMCI_Barrier();
    long one = 1;
    WORKS(ARMCI_Put(&one, parts[me], sizeof one, me));
    ARMCI_Barrier();
    CHECK(put_calls == 1 && barriers == 3 && fences == 1, "%d, %d and %d calls", put_calls, barriers, fences);
    WORKS(PARMCI_Free(parts[me]));
    PARMCI_Barrier();
    PARMCI_AllFence();
    PARMCI_Finalize();
    if (me == 0) puts("ok");
    return 0;
}
