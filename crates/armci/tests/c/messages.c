/* Messages, and the collectives by messages: of all processes, of a node, and of the nodes' masters. */
#include "check.h"

enum { LARGE = 3000000 };

static int node_size, is_master, nodes;

static void reductions(void) {
    int n = 1000, node = armci_domain_my_id(ARMCI_DOMAIN_SMP), first = armci_domain_glob_proc_id(0, node, 0);
    int *i = room((size_t)n * sizeof *i);
    for (int at = 0; at < n; at++) i[at] = me - at;
    armci_msg_igop(i, n, "max");
    for (int at = 0; at < n; at++) IS(i[at], processes - 1 - at);
    int one = 1;
    armci_msg_clus_igop(&one, 1, "+");
    IS(one, node_size);
    long l = -(long)me - 1;
    armci_msg_lgop(&l, 1, "absmax");
    IS(l, processes);
    l = me;
    armci_msg_clus_lgop(&l, 1, "min");
    IS(l, first);
    long long ll = 1LL << me;
    armci_msg_llgop(&ll, 1, "or");
    IS(ll, (1LL << processes) - 1);
    ll = 2;
    armci_msg_clus_llgop(&ll, 1, "*");
    IS(ll, 1LL << node_size);
    float f = (float)me + 0.5f;
    armci_msg_fgop(&f, 1, "min");
    CHECK(f == 0.5f, "the smallest float: %f", (double)f);
    f = 2;
    armci_msg_clus_fgop(&f, 1, "*");
    CHECK(f == (float)(1 << node_size), "a product of floats");
    double d[2] = {me + 1, -me};
    armci_msg_dgop(d, 2, "+");
    CHECK(d[0] == processes * (processes + 1) / 2 && d[1] == -processes * (processes - 1) / 2, "sums of doubles");
    d[0] = -me;
    armci_msg_clus_dgop(d, 1, "absmax");
    CHECK(d[0] == first + node_size - 1, "the largest double of a node: %f", d[0]);

    double at_first = me + 1;
    armci_msg_reduce(&at_first, 1, "+", ARMCI_DOUBLE);
    if (me == 0) CHECK(at_first == processes * (processes + 1) / 2, "a sum at the first");
    long long more = me + 1;
    armci_msg_reduce_scope(SCOPE_NODE, &more, 1, "+", ARMCI_LONG_LONG);
    if (me == first) IS(more, node_size * (first + 1) + node_size * (node_size - 1) / 2);
    armci_msg_reduce_scope(SCOPE_ALL, &one, 1, "+", ARMCI_INT);
    one = 1;
    armci_msg_reduce_scope(SCOPE_MASTERS, &one, 1, "+", ARMCI_INT);
    if (me == 0) IS(one, nodes);
    if (!is_master) IS(one, 1);
    const int scopes[] = {SCOPE_ALL, SCOPE_NODE, SCOPE_MASTERS};
    const int sizes[] = {processes, node_size, is_master ? nodes : 1};
    for (int at = 0; at < 3; at++) {
        one = 1;
        armci_msg_gop_scope(scopes[at], &one, 1, "+", ARMCI_INT);
        IS(one, sizes[at]);
    }
    armci_msg_igop(&one, 0, "+");
    free(i);
}

/* Bits and truth values of ints, longs and long longs, by each function that combines. */
static void logic(void) {
    static const struct { char *name; int is_truth, is_of_all; } known[] = {
        {"&&", 1, 1}, {"land", 1, 1}, {"||", 1, 0}, {"lor", 1, 0},
        {"&", 0, 1}, {"band", 0, 1}, {"|", 0, 0}, {"bor", 0, 0}, {"or", 0, 0},
    };
    ARMCI_Group world;
    ARMCI_Group_get_world(&world);
    for (int at = 0; at < 9; at++)
        for (int round = 0; round < 4; round++) {
            /* No bit, a bit of one process, the same bits of all, and different bits of each process. */
            long own = round == 0 ? 0 : round == 1 ? me == processes - 1 : round == 2 ? 6 : 2L << me;
            long wanted = known[at].is_of_all ? ~0L : 0;
            for (int other = 0; other < processes; other++) {
                long theirs = round == 0 ? 0 : round == 1 ? other == processes - 1 : round == 2 ? 6 : 2L << other;
                if (known[at].is_truth && processes > 1) theirs = theirs != 0;
                if (other == 0 && known[at].is_of_all) wanted = theirs;
                else if (known[at].is_of_all) wanted &= theirs;
                else wanted |= theirs;
            }
            char *op = known[at].name;
            int i[7];
            for (int k = 0; k < 7; k++) i[k] = (int)own;
            armci_msg_igop(&i[0], 1, op);
            armci_msg_gop_scope(SCOPE_ALL, &i[1], 1, op, ARMCI_INT);
            armci_msg_group_igop(&i[2], 1, op, &world);
            armci_msg_group_gop_scope(SCOPE_ALL, &i[3], 1, op, ARMCI_INT, &world);
            armci_msg_reduce_scope(SCOPE_ALL, &i[4], 1, op, ARMCI_INT);
            armci_msg_reduce(&i[5], 1, op, ARMCI_INT);
            for (int k = 0; k < (me == 0 ? 6 : 4); k++) IS(i[k], wanted);
            if (node_size == processes) {
                armci_msg_clus_igop(&i[6], 1, op);
                IS(i[6], wanted);
            }
            long l[2] = {own, own};
            armci_msg_lgop(&l[0], 1, op);
            armci_msg_group_lgop(&l[1], 1, op, &world);
            long long ll[2] = {own, own};
            armci_msg_llgop(&ll[0], 1, op);
            armci_msg_group_llgop(&ll[1], 1, op, &world);
            for (int k = 0; k < 2; k++) CHECK(l[k] == wanted && ll[k] == wanted, "%s of longs in round %d", op, round);
        }
}

static void selections(void) {
    typedef struct { double value; int process, rest[5]; } Record;
    for (int who = 0; who < processes; who++) {
        Record r = {.value = me == who ? 1e9 : me, .process = me, .rest = {me, me, me, me, me}};
        armci_msg_sel(&r, sizeof r, "max", ARMCI_DOUBLE, 1);
        CHECK(r.value == 1e9 && r.process == who && r.rest[4] == who, "the largest of the process %d", r.process);
        /* The process with the least value does not contribute. */
        int k[2] = {me == who ? -5 : me, me};
        armci_msg_sel(k, sizeof k, "min", ARMCI_INT, me != who);
        int least = who == 0 ? 1 : 0;
        if (processes > 1) CHECK(k[0] == least && k[1] == least, "the smallest: %d of the process %d", k[0], k[1]);
    }
    long l[2] = {me, me + 1000};
    armci_msg_sel_scope(SCOPE_NODE, l, sizeof l, "min", ARMCI_LONG, 1);
    IS(l[1], l[0] + 1000);
    IS(l[0], armci_domain_glob_proc_id(0, -1, 0));
    float f[1] = {(float)me};
    armci_msg_sel_scope(SCOPE_MASTERS, f, sizeof f, "max", ARMCI_FLOAT, 1);
    if (is_master) CHECK(f[0] == (float)armci_domain_glob_proc_id(0, nodes - 1, 0), "the last master");
    else CHECK(f[0] == (float)me, "who is no master");
    long long none = me;
    armci_msg_sel(&none, sizeof none, "max", ARMCI_LONG_LONG, 0);
    IS(none, me);
}

static void trees(void) {
    const int scopes[] = {SCOPE_ALL, SCOPE_NODE, SCOPE_MASTERS};
    for (int at = 0; at < 3; at++) {
        int root, up, left, right;
        armci_msg_bintree(scopes[at], &root, &up, &left, &right);
        if (scopes[at] == SCOPE_MASTERS && !is_master) continue;
        CHECK((me == root) == (up == -1), "up from %d", me);
        /* A number goes down from the root, and the count of receivers comes up. */
        int word = me == root ? 4711 : 0, heard = 1, len;
        if (up >= 0) armci_msg_rcv(90 + at, &word, sizeof word, &len, up);
        IS(word, 4711);
        const int below[2] = {left, right};
        for (int side = 0; side < 2; side++)
            if (below[side] >= 0) armci_msg_snd(90 + at, &word, sizeof word, below[side]);
        for (int side = 0; side < 2; side++)
            if (below[side] >= 0) {
                int more;
                armci_msg_rcv(95 + at, &more, sizeof more, NULL, below[side]);
                heard += more;
            }
        if (up >= 0) armci_msg_snd(95 + at, &heard, sizeof heard, up);
        else IS(heard, scopes[at] == SCOPE_ALL ? processes : scopes[at] == SCOPE_NODE ? node_size : nodes);
    }
}

int main(int argc, char **argv) {
    armci_msg_init(&argc, &argv);
    begin();
    nodes = armci_domain_count(ARMCI_DOMAIN_SMP);
    node_size = armci_domain_nprocs(ARMCI_DOMAIN_SMP, -1);
    is_master = armci_domain_glob_proc_id(ARMCI_DOMAIN_SMP, -1, 0) == me;
    int right = (me + 1) % processes, left = (me + processes - 1) % processes, len = -1;
    char *out = room(LARGE), *in = room(LARGE);

    /* Large and small messages, in order. The receiver may be the sender. */
    const int sizes[] = {LARGE, 0, 1, 4000, 70000, LARGE / 3};
    for (int at = 0; at < 6; at++) {
        fill(out, (size_t)sizes[at], me, at);
        armci_msg_snd(5, out, sizes[at], right);
    }
    for (int at = 0; at < 6; at++) {
        armci_msg_rcv(5, in, LARGE, &len, left);
        IS(len, sizes[at]);
        CHECK(differs(in, (size_t)len, left, at) < 0, "the message %d", at);
    }
    /* Messages by tag, received in another order than sent. */
    for (int tag = 0; tag < 20; tag++) armci_msg_snd(tag, &tag, sizeof tag, right);
    for (int tag = 19; tag >= 0; tag--) {
        int got;
        armci_msg_rcv(tag, &got, sizeof got, &len, left);
        IS(got, tag);
    }
    /* Messages from any sender. The many messages of each sender come in order. */
    if (me == 0) {
        int *next = room((size_t)processes * sizeof(int));
        for (int at = 0; at < 300 * (processes - 1); at++) {
            int got, from = armci_msg_rcvany(7, &got, sizeof got, &len);
            CHECK(from > 0 && from < processes, "from %d", from);
            IS(got, next[from]++);
        }
        free(next);
    } else {
        for (int at = 0; at < 300; at++) armci_msg_snd(7, &at, sizeof at, 0);
    }

    for (int root = 0; root < processes; root++) {
        memset(in, 0, LARGE);
        if (me == root) fill(in, LARGE, root, 1);
        armci_msg_bcast(in, LARGE, root);
        CHECK(differs(in, LARGE, root, 1) < 0, "bytes of the process %d", root);
        int word = me == root ? 5 + root : 0;
        armci_msg_brdcst(&word, sizeof word, root);
        IS(word, 5 + root);
        word = me == root ? 6 + root : 0;
        armci_msg_bcast_scope(SCOPE_ALL, &word, sizeof word, root);
        IS(word, 6 + root);
    }
    int node = armci_domain_my_id(0), first = armci_domain_glob_proc_id(0, node, 0);
    for (int at = 0; at < node_size; at++) {
        int root = armci_domain_glob_proc_id(0, node, at), word = me == root ? root : -1;
        armci_msg_bcast_scope(SCOPE_NODE, &word, sizeof word, root);
        IS(word, root);
    }
    int word = me == first ? first : -1;
    armci_msg_clus_brdcst(&word, sizeof word);
    IS(word, first);
    word = me == 0 ? 12 : -1;
    armci_msg_bcast_scope(SCOPE_MASTERS, &word, sizeof word, 0);
    IS(word, is_master ? 12 : -1);

    reductions();
    logic();
    selections();
    trees();
    void **places = room((size_t)processes * sizeof *places);
    places[me] = (char *)NULL + 64 * (me + 1);
    armci_exchange_address(places, processes);
    for (int at = 0; at < processes; at++) IS((char *)places[at] - (char *)NULL, 64 * (at + 1));
    double before = armci_timer();
    armci_msg_barrier();
    CHECK(armci_timer() >= before, "time goes on");

    ARMCI_Finalize();
    /* Messages still work. */
    IS(armci_msg_me(), me);
    IS(armci_msg_nproc(), processes);
    word = 1;
    armci_msg_igop(&word, 1, "+");
    IS(word, processes);
    armci_msg_finalize();
    if (me == 0) puts("ok");
    return 0;
}
