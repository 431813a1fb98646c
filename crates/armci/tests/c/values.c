/* Puts and gets of single values, of every type. */
#include "check.h"

enum { ROUNDS = 200 };

typedef struct {
    int number[2];
    long large[2];
    float small[2];
    double wide[2];
} Values;

int main(void) {
    begin();
    void **all = shared(sizeof(Values) * (size_t)processes);
    int right = (me + 1) % processes, left = (me + processes - 1) % processes;
    Values *there = (Values *)all[right] + me;
    Values *here = (Values *)all[me] + left;
    for (int round = 0; round < ROUNDS; round++) {
        int i = me * 1000003 - round;
        long l = ((long)me << 40) - round;
        float f = (float)me + (float)round / 4;
        double d = me + round / 1024.0;
        WORKS(ARMCI_PutValueInt(i, &there->number[0], right));
        WORKS(ARMCI_PutValueLong(l, &there->large[0], right));
        WORKS(ARMCI_PutValueFloat(f, &there->small[0], right));
        WORKS(ARMCI_PutValueDouble(d, &there->wide[0], right));
        armci_hdl_t handles[3];
        for (int at = 0; at < 3; at++) ARMCI_INIT_HANDLE(&handles[at]);
        WORKS(ARMCI_NbPutValueInt(i + 1, &there->number[1], right, &handles[0]));
        WORKS(ARMCI_NbPutValueLong(l + 1, &there->large[1], right, &handles[1]));
        WORKS(ARMCI_NbPutValueFloat(f + 1, &there->small[1], right, &handles[2]));
        WORKS(ARMCI_NbPutValueDouble(d + 1, &there->wide[1], right, NULL));
        for (int at = 0; at < 3; at++) WORKS(ARMCI_Wait(&handles[at]));
        WORKS(ARMCI_WaitAll());
        /* Without a fence, a process gets the values that it put. */
        for (int at = 0; at < 2; at++) {
            IS(ARMCI_GetValueInt(&there->number[at], right), i + at);
            IS(ARMCI_GetValueLong(&there->large[at], right), l + at);
            CHECK(ARMCI_GetValueFloat(&there->small[at], right) == f + (float)at, "a float");
            CHECK(ARMCI_GetValueDouble(&there->wide[at], right) == d + at, "a double");
        }
        ARMCI_Barrier();
        CHECK(here->number[0] == left * 1000003 - round, "an int here: %d", here->number[0]);
        CHECK(here->large[1] == ((long)left << 40) - round + 1, "a long here");
        CHECK(here->small[0] == (float)left + (float)round / 4, "a float here");
        CHECK(here->wide[1] == left + round / 1024.0 + 1, "a double here");
        ARMCI_Barrier();
    }
    release(all);
    return end();
}
