/* Accumulates of all six types, by all processes to all at once. The sums are whole numbers, and exact. */
#include "check.h"

enum { ELEMENTS = 333, ROUNDS = 40 };

typedef struct {
    int i[ELEMENTS];
    long l[ELEMENTS];
    float f[ELEMENTS];
    double d[ELEMENTS];
    float c[2 * ELEMENTS];
    double z[2 * ELEMENTS];
} Sums;

int main(void) {
    begin();
    void **all = shared(sizeof(Sums));
    Sums *mine = all[me], *own = room(sizeof *own);
    for (int at = 0; at < ELEMENTS; at++) {
        own->i[at] = me + at;
        own->l[at] = ((long)me << 33) + at;
        own->f[at] = (float)(me + at);
        own->d[at] = me - at;
        own->c[2 * at] = (float)me;
        own->c[2 * at + 1] = (float)(at % 10);
        own->z[2 * at] = at;
        own->z[2 * at + 1] = -me;
    }
    int i = -3;
    long l = 5;
    float f = 2, c[2] = {1, 2};
    double d = 0.5, z[2] = {-1, 3};
    for (int round = 0; round < ROUNDS; round++)
        for (int turn = 0; turn < processes; turn++) {
            int proc = (me + turn) % processes;
            Sums *there = all[proc];
            WORKS(ARMCI_Acc(ARMCI_ACC_INT, &i, own->i, there->i, sizeof own->i, proc));
            WORKS(ARMCI_Acc(ARMCI_ACC_LNG, &l, own->l, there->l, sizeof own->l, proc));
            WORKS(ARMCI_Acc(ARMCI_ACC_FLT, &f, own->f, there->f, sizeof own->f, proc));
            WORKS(ARMCI_Acc(ARMCI_ACC_DBL, &d, own->d, there->d, sizeof own->d, proc));
            WORKS(ARMCI_Acc(ARMCI_ACC_CPL, c, own->c, there->c, sizeof own->c, proc));
            WORKS(ARMCI_Acc(ARMCI_ACC_DCP, z, own->z, there->z, sizeof own->z, proc));
        }
    ARMCI_AllFence();
    ARMCI_Barrier();
    for (int at = 0; at < ELEMENTS; at++) {
        long all_me = (long)processes * (processes - 1) / 2, n = processes, r = ROUNDS;
        long x = all_me, y = at % 10 * n;
        CHECK(mine->i[at] == -3 * r * (all_me + at * n), "int %d: %d", at, mine->i[at]);
        CHECK(mine->l[at] == 5 * r * ((all_me << 33) + at * n), "long %d: %ld", at, mine->l[at]);
        CHECK(mine->f[at] == (float)(2 * r * (all_me + at * n)), "float %d: %f", at, (double)mine->f[at]);
        CHECK(mine->d[at] == 0.5 * (double)(r * (all_me - at * n)), "double %d: %f", at, mine->d[at]);
        CHECK(mine->c[2 * at] == (float)(r * (x - 2 * y)), "complex %d", at);
        CHECK(mine->c[2 * at + 1] == (float)(r * (2 * x + y)), "complex %d, the imaginary part", at);
        x = at * n, y = -all_me;
        CHECK(mine->z[2 * at] == (double)(r * (-x - 3 * y)), "double complex %d", at);
        CHECK(mine->z[2 * at + 1] == (double)(r * (3 * x - y)), "double complex %d, the imaginary part", at);
    }
    /* An accumulate to memory of this process that ARMCI did not allocate. */
    double plain[2] = {1, 2}, more[2] = {10, 20}, one = 1;
    WORKS(ARMCI_Acc(ARMCI_ACC_DBL, &one, more, plain, sizeof plain, me));
    CHECK(plain[0] == 11 && plain[1] == 22, "one's own memory");
    /* An accumulate of no elements does nothing. */
    WORKS(ARMCI_Acc(ARMCI_ACC_INT, &i, own->i, all[0], 0, 0));
    release(all);
    return end();
}
