/* The measurements of `cargo xtask beside-peers`, the same for all peers in C.
 *
 * A peer's file defines the functions below and then includes this file, so that the compiler sees through
 * them. Rank 0 works on the memory of rank 1, which waits in a barrier. Each row is printed as the case, the
 * bytes, and the median nanoseconds of one operation.
 *
 *     rank, ranks                  this process and the number of all
 *     own                          FIELD bytes of this process for accesses from and into
 *     put_now, get_now             an access from the call until the data is at its place
 *     put_later, get_later, quiet  accesses, and a call that waits until the data of all is at its place
 *     serve(requests)              rank 1 answers so many messages; rank 0 sends one by ask()
 *     barrier(), all_reduce(n)     all ranks; the sum of the first n doubles of `numbers`
 *     put_value(at, word)          a word by value, with HAS_VALUES
 *
 * A library without collectives defines NO_COLLECTIVES, and a barrier of its own. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double DURATION = 150e6;

static double samples[1 << 16];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(const char *name, size_t bytes, int count)
{
    qsort(samples, count, sizeof *samples, by_size);
    printf("%s\t%zu\t%.9g\n", name, bytes, (samples[(count - 1) / 2] + samples[count / 2]) / 2);
    fflush(stdout);
}

/* The compiler must not know a length that a library's user does not. */
static inline size_t unknown(size_t bytes)
{
    __asm__ volatile("" : "+r"(bytes));
    return bytes;
}

/* Times a statement for 150 ms after a tenth of that, `batch` times for each sample. Each time
 * is as many of what is reported as `each` says. */
#define MEASURE(name, bytes, each, batch, statement)                                                        \
    do {                                                                                                    \
        int taken = 0;                                                                                      \
        double begun = now(), end;                                                                          \
        do {                                                                                                \
            double start = now();                                                                           \
            for (int n = 0; n < (batch); n++) {                                                             \
                statement;                                                                                  \
            }                                                                                               \
            end = now();                                                                                    \
            if (end - begun >= DURATION / 10 && taken < (int)(sizeof samples / sizeof *samples))            \
                samples[taken++] = (end - start) / (batch) / (each);                                        \
        } while (end - begun < DURATION || taken < 3);                                                      \
        report(name, bytes, taken);                                                                         \
    } while (0)

#ifndef TCP_ALONE

enum { WINDOW = 16, PUTS = 64, COMPUTED = 1000000000 };

/* Operations of eight bytes in one sample: on shared memory the clock takes longer than an access. */
static int short_batch = 1;

/* Rank i stays on processor i, as Hydrant's launcher does it. */
static void bind_to_processor(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(rank % 2, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void words(void)
{
    int batch = short_batch / PUTS + 1;
    MEASURE("put", 8, 1, short_batch, put_now(0, unknown(8)));
    MEASURE("get", 8, 1, short_batch, get_now(0, unknown(8)));
#ifdef HAS_VALUES
    if (short_batch > 1) {
        MEASURE("put, known length", 8, 1, short_batch, put_now(0, 8));
        MEASURE("put of a value", 8, 1, short_batch, put_value(0, n));
    }
#endif
    MEASURE("puts in a batch, each", 8, PUTS, batch, {
        for (int i = 0; i < PUTS; i++)
            put_later(i * 8, unknown(8));
        quiet();
    });
}

/* Blocks one by one on shared memory, where each is a copy, and in windows on a network. */
static void blocks(int on_shared_memory)
{
    static const size_t sizes[] = {4096, 65536, 1 << 20, FIELD};
    for (int s = on_shared_memory ? 0 : 1; s < (on_shared_memory ? 3 : 4); s++) {
        size_t bytes = sizes[s];
        int batch = (1 << 22) / bytes, window = FIELD / bytes < WINDOW ? FIELD / bytes : WINDOW;
        if (on_shared_memory) {
            MEASURE("put", bytes, 1, batch, put_now(0, bytes));
            MEASURE("get", bytes, 1, batch, get_now(0, bytes));
            continue;
        }
        MEASURE("put bandwidth", bytes, window, 1, {
            for (int i = 0; i < window; i++)
                put_later(i * bytes, bytes);
            quiet();
        });
        MEASURE("get bandwidth", bytes, window, 1, {
            for (int i = 0; i < window; i++)
                get_later(i * bytes, bytes);
            quiet();
        });
    }
}

/* Puts while rank 1 calls nothing of the library for a second. Of those that take it, one is enough. */
static void beside_computing(void)
{
    int taken = 0;
    barrier();
    double begun = now();
    if (rank == 0)
        usleep(10000);
    while (rank == 1 && now() - begun < COMPUTED)
        ;
    while (rank == 0 && now() - begun < COMPUTED / 2 && taken < 1 << 16) {
        double start = now();
        put_now(0, unknown(8));
        samples[taken++] = now() - start;
    }
    if (rank == 0)
        report("put, the peer computes", 8, taken);
    barrier();
}

static void messages(int on_shared_memory)
{
    int batch = on_shared_memory ? 256 : 1;
    for (int sample = 0; sample < 4096; sample++) {
        if (sample % 64 == 0)
            barrier();
        if (rank == 1) {
            serve(batch);
            continue;
        }
        double start = now();
        for (int i = 0; i < batch; i++)
            ask();
        samples[sample] = (now() - start) / batch;
    }
    if (rank == 0)
        report("message there and back", 0, 4096);
}

#ifndef NO_COLLECTIVES
static double numbers[(1 << 20) / sizeof(double)];

/* One collective, in batches of about 10 ms that begin at a barrier; rank 0 keeps the time. */
static void collective(const char *name, size_t bytes, int n)
{
    double plan[2] = {0, 0}, took = 0;
    for (int batch = -1, count = n > 1 ? 1 : 4, batches = 21; batch < batches; batch++) {
        barrier();
        took = now();
        for (int i = 0; i < count; i++)
            n == 0 ? barrier() : all_reduce(n);
        took = (now() - took) / count;
        if (batch >= 0) {
            samples[batch] = took;
            continue;
        }
        /* Rank 0 decides how many. */
        plan[0] = took < 2500 ? 4000 : took > 1e7 ? 1 : 1e7 / took;
        plan[1] = took > 1e8 ? 3 : 21;
        numbers[0] = rank == 0 ? plan[0] : 0;
        numbers[1] = rank == 0 ? plan[1] : 0;
        all_reduce(2);
        count = numbers[0];
        batches = numbers[1];
        memset(numbers, 0, sizeof numbers);
        plan[1] = batches;
    }
    if (rank == 0)
        report(name, bytes, plan[1]);
}
#endif

static void measure_all(int on_shared_memory)
{
    if (on_shared_memory) {
        short_batch = 10000;
        bind_to_processor();
    }
    if (ranks == 2) {
        if (rank == 0) {
            words();
            blocks(on_shared_memory);
        }
        if (!on_shared_memory)
            beside_computing();
        messages(on_shared_memory);
    }
#ifndef NO_COLLECTIVES
    collective("barrier", 0, 0);
    collective("all-reduce", 8, 1);
    collective("all-reduce", 1 << 20, 1 << 17);
#endif
}
#endif
