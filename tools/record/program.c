/* A program that uses each call which is recorded, for the recorder's test. */
#include <mpi.h>
#include <stdlib.h>

enum { LEN = 24 << 10 };

static void shift(char *from, char *to, int right, int left, MPI_Comm comm) {
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Irecv(to, LEN, MPI_CHAR, left, 7, comm, &requests[0]);
    MPI_Isend(from, LEN, MPI_CHAR, right, 7, comm, &requests[1]);
    MPI_Waitall(2, requests, statuses);
}

int main(int argc, char **argv) {
    int rank, ranks, sum = 1, total = 0;
    MPI_Comm copy, half;
    MPI_Request request;
    MPI_Status status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    char *from = calloc((size_t)ranks, LEN), *to = calloc((size_t)ranks, LEN);
    int counts[64], places[64];
    for (int i = 0; i < ranks; i++) {
        counts[i] = 64;
        places[i] = i * (LEN / (int)sizeof(int));
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int round = 0; round < 20; round++) {
        shift(from, to, right, left, copy);
        MPI_Sendrecv(from, 100, MPI_CHAR, right, 1, to, 100, MPI_CHAR, left, 1, MPI_COMM_WORLD, &status);
        MPI_Alltoall(from, 4096, MPI_CHAR, to, 4096, MPI_CHAR, half);
        MPI_Alltoallv(from, counts, places, MPI_INT, to, counts, places, MPI_INT, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Send(from, LEN, MPI_CHAR, 1, 3, MPI_COMM_WORLD);
        if (rank == 1)
            MPI_Recv(to, 2 * LEN, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Irecv(to, 8, MPI_CHAR, left, 9, MPI_COMM_WORLD, &request);
        MPI_Send(from, 8, MPI_CHAR, right, 9, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Allreduce(&sum, &total, 1, MPI_INT, MPI_SUM, copy);
    }
    MPI_Reduce(&sum, &total, 1, MPI_INT, MPI_SUM, 1, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    free(from);
    free(to);
    MPI_Finalize();
    return 0;
}
