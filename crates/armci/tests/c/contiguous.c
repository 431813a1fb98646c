/* Puts and gets of contiguous bytes, with and without a flag. */
#include "check.h"

enum { MOST = 1 << 20 };

int main(void) {
    begin();
    int right = (me + 1) % processes, left = (me + processes - 1) % processes;
    void **all = shared(MOST + 64);
    void **flags = shared(sizeof(int));
    unsigned char *own = room(MOST + 64), *mine = all[me];
    const int sizes[] = {0, 1, 3, 8, 63, 64, 4095, 4096, 4097, 70000, MOST};
    for (int round = 0; round < (int)(sizeof sizes / sizeof *sizes); round++) {
        int bytes = sizes[round], from = round % 5, to = round % 7;
        memset(mine, 0xee, MOST + 64);
        memset(own, 0, MOST + 64);
        ARMCI_Barrier();
        fill(own + from, (size_t)bytes, me, round);
        WORKS(ARMCI_Put(own + from, (char *)all[right] + to, bytes, right));
        /* The source is free. */
        memset(own, 0x11, MOST + 64);
        ARMCI_Fence(right);
        ARMCI_Barrier();
        long at = differs(mine + to, (size_t)bytes, left, round);
        CHECK(at < 0, "%d bytes put: the byte %ld", bytes, at);
        for (int i = 0; i < to; i++) CHECK(mine[i] == 0xee, "the byte %d before", i);
        for (int i = to + bytes; i < MOST + 64; i++) CHECK(mine[i] == 0xee, "the byte %d after", i);

        WORKS(ARMCI_Get((char *)all[right] + to, own + from, bytes, right));
        at = differs(own + from, (size_t)bytes, me, round);
        CHECK(at < 0, "%d bytes of the right one: the byte %ld", bytes, at);
        CHECK(own[from + bytes] == 0x11, "a byte behind what was got");
        WORKS(ARMCI_Get(mine + to, own, bytes, me));
        CHECK(differs(own, (size_t)bytes, left, round) < 0, "%d bytes of one's own", bytes);
        ARMCI_Barrier();

        int *flag = flags[me];
        fill(own, (size_t)bytes, me, round + 50);
        WORKS(ARMCI_Put_flag(own, all[right], bytes, flags[right], round + 1, right));
        until(flag, round + 1);
        CHECK(differs(mine, (size_t)bytes, left, round + 50) < 0, "%d bytes before a flag", bytes);
        ARMCI_Barrier();
    }

    /* Any number of puts leave their sources free on return. */
    enum { PUTS = 500, SOURCE = 96 };
    void **many = shared(PUTS * SOURCE);
    char source[SOURCE];
    for (int at = 0; at < PUTS; at++) {
        fill(source, SOURCE, me, at);
        WORKS(ARMCI_Put(source, (char *)many[right] + at * SOURCE, SOURCE, right));
    }
    ARMCI_Barrier();
    for (int at = 0; at < PUTS; at++)
        CHECK(differs((char *)many[me] + at * SOURCE, SOURCE, left, at) < 0, "the put %d", at);
    release(many);

    /* In the memory of this process the two sides may overlap. */
    fill(mine, 1000, 1, 1);
    WORKS(ARMCI_Put(mine, mine + 10, 500, me));
    CHECK(differs(mine + 10, 500, 1, 1) < 0, "moved up");
    WORKS(ARMCI_Get(mine + 10, mine + 3, 500, me));
    CHECK(differs(mine + 3, 500, 1, 1) < 0, "moved down");
    /* Only the process itself may access its memory that ARMCI did not allocate. */
    fill(own, 100, 2, 2);
    WORKS(ARMCI_Put(own, own + 200, 100, me));
    WORKS(ARMCI_Get(own + 200, own + 400, 100, me));
    CHECK(differs(own + 400, 100, 2, 2) < 0, "one's own memory");
    ARMCI_Copy(own, own + 600, 100);
    CHECK(differs(own + 600, 100, 2, 2) < 0, "a copy");
    int code = (ARMCI_Put1(own, own + 800, 100, me));
    CHECK(code == 0 && differs(own + 800, 100, 2, 2) < 0, "ARMCI_Put1");
    release(flags);
    release(all);
    return end();
}
