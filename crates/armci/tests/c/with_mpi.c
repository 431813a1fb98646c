/* MPI and ARMCI in one program. ARMCI begins and ends MPI, and makes communicators of groups. The first
   argument chooses the way. */
#define MSG_COMMS_MPI
#include "check.h"
#include "parmci.h"
#include <sys/wait.h>

/* Checks that a communicator has the members of a group, in the group's order. */
static void same(MPI_Comm comm, ARMCI_Group *group) {
    int size, rank, wanted, own;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &rank);
    ARMCI_Group_size(group, &wanted);
    WORKS(ARMCI_Group_rank(group, &own));
    IS(size, wanted);
    IS(rank, own);
    int *members = room((size_t)size * sizeof *members);
    MPI_Allgather(&me, 1, MPI_INT, members, 1, MPI_INT, comm);
    for (int at = 0; at < size; at++) IS(members[at], ARMCI_Absolute_id(group, at));
    free(members);
}

static void check_communicators(void) {
    ARMCI_Group world, group;
    ARMCI_Group_get_world(&world);
    same(armci_group_comm(&world), &world);
    CHECK(armci_group_comm(&world) != MPI_COMM_WORLD, "ARMCI's own");
    /* Process 1 is no member, and does not take part. */
    int *members = room((size_t)processes * sizeof *members), number = 0;
    for (int at = processes; at-- > 0;)
        if (at != 1) members[number++] = at;
    if (me != 1) {
        ARMCI_Group_create(number, members, &group);
        same(armci_group_comm(&group), &group);
        ARMCI_Group_free(&group);
        CHECK(armci_group_comm(&group) == MPI_COMM_NULL, "of a group that is gone");
    }
    free(members);
    int word = me;
    armci_msg_igop(&word, 1, "+");
    IS(word, processes * (processes - 1) / 2);
}

static void number_processes(void) {
    me = armci_msg_me();
    processes = armci_msg_nproc();
}

int main(int argc, char **argv) {
    CHECK(argc == 2, "how?");
    int flag, rank, size;
    MPI_Initialized(&flag);
    IS(flag, 0);
    if (!strcmp(argv[1], "messages")) {
        armci_msg_init(&argc, &argv);
        WORKS(ARMCI_Init());
    } else if (!strcmp(argv[1], "arguments")) {
        WORKS(ARMCI_Init_args(&argc, &argv));
    } else {
        /* Half of all processes, in reverse order. */
        MPI_Init(&argc, &argv);
        MPI_Comm half;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
        MPI_Comm_size(half, &size);
        MPI_Comm_rank(half, &rank);
        if (!strcmp(argv[1], "half")) {
            IS(ARMCI_Init_mpi_comm(half), 1);
            /* Global Arrays begins ARMCI again, and ends it once. */
            WORKS(ARMCI_Init());
            IS(PARMCI_Init_mpi_comm(half), 1);
            CHECK(size == 1 || ARMCI_Init_mpi_comm(MPI_COMM_SELF) == 0, "other processes");
        } else {
            WORKS(ARMCI_Init_thread_comm(MPI_THREAD_MULTIPLE, half));
            WORKS(PARMCI_Init_thread_comm(MPI_THREAD_SINGLE, half));
            WORKS(ARMCI_Finalize());
            armci_msg_init_comm(half);
        }
        IS(armci_msg_me(), rank);
        IS(armci_msg_nproc(), size);
    }
    number_processes();
    check_communicators();
    void **all = shared(64);
    WORKS(ARMCI_PutValueLong(me, all[(me + 1) % processes], (me + 1) % processes));
    ARMCI_Barrier();
    IS(*(long *)all[me], (me + processes - 1) % processes);
    release(all);
    if (!strcmp(argv[1], "arguments")) {
        /* The end of a child does not end MPI, because the connections are its parent's. */
        int status = -1;
        pid_t child = fork();
        if (child == 0) exit(0);
        waitpid(child, &status, 0);
        IS(status, 0);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    WORKS(ARMCI_Finalize());
    CHECK(!ARMCI_Initialized(), "ended");
    MPI_Finalized(&flag);
    IS(flag, 0);
    if (!strcmp(argv[1], "messages") || !strcmp(argv[1], "threads")) {
        armci_msg_finalize();
        MPI_Finalized(&flag);
        CHECK(flag, "MPI is ended");
    } else if (!strcmp(argv[1], "half")) {
        MPI_Finalize();
    }
    /* With "arguments", the exit of the process ends MPI. */
    if (me == 0) puts("ok");
    return 0;
}
