/* A timer whose handler interrupts system calls. Allocations and operations work as without it. */
#include "check.h"
#include <string.h>
#include <sys/time.h>

#define ROUNDS 40

static volatile sig_atomic_t ticks;

static void tick(int number)
{
    (void)number;
    ticks++;
}

int main(void)
{
    struct sigaction action;
    struct itimerval every = {{0, 200}, {0, 200}};

    memset(&action, 0, sizeof action);
    action.sa_handler = tick; /* Without SA_RESTART. */
    CHECK(!sigaction(SIGALRM, &action, NULL), "sigaction");
    CHECK(!setitimer(ITIMER_REAL, &every, NULL), "setitimer");

    begin();
    for (int round = 0; round < ROUNDS; round++) {
        void **all = shared(1 << 20);
        char *own = ARMCI_Malloc_local((size_t)(round % 8) << 18 | 64);
        int next = (me + 1) % processes;

        CHECK(own, "local memory");
        memset(own, round, 64);
        WORKS(ARMCI_Put(own, all[next], 64, next));
        ARMCI_Barrier();
        for (int at = 0; at < 64; at++)
            CHECK(((char *)all[me])[at] == round, "what was put");
        WORKS(ARMCI_Free_local(own));
        release(all);
    }
    CHECK(ticks > 0, "the timer ticked");
    return end();
}
