/* How a program ends its job, all of whose processes end with it. */
#include "check.h"

static void by(const char *how) {
    void **all = shared(8);
    int one = 1;
    if (!strcmp(how, "unlock")) WORKS(ARMCI_Create_mutexes(1));
    if (!strcmp(how, "no_such_mutex")) WORKS(ARMCI_Create_mutexes(1));
    if (me != 1) {
        /* The others wait for a process that does not come. */
        ARMCI_Barrier();
        return;
    }
    if (!strcmp(how, "error")) ARMCI_Error("the answer is wrong", 42);
    if (!strcmp(how, "error_of_none")) ARMCI_Error("nothing", 0);
    if (!strcmp(how, "abort")) armci_msg_abort(17);
    if (!strcmp(how, "assertion")) dassert(1, 2 + 2 == 5);
    if (!strcmp(how, "assertion_of")) dassert1(1, one == 2, one);
    if (!strcmp(how, "die")) armci_die("a reason", 9);
    if (!strcmp(how, "die_of_two")) armci_die2("two reasons", 8, 9);
    if (!strcmp(how, "unlock")) ARMCI_Unlock(0, 0);
    if (!strcmp(how, "no_mutexes")) ARMCI_Lock(0, 0);
    if (!strcmp(how, "no_such_mutex")) ARMCI_Lock(1, 0);
    if (!strcmp(how, "fence_of_nobody")) ARMCI_Fence(7);
    if (!strcmp(how, "value_of_nobody")) ARMCI_GetValueInt(all[0], 7);
    if (!strcmp(how, "reduction")) armci_msg_igop(&one, 1, "average");
    if (!strcmp(how, "float_reduction")) armci_msg_fgop(room(4), 1, "land");
    if (!strcmp(how, "root_outside")) {
        ARMCI_Group group;
        ARMCI_Group_create(1, &me, &group);
        armci_msg_group_bcast_scope(SCOPE_ALL, &one, sizeof one, 0, &group);
    }
    if (!strcmp(how, "by_hand")) dassertp_fail("this", "here", "now", 5, 6);
}

int main(int argc, char **argv) {
    begin();
    CHECK(argc == 2, "how?");
    by(argv[1]);
    fprintf(stderr, "the job goes on\n");
    return 0;
}
