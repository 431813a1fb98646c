/* A forked child takes no part. Every call is refused there, an end ends only the child, and the job
   goes on. */
#include <sys/wait.h>

#include "check.h"

static void **all;
static int handle_is_open;
static armci_hdl_t handle;

/* The actions of a child, by number. The status is 0 if the child behaves as it must. */
static int act(int number, int other) {
    int word[2] = {5, 6};
    void *list[2];
    switch (number) {
    case 0: return 0;
    case 1: exit(0);
    case 2: return ARMCI_Put(word, all[other], 8, other) == 0;
    case 3: return ARMCI_Put(word, all[me], 8, me) == 0;
    case 4: return ARMCI_Get(all[other], word, 8, other) == 0 || word[0] != 5;
    case 5: return ARMCI_PutValueInt(7, all[other], other) == 0;
    case 6: return ARMCI_Acc(ARMCI_ACC_INT, &word[0], word, all[other], 8, other) == 0;
    case 7: return ARMCI_Rmw(ARMCI_FETCH_AND_ADD, word, all[other], 1, other) == 0;
    case 8: return ARMCI_NbPut(word, all[other], 8, other, NULL) == 0;
    case 9: return handle_is_open && ARMCI_Wait(&handle) == 0;
    case 10: return ARMCI_WaitAll() == 0;
    case 11: return ARMCI_Malloc(list, 8) == 0;
    case 12: return ARMCI_Free(all[me]) == 0;
    case 13: return ARMCI_Create_mutexes(1) == 0;
    case 14: return ARMCI_Init() == 0 || ARMCI_Initialized();
    case 15: ARMCI_Finalize(); return 0;
    case 16: armci_msg_finalize(); return 0;
    case 17: ((int *)all[me])[0] = 9; return 0; /* memory of its own */
    /* A call that returns nothing ends the child, as it ends a job elsewhere. */
    case 18: ARMCI_Barrier(); return 0;
    case 19: ARMCI_Fence(other); return 0;
    case 20: armci_msg_snd(3, word, 8, other); return 0;
    case 21: armci_msg_barrier(); return 0;
    case 22: ARMCI_Error("a child", 3); return 0;
    default: return -1;
    }
}

int main(void) {
    begin();
    all = shared(8);
    int other = (me + 1) % processes, word[2] = {5, 6};
    for (int number = 0; number < 23; number++) {
        ARMCI_INIT_HANDLE(&handle);
        WORKS(ARMCI_NbPut(word, all[other], 8, other, &handle));
        handle_is_open = 1;
        pid_t child = me == 0 ? fork() : -1;
        if (child == 0) _exit(act(number, other));
        if (child > 0) {
            int status = -1;
            CHECK(waitpid(child, &status, 0) == child, "a child");
            CHECK(WIFEXITED(status), "child %d ended with %x", number, status);
            if (number < 18) IS(WEXITSTATUS(status), 0);
            else CHECK(WEXITSTATUS(status) != 0, "child %d went on", number);
        }
        WORKS(ARMCI_Wait(&handle));
        ARMCI_Barrier();
        IS(((int *)all[me])[0], 5);
        IS(((int *)all[me])[1], 6);
    }
    return end();
}
