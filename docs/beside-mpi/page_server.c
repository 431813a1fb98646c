/* A page server, as crates/hydrant/examples/page_server.rs. Pages are attached to a dynamic window
 * and detached again. MPI tells nobody that a page has gone, and a get from one that has is
 * undefined. So a reader asks the server for every page anew, by an atomic read of the server's
 * table, and counts itself in and out of it, so that the server knows when nobody reads. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 512, PAGES = 32 };

static uint64_t content(int server, int page, uint64_t edition) {
    return (uint64_t)server << 48 | (uint64_t)page << 32 | edition;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_Win pages, table;

/* A page, attached; where others find it. */
static MPI_Aint print(int server, int page, uint64_t edition) {
    uint64_t *words = malloc(WORDS * sizeof *words);
    if (!words)
        fail("no memory");
    for (int word = 0; word < WORDS; word++)
        words[word] = content(server, page, edition);
    MPI_Win_attach(pages, words, WORDS * sizeof *words);
    MPI_Aint place;
    MPI_Get_address(words, &place);
    return place;
}

static void burn(MPI_Aint place) {
    uint64_t *words = (uint64_t *)(intptr_t)place;
    MPI_Win_detach(pages, words);
    free(words);
}

static int64_t change(int server, MPI_Aint at, int64_t by, MPI_Op op) {
    int64_t was;
    MPI_Fetch_and_op(&by, &was, MPI_INT64_T, server, at, op, table);
    MPI_Win_flush(server, table);
    return was;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    long reads = argc > 1 ? atol(argv[1]) : 50000;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* For each page where it is, and how many read it; -1000000 while it is exchanged. */
    int64_t *own;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &pages);
    MPI_Win_allocate(2 * PAGES * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &own, &table);
    for (int page = 0; page < PAGES; page++) {
        own[2 * page] = print(rank, page, 0);
        own[2 * page + 1] = 0;
    }
    MPI_Win_lock_all(0, pages);
    MPI_Win_lock_all(0, table);
    MPI_Win_sync(table);
    MPI_Barrier(MPI_COMM_WORLD);
    const int64_t closed = -1000000;
    uint64_t read[WORDS], state = (uint64_t)rank + 1, edition = 0;
    double start = MPI_Wtime();
    for (long number = 0; number < reads; number++) {
        state = state * 6364136223846793005u + 1;
        int server = (int)((uint32_t)(state >> 40) % size), page = (int)((state >> 33) % PAGES);
        while (change(server, 2 * page + 1, 1, MPI_SUM) < 0)
            change(server, 2 * page + 1, -1, MPI_SUM);
        MPI_Aint place = change(server, 2 * page, 0, MPI_NO_OP);
        MPI_Get(read, WORDS, MPI_UINT64_T, server, place, WORDS, MPI_UINT64_T, pages);
        MPI_Win_flush(server, pages);
        change(server, 2 * page + 1, -1, MPI_SUM);
        for (int word = 0; word < WORDS; word++)
            if (read[word] != read[0] || read[0] >> 32 != content(server, page, 0) >> 32)
                fail("a page says what it should not");
        if (number % 64 == 63) {
            page = (int)(number / 64 % PAGES);
            MPI_Aint fresh = print(rank, page, ++edition), old;
            while (1) {
                int64_t readers = 0, found;
                MPI_Compare_and_swap(&closed, &readers, &found, MPI_INT64_T, rank, 2 * page + 1, table);
                MPI_Win_flush(rank, table);
                if (found == 0)
                    break;
            }
            old = change(rank, 2 * page, fresh, MPI_REPLACE);
            change(rank, 2 * page + 1, -closed, MPI_SUM);
            burn(old);
        }
    }
    double seconds = MPI_Wtime() - start, slowest;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("page_server: %ld reads in %.6f s\n", reads * size, slowest);
    for (int page = 0; page < PAGES; page++)
        burn(change(rank, 2 * page, 0, MPI_NO_OP));
    MPI_Win_unlock_all(table);
    MPI_Win_unlock_all(pages);
    MPI_Win_free(&table);
    MPI_Win_free(&pages);
    MPI_Finalize();
    return 0;
}
