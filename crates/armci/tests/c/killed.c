/* A process is killed while it has the lock that the others wait for: they are told, and end. */
#include "check.h"

int main(void) {
    begin();
    WORKS(ARMCI_Create_mutexes(1));
    if (me == 1) ARMCI_Lock(0, 0);
    ARMCI_Barrier();
    if (me == 1) {
        usleep(200000);
        kill(getpid(), SIGKILL);
    }
    ARMCI_Lock(0, 0);
    fprintf(stderr, "the lock of a process that was killed\n");
    return 0;
}
