/* Procedures that other processes call: their replies, their locks, and the calls that they make. */
#include "check.h"

static void **all;
static int calls;

/* Replies with the header reversed, and with each byte of the data plus one. */
static int turn(int to, int from, void *hdr, int hlen, void *data, int dlen, void *rhdr, int rhlen, int *rhsize,
                void *rdata, int rdlen, int *rdsize, int rtype) {
    CHECK(to == me && from >= 0 && from < processes && rtype == GPC_INIT, "called by %d at %d", from, to);
    CHECK(rhlen >= hlen && rdlen >= dlen, "room for %d and %d bytes", rhlen, rdlen);
    for (int at = 0; at < hlen; at++) ((char *)rhdr)[at] = ((char *)hdr)[hlen - 1 - at];
    for (int at = 0; at < dlen; at++) ((char *)rdata)[at] = (char)(((char *)data)[at] + 1);
    *rhsize = hlen;
    *rdsize = dlen;
    return GPC_DONE;
}

/* Adds to a long that the caller names, and passes a value to the next process. */
static int pass_on(int to, int from, void *hdr, int hlen, void *data, int dlen, void *rhdr, int rhlen, int *rhsize,
                   void *rdata, int rdlen, int *rdsize, int rtype) {
    long *word;
    CHECK(hlen == sizeof word && dlen == sizeof(long) && rhlen == 0 && !rdlen && rtype, "lengths");
    memcpy(&word, hdr, sizeof word);
    word = ARMCI_Gpc_translate(word, to, from);
    CHECK(word == (long *)all[me], "translated to %p", (void *)word);
    long more;
    memcpy(&more, data, sizeof more);
    ARMCI_Gpc_lock(to);
    *word += more;
    ARMCI_Gpc_unlock(to);
    int next = (to + 1) % processes;
    long one = 1, found = 0;
    WORKS(ARMCI_Acc(ARMCI_ACC_LNG, &one, &more, (long *)all[next] + 1, sizeof more, next));
    WORKS(ARMCI_Put(&more, (long *)all[next] + 2 + to, sizeof more, next));
    WORKS(ARMCI_Get((long *)all[next] + 2 + to, &found, sizeof found, next));
    CHECK(found != 0, "what was put");
    *rhsize = *rdsize = 0;
    calls++;
    (void)rhdr, (void)rdata;
    return GPC_DONE;
}

static int nests;

/* Has the next process run the same procedure, to the given depth. */
static int nest(int to, int from, void *hdr, int hlen, void *data, int dlen, void *rhdr, int rhlen, int *rhsize,
                void *rdata, int rdlen, int *rdsize, int rtype) {
    int depth;
    CHECK(hlen == sizeof depth && !dlen && rtype && from >= 0, "lengths");
    memcpy(&depth, hdr, sizeof depth);
    if (depth-- > 0)
        WORKS(ARMCI_Gpc_exec(nests, (to + 1) % processes, &depth, sizeof depth, NULL, 0, NULL, 0, NULL, 0, NULL));
    *rhsize = *rdsize = 0;
    (void)data, (void)rhdr, (void)rhlen, (void)rdata, (void)rdlen;
    return GPC_DONE;
}

/* Replies only after another procedure has set the word that the caller names, and never waits for it. */
static int probes;
static int reply_later(int to, int from, void *hdr, int hlen, void *data, int dlen, void *rhdr, int rhlen,
                       int *rhsize, void *rdata, int rdlen, int *rdsize, int rtype) {
    long *mine = all[me];
    CHECK(to == me && from >= 0 && hdr && !hlen && dlen == 3 && !memcmp(data, "ask", 3), "the same request");
    CHECK(rhlen == 5 && rdlen == (int)sizeof(long), "the same room");
    CHECK(rtype == GPC_INIT || rtype == GPC_PROBE, "run for %d", rtype);
    probes += rtype == GPC_PROBE;
    if (rtype == GPC_INIT) memcpy(rhdr, "begun", 5);
    if (*mine == 0) return GPC_PENDING;
    memcpy(rdata, mine, sizeof *mine);
    *rhsize = 5;
    *rdsize = sizeof *mine;
    return GPC_DONE;
}
static int set(int to, int from, void *hdr, int hlen, void *data, int dlen, void *rhdr, int rhlen, int *rhsize,
               void *rdata, int rdlen, int *rdsize, int rtype) {
    (void)to, (void)from, (void)hdr, (void)hlen, (void)dlen, (void)rhdr, (void)rhlen, (void)rdata, (void)rdlen, (void)rtype;
    memcpy(all[me], data, sizeof(long));
    *rhsize = *rdsize = 0;
    return GPC_DONE;
}

/* A call that is answered later delays neither its caller, which has a handle, nor other procedures. */
static void check_pending(int later, int sets) {
    *(long *)all[me] = 0;
    probes = 0;
    ARMCI_Barrier();
    int proc = (me + 1) % processes;
    char header[5];
    long found = 0, value = 100 + me;
    gpc_hdl_t handle, again;
    ARMCI_Gpc_init_handle(&handle);
    ARMCI_Gpc_init_handle(&again);
    WORKS(ARMCI_Gpc_exec(later, proc, NULL, 0, "ask", 3, header, 5, &found, sizeof found, &handle));
    WORKS(ARMCI_Gpc_exec(sets, proc, NULL, 0, &value, sizeof value, NULL, 0, NULL, 0, &again));
    ARMCI_Gpc_wait(&again);
    ARMCI_Gpc_wait(&handle);
    CHECK(!memcmp(header, "begun", 5) && found == value, "the reply %ld", found);
    ARMCI_Gpc_wait(&handle);
    /* Without a handle the call itself waits. */
    WORKS(ARMCI_Gpc_exec(later, proc, NULL, 0, "ask", 3, header, 5, &found, sizeof found, NULL));
    IS(found, value);
    ARMCI_Barrier();
    CHECK(probes > 0, "it was not run again");
}

int main(void) {
    begin();
    all = shared((size_t)(processes + 2) * sizeof(long));
    int turns = ARMCI_Gpc_register(turn), passes = ARMCI_Gpc_register(pass_on);
    int later = ARMCI_Gpc_register(reply_later), sets = ARMCI_Gpc_register(set);
    CHECK(turns != passes, "two procedures");
    ARMCI_Barrier();
    IS(ARMCI_Get_gpc_hlen(), ARMCI_Gpc_get_hlen());
    IS(ARMCI_Get_gpc_dlen(), ARMCI_Gpc_get_dlen());
    int most_header = ARMCI_Gpc_get_hlen(), most = ARMCI_Gpc_get_dlen();
    CHECK(most_header >= 64 && most >= 4096, "%d and %d bytes", most_header, most);
    char *header = room((size_t)most_header), *data = room((size_t)most);
    char *back_header = room((size_t)most_header), *back = room((size_t)most);
    const int sizes[] = {0, 1, 100, 5000, most};
    for (int round = 0; round < 20; round++) {
        int proc = (me + round) % processes, bytes = sizes[round % 5], hlen = round % 2 ? most_header : 7;
        fill(header, (size_t)hlen, me, round);
        fill(data, (size_t)bytes, me, round);
        gpc_hdl_t handle;
        ARMCI_Gpc_init_handle(&handle);
        WORKS(ARMCI_Gpc_exec(turns, proc, header, hlen, data, bytes, back_header, most_header, back, most,
                             round % 3 ? &handle : NULL));
        ARMCI_Gpc_wait(&handle);
        for (int at = 0; at < hlen; at++) CHECK(back_header[at] == header[hlen - 1 - at], "the header at %d", at);
        for (int at = 0; at < bytes; at++) CHECK(back[at] == (char)(data[at] + 1), "the data at %d", at);
    }

    ARMCI_Barrier();
    for (int proc = 0; proc < processes; proc++) {
        long more = me + 1;
        for (int round = 0; round < 30; round++)
            WORKS(ARMCI_Gpc_exec(passes, proc, &all[proc], sizeof all[proc], &more, sizeof more, NULL, 0, NULL, 0, NULL));
    }
    ARMCI_Barrier();
    long sum = 30L * processes * (processes + 1) / 2, *mine = all[me];
    IS(mine[0], sum);
    IS(mine[1], sum);
    IS(calls, 30 * processes);

    /* Headers and data have a greatest length. */
    IS(ARMCI_Gpc_exec(turns, me, header, ARMCI_Gpc_get_hlen() + 1, NULL, 0, NULL, 0, NULL, 0, NULL), -3);
    IS(ARMCI_Gpc_exec(turns, me, header, 1, data, ARMCI_Gpc_get_dlen() + 1, NULL, 0, NULL, 0, NULL), -3);

    /* A procedure that waits for another one lets others run. */
    nests = ARMCI_Gpc_register(nest);
    ARMCI_Barrier();
    for (int depth = 0; depth < 10; depth++)
        WORKS(ARMCI_Gpc_exec(nests, me, &depth, sizeof depth, NULL, 0, NULL, 0, NULL, 0, NULL));

    /* Only one process holds the lock. */
    ARMCI_Barrier();
    int turns_had = 0;
    for (int round = 0; round < 100; round++) {
        if (round % 2) ARMCI_Gpc_lock(0);
        else if (!ARMCI_Gpc_trylock(0)) continue;
        CHECK(!ARMCI_Gpc_trylock(0), "the lock is had twice");
        long had = ARMCI_GetValueLong((long *)all[0] + 1, 0);
        WORKS(ARMCI_PutValueLong(had + 1, (long *)all[0] + 1, 0));
        ARMCI_Fence(0);
        turns_had++;
        ARMCI_Gpc_unlock(0);
    }
    armci_msg_igop(&turns_had, 1, "+");
    ARMCI_Barrier();
    IS(ARMCI_GetValueLong((long *)all[0] + 1, 0), sum + turns_had);

    check_pending(later, sets);

    IS(ARMCI_Gpc_exec(99, 0, header, 0, data, 0, back, 0, back, 0, NULL), FAIL2);
    IS(ARMCI_Gpc_exec(-1, 0, header, 0, data, 0, back, 0, back, 0, NULL), FAIL2);
    IS(ARMCI_Gpc_exec(turns, processes, header, 0, data, 0, back, 0, back, 0, NULL), FAIL5);
    IS(ARMCI_Gpc_exec(turns, 0, header, -1, data, 0, back, 0, back, 0, NULL), FAIL3);
    IS(ARMCI_Gpc_exec(turns, 0, header, most_header + 1, data, 0, back, 0, back, 0, NULL), FAIL3);
    IS(ARMCI_Gpc_exec(turns, 0, header, 1, data, 0, back, -1, back, 0, NULL), FAIL3);
    IS(ARMCI_Gpc_exec(turns, 0, NULL, 5, data, 0, back, 5, back, 0, NULL), FAIL);
    ARMCI_Barrier();
    ARMCI_Gpc_release(turns);
    ARMCI_Gpc_release(1234);
    ARMCI_Barrier();
    IS(ARMCI_Gpc_exec(turns, (me + 1) % processes, header, 0, data, 0, back, 0, back, 0, NULL), FAIL2);
    release(all);
    return end();
}
