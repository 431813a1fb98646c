/* Non-blocking puts and gets: explicit, implicit and aggregate handles. */
#include "check.h"

enum { PIECES = 400, BYTES = 700, WHOLE = PIECES * BYTES };

static void **all;
static unsigned char *own, *back;
static int right, left;

static void check_here(int round, const char *how) {
    ARMCI_Barrier();
    for (int at = 0; at < PIECES; at++)
        CHECK(differs((char *)all[me] + at * BYTES, BYTES, left, round + at) < 0, "%s, the piece %d", how, at);
    ARMCI_Barrier();
}

static void prepare(int round) {
    memset(all[me], 0, WHOLE);
    memset(back, 0, WHOLE);
    for (int at = 0; at < PIECES; at++) fill(own + at * BYTES, BYTES, me, round + at);
    ARMCI_Barrier();
}

int main(void) {
    begin();
    right = (me + 1) % processes;
    left = (me + processes - 1) % processes;
    all = shared(WHOLE);
    own = room(WHOLE);
    back = room(WHOLE);
    char *there = all[right];

    /* One handle for each operation. */
    prepare(1);
    armci_hdl_t *handles = room(sizeof *handles * PIECES);
    for (int at = 0; at < PIECES; at++) {
        ARMCI_INIT_HANDLE(&handles[at]);
        WORKS(ARMCI_NbPut(own + at * BYTES, there + at * BYTES, BYTES, right, &handles[at]));
    }
    for (int at = PIECES; at-- > 0;) {
        if (at % 2) {
            int under_way;
            while ((under_way = ARMCI_Test(&handles[at])) == 1) sched_yield();
            WORKS(under_way);
        }
        WORKS(ARMCI_Wait(&handles[at]));
        WORKS(ARMCI_Wait(&handles[at]));
    }
    for (int at = 0; at < PIECES; at++)
        WORKS(ARMCI_NbGet(there + at * BYTES, back + at * BYTES, BYTES, right, &handles[at]));
    for (int at = 0; at < PIECES; at++) WORKS(ARMCI_Wait(&handles[at]));
    CHECK(!memcmp(back, own, WHOLE), "what was got back");
    check_here(1, "a handle each");

    /* One handle for all operations, in both directions. */
    prepare(2);
    armci_req_t one;
    ARMCI_INIT_HANDLE(&one);
    for (int at = 0; at < PIECES; at++)
        WORKS(ARMCI_NbPut(own + at * BYTES, there + at * BYTES, BYTES, right, &one));
    for (int at = 0; at < PIECES; at++)
        WORKS(ARMCI_NbGet(there + at * BYTES, back + at * BYTES, BYTES, right, &one));
    WORKS(ARMCI_Wait(&one));
    CHECK(!memcmp(back, own, WHOLE), "what was got back with one handle");
    check_here(2, "one handle");

    /* Implicit handles. */
    prepare(3);
    for (int at = 0; at < PIECES; at++)
        WORKS(ARMCI_NbPut(own + at * BYTES, there + at * BYTES, BYTES, right, NULL));
    WORKS(ARMCI_WaitProc(right));
    for (int at = 0; at < PIECES; at++)
        WORKS(ARMCI_NbGet(there + at * BYTES, back + at * BYTES, BYTES, right, NULL));
    WORKS(ARMCI_WaitAll());
    CHECK(!memcmp(back, own, WHOLE), "what was got back with implicit handles");
    check_here(3, "implicit handles");

    /* Gathered operations to several processes in turn. */
    prepare(4);
    ARMCI_INIT_HANDLE(&one);
    ARMCI_SET_AGGREGATE_HANDLE(&one);
    for (int at = 0; at < PIECES; at++)
        WORKS(ARMCI_NbPut(own + at * BYTES, there + at * BYTES, BYTES, right, &one));
    WORKS(ARMCI_Wait(&one));
    memset(own, 0, WHOLE);
    check_here(4, "gathered");
    for (int at = 0; at < PIECES; at++) fill(own + at * BYTES, BYTES, me, 4 + at);
    for (int at = 0; at < PIECES; at++)
        WORKS(ARMCI_NbGet(there + at * BYTES, back + at * BYTES, BYTES, right, &one));
    int under_way;
    while ((under_way = ARMCI_Test(&one)) == 1) sched_yield();
    WORKS(under_way);
    CHECK(!memcmp(back, own, WHOLE), "what was got back gathered");
    ARMCI_UNSET_AGGREGATE_HANDLE(&one);
    WORKS(ARMCI_Wait(&one));
    ARMCI_Barrier();

    /* A fence sends the gathered operations, and so does the end of gathering. */
    prepare(5);
    ARMCI_INIT_HANDLE(&one);
    ARMCI_SET_AGGREGATE_HANDLE(&one);
    for (int at = 0; at < PIECES / 2; at++)
        WORKS(ARMCI_NbPut(own + at * BYTES, there + at * BYTES, BYTES, right, &one));
    ARMCI_Fence(right);
    for (int at = PIECES / 2; at < PIECES; at++)
        WORKS(ARMCI_NbPut(own + at * BYTES, there + at * BYTES, BYTES, right, &one));
    ARMCI_UNSET_AGGREGATE_HANDLE(&one);
    WORKS(ARMCI_Wait(&one));
    check_here(5, "gathered until a fence");

    /* Gathered operations come before later ones that touch the same bytes. */
    for (int turn = 0; turn < 5; turn++) {
        prepare(7);
        int first = 1, second = 2, found = 0, step = 1;
        armci_hdl_t other;
        ARMCI_INIT_HANDLE(&one);
        ARMCI_INIT_HANDLE(&other);
        ARMCI_SET_AGGREGATE_HANDLE(&one);
        ARMCI_SET_AGGREGATE_HANDLE(&other);
        WORKS(ARMCI_NbPut(&first, there, sizeof first, right, &one));
        if (turn == 0) WORKS(ARMCI_Put(&second, there, sizeof second, right));
        if (turn == 1) WORKS(ARMCI_NbPut(&second, there, sizeof second, right, &other));
        if (turn == 1) WORKS(ARMCI_Wait(&other));
        if (turn == 2) WORKS(ARMCI_Acc(ARMCI_ACC_INT, &step, &step, there, sizeof step, right));
        if (turn == 3) WORKS(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &found, there, 1, right));
        if (turn == 4) WORKS(ARMCI_PutValueInt(second, there, right));
        WORKS(ARMCI_Wait(&one));
        WORKS(ARMCI_Get(there, &found, sizeof found, right));
        IS(found, 2);
        ARMCI_Barrier();
    }

    /* On return the caller may change the strides, counts and descriptors. */
    for (int gathers = 0; gathers < 2; gathers++) {
        prepare(6);
        armci_hdl_t handle;
        ARMCI_INIT_HANDLE(&handle);
        if (gathers) ARMCI_SET_AGGREGATE_HANDLE(&handle);
        int stride[1] = {BYTES}, count[2] = {BYTES, PIECES / 2};
        WORKS(ARMCI_NbPutS(own, stride, there, stride, count, 1, right, &handle));
        stride[0] = count[0] = count[1] = -1;
        void *from[PIECES / 2], *to[PIECES / 2];
        for (int at = 0; at < PIECES / 2; at++) {
            from[at] = own + (PIECES / 2 + at) * BYTES;
            to[at] = there + (PIECES / 2 + at) * BYTES;
        }
        armci_giov_t runs = {from, to, PIECES / 2, BYTES};
        WORKS(ARMCI_NbPutV(&runs, 1, right, &handle));
        memset(from, 0, sizeof from);
        memset(to, 0, sizeof to);
        memset(&runs, 0, sizeof runs);
        WORKS(ARMCI_Wait(&handle));

        stride[0] = count[0] = BYTES;
        count[1] = PIECES / 2;
        WORKS(ARMCI_NbGetS(there, stride, back, stride, count, 1, right, &handle));
        stride[0] = count[0] = count[1] = -1;
        for (int at = 0; at < PIECES / 2; at++) {
            from[at] = there + (PIECES / 2 + at) * BYTES;
            to[at] = back + (PIECES / 2 + at) * BYTES;
        }
        runs = (armci_giov_t){from, to, PIECES / 2, BYTES};
        WORKS(ARMCI_NbGetV(&runs, 1, right, &handle));
        memset(from, 0, sizeof from);
        memset(to, 0, sizeof to);
        WORKS(ARMCI_Wait(&handle));
        CHECK(!memcmp(back, own, WHOLE), "what was got back by descriptors, gathered: %d", gathers);
        check_here(6, gathers ? "gathered descriptors" : "descriptors");
    }

    /* A few long runs. */
    memset(back, 0, WHOLE);
    int stride[1] = {WHOLE / 4}, count[2] = {WHOLE / 5, 4};
    WORKS(ARMCI_NbPutS(own, stride, there, stride, count, 1, right, NULL));
    WORKS(ARMCI_WaitAll());
    WORKS(ARMCI_NbGetS(there, stride, back, stride, count, 1, right, NULL));
    WORKS(ARMCI_WaitAll());
    for (int at = 0; at < 4; at++)
        CHECK(!memcmp(back + at * stride[0], own + at * stride[0], (size_t)count[0]), "a long run");
    CHECK(back[count[0]] == 0, "between long runs");

    ARMCI_INIT_HANDLE(&one);
    WORKS(ARMCI_Wait(&one));
    IS(ARMCI_Test(&one), 0);
    WORKS(ARMCI_WaitAll());
    release(all);
    return end();
}
