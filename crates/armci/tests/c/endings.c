/* The ways in which a program ends its job. All processes end with it. */
#include "check.h"
#include "armcix.h"
#include <sys/mman.h>

static void end_by(const char *how) {
    void **all = shared(8);
    int one = 1;
    if (!strcmp(how, "unlock")) WORKS(ARMCI_Create_mutexes(1));
    if (!strcmp(how, "no_such_mutex")) WORKS(ARMCI_Create_mutexes(1));
    if (me != 1) {
        /* The others wait for a process that never arrives. */
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
    if (!strcmp(how, "no_mutex_set")) ARMCIX_Lock_hdl((armcix_mutex_hdl_t)(void *)&one, 0, 0);
    if (!strcmp(how, "fence_of_nobody")) ARMCI_Fence(7);
    if (!strcmp(how, "value_of_nobody")) ARMCI_GetValueInt(all[0], 7);
    if (!strcmp(how, "reduction")) armci_msg_igop(&one, 1, "average");
    if (!strcmp(how, "float_reduction")) armci_msg_fgop(room(4), 1, "land");
    if (!strcmp(how, "root_outside")) {
        ARMCI_Group group;
        ARMCI_Group_create(1, &me, &group);
        armci_msg_group_bcast_scope(SCOPE_ALL, &one, sizeof one, 0, &group);
    }
    /* The first page cannot be read, and the second cannot be written. */
    char *none = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *fixed = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(none != MAP_FAILED && fixed != MAP_FAILED, "no memory");
    if (!strcmp(how, "unreadable")) ARMCI_Put(none, all[0], 8, 0);
    if (!strcmp(how, "unreadable_sent")) armci_msg_snd(1, none, 100000, 0);
    if (!strcmp(how, "unwritable")) ARMCI_Get(all[0], fixed, 8, 0);
    if (!strcmp(how, "by_hand")) dassertp_fail("this", "here", "now", 5, 6);
}

static void handle(int signal) {
    if (write(2, "its own handler\n", 16) == 16) _exit(signal + 30);
}

/* Process 1 ends without an error while process 0 waits for it. */
static void early(const char *how) {
    int bytes;
    if (!strcmp(how, "early_lock")) {
        WORKS(ARMCI_Create_mutexes(1));
        if (me == 1) ARMCI_Lock(0, 0);
        ARMCI_Barrier();
        if (me == 0) ARMCI_Lock(0, 0);
    }
    if (me == 0 && !strcmp(how, "early_receive")) armci_msg_rcv(1, room(8), 8, &bytes, 1);
    if (me == 0 && !strcmp(how, "early_receive_any")) armci_msg_rcvany(1, room(8), 8, &bytes);
    if (me == 0 && !strcmp(how, "early_notify") && armci_notify_wait(1, &bytes) != 0)
        ARMCI_Error("told", 3);
    /* It leaves by `exit`, and the others end the job in order. */
    if (me == 1 && !strncmp(how, "early_exit", 10)) exit(0);
    if (!strcmp(how, "early_exit_of_messages")) armci_msg_finalize();
    else ARMCI_Finalize();
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "how?");
    if (!strcmp(argv[1], "unreadable_sent")) signal(SIGSEGV, handle);
    if (!strncmp(argv[1], "early", 5)) {
        if (!strcmp(argv[1], "early_exit_of_messages")) armci_msg_init(&argc, &argv);
        ARMCI_Init();
        me = armci_msg_me();
        early(argv[1]);
        return 0;
    }
    begin();
    end_by(argv[1]);
    fprintf(stderr, "the job goes on\n");
    return 0;
}
