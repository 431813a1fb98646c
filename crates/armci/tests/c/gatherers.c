/* Threads whose operations are gathered while another thread fences. If a fence sends the operations of
   another thread, that thread still waits for them, and they come before its later operations. */
#include "check.h"

enum { THREADS = 3, ROUNDS = 4000, RUNS = 12, RUN = 40, PIECE = 4096 };

static void **all;
static int working;

/* Puts runs and gets them, as vectors or with an aggregate handle, then puts over them. */
static void *work(void *given) {
    int thread = (int)(intptr_t)given, writer = me * THREADS + thread;
    unsigned char own[PIECE], back[PIECE];
    void *here[RUNS], *there[RUNS];
    for (int round = 0; round < ROUNDS; round++) {
        int proc = (me + thread + round) % processes;
        unsigned char *piece = (unsigned char *)all[proc] + writer * PIECE;
        int apart = PIECE / RUNS;
        fill(own, PIECE, writer, round);
        memset(back, 0, PIECE);
        for (int at = 0; at < RUNS; at++) {
            here[at] = own + at * apart;
            there[at] = piece + at * apart;
        }
        armci_giov_t runs = {here, there, RUNS, RUN};
        armci_hdl_t handle;
        ARMCI_INIT_HANDLE(&handle);
        ARMCI_SET_AGGREGATE_HANDLE(&handle);
        if (round % 2) WORKS(ARMCI_PutV(&runs, 1, proc));
        else WORKS(ARMCI_NbPutV(&runs, 1, proc, &handle));
        if (round % 2 == 0) WORKS(ARMCI_Wait(&handle));
        /* The sources are free. */
        memset(own, 0xee, PIECE);
        ARMCI_SET_AGGREGATE_HANDLE(&handle);
        for (int at = 0; at < RUNS; at++) here[at] = back + at * apart;
        armci_giov_t gets = {there, here, RUNS, RUN};
        if (round % 4 < 2) WORKS(ARMCI_GetV(&gets, 1, proc));
        else {
            WORKS(ARMCI_NbGetV(&gets, 1, proc, &handle));
            /* This put comes after the gets. */
            WORKS(ARMCI_PutValueLong(-1, piece, proc));
            WORKS(ARMCI_Wait(&handle));
        }
        for (int at = 0; at < RUNS; at++)
            for (int byte = at * apart; byte < at * apart + RUN; byte++)
                CHECK(back[byte] == pattern(writer, round, (size_t)byte), "thread %d in round %d: byte %d is %d",
                      thread, round, byte, back[byte]);
    }
    __atomic_fetch_sub(&working, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *fence(void *nothing) {
    while (__atomic_load_n(&working, __ATOMIC_ACQUIRE)) {
        ARMCI_AllFence();
        sched_yield();
    }
    return nothing;
}

int main(void) {
    begin();
    all = shared((size_t)(processes * THREADS * PIECE));
    working = THREADS;
    pthread_t threads[THREADS + 1];
    CHECK(!pthread_create(&threads[THREADS], NULL, fence, NULL), "a thread");
    for (int at = 0; at < THREADS; at++)
        CHECK(!pthread_create(&threads[at], NULL, work, (void *)(intptr_t)at), "a thread");
    for (int at = 0; at <= THREADS; at++) CHECK(!pthread_join(threads[at], NULL), "a thread");
    release(all);
    return end();
}
