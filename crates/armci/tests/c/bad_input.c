/* Wrong arguments are refused with the right number, and change nothing at any process. */
#include "check.h"

enum { BYTES = 1024 };

static void **before, **all, **after;
static char *own;
static int proc;

static void refused(long code, long wanted, const char *what, int line) {
    CHECK(code == wanted, "line %d: %s is %ld, and not %ld", line, what, code, wanted);
}

#define REFUSED(call, wanted) refused(call, wanted, #call, __LINE__)

/* Each contiguous operation, with one wrong argument. */
static void contiguous(void *there, int bytes, int to, int wanted) {
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    int scale = 1;
    REFUSED(ARMCI_Put(own, there, bytes, to), wanted);
    REFUSED(ARMCI_Get(there, own, bytes, to), wanted);
    REFUSED(ARMCI_Put_flag(own, there, bytes, all[proc], 1, to), wanted);
    REFUSED(ARMCI_NbPut(own, there, bytes, to, &handle), wanted);
    REFUSED(ARMCI_NbGet(there, own, bytes, to, &handle), wanted);
    REFUSED(ARMCI_NbPut(own, there, bytes, to, NULL), wanted);
    REFUSED(ARMCI_Acc(ARMCI_ACC_INT, &scale, own, there, bytes, to), wanted);
    WORKS(ARMCI_Wait(&handle));
}

static void strided(void *there, int *src, int *dst, int *count, int levels, int to, int wanted) {
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    int scale = 1;
    REFUSED(ARMCI_PutS(own, src, there, dst, count, levels, to), wanted);
    REFUSED(ARMCI_GetS(there, dst, own, src, count, levels, to), wanted);
    REFUSED(ARMCI_NbPutS(own, src, there, dst, count, levels, to, &handle), wanted);
    REFUSED(ARMCI_NbGetS(there, dst, own, src, count, levels, to, NULL), wanted);
    REFUSED(ARMCI_AccS(ARMCI_ACC_INT, &scale, own, src, there, dst, count, levels, to), wanted);
    REFUSED(ARMCI_NbAccS(ARMCI_ACC_INT, &scale, own, src, there, dst, count, levels, to, &handle), wanted);
    REFUSED(ARMCI_PutS_flag(own, src, there, dst, count, levels, all[proc], 1, to), wanted);
    REFUSED(ARMCI_PutS_flag_dir(own, src, there, dst, count, levels, all[proc], 1, to), wanted);
    WORKS(ARMCI_Wait(&handle));
}

static void vector(void *first, void *second, int bytes, int len, int to, int wanted) {
    void *here[2] = {own, own + BYTES}, *there[2] = {first, second};
    armci_giov_t out = {here, there, len, bytes}, in = {there, here, len, bytes};
    armci_hdl_t handle;
    ARMCI_INIT_HANDLE(&handle);
    int scale = 1;
    REFUSED(ARMCI_PutV(&out, 1, to), wanted);
    REFUSED(ARMCI_GetV(&in, 1, to), wanted);
    REFUSED(ARMCI_NbPutV(&out, 1, to, &handle), wanted);
    REFUSED(ARMCI_NbGetV(&in, 1, to, NULL), wanted);
    REFUSED(ARMCI_AccV(ARMCI_ACC_INT, &scale, &out, 1, to), wanted);
    REFUSED(ARMCI_NbAccV(ARMCI_ACC_INT, &scale, &out, 1, to, &handle), wanted);
    WORKS(ARMCI_Wait(&handle));
}

int main(void) {
    begin();
    proc = (me + 1) % processes;
    before = shared(BYTES);
    all = shared(BYTES);
    /* Freed memory lies between the memory that is accessed and the memory behind it. */
    void **freed = shared(BYTES);
    after = shared(BYTES);
    void *gone = freed[proc];
    release(freed);
    own = room(4 * BYTES);
    fill(own, 4 * BYTES, me, 9);
    fill(before[me], BYTES, me, 1);
    fill(all[me], BYTES, me, 2);
    fill(after[me], BYTES, me, 3);
    ARMCI_Barrier();
    char *there = all[proc];
    int plain = 0;

    contiguous(there, -1, proc, FAIL3);
    contiguous(there, INT_MIN, proc, FAIL3);
    contiguous(NULL, 8, proc, FAIL);
    contiguous(there, BYTES + 4, proc, FAIL6);
    contiguous(there + BYTES - 8, 12, proc, FAIL6);
    contiguous(there, INT_MAX - 3, proc, FAIL6);
    contiguous(there, 8, processes, FAIL5);
    contiguous(there, 8, -1, FAIL5);
    contiguous(there, 8, INT_MIN, FAIL5);
    contiguous(gone, 8, proc, FAIL6);
    /* Only other processes are refused: a process may use its own memory that ARMCI did not allocate. */
    if (proc != me) contiguous(&plain, 4, proc, FAIL6);
    if (proc != me) contiguous((char *)(UINTPTR_MAX - 15), 8, proc, FAIL6);
    IS(ARMCI_Put(own, there + BYTES, 1, proc), FAIL6);
    IS(ARMCI_Put(own, there + BYTES - 1, 2, proc), FAIL6);
    IS(ARMCI_Get(there + BYTES - 1, own, 2, proc), FAIL6);
    IS(ARMCI_Put(NULL, there, 8, proc), FAIL);
    IS(ARMCI_Get(there, NULL, 8, proc), FAIL);
    IS(ARMCI_NbPut(NULL, there, 8, proc, NULL), FAIL);
    IS(ARMCI_NbGet(there, NULL, 8, proc, NULL), FAIL);
    IS(ARMCI_Put_flag(own, there, 8, NULL, 1, proc), FAIL);
    IS(ARMCI_Put_flag(own, there, 8, (int *)(void *)(there + BYTES), 1, proc), FAIL6);

    /* Strides. */
    int s[9] = {16, 64, 64, 64, 64, 64, 64, 64, 64}, count[10] = {8, 2, 1, 1, 1, 1, 1, 1, 1, 1};
    strided(there, s, s, count, 9, proc, FAIL4);
    strided(there, s, s, count, -1, proc, FAIL4);
    strided(there, s, s, count, INT_MAX, proc, FAIL4);
    strided(there, NULL, s, count, 1, proc, FAIL);
    strided(there, s, NULL, count, 1, proc, FAIL);
    strided(there, s, s, NULL, 1, proc, FAIL);
    strided(NULL, s, s, count, 1, proc, FAIL);
    strided(there, s, s, count, 1, processes, FAIL5);
    strided(there, s, s, count, 1, -1, FAIL5);
    strided(gone, s, s, count, 1, proc, FAIL6);
    for (int at = 0; at < 3; at++) {
        int wrong[3] = {8, 2, 2};
        wrong[at] = -1;
        strided(there, s, s, wrong, 2, proc, FAIL3);
        wrong[at] = INT_MIN;
        strided(there, s, s, wrong, 2, proc, FAIL3);
    }
    int back[2] = {-16, 16};
    strided(there, back, s, count, 1, proc, FAIL3);
    strided(there, s, back, count, 1, proc, FAIL3);
    /* Sections that reach past the allocation, by one byte and by more than the address space has. */
    int tight[1] = {BYTES - 8};
    strided(there + 1, s, tight, count, 1, proc, FAIL6);
    tight[0] = BYTES;
    strided(there, s, tight, count, 1, proc, FAIL6);
    int large[8] = {INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX};
    int many[9] = {8, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX};
    strided(there, large, large, many, 8, proc, FAIL7);
    strided(there, s, large, count, 1, proc, FAIL6);
    IS(ARMCI_PutS(NULL, s, there, s, count, 1, proc), FAIL);
    IS(ARMCI_GetS(there, s, NULL, s, count, 1, proc), FAIL);
    IS(ARMCI_PutS_flag(own, s, there, s, count, 1, NULL, 1, proc), FAIL);

    /* If one run of a vector is refused, no run is done. */
    vector(there, NULL, 8, 2, proc, FAIL);
    vector(there, there + BYTES - 4, 8, 2, proc, FAIL6);
    vector(there, gone, 8, 2, proc, FAIL6);
    vector(there, there, -1, 2, proc, FAIL3);
    vector(there, there, 0, 2, proc, FAIL3);
    vector(there, there, 8, -1, proc, FAIL3);
    vector(there, there, 8, 0, proc, FAIL3);
    vector(there, there, 8, 2, processes, FAIL5);
    void *list[1] = {own}, *nulls[1] = {NULL}, *to[1] = {there};
    armci_giov_t wrong[] = {{NULL, to, 1, 8}, {list, NULL, 1, 8}, {nulls, to, 1, 8}};
    for (int at = 0; at < 3; at++) IS(ARMCI_PutV(&wrong[at], 1, proc), FAIL);
    armci_giov_t mixed[2] = {{list, to, 1, 8}, {list, nulls, 1, 8}};
    IS(ARMCI_PutV(mixed, 2, proc), FAIL);
    IS(ARMCI_PutV(NULL, 1, proc), FAIL);
    IS(ARMCI_PutV(mixed, 0, proc), FAIL3);
    IS(ARMCI_PutV(mixed, -1, proc), FAIL3);

    /* Codes, scales and whole elements. */
    int one = 1;
    for (int code = 0; code < 60; code++) {
        if (code >= ARMCI_ACC_INT && code <= ARMCI_ACC_LNG) continue;
        IS(ARMCI_Acc(code, &one, own, there, 8, proc), FAIL2);
        IS(ARMCI_AccS(code, &one, own, s, there, s, count, 1, proc), FAIL2);
        IS(ARMCI_AccV(code, &one, mixed, 1, proc), FAIL2);
    }
    IS(ARMCI_Acc(ARMCI_ACC_INT, NULL, own, there, 8, proc), FAIL);
    IS(ARMCI_Acc(ARMCI_ACC_INT, &one, NULL, there, 8, proc), FAIL);
    IS(ARMCI_Acc(ARMCI_ACC_INT, &one, own, there, 7, proc), FAIL7);
    IS(ARMCI_Acc(ARMCI_ACC_INT, &one, own, own + BYTES, 7, me), FAIL7);
    double scale[2] = {1, 1};
    IS(ARMCI_Acc(ARMCI_ACC_DCP, scale, own, there, 24, proc), FAIL7);
    int uneven[2] = {6, 2};
    IS(ARMCI_AccS(ARMCI_ACC_INT, &one, own, s, there, s, uneven, 1, proc), FAIL7);
    mixed[0].bytes = 6;
    IS(ARMCI_AccV(ARMCI_ACC_INT, &one, mixed, 1, proc), FAIL7);

    /* Read-modify-write. */
    int word = 3;
    long wide = 3;
    for (int code = -2; code < 30; code++)
        if (code < ARMCI_SWAP || code > ARMCI_FETCH_AND_ADD_LONG) IS(ARMCI_Rmw(code, &word, there, 1, proc), FAIL2);
    IS(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &word, there + 2, 1, proc), FAIL2);
    IS(ARMCI_Rmw(ARMCI_SWAP_LONG, &wide, there + 4, 1, proc), FAIL2);
    IS(ARMCI_Rmw(ARMCI_SWAP, NULL, there, 1, proc), FAIL);
    IS(ARMCI_Rmw(ARMCI_SWAP, &word, NULL, 1, proc), FAIL);
    IS(ARMCI_Rmw(ARMCI_SWAP, &word, there + BYTES, 1, proc), FAIL6);
    IS(ARMCI_Rmw(ARMCI_SWAP, &word, gone, 1, proc), FAIL6);
    IS(ARMCI_Rmw(ARMCI_SWAP, &word, there, 1, processes), FAIL5);
    CHECK(word == 3 && wide == 3, "one's own words");

    IS(ARMCI_PutValueInt(1, there + BYTES - 2, proc), FAIL6);
    IS(ARMCI_PutValueDouble(1, NULL, proc), FAIL);
    IS(ARMCI_NbPutValueLong(1, gone, proc, NULL), FAIL6);
    IS(ARMCI_NbPutValueFloat(1, there, processes, NULL), FAIL5);
    IS(ARMCI_WaitProc(processes), FAIL5);
    IS(ARMCI_WaitProc(-1), FAIL5);
    ARMCI_Group group = 99, world;
    ARMCI_Group_get_world(&world);
    IS(ARMCI_Group_rank(&group, &word), FAIL5);
    IS(ARMCI_Group_rank(NULL, &word), FAIL);
    IS(ARMCI_Group_rank(&world, NULL), FAIL);
    IS(ARMCI_Malloc_group(list, 8, &group), FAIL5);
    IS(ARMCI_Free(gone), FAIL6);
    IS(ARMCI_Free(own), FAIL6);
    /* Only the start of an allocation frees it. */
    IS(ARMCI_Free((char *)all[me] + 8), FAIL6);
    IS(ARMCI_Free((char *)all[proc] + BYTES - 1), FAIL6);
    IS(ARMCI_Free_local((char *)all[me] + 1), FAIL6);
    /* A handle that was never initialized: beginning an operation initializes it. */
    armci_hdl_t strange;
    memset(&strange, 0x5a, sizeof strange);
    IS(ARMCI_Wait(&strange), FAIL2);
    IS(ARMCI_Test(&strange), FAIL2);
    WORKS(ARMCI_NbGet(there, &wide, sizeof wide, proc, &strange));
    WORKS(ARMCI_Wait(&strange));
    IS(ARMCI_Test(&strange), 0);

    /* Nothing was changed, and operations still work. */
    WORKS(ARMCI_WaitAll());
    ARMCI_Barrier();
    CHECK(differs(before[me], BYTES, me, 1) < 0, "what is before: %ld", differs(before[me], BYTES, me, 1));
    CHECK(differs(all[me], BYTES, me, 2) < 0, "what was meant: %ld", differs(all[me], BYTES, me, 2));
    CHECK(differs(after[me], BYTES, me, 3) < 0, "what is behind: %ld", differs(after[me], BYTES, me, 3));
    CHECK(differs(own, 4 * BYTES, me, 9) < 0, "one's own memory: %ld", differs(own, 4 * BYTES, me, 9));
    ARMCI_Barrier();
    WORKS(ARMCI_Put(own, there, BYTES, proc));
    ARMCI_Barrier();
    CHECK(differs(all[me], BYTES, (me + processes - 1) % processes, 9) < 0, "a put after all that");
    release(after);
    release(all);
    release(before);
    return end();
}
