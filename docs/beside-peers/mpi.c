/* MPI in `cargo xtask beside-peers`: puts and gets in a window with a flush, and sends and receives. */
#include <mpi.h>
#include <stddef.h>

enum { FIELD = 16 << 20 };

static int rank, ranks;
static char *own;
static MPI_Win window;

static inline void put_later(size_t at, int bytes)
{
    MPI_Put(own + at, bytes, MPI_BYTE, 1, at, bytes, MPI_BYTE, window);
}

static inline void get_later(size_t at, int bytes)
{
    MPI_Get(own + at, bytes, MPI_BYTE, 1, at, bytes, MPI_BYTE, window);
}

static inline void quiet(void) { MPI_Win_flush(1, window); }

static inline void put_now(size_t at, int bytes)
{
    put_later(at, bytes);
    quiet();
}

static inline void get_now(size_t at, int bytes)
{
    get_later(at, bytes);
    quiet();
}

static void serve(int requests)
{
    double word;
    while (requests-- > 0) {
        MPI_Recv(&word, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&word, 8, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
}

static void ask(void)
{
    double word = 0;
    MPI_Send(&word, 8, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(&word, 8, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void all_reduce(int n);

#include "suite.h"

static void all_reduce(int n)
{
    MPI_Allreduce(MPI_IN_PLACE, numbers, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

int main(int count, char **arguments)
{
    void *base;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    own = malloc(FIELD);
    memset(own, 1, FIELD);
    MPI_Win_allocate(FIELD, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    memset(base, 1, FIELD);
    MPI_Win_lock_all(0, window);
    measure_all(0);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
