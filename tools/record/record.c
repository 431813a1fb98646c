/* Records what an MPI program communicates, for `hydrant-repro replay`: a library that stands between the program and
 * its MPI (the standard's profiling interface), and writes a file for each rank in the format "PMT2", which
 * docs/foresight.md describes.
 *
 *   mpicc -O2 -shared -fPIC -o librecord.so tools/record/record.c
 *   HYDRANT_RECORD=folder mpirun -n 4 env LD_PRELOAD=$PWD/librecord.so ./program
 *
 * Programs of one thread, in C or Fortran. Fortran's calls reach the C functions in Open MPI and MPICH; build the
 * program with -fno-omit-frame-pointer for call stacks. What the program calls is recorded; what the library
 * sends inside of it is not. */
#define _GNU_SOURCE
#include <mpi.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum kind {
    INIT = 1, FINALIZE, SEND, RECV, ISEND, IRECV, WAIT, WAITALL, BARRIER, BCAST, REDUCE, ALLREDUCE,
    ALLTOALL_SEND, ALLTOALL_RECEIVE, ALLTOALLV_SEND, ALLTOALLV_RECEIVE, SENDRECV_SEND, SENDRECV_RECEIVE,
    COMM_SPLIT, COMM_DUP
};

/* 72 bytes, little endian. */
struct record {
    uint64_t t_ns, dur_ns, addr, len, stack, req;
    int32_t peer, tag;
    uint16_t kind, comm;
    uint32_t seq;
    uint64_t comp_ns;
};
_Static_assert(sizeof(struct record) == 72, "the format has records of 72 bytes");

/* Return addresses that a call's stack is hashed of. */
enum { FRAMES = 6 };

static FILE *file;
static uint32_t sequence;
static uint64_t last_request, zero_wall, zero_cpu, inside_ns;
static uintptr_t low, high, stack_end;

/* Requests under way, by the handle that the program has: those of one rank are few at a time. */
static struct { MPI_Request handle; uint64_t number; } *requests;
static size_t request_count, request_room;

/* Communicators, in the order in which this rank saw them; 0 is that of all ranks. */
static MPI_Comm *comms;
static size_t comm_count, comm_room;

/* A call under way. */
struct call {
    uint64_t t_ns, comp_ns, cpu_ns, stack;
    uint32_t seq;
};

static void fail(const char *what) {
    fprintf(stderr, "record: %s\n", what);
    PMPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t clock_of(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The executable comes first. */
static int bounds(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    (void)data;
    low = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD)
            continue;
        uintptr_t from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        low = from < low ? from : low;
        high = to > high ? to : high;
    }
    return 1;
}

/* A hash of up to FRAMES return addresses within the executable, innermost first; 0 if there is none. Frames are
 * followed within this thread's stack alone, each above the one before, so that nothing faults. Addresses count
 * from where the executable lies, which differs from run to run. */
__attribute__((noinline)) static uint64_t stack_hash(void) {
    uintptr_t *frame = __builtin_frame_address(0);
    uint64_t hash = 0;
    for (int found = 0, steps = 0; found < FRAMES && steps < 64; steps++) {
        if ((uintptr_t)frame % sizeof *frame || (uintptr_t)(frame + 2) > stack_end)
            break;
        uintptr_t back = frame[1], *above = (uintptr_t *)frame[0];
        if (low <= back && back < high) {
            hash = (hash ^ (back - low + 1)) * 0x100000001b3u + 0x9e3779b97f4a7c15u;
            found++;
        }
        if (above <= frame)
            break;
        frame = above;
    }
    return hash;
}

static struct call begin(void) {
    uint64_t cpu = clock_of(CLOCK_THREAD_CPUTIME_ID);
    return (struct call){clock_of(CLOCK_MONOTONIC) - zero_wall, cpu - zero_cpu - inside_ns, cpu,
                         stack_hash(), sequence++};
}

/* What was spent within MPI is no computation. */
static uint64_t end(const struct call *call) {
    inside_ns += clock_of(CLOCK_THREAD_CPUTIME_ID) - call->cpu_ns;
    return clock_of(CLOCK_MONOTONIC) - zero_wall - call->t_ns;
}

static uint16_t comm_number(MPI_Comm comm) {
    for (size_t i = 0; i < comm_count; i++)
        if (comms[i] == comm)
            return (uint16_t)i;
    if (comm_count == comm_room) {
        comm_room = comm_room ? 2 * comm_room : 16;
        comms = realloc(comms, comm_room * sizeof *comms);
        if (!comms)
            fail("no memory for communicators");
    }
    comms[comm_count] = comm;
    return (uint16_t)comm_count++;
}

/* A rank of a communicator as a rank of the job. */
static int32_t world_rank(int rank, MPI_Comm comm) {
    if (rank < 0 || comm == MPI_COMM_WORLD)
        return rank < 0 ? -1 : rank;
    MPI_Group group, world;
    int in_world;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(group, 1, &rank, world, &in_world);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return in_world;
}

static uint64_t bytes_of(int count, MPI_Datatype type) {
    int size;
    PMPI_Type_size(type, &size);
    return (uint64_t)count * (uint64_t)size;
}

static void write_record(const struct call *call, uint64_t dur_ns, int kind, const void *at, uint64_t len,
                         uint64_t req, int32_t peer, int32_t tag, MPI_Comm comm) {
    struct record record = {call->t_ns, dur_ns, len ? (uintptr_t)at : 0, len, call->stack, req, peer, tag,
                            (uint16_t)kind, comm_number(comm), call->seq, call->comp_ns};
    if (fwrite(&record, sizeof record, 1, file) != 1)
        fail("a record could not be written");
}

static uint64_t request_begins(MPI_Request handle) {
    if (request_count == request_room) {
        request_room = request_room ? 2 * request_room : 64;
        requests = realloc(requests, request_room * sizeof *requests);
        if (!requests)
            fail("no memory for requests");
    }
    requests[request_count].handle = handle;
    requests[request_count++].number = ++last_request;
    return last_request;
}

static uint64_t request_ends(MPI_Request handle) {
    for (size_t i = 0; i < request_count; i++)
        if (requests[i].handle == handle) {
            uint64_t number = requests[i].number;
            requests[i] = requests[--request_count];
            return number;
        }
    return 0;
}

static void start(void) {
    int rank, ranks;
    char path[4096];
    const char *folder = getenv("HYDRANT_RECORD");
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    snprintf(path, sizeof path, "%s/rank%d.pmt", folder ? folder : ".", rank);
    file = fopen(path, "wb");
    if (!file)
        fail("the file of this rank could not be made: HYDRANT_RECORD names a folder that is there");
    dl_iterate_phdr(bounds, NULL);
    pthread_attr_t attributes;
    void *bottom;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &bottom, &size);
        stack_end = (uintptr_t)bottom + size;
        pthread_attr_destroy(&attributes);
    }
    comm_number(MPI_COMM_WORLD);
    PMPI_Barrier(MPI_COMM_WORLD);
    zero_wall = clock_of(CLOCK_MONOTONIC);
    zero_cpu = clock_of(CLOCK_THREAD_CPUTIME_ID);
    uint64_t header[8] = {0x32544d50, sizeof(struct record), (uint64_t)rank, (uint64_t)ranks,
                          low, high, clock_of(CLOCK_REALTIME), zero_wall};
    if (fwrite(header, sizeof header, 1, file) != 1)
        fail("the header could not be written");
    struct call call = begin();
    write_record(&call, 0, INIT, NULL, 0, 0, -1, -1, MPI_COMM_WORLD);
}

int MPI_Init(int *argc, char ***argv) {
    int outcome = PMPI_Init(argc, argv);
    start();
    return outcome;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    int outcome = PMPI_Init_thread(argc, argv, required, provided);
    start();
    return outcome;
}

int MPI_Finalize(void) {
    struct call call = begin();
    write_record(&call, 0, FINALIZE, NULL, 0, 0, -1, -1, MPI_COMM_WORLD);
    if (fclose(file))
        fail("the file of this rank could not be written");
    return PMPI_Finalize();
}

/* A call of one record. */
#define RECORDED(CALL, KIND, AT, LEN, REQ, PEER, TAG, COMM)                                                \
    struct call call = begin();                                                                            \
    int outcome = CALL;                                                                                    \
    uint64_t dur_ns = end(&call);                                                                          \
    write_record(&call, dur_ns, KIND, AT, LEN, REQ, PEER, TAG, COMM);                                      \
    return outcome

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
    RECORDED(PMPI_Send(buf, count, type, dest, tag, comm), SEND, buf, bytes_of(count, type), 0,
             world_rank(dest, comm), tag, comm);
}

int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status *status) {
    MPI_Status own;
    MPI_Status *seen = status == MPI_STATUS_IGNORE ? &own : status;
    RECORDED(PMPI_Recv(buf, count, type, source, tag, comm, seen), RECV, buf, bytes_of(count, type), 0,
             world_rank(seen->MPI_SOURCE, comm), seen->MPI_TAG, comm);
}

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
              MPI_Request *request) {
    RECORDED(PMPI_Isend(buf, count, type, dest, tag, comm, request), ISEND, buf, bytes_of(count, type),
             request_begins(*request), world_rank(dest, comm), tag, comm);
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request *request) {
    /* Whom and what it will be matched with is known too late. */
    if (source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG)
        fail("an MPI_Irecv from anybody, or of any tag, cannot be recorded");
    RECORDED(PMPI_Irecv(buf, count, type, source, tag, comm, request), IRECV, buf, bytes_of(count, type),
             request_begins(*request), world_rank(source, comm), tag, comm);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    MPI_Request before = *request;
    RECORDED(PMPI_Wait(request, status), WAIT, NULL, 0, request_ends(before), -1, -1, MPI_COMM_WORLD);
}

int MPI_Waitall(int count, MPI_Request all[], MPI_Status statuses[]) {
    struct call call = begin();
    uint64_t *numbers = malloc((size_t)(count ? count : 1) * sizeof *numbers);
    if (!numbers)
        fail("no memory for requests");
    for (int i = 0; i < count; i++)
        numbers[i] = request_ends(all[i]);
    int outcome = PMPI_Waitall(count, all, statuses);
    uint64_t dur_ns = end(&call);
    int written = 0;
    for (int i = 0; i < count; i++)
        if (numbers[i]) {
            write_record(&call, dur_ns, WAITALL, NULL, 0, numbers[i], -1, -1, MPI_COMM_WORLD);
            written++;
        }
    if (!written)
        write_record(&call, dur_ns, WAITALL, NULL, 0, 0, -1, -1, MPI_COMM_WORLD);
    free(numbers);
    return outcome;
}

int MPI_Barrier(MPI_Comm comm) {
    RECORDED(PMPI_Barrier(comm), BARRIER, NULL, 0, 0, -1, -1, comm);
}

int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    RECORDED(PMPI_Bcast(buf, count, type, root, comm), BCAST, buf, bytes_of(count, type), 0,
             world_rank(root, comm), root, comm);
}

int MPI_Reduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm) {
    RECORDED(PMPI_Reduce(from, to, count, type, op, root, comm), REDUCE, from == MPI_IN_PLACE ? to : from,
             bytes_of(count, type), 0, world_rank(root, comm), root, comm);
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    RECORDED(PMPI_Allreduce(from, to, count, type, op, comm), ALLREDUCE, from == MPI_IN_PLACE ? to : from,
             bytes_of(count, type), 0, -1, -1, comm);
}

static void extent_at(const void **at, int64_t index, MPI_Datatype type) {
    MPI_Aint lower, extent;
    PMPI_Type_get_extent(type, &lower, &extent);
    *at = (const char *)*at + index * (int64_t)extent;
}

/* The parts of an exchange, peer by peer. */
static void write_part(const struct call *call, uint64_t dur_ns, int kind, const void *at, int64_t index,
                       int count, MPI_Datatype type, int peer, MPI_Comm comm) {
    extent_at(&at, index, type);
    write_record(call, dur_ns, kind, at, bytes_of(count, type), 0, world_rank(peer, comm), -1, comm);
}

int MPI_Alltoall(const void *from, int sent, MPI_Datatype send_type, void *to, int received,
                 MPI_Datatype receive_type, MPI_Comm comm) {
    struct call call = begin();
    int outcome = PMPI_Alltoall(from, sent, send_type, to, received, receive_type, comm), ranks;
    uint64_t dur_ns = end(&call);
    if (from == MPI_IN_PLACE) {
        from = to;
        sent = received;
        send_type = receive_type;
    }
    PMPI_Comm_size(comm, &ranks);
    for (int i = 0; i < ranks; i++) {
        write_part(&call, dur_ns, ALLTOALL_SEND, from, (int64_t)i * sent, sent, send_type, i, comm);
        write_part(&call, dur_ns, ALLTOALL_RECEIVE, to, (int64_t)i * received, received, receive_type, i,
                   comm);
    }
    return outcome;
}

int MPI_Alltoallv(const void *from, const int sent[], const int send_at[], MPI_Datatype send_type, void *to,
                  const int received[], const int receive_at[], MPI_Datatype receive_type, MPI_Comm comm) {
    struct call call = begin();
    int outcome = PMPI_Alltoallv(from, sent, send_at, send_type, to, received, receive_at, receive_type,
                                 comm), ranks;
    uint64_t dur_ns = end(&call);
    if (from == MPI_IN_PLACE) {
        from = to;
        sent = received;
        send_at = receive_at;
        send_type = receive_type;
    }
    PMPI_Comm_size(comm, &ranks);
    for (int i = 0; i < ranks; i++) {
        write_part(&call, dur_ns, ALLTOALLV_SEND, from, send_at[i], sent[i], send_type, i, comm);
        write_part(&call, dur_ns, ALLTOALLV_RECEIVE, to, receive_at[i], received[i], receive_type, i, comm);
    }
    return outcome;
}

int MPI_Sendrecv(const void *from, int sent, MPI_Datatype send_type, int dest, int send_tag, void *to,
                 int received, MPI_Datatype receive_type, int source, int receive_tag, MPI_Comm comm,
                 MPI_Status *status) {
    MPI_Status own;
    MPI_Status *seen = status == MPI_STATUS_IGNORE ? &own : status;
    struct call call = begin();
    int outcome = PMPI_Sendrecv(from, sent, send_type, dest, send_tag, to, received, receive_type, source,
                                receive_tag, comm, seen);
    uint64_t dur_ns = end(&call);
    write_record(&call, dur_ns, SENDRECV_SEND, from, bytes_of(sent, send_type), 0, world_rank(dest, comm),
                 send_tag, comm);
    write_record(&call, dur_ns, SENDRECV_RECEIVE, to, bytes_of(received, receive_type), 0,
                 world_rank(seen->MPI_SOURCE, comm), seen->MPI_TAG, comm);
    return outcome;
}

int MPI_Comm_split(MPI_Comm comm, int colour, int key, MPI_Comm *made) {
    struct call call = begin();
    int outcome = PMPI_Comm_split(comm, colour, key, made);
    uint64_t dur_ns = end(&call);
    write_record(&call, dur_ns, COMM_SPLIT, NULL, 0, 0, -1, colour, comm);
    if (*made != MPI_COMM_NULL)
        comm_number(*made);
    return outcome;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *made) {
    struct call call = begin();
    int outcome = PMPI_Comm_dup(comm, made);
    uint64_t dur_ns = end(&call);
    write_record(&call, dur_ns, COMM_DUP, NULL, 0, 0, -1, -1, comm);
    comm_number(*made);
    return outcome;
}
