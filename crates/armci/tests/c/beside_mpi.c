/* MPI and ARMCI in one program, used in turns. MPI begins first and ends last. */
#include "check.h"
#include <mpi.h>

enum { ROUNDS = 30, NUMBERS = 500 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    begin();
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    IS(rank, me);
    IS(size, processes);
    int right = (me + 1) % processes, left = (me + processes - 1) % processes;
    void **all = shared(NUMBERS * sizeof(double));
    double *own = room(NUMBERS * sizeof(double)), *mine = all[me], one = 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = 0; at < NUMBERS; at++) own[at] = me + at * round;
        WORKS(ARMCI_Put(own, all[right], NUMBERS * sizeof(double), right));
        ARMCI_AllFence();
        MPI_Barrier(MPI_COMM_WORLD);
        for (int at = 0; at < NUMBERS; at++) CHECK(mine[at] == left + at * round, "the number %d in round %d", at, round);
        double sum = mine[1], right_sum = 0;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int at = 0; at < processes; at++) right_sum += at + round;
        CHECK(sum == right_sum, "the sum %f", sum);
        WORKS(ARMCI_Acc(ARMCI_ACC_DBL, &one, own, all[0], NUMBERS * sizeof(double), 0));
        ARMCI_Barrier();
        if (me == 0) {
            double wanted = processes - 1 + round;
            for (int at = 0; at < processes; at++) wanted += at + round;
            CHECK(mine[1] == wanted, "%f were accumulated", mine[1]);
        }
        int token = me, got = -1;
        MPI_Sendrecv(&token, 1, MPI_INT, right, 1, &got, 1, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        IS(got, left);
        armci_msg_igop(&token, 1, "+");
        IS(token, processes * (processes - 1) / 2);
        ARMCI_Barrier();
    }
    release(all);
    ARMCI_Finalize();
    int word = 1;
    MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    IS(word, processes);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (me == 0) puts("ok");
    return 0;
}
