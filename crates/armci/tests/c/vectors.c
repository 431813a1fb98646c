/* Puts, gets and accumulates of runs at pseudo-random offsets. */
#include "check.h"

enum { PLACES = 1000, STEP = 64, WHOLE = PLACES * STEP, DESCRIPTORS = 3, MOST = 60, ROUNDS = 60 };

static void *from[DESCRIPTORS][MOST], *to[DESCRIPTORS][MOST];
static armci_giov_t list[DESCRIPTORS];

/* Draws runs from offsets of one memory to offsets of another. Each destination is used once. */
static int runs(uint64_t *seed, int unit, char *src, char *dst) {
    int number = between(seed, 1, DESCRIPTORS), place = 0;
    for (int at = 0; at < number; at++) {
        int len = between(seed, 1, MOST), bytes = unit * between(seed, 1, STEP / unit);
        for (int run = 0; run < len; run++) {
            from[at][run] = src + between(seed, 0, PLACES - 1) * STEP;
            place += between(seed, 1, 5);
            to[at][run] = dst + place * STEP;
        }
        list[at] = (armci_giov_t){from[at], to[at], len, bytes};
    }
    return number;
}

/* Applies the runs to a copy of the destination. */
static void serially(int number, const char *src, const char *own, const char *dst, char *copy, int adds) {
    for (int at = 0; at < number; at++)
        for (int run = 0; run < list[at].ptr_array_len; run++) {
            const char *source = own + ((char *)from[at][run] - src);
            char *target = copy + ((char *)to[at][run] - dst);
            if (!adds) memcpy(target, source, (size_t)list[at].bytes);
            else
                for (int i = 0; i < list[at].bytes / 8; i++)
                    ((long *)(void *)target)[i] -= 2 * ((const long *)(const void *)source)[i];
        }
}

int main(void) {
    begin();
    void **all = shared(WHOLE);
    int right = (me + 1) % processes, left = (me + processes - 1) % processes;
    char *own = room(WHOLE), *there = all[right], *theirs = room(WHOLE), *answer = room(WHOLE);
    uint64_t seed = 11;
    for (int round = 0; round < ROUNDS; round++) {
        memset(answer, 0, WHOLE);
        fill(own, WHOLE, me, round);
        fill(theirs, WHOLE, left, round);
        int number = runs(&seed, 1, own, there);
        armci_hdl_t handle;
        ARMCI_INIT_HANDLE(&handle);
        switch (round % 4) {
        case 0: WORKS(ARMCI_PutV(list, number, right)); break;
        case 1: WORKS(ARMCI_NbPutV(list, number, right, &handle)); break;
        case 2: WORKS(ARMCI_NbPutV(list, number, right, NULL)); break;
        default:
            ARMCI_SET_AGGREGATE_HANDLE(&handle);
            WORKS(ARMCI_NbPutV(list, number, right, &handle));
        }
        WORKS(ARMCI_Wait(&handle));
        WORKS(ARMCI_WaitAll());
        ARMCI_Barrier();
        serially(number, own, theirs, there, answer, 0);
        CHECK(!memcmp(answer, all[me], WHOLE), "PutV in round %d", round);
        ARMCI_Barrier();

        fill(all[me], WHOLE, me, round + 1);
        fill(theirs, WHOLE, right, round + 1);
        memset(own, 0, WHOLE);
        memset(answer, 0, WHOLE);
        ARMCI_Barrier();
        number = runs(&seed, 1, there, own);
        switch (round % 3) {
        case 0: WORKS(ARMCI_GetV(list, number, right)); break;
        case 1: WORKS(ARMCI_NbGetV(list, number, right, &handle)); break;
        default: WORKS(ARMCI_NbGetV(list, number, right, NULL));
        }
        WORKS(ARMCI_Wait(&handle));
        WORKS(ARMCI_WaitAll());
        serially(number, there, theirs, own, answer, 0);
        CHECK(!memcmp(answer, own, WHOLE), "GetV in round %d", round);
        ARMCI_Barrier();

        memset(all[me], 0, WHOLE);
        memset(answer, 0, WHOLE);
        fill(own, WHOLE, me, round);
        fill(theirs, WHOLE, left, round);
        ARMCI_Barrier();
        number = runs(&seed, 8, own, there);
        long minus_two = -2;
        ARMCI_INIT_HANDLE(&handle);
        if (round % 2) WORKS(ARMCI_AccV(ARMCI_ACC_LNG, &minus_two, list, number, right));
        else WORKS(ARMCI_NbAccV(ARMCI_ACC_LNG, &minus_two, list, number, right, &handle));
        WORKS(ARMCI_Wait(&handle));
        ARMCI_Barrier();
        serially(number, own, theirs, there, answer, 1);
        CHECK(!memcmp(answer, all[me], WHOLE), "AccV in round %d", round);
        ARMCI_Barrier();
        memset(all[me], 0, WHOLE);
        ARMCI_Barrier();
    }
    release(all);
    return end();
}
