/* Before ARMCI is initialized and after it is finalized, operations are refused. ARMCI may begin again. */
#include "check.h"

static void refuses(void) {
    int word = 5, stride[1] = {4}, count[2] = {4, 1};
    void *list[1] = {&word};
    armci_giov_t runs = {list, list, 1, 4};
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    ARMCI_Group group = 0;
    IS(ARMCI_Initialized(), 0);
    IS(ARMCI_Put(&word, &word, 4, 0), FAIL8);
    IS(ARMCI_Get(&word, &word, 4, 0), FAIL8);
    IS(ARMCI_Put_flag(&word, &word, 4, &word, 1, 0), FAIL8);
    IS(ARMCI_Acc(ARMCI_ACC_INT, &word, &word, &word, 4, 0), FAIL8);
    IS(ARMCI_PutS(&word, stride, &word, stride, count, 1, 0), FAIL8);
    IS(ARMCI_GetS(&word, stride, &word, stride, count, 1, 0), FAIL8);
    IS(ARMCI_AccS(ARMCI_ACC_INT, &word, &word, stride, &word, stride, count, 1, 0), FAIL8);
    IS(ARMCI_PutS_flag(&word, stride, &word, stride, count, 1, &word, 1, 0), FAIL8);
    IS(ARMCI_PutS_flag_dir(&word, stride, &word, stride, count, 1, &word, 1, 0), FAIL8);
    IS(ARMCI_PutV(&runs, 1, 0), FAIL8);
    IS(ARMCI_GetV(&runs, 1, 0), FAIL8);
    IS(ARMCI_AccV(ARMCI_ACC_INT, &word, &runs, 1, 0), FAIL8);
    IS(ARMCI_NbPut(&word, &word, 4, 0, &handle), FAIL8);
    IS(ARMCI_NbGet(&word, &word, 4, 0, NULL), FAIL8);
    IS(ARMCI_NbPutS(&word, stride, &word, stride, count, 1, 0, NULL), FAIL8);
    IS(ARMCI_NbGetS(&word, stride, &word, stride, count, 1, 0, NULL), FAIL8);
    IS(ARMCI_NbAccS(ARMCI_ACC_INT, &word, &word, stride, &word, stride, count, 1, 0, NULL), FAIL8);
    IS(ARMCI_NbPutV(&runs, 1, 0, NULL), FAIL8);
    IS(ARMCI_NbGetV(&runs, 1, 0, NULL), FAIL8);
    IS(ARMCI_NbAccV(ARMCI_ACC_INT, &word, &runs, 1, 0, NULL), FAIL8);
    IS(ARMCI_Wait(&handle), FAIL8);
    IS(ARMCI_Test(&handle), FAIL8);
    IS(ARMCI_WaitAll(), FAIL8);
    IS(ARMCI_WaitProc(0), FAIL8);
    IS(ARMCI_PutValueInt(1, &word, 0), FAIL8);
    IS(ARMCI_NbPutValueInt(1, &word, 0, NULL), FAIL8);
    IS(ARMCI_Rmw(ARMCI_SWAP, &word, &word, 0, 0), FAIL8);
    IS(ARMCI_Malloc(list, 8), FAIL8);
    IS(ARMCI_Malloc_group(list, 8, &group), FAIL8);
    IS(ARMCI_Free(&word), FAIL8);
    IS(ARMCI_Free_local(&word), FAIL8);
    IS(ARMCI_Free_group(&word, &group), FAIL8);
    CHECK(!ARMCI_Malloc_local(8), "local memory");
    IS(ARMCI_Create_mutexes(1), FAIL8);
    IS(ARMCI_Destroy_mutexes(), FAIL8);
    IS(ARMCI_Group_rank(&group, &word), FAIL8);
    IS(ARMCI_Gpc_exec(0, 0, NULL, 0, NULL, 0, NULL, 0, NULL, 0, NULL), FAIL8);
    IS(armci_notify_wait(0, &word), FAIL8);
    IS(ARMCI_Uses_shm(), 0);
    IS(word, 5);
    ARMCI_Cleanup();
}

int main(int argc, char **argv) {
    refuses();
    /* A second end does nothing. */
    WORKS(ARMCI_Finalize());
    WORKS(ARMCI_Init_args(&argc, &argv));
    me = armci_msg_me();
    processes = armci_msg_nproc();
    WORKS(ARMCI_Init_thread(3));
    CHECK(ARMCI_Initialized(), "twice");
    void **all = shared(8);
    ARMCI_Finalize();
    CHECK(ARMCI_Initialized(), "once");
    WORKS(ARMCI_PutValueLong(me + 1, all[(me + 1) % processes], (me + 1) % processes));
    ARMCI_Barrier();
    IS(*(long *)all[me], (me + processes - 1) % processes + 1);
    WORKS(ARMCI_Free(all[me]));
    ARMCI_Finalize();
    refuses();
    WORKS(ARMCI_Finalize());
    if (me == 0) puts("ok");
    return 0;
}
