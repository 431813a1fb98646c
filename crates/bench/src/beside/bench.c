/* What `hydrant bench … --beside mpi` sets beside Hydrant: the same operations by MPI, measured in the
 * same way. Called as
 *
 *     bench barrier|collectives|messages|rma REPETITIONS WARM_UP NANOSECONDS BYTES,BYTES,…
 *
 * it prints a line for each case and size: the case, the bytes, and the median nanoseconds of one
 * operation. A batch lasts as long as the third number says, at least, and starts from a barrier that
 * is not timed; of the times of all ranks the longest counts. Roots move on by one rank each time. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 1 << 24, WINDOW = 16, THERE = 1, BACK = 2, FIELD = 16 << 20 };

struct what {
    size_t bytes;
    int rank, ranks;
    double *part, *whole, *into;
    char *window[WINDOW];
    /* The memory of each rank that others access, and accesses in flight at a time. */
    MPI_Win field;
    int at_once;
};

/* This rank's share of so many operations. */
typedef void operation(const struct what *w, long count);

struct plan {
    int repetitions, warm_up;
    double batch;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int words(const struct what *w) { return w->bytes / sizeof(double); }
static int root(const struct what *w, long i) { return i % w->ranks; }

static void barrier(const struct what *w, long count)
{
    (void)w;
    for (long i = 0; i < count; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static void broadcast(const struct what *w, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Bcast(w->part, words(w), MPI_DOUBLE, root(w, i), MPI_COMM_WORLD);
}

static void reduce(const struct what *w, long count)
{
    /* Not in place: MPICH 4.0.2 was seen to end in a memory fault there. */
    for (long i = 0; i < count; i++)
        MPI_Reduce(w->part, w->into, words(w), MPI_DOUBLE, MPI_SUM, root(w, i), MPI_COMM_WORLD);
}

static void all_reduce(const struct what *w, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Allreduce(MPI_IN_PLACE, w->part, words(w), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void scan(const struct what *w, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Scan(MPI_IN_PLACE, w->part, words(w), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void gather(const struct what *w, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Gather(w->part, words(w), MPI_DOUBLE, w->into, words(w), MPI_DOUBLE, root(w, i), MPI_COMM_WORLD);
}

static void scatter(const struct what *w, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Scatter(w->whole, words(w), MPI_DOUBLE, w->part, words(w), MPI_DOUBLE, root(w, i),
                    MPI_COMM_WORLD);
}

static void all_gather(const struct what *w, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Allgather(w->part, words(w), MPI_DOUBLE, w->into, words(w), MPI_DOUBLE, MPI_COMM_WORLD);
}

static void all_to_all(const struct what *w, long count)
{
    for (long i = 0; i < count; i++)
        MPI_Alltoall(w->whole, words(w), MPI_DOUBLE, w->into, words(w), MPI_DOUBLE, MPI_COMM_WORLD);
}

/* Round trips of ranks 0 and 1. */
static void ping_pong(const struct what *w, long count)
{
    int bytes = w->bytes;
    for (long i = 0; i < count && w->rank < 2; i++) {
        if (w->rank == 0) {
            MPI_Send(w->window[0], bytes, MPI_BYTE, 1, THERE, MPI_COMM_WORLD);
            MPI_Recv(w->window[0], bytes, MPI_BYTE, 1, BACK, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(w->window[0], bytes, MPI_BYTE, 0, THERE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(w->window[0], bytes, MPI_BYTE, 0, BACK, MPI_COMM_WORLD);
        }
    }
}

/* Windows of messages from rank 0 to rank 1. Whole ones, so that however fast MPI is, as much memory is
 * gone through as in Hydrant's. */
static void stream(const struct what *w, long count)
{
    int bytes = w->bytes;
    MPI_Request requests[WINDOW];
    MPI_Status statuses[WINDOW];
    for (; count > 0 && w->rank < 2; count--) {
        for (int i = 0; i < WINDOW; i++) {
            if (w->rank == 0)
                MPI_Isend(w->window[i], bytes, MPI_BYTE, 1, THERE, MPI_COMM_WORLD, &requests[i]);
            else
                MPI_Irecv(w->window[i], bytes, MPI_BYTE, 0, THERE, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(WINDOW, requests, statuses);
    }
}

/* Accesses of rank 0 to the memory of rank 1, so many in flight, each time until they are complete there. */
static void put(const struct what *w, long count)
{
    int bytes = w->bytes;
    for (; count > 0 && w->rank == 0; count--) {
        for (int i = 0; i < w->at_once; i++)
            MPI_Put(w->window[0] + i * w->bytes, bytes, MPI_BYTE, 1, i * w->bytes, bytes, MPI_BYTE, w->field);
        MPI_Win_flush(1, w->field);
    }
}

static void get(const struct what *w, long count)
{
    int bytes = w->bytes;
    for (; count > 0 && w->rank == 0; count--) {
        for (int i = 0; i < w->at_once; i++)
            MPI_Get(w->window[0] + i * w->bytes, bytes, MPI_BYTE, 1, i * w->bytes, bytes, MPI_BYTE, w->field);
        MPI_Win_flush(1, w->field);
    }
}

/* A batch: the longest time of any rank, on all of them. */
static double batch(operation *run, const struct what *w, long count)
{
    double took, longest;
    MPI_Barrier(MPI_COMM_WORLD);
    took = now();
    run(w, count);
    took = now() - took;
    MPI_Allreduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest;
}

/* Operations that fill a batch. All ranks have the same times, so they find the same number. */
static long calibrate(operation *run, const struct what *w, const struct plan *plan)
{
    long count = 1;
    for (;;) {
        double took = batch(run, w, count);
        for (int again = 0; again < 2 && took * 8 >= plan->batch; again++) {
            double other = batch(run, w, count);
            took = other < took ? other : took;
        }
        if (took >= plan->batch || count >= MOST)
            return count;
        long more = took * 8 >= plan->batch ? (long)(count * (plan->batch / took)) + 2 : count * 2;
        count = more < MOST ? more : MOST;
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Measures an operation, each of which is so many of what is reported. */
static void measure_of(int each, const char *name, operation *run, const struct what *w,
                       const struct plan *plan)
{
    long count = calibrate(run, w, plan);
    double *samples = malloc(plan->repetitions * sizeof *samples);
    for (int i = -plan->warm_up; i < plan->repetitions; i++) {
        double took = batch(run, w, count) / count / each;
        if (i >= 0)
            samples[i] = took;
    }
    qsort(samples, plan->repetitions, sizeof *samples, by_size);
    if (w->rank == 0) {
        double median = (samples[(plan->repetitions - 1) / 2] + samples[plan->repetitions / 2]) / 2;
        printf("%s\t%zu\t%.17g\n", name, w->bytes, median);
        fflush(stdout);
    }
    free(samples);
}

static void measure(const char *name, operation *run, const struct what *w, const struct plan *plan)
{
    measure_of(1, name, run, w, plan);
}

/* Memory with something in it: of zeros, compilers make memory that was never touched, and all that is sent
 * from there is one page of the system's, which is in every cache. */
static void *filled(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL) {
        fprintf(stderr, "there are no %zu bytes of memory\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(memory, 1, bytes);
    return memory;
}

static void collectives(struct what *w, const struct plan *plan)
{
    w->part = filled(w->bytes);
    w->whole = filled(w->bytes * w->ranks);
    w->into = filled(w->bytes * w->ranks);
    measure("broadcast", broadcast, w, plan);
    measure("reduce", reduce, w, plan);
    measure("all_reduce", all_reduce, w, plan);
    measure("scan", scan, w, plan);
    measure("gather", gather, w, plan);
    measure("scatter", scatter, w, plan);
    measure("all_gather", all_gather, w, plan);
    measure("all_to_all", all_to_all, w, plan);
    free(w->part);
    free(w->whole);
    free(w->into);
}

static void messages(struct what *w, const struct plan *plan)
{
    for (int i = 0; i < WINDOW; i++)
        w->window[i] = filled(w->bytes);
    measure("ping-pong", ping_pong, w, plan);
    measure_of(WINDOW, "stream", stream, w, plan);
    for (int i = 0; i < WINDOW; i++)
        free(w->window[i]);
}

/* Meanwhile rank 1 waits in a collective, so that MPI makes progress there. */
static void rma(struct what *w, const struct plan *plan)
{
    void *own;
    MPI_Win_allocate(FIELD, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &w->field);
    memset(own, 1, FIELD);
    MPI_Win_lock_all(0, w->field);
    w->window[0] = filled(FIELD);
    w->at_once = w->bytes == 8 ? 1 : FIELD / w->bytes < WINDOW ? FIELD / w->bytes : WINDOW;
    measure_of(w->at_once, w->bytes == 8 ? "put, hit" : "put bandwidth, hit", put, w, plan);
    measure_of(w->at_once, w->bytes == 8 ? "get, hit" : "get bandwidth, hit", get, w, plan);
    if (w->bytes == 8) {
        w->at_once = 64;
        measure_of(w->at_once, "64 puts in a scope, each", put, w, plan);
    }
    MPI_Win_unlock_all(w->field);
    MPI_Win_free(&w->field);
    free(w->window[0]);
}

int main(int count, char **words)
{
    struct what w = {0};
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &w.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &w.ranks);
    if (count != 6) {
        fprintf(stderr, "usage: %s BENCH REPETITIONS WARM_UP NANOSECONDS BYTES,…\n", words[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    struct plan plan = {atoi(words[2]), atoi(words[3]), atof(words[4])};
    if (strcmp(words[1], "barrier") == 0)
        measure("barrier", barrier, &w, &plan);
    else
        for (char *size = strtok(words[5], ","); size != NULL; size = strtok(NULL, ",")) {
            w.bytes = strtoull(size, NULL, 10);
            if (strcmp(words[1], "collectives") == 0)
                collectives(&w, &plan);
            else if (strcmp(words[1], "rma") == 0)
                rma(&w, &plan);
            else
                messages(&w, &plan);
        }
    MPI_Finalize();
    return 0;
}
