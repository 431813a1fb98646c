/* A hash table over all ranks, as crates/hydrant/examples/hash_table.rs: slots are claimed by
 * MPI_Compare_and_swap and counted by MPI_Accumulate, in a passive epoch. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t number) {
    number += 0x9e3779b97f4a7c15u;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
    number = (number ^ number >> 27) * 0x94d049bb133111ebu;
    return number ^ number >> 31;
}

static uint64_t key_of(int rank, uint64_t at, uint64_t different) {
    return 1 + mix((uint64_t)rank << 40 | at) % different;
}

static int size, rank;
static uint64_t slots;
static MPI_Win keys, counts;

static uint64_t load(MPI_Win window, int target, MPI_Aint slot) {
    uint64_t found, nothing = 0;
    MPI_Fetch_and_op(&nothing, &found, MPI_UINT64_T, target, slot, MPI_NO_OP, window);
    MPI_Win_flush(target, window);
    return found;
}

/* Counts a key: whether there was room. */
static int count(uint64_t key) {
    uint64_t first = mix(key) % slots;
    for (uint64_t step = 0; step < slots; step++) {
        uint64_t slot = (first + step) % slots, free = 0, one = 1;
        int target = (int)(slot % size);
        MPI_Aint at = (MPI_Aint)(slot / size);
        uint64_t found = load(keys, target, at);
        if (found == 0) {
            MPI_Compare_and_swap(&key, &free, &found, MPI_UINT64_T, target, at, keys);
            MPI_Win_flush(target, keys);
        }
        if (found == 0 || found == key) {
            MPI_Accumulate(&one, 1, MPI_UINT64_T, target, at, 1, MPI_UINT64_T, MPI_SUM, counts);
            MPI_Win_flush(target, counts);
            return 1;
        }
    }
    return 0;
}

static uint64_t get(uint64_t key) {
    uint64_t first = mix(key) % slots;
    for (uint64_t step = 0; step < slots; step++) {
        uint64_t slot = (first + step) % slots;
        int target = (int)(slot % size);
        uint64_t found = load(keys, target, (MPI_Aint)(slot / size));
        if (found == 0)
            return 0;
        if (found == key)
            return load(counts, target, (MPI_Aint)(slot / size));
    }
    return 0;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    uint64_t each = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    uint64_t own = each, different = each * size / 4 + 1, *own_keys, *own_counts;
    slots = own * size;
    MPI_Win_allocate(own * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &own_keys, &keys);
    MPI_Win_allocate(own * 8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &own_counts, &counts);
    memset(own_keys, 0, own * 8);
    memset(own_counts, 0, own * 8);
    MPI_Win_lock_all(0, keys);
    MPI_Win_lock_all(0, counts);
    MPI_Win_sync(keys);
    MPI_Win_sync(counts);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (uint64_t at = 0; at < each; at++)
        if (!count(key_of(rank, at, different)))
            fail("the table is full");
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - start, slowest;

    /* Keys are few and small: a table of one rank is an array. */
    uint64_t *serial = calloc(different + 1, sizeof *serial), there = 0, used = 0, all = 0;
    if (!serial)
        fail("no memory");
    for (int other = 0; other < size; other++)
        for (uint64_t at = 0; at < each; at++)
            serial[key_of(other, at, different)]++;
    for (uint64_t key = 1; key <= different; key++) {
        there += serial[key] != 0;
        if (serial[key] != 0 && key % size == (uint64_t)rank && get(key) != serial[key])
            fail("a key was counted wrongly");
    }
    if (get(UINT64_MAX) != 0)
        fail("a key that nobody counted is there");
    MPI_Win_sync(keys);
    for (uint64_t slot = 0; slot < own; slot++)
        used += own_keys[slot] != 0;
    MPI_Allreduce(&used, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (all != there)
        fail("there are not as many slots as keys");
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("hash_table: %llu different keys in %.6f s\n", (unsigned long long)there, slowest);
    free(serial);
    MPI_Win_unlock_all(counts);
    MPI_Win_unlock_all(keys);
    MPI_Win_free(&counts);
    MPI_Win_free(&keys);
    MPI_Finalize();
    return 0;
}
