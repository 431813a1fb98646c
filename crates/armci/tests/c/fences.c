/* Fences, and the order that needs none: of one process's operations on the same bytes. */
#include "check.h"

enum { SLOTS = 64, SLOT = 512, WHOLE = SLOTS * SLOT, ROUNDS = 40 };

int main(void) {
    begin();
    void **all = shared(WHOLE), **flags = shared(2 * sizeof(int));
    int right = (me + 1) % processes, left = (me + processes - 1) % processes;
    char *there = all[right], *own = room(WHOLE), *back = room(WHOLE);
    int *flag = flags[right];
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    for (int round = 1; round <= ROUNDS; round++) {
        for (int at = 0; at < SLOTS; at++) {
            fill(own + at * SLOT, SLOT, me, round + at);
            WORKS(ARMCI_NbPut(own + at * SLOT, there + at * SLOT, SLOT, right, NULL));
        }
        /* A process that sees the flag also sees the puts before the fence. */
        switch (round % 3) {
        case 0: ARMCI_Fence(right); break;
        case 1: ARMCI_AllFence(); break;
        default: ARMCI_GroupFence(&world);
        }
        WORKS(ARMCI_PutValueInt(round, flag, right));
        until(flags[me], round);
        for (int at = 0; at < SLOTS; at++)
            CHECK(differs((char *)all[me] + at * SLOT, SLOT, left, round + at) < 0, "the slot %d in round %d", at, round);
        ARMCI_Barrier();
    }

    /* Of overlapping puts the later one stays, and gets see earlier puts. */
    uint64_t seed = 3 + (uint64_t)me;
    memset(back, 0, WHOLE);
    memset(all[me], 0, WHOLE);
    ARMCI_Barrier();
    for (int round = 0; round < 1500; round++) {
        int at = between(&seed, 0, 3000), bytes = between(&seed, 1, 900);
        fill(own + at, (size_t)bytes, me, round);
        memcpy(back + at, own + at, (size_t)bytes);
        armci_hdl_t handle;
        switch (round % 5) {
        case 0:
            WORKS(ARMCI_NbPut(own + at, there + at, bytes, right, NULL));
            WORKS(ARMCI_WaitProc(right));
            break;
        case 1: {
            int count[2] = {1, bytes}, stride[1] = {1};
            WORKS(ARMCI_PutS(own + at, stride, there + at, stride, count, 1, right));
            break;
        }
        case 2:
            ARMCI_INIT_HANDLE(&handle);
            ARMCI_SET_AGGREGATE_HANDLE(&handle);
            WORKS(ARMCI_NbPut(own + at, there + at, bytes, right, &handle));
            WORKS(ARMCI_Wait(&handle));
            break;
        default: WORKS(ARMCI_Put(own + at, there + at, bytes, right));
        }
        if (round % 3 == 0) {
            int from = between(&seed, 0, 3000);
            char got[900];
            WORKS(ARMCI_Get(there + from, got, sizeof got, right));
            CHECK(!memcmp(got, back + from, sizeof got), "what was put, in round %d", round);
        }
    }
    WORKS(ARMCI_Get(there, own, WHOLE, right));
    CHECK(!memcmp(own, back, WHOLE), "all that was put");

    /* An accumulate and a read-modify-write also come after a put to the same word. */
    int *words = all[right], one = 1, ten = 10, more[100], was;
    ARMCI_Barrier();
    for (int round = 0; round < 100; round++) {
        for (int at = 0; at < 100; at++) more[at] = round;
        WORKS(ARMCI_Put(more, words, sizeof more, right));
        WORKS(ARMCI_Acc(ARMCI_ACC_INT, &ten, more, words, sizeof more, right));
        WORKS(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &was, words, one, right));
        IS(was, 11 * round);
        IS(ARMCI_GetValueInt(words, right), 11 * round + 1);
        IS(ARMCI_GetValueInt(words + 99, right), 11 * round);
    }
    ARMCI_Barrier();
    IS(((int *)all[me])[50], 11 * 99);
    release(flags);
    release(all);
    return end();
}
