/* Groups of all processes, of some, and of some of those: collectives of members, and queries by others. */
#include "check.h"

static void together(ARMCI_Group *group, int size, const int *members, int rank, int round) {
    int n = 40, value = 0;
    int *x = room((size_t)n * sizeof *x);
    long sum = 0, most = 0;
    for (int at = 0; at < size; at++) {
        sum += members[at] + 1;
        if (members[at] > most) most = members[at];
    }
    for (int at = 0; at < n; at++) x[at] = (me + 1) * (at + 1);
    armci_msg_group_igop(x, n, "+", group);
    for (int at = 0; at < n; at++) IS(x[at], sum * (at + 1));
    long l = me - 100L;
    armci_msg_group_lgop(&l, 1, "max", group);
    IS(l, most - 100);
    long long ll = me - 100LL;
    armci_msg_group_llgop(&ll, 1, "absmin", group);
    IS(ll, 100 - most);
    float f = (float)(me + 1);
    armci_msg_group_fgop(&f, 1, "+", group);
    CHECK(f == (float)sum, "floats: %f", (double)f);
    double d = me + 1;
    armci_msg_group_dgop(&d, 1, "min", group);
    long least = most;
    for (int at = 0; at < size; at++)
        if (members[at] < least) least = members[at];
    CHECK(d == (double)(least + 1), "doubles: %f", d);
    l = 1L << me;
    armci_msg_group_gop_scope(SCOPE_ALL, &l, 1, "or", ARMCI_LONG, group);
    long bits = 0;
    for (int at = 0; at < size; at++) bits |= 1L << members[at];
    IS(l, bits);
    /* The root is counted among all processes. */
    for (int root = 0; root < size; root++) {
        value = rank == root ? round * 10 + root : -1;
        armci_msg_group_bcast_scope(SCOPE_ALL, &value, sizeof value, members[root], group);
        IS(value, round * 10 + root);
    }
    /* The members of this process's node, and the first member of each node. */
    int node = armci_domain_my_id(ARMCI_DOMAIN_SMP), here = 0, nodes = 0, own_first = -1;
    for (int at = 0; at < size; at++) {
        int theirs = armci_domain_id(ARMCI_DOMAIN_SMP, members[at]), is_first = 1;
        here += theirs == node;
        if (theirs == node && own_first < 0) own_first = members[at];
        for (int before = 0; before < at; before++)
            is_first &= armci_domain_id(ARMCI_DOMAIN_SMP, members[before]) != theirs;
        nodes += is_first;
    }
    value = 1;
    armci_msg_group_gop_scope(SCOPE_NODE, &value, 1, "+", ARMCI_INT, group);
    IS(value, here);
    value = me == own_first ? me : -1;
    armci_msg_group_bcast_scope(SCOPE_NODE, &value, sizeof value, own_first, group);
    IS(value, own_first);
    value = 1;
    armci_msg_group_gop_scope(SCOPE_MASTERS, &value, 1, "+", ARMCI_INT, group);
    IS(value, me == own_first ? nodes : 1);
    value = rank == 0 ? round : -1;
    armci_msg_group_bcast_scope(SCOPE_MASTERS, &value, sizeof value, members[0], group);
    IS(value, me == own_first ? round : -1);
    /* A few consecutive members, by their numbers in the group. */
    value = rank == 0 ? 77 : 0;
    armci_grp_clus_brdcst(&value, sizeof value, 0, size, group);
    IS(value, 77);
    value = rank;
    armci_grp_clus_brdcst(&value, sizeof value, size / 2, size - size / 2, group);
    IS(value, rank < size / 2 ? rank : size / 2);
    void **places = room((size_t)size * sizeof *places);
    places[rank] = (char *)NULL + 1000 + me;
    armci_exchange_address_grp(places, size, group);
    for (int at = 0; at < size; at++) IS((char *)places[at] - (char *)NULL, 1000 + members[at]);
    armci_msg_group_barrier(group);
    ARMCI_GroupFence(group);
    free(places);
    free(x);
}

int main(void) {
    begin();
    ARMCI_Group world, group;
    ARMCI_Group_get_world(&world);
    ARMCI_Group_get_default(&group);
    IS(group, world);
    int size, rank;
    ARMCI_Group_size(&world, &size);
    IS(size, processes);
    WORKS(ARMCI_Group_rank(&world, &rank));
    IS(rank, me);
    int *members = room((size_t)processes * sizeof(int));
    for (int at = 0; at < processes; at++) members[at] = at;
    together(&world, processes, members, me, 0);

    /* All subsets in reverse order, made by the members alone or by all processes. */
    for (int round = 1; round < 1 << processes; round++) {
        int number = 0, own = -1;
        for (int at = processes - 1; at >= 0; at--)
            if (round >> at & 1) {
                if (at == me) own = number;
                members[number++] = at;
            }
        if (own < 0 && round % 2) continue;
        ARMCI_Group_create(number, members, &group);
        ARMCI_Group_size(&group, &size);
        IS(size, number);
        for (int at = 0; at < number; at++) IS(ARMCI_Absolute_id(&group, at), members[at]);
        int code = ARMCI_Group_rank(&group, &rank);
        IS(rank, own);
        CHECK(!code == (own >= 0), "the code %d of the member %d", code, own);
        if (own >= 0) {
            together(&group, number, members, own, round);
            /* A group of the first and last member, by their numbers in the group. */
            ARMCI_Group child;
            int numbers[2] = {number - 1, 0}, some = number > 1 ? 2 : 1;
            int those[2] = {members[number - 1], members[0]};
            if (own == 0 || own == number - 1) {
                ARMCI_Group_create_child(some, numbers, &child, &group);
                together(&child, some, those, own == number - 1 ? 0 : 1, round);
                ARMCI_Group_free(&child);
                /* The same, of the default group. */
                ARMCI_Group_set_default(&group);
                ARMCI_Group found;
                ARMCI_Group_get_default(&found);
                IS(found, group);
                ARMCI_Group_create(some, numbers, &child);
                IS(ARMCI_Absolute_id(&child, 0), members[number - 1]);
                together(&child, some, those, own == number - 1 ? 0 : 1, round);
                ARMCI_Group_free(&child);
                ARMCI_Group_set_default(&world);
            }
        }
        ARMCI_Group_free(&group);
        IS(ARMCI_Group_rank(&group, &rank), FAIL5);
    }
    free(members);
    return end();
}
