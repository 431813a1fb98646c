/* A parallel sort of integers, as crates/hydrant/examples/integer_sort.rs: MPI_Allreduce of the
 * counts, MPI_Alltoall of the lengths, MPI_Alltoallv of the keys. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BITS = 20, HIGH = 10, RESIDUES = 4099 };

static uint64_t state;

static uint32_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % (1u << BITS);
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *need(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        fail("no memory");
    return memory;
}

static int ascending(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static void check(int rank, const uint32_t *before, size_t each, const uint32_t *after, size_t mine) {
    for (size_t at = 1; at < mine; at++)
        if (after[at - 1] > after[at])
            fail("the keys of a rank are not in order");
    uint32_t greatest = mine ? after[mine - 1] : 0, before_me = 0;
    MPI_Exscan(&greatest, &before_me, 1, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
    if (rank != 0 && mine && after[0] < before_me)
        fail("a rank before has a greater key");
    int64_t *difference = need(RESIDUES, sizeof *difference);
    for (size_t at = 0; at < each; at++)
        difference[before[at] % RESIDUES]++;
    for (size_t at = 0; at < mine; at++)
        difference[after[at] % RESIDUES]--;
    MPI_Allreduce(MPI_IN_PLACE, difference, RESIDUES, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int residue = 0; residue < RESIDUES; residue++)
        if (difference[residue] != 0)
            fail("keys were lost or changed");
    free(difference);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    size_t each = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 << 20;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    uint32_t *keys = need(each, sizeof *keys), *sorted = need(each, sizeof *sorted);
    state = (uint64_t)rank + 1;
    for (size_t at = 0; at < each; at++)
        for (int part = 0; part < 4; part++)
            keys[at] += next() / 4;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();

    uint64_t counts[1 << HIGH] = {0}, all[1 << HIGH], before = 0, keys_in_all = each ? size * each : 1;
    int owner[1 << HIGH];
    for (size_t at = 0; at < each; at++)
        counts[keys[at] >> (BITS - HIGH)]++;
    MPI_Allreduce(counts, all, 1 << HIGH, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int bucket = 0; bucket < 1 << HIGH; bucket++) {
        owner[bucket] = (int)(before * size / keys_in_all);
        before += all[bucket];
    }

    int *outgoing = need(size, sizeof(int)), *incoming = need(size, sizeof(int));
    int *from = need(size, sizeof(int)), *into = need(size, sizeof(int)), *place = need(size, sizeof(int));
    for (size_t at = 0; at < each; at++)
        outgoing[owner[keys[at] >> (BITS - HIGH)]]++;
    for (int other = 1; other < size; other++)
        place[other] = from[other] = from[other - 1] + outgoing[other - 1];
    for (size_t at = 0; at < each; at++)
        sorted[place[owner[keys[at] >> (BITS - HIGH)]]++] = keys[at];
    MPI_Alltoall(outgoing, 1, MPI_INT, incoming, 1, MPI_INT, MPI_COMM_WORLD);
    for (int other = 1; other < size; other++)
        into[other] = into[other - 1] + incoming[other - 1];
    size_t count = (size_t)into[size - 1] + incoming[size - 1];
    uint32_t *mine = need(count, sizeof *mine);
    MPI_Alltoallv(sorted, outgoing, from, MPI_UINT32_T, mine, incoming, into, MPI_UINT32_T, MPI_COMM_WORLD);
    qsort(mine, count, sizeof *mine, ascending);
    double seconds = MPI_Wtime() - start, slowest;

    check(rank, keys, each, mine, count);
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("integer_sort: %zu keys in %.6f s\n", each * size, slowest);
    free(mine);
    free(place);
    free(into);
    free(from);
    free(incoming);
    free(outgoing);
    free(sorted);
    free(keys);
    MPI_Finalize();
    return 0;
}
