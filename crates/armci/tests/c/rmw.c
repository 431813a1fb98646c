/* Swaps and additions to words, by all processes at once. Every value is seen once. */
#include "check.h"

enum { ROUNDS = 600 };

int main(void) {
    begin();
    typedef struct { int count, token; long large, coin; } Words;
    void **all = shared(sizeof(Words));
    int total = ROUNDS * processes;
    int last = processes - 1;
    Words *there = all[last];
    if (me == last) {
        there->large = 1L << 40;
        there->token = 1000000;
        there->coin = -5;
    }
    ARMCI_Barrier();
    int *seen = room((size_t)total * sizeof(int)), *seen_long = room((size_t)total * sizeof(int));
    long tokens = 0;
    int before = -1;
    for (int round = 0; round < ROUNDS; round++) {
        int was = -1;
        WORKS(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &was, &there->count, 3, last));
        CHECK(was >= 0 && was % 3 == 0 && was / 3 < total, "a count of %d", was);
        CHECK(was > before, "%d after %d", was, before);
        before = was;
        seen[was / 3]++;
        long large = -1;
        WORKS(ARMCI_Rmw(ARMCI_FETCH_AND_ADD_LONG, &large, &there->large, -1, last));
        large = (1L << 40) - large;
        CHECK(large >= 0 && large < total, "a long count of %ld", large);
        seen_long[large]++;
        int token = me * ROUNDS + round;
        tokens += token;
        WORKS(ARMCI_Rmw(ARMCI_SWAP, &token, &there->token, 99, last));
        tokens -= token;
        long coin = ((long)me << 32) + round;
        tokens += coin;
        WORKS(ARMCI_Rmw(ARMCI_SWAP_LONG, &coin, &there->coin, 99, last));
        tokens -= coin;
    }
    ARMCI_Barrier();
    armci_msg_igop(seen, total, "+");
    armci_msg_igop(seen_long, total, "+");
    for (int at = 0; at < total; at++) CHECK(seen[at] == 1 && seen_long[at] == 1, "the count %d", at);
    /* All tokens that were put in are at the processes or in the words, besides the first values. */
    armci_msg_lgop(&tokens, 1, "+");
    IS(ARMCI_GetValueInt(&there->count, last), 3 * total);
    IS(ARMCI_GetValueLong(&there->large, last), (1L << 40) - total);
    long left = ARMCI_GetValueInt(&there->token, last) + ARMCI_GetValueLong(&there->coin, last);
    IS(tokens, left - 1000000 + 5);
    int plain = 4, own = 0;
    WORKS(ARMCI_Rmw(ARMCI_FETCH_AND_ADD, &own, &plain, 5, me));
    CHECK(own == 4 && plain == 9, "one's own memory");
    release(all);
    return end();
}
