/* Threads of each process that put, get, accumulate, lock and count at the same time. */
#include "check.h"

enum { THREADS = 4, ROUNDS = 60, PIECE = 900 };

typedef struct {
    long count, locked, sums[64];
    char pieces[];
} Room;

static void **all;

static void *work(void *given) {
    int thread = (int)(intptr_t)given, writer = me * THREADS + thread;
    char own[PIECE], back[PIECE];
    for (int round = 0; round < ROUNDS; round++) {
        int proc = (me + thread + round) % processes;
        Room *there = all[proc];
        char *piece = there->pieces + writer * PIECE;
        fill(own, PIECE, writer, round);
        armci_hdl_t handle;
        ARMCI_INIT_HANDLE(&handle);
        switch ((round + thread) % 3) {
        case 0: WORKS(ARMCI_Put(own, piece, PIECE, proc)); break;
        case 1:
            WORKS(ARMCI_NbPut(own, piece, PIECE, proc, &handle));
            WORKS(ARMCI_Wait(&handle));
            break;
        default:
            ARMCI_SET_AGGREGATE_HANDLE(&handle);
            WORKS(ARMCI_NbPut(own, piece, PIECE / 2, proc, &handle));
            WORKS(ARMCI_NbPut(own + PIECE / 2, piece + PIECE / 2, PIECE - PIECE / 2, proc, &handle));
            WORKS(ARMCI_Wait(&handle));
        }
        WORKS(ARMCI_Get(piece, back, PIECE, proc));
        CHECK(!memcmp(own, back, PIECE), "the thread %d in round %d", thread, round);

        long one = 1, add[64], was;
        for (int at = 0; at < 64; at++) add[at] = at + writer;
        WORKS(ARMCI_Acc(ARMCI_ACC_LNG, &one, add, there->sums, sizeof add, proc));
        WORKS(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &was, &there->count, 1, proc));
        ARMCI_Lock(round % 2, proc);
        /* Each mutex guards its own counter. */
        long *counter = &there->locked;
        if (round % 2) counter = (long *)all[proc] + sizeof(Room) / sizeof(long) + processes * THREADS * PIECE / 8 + 1;
        long value = ARMCI_GetValueLong(counter, proc) + 1;
        WORKS(ARMCI_PutValueLong(value, counter, proc));
        ARMCI_Unlock(round % 2, proc);
        if (round % 20 == 0) ARMCI_AllFence();
    }
    return NULL;
}

int main(void) {
    begin();
    size_t bytes = sizeof(Room) + (size_t)(processes * THREADS * PIECE) + 64;
    all = shared(bytes);
    WORKS(ARMCI_Create_mutexes(2));
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++)
        CHECK(!pthread_create(&threads[at], NULL, work, (void *)(intptr_t)at), "a thread");
    for (int at = 0; at < THREADS; at++) CHECK(!pthread_join(threads[at], NULL), "a thread");
    ARMCI_Barrier();
    Room *mine = all[me];
    long totals[3] = {mine->count, mine->locked, 0};
    totals[1] += ((long *)all[me])[sizeof(Room) / sizeof(long) + (size_t)(processes * THREADS * PIECE / 8 + 1)];
    for (int at = 0; at < 64; at++) totals[2] += mine->sums[at];
    armci_msg_lgop(totals, 3, "+");
    long writers = (long)processes * THREADS;
    IS(totals[0], writers * ROUNDS);
    IS(totals[1], writers * ROUNDS);
    IS(totals[2], ROUNDS * (writers * 64 * 63 / 2 + 64 * writers * (writers - 1) / 2));
    WORKS(ARMCI_Destroy_mutexes());
    release(all);
    return end();
}
