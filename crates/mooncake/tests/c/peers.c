/* Engines in two processes. `peers TEST` is the initiator, and starts this program again as the target, which obeys
 * commands on its standard input. The last line is `ok`, or the program fails and prints the reason. */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "transfer_engine_c.h"

#define MIB ((size_t)1 << 20)
/* The bytes that a target registers. */
#define SIZE (64 * MIB)

#define CHECK(condition, ...) do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, " (last error: %s)\n", hydrant_transfer_engine_last_error()); \
            _exit(1); \
        } \
    } while (0)
#define IS(value, wanted) do { \
        long long is_ = (long long)(value), wanted_ = (long long)(wanted); \
        CHECK(is_ == wanted_, "%s is %lld, and not %lld", #value, is_, wanted_); \
    } while (0)
#define SAYS(words) CHECK(strstr(hydrant_transfer_engine_last_error(), words), "it does not say \"%s\"", words)
#define FAILS(call, code, words) do { IS(call, code); SAYS(words); } while (0)

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void nap(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

/* The byte at an offset of a pattern. */
static unsigned char pattern(size_t at, unsigned seed) {
    return (unsigned char)((at * 2654435761u + seed * 40503u) >> 7);
}

static transfer_engine_t create(const char *name) {
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", name, "", 0, 1);
    CHECK(engine, "an engine is created");
    return engine;
}

/* The target. */

static int target(const char *own_name) {
    transfer_engine_t engine = create(own_name);
    unsigned char *memory = calloc(1, SIZE);
    CHECK(memory, "memory");
    IS(registerLocalMemory(engine, memory, SIZE, "*", 1), 0);
    char name[64], line[256], text[128];
    IS(getLocalIpAndPort(engine, name, sizeof name), 0);
    printf("%s %llu\n", name, (unsigned long long)(size_t)memory);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        unsigned long long offset, length, seed;
        int size = 0;
        if (sscanf(line, "check %llu %llu %llu", &offset, &length, &seed) == 3) {
            size_t wrong = 0;
            for (size_t at = 0; at < length; at++)
                wrong += memory[offset + at] != pattern(at, (unsigned)seed);
            printf("%zu\n", wrong);
        } else if (sscanf(line, "fill %llu %llu %llu", &offset, &length, &seed) == 3) {
            for (size_t at = 0; at < length; at++) memory[offset + at] = pattern(at, (unsigned)seed);
            printf("filled\n");
        } else if (sscanf(line, "count %llu", &seed) == 1) {
            size_t count = 0;
            for (size_t at = 0; at < SIZE; at++) count += memory[at] == seed;
            printf("%zu\n", count);
        } else if (sscanf(line, "unregister %llu", &seed) == 1) {
            /* From here on nobody touches the memory. */
            IS(unregisterLocalMemory(engine, memory), 0);
            memset(memory, (int)seed, SIZE);
            printf("unregistered\n");
        } else if (sscanf(line, "register %llu", &seed) == 1) {
            IS(registerLocalMemory(engine, memory, SIZE, "cpu:0", (int)seed), 0);
            printf("registered\n");
        } else if (sscanf(line, "pieces %llu", &length) == 1) {
            for (size_t at = 0; at < length; at++)
                IS(registerLocalMemory(engine, memory + at * 64, 64, NULL, 1), 0);
            printf("registered\n");
        } else if (sscanf(line, "await %llu", &offset) == 1) {
            /* The last byte of the data is looked at once the message has come. */
            notify_msg_t *messages = NULL;
            for (double end = now() + 10; !messages && now() < end; nap(0.0002))
                messages = getNotifsFromEngine(engine, &size);
            CHECK(messages, "a message comes");
            printf("%d %s %s %d\n", size, messages[0].name, messages[0].msg, memory[offset]);
            IS(freeNotifsMsgBuf(messages, size), 0);
        } else if (sscanf(line, "say %63s %127s", name, text) == 2) {
            segment_id_t segment = openSegment(engine, name);
            CHECK(segment > 0, "the segment of %s", name);
            notify_msg_t message = {(char *)"target", text};
            IS(genNotifyInEngine(engine, (uint64_t)segment, message), 0);
            printf("said\n");
        } else if (!strncmp(line, "graceful", 8)) {
            enableGracefulShutdown(engine);
            printf("graceful\n");
        } else if (!strncmp(line, "quit", 4)) {
            destroyTransferEngine(engine);
            printf("destroyed\n");
            fflush(stdout);
            return 0;
        } else {
            CHECK(0, "the command %s", line);
        }
        fflush(stdout);
    }
    return 0;
}

struct process {
    pid_t pid;
    FILE *to, *from;
    char name[64];
    uint64_t base;
};

/* Starts a target. */
static struct process start(const char *own_name) {
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0, "pipes");
    struct process process = {.pid = fork()};
    CHECK(process.pid >= 0, "a process");
    if (process.pid == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execl("/proc/self/exe", "peers", "target", own_name, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    process.to = fdopen(to[1], "w");
    process.from = fdopen(from[0], "r");
    unsigned long long base = 0;
    IS(fscanf(process.from, "%63s %llu", process.name, &base), 2);
    IS(fgetc(process.from), 10);
    process.base = base;
    return process;
}

/* Sends a command, and returns the line that answers. */
static const char *tell(struct process *process, const char *format, ...) {
    static char line[256];
    va_list arguments;
    va_start(arguments, format);
    vfprintf(process->to, format, arguments);
    va_end(arguments);
    fputc('\n', process->to);
    fflush(process->to);
    CHECK(fgets(line, sizeof line, process->from), "the target answers");
    line[strcspn(line, "\n")] = 0;
    return line;
}

static void end(struct process *process) {
    int status = 0;
    CHECK(!strcmp(tell(process, "quit"), "destroyed"), "the target ends");
    waitpid(process->pid, &status, 0);
    IS(status, 0);
    fclose(process->to);
    fclose(process->from);
}

static void kill_it(struct process *process) {
    kill(process->pid, SIGKILL);
    waitpid(process->pid, NULL, 0);
    fclose(process->to);
    fclose(process->from);
}

/* The initiator. */

static transfer_request_t request(int opcode, void *source, segment_id_t target, uint64_t at, uint64_t length) {
    transfer_request_t request;
    memset(&request, 0, sizeof request);
    request.opcode = opcode;
    request.source = source;
    request.target_id = target;
    request.target_offset = at;
    request.length = length;
    return request;
}

/* Waits for the end of a task, and returns its status. */
static transfer_status_t finish(transfer_engine_t engine, batch_id_t batch, size_t task) {
    transfer_status_t status = {-1, 0};
    for (double end = now() + 60; now() < end; nap(0.00005)) {
        IS(getTransferStatus(engine, batch, task, &status), 0);
        if (status.status != STATUS_WAITING) return status;
    }
    CHECK(0, "task %zu ends", task);
    return status;
}

static char reason_text[512];

static const char *reason(transfer_engine_t engine, batch_id_t batch, size_t task) {
    IS(hydrant_transfer_engine_task_error(engine, batch, task, reason_text, sizeof reason_text), 0);
    return reason_text;
}

/* Transfers one run, and returns its status. The reason of a failure is in `reason_text`. */
static int transfer(transfer_engine_t engine, transfer_request_t request) {
    batch_id_t batch = allocateBatchID(engine, 1);
    CHECK(batch != INVALID_BATCH, "a batch");
    IS(submitTransfer(engine, batch, &request, 1), 0);
    transfer_status_t status = finish(engine, batch, 0);
    IS(status.transferred_bytes, status.status == STATUS_COMPLETED ? request.length : 0);
    IS(!*reason(engine, batch, 0), status.status == STATUS_COMPLETED);
    IS(freeBatchID(engine, batch), 0);
    return status.status;
}

#define TRANSFER_FAILS(engine, request, words) do { \
        IS(transfer(engine, request), STATUS_FAILED); \
        CHECK(strstr(reason_text, words), "\"%s\" does not say \"%s\"", reason_text, words); \
    } while (0)

static void data(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    segment_id_t segment = openSegment(engine, peer.name);
    IS(segment, 1);
    unsigned char *own = malloc(SIZE);
    size_t lengths[] = {0, 1, 8, 4096, 65535, 65537, MIB, 32 * MIB + 3};
    for (unsigned index = 0; index < sizeof lengths / sizeof *lengths; index++) {
        size_t length = lengths[index], offset = index * 13;
        for (size_t at = 0; at < length; at++) own[at] = pattern(at, index);
        IS(transfer(engine, request(OPCODE_WRITE, own, segment, peer.base + offset, length)), STATUS_COMPLETED);
        CHECK(!strcmp(tell(&peer, "check %zu %zu %u", offset, length, index), "0"), "%zu bytes arrive", length);
        tell(&peer, "fill %zu %zu %u", offset, length, index + 100);
        memset(own, 0, length);
        IS(transfer(engine, request(OPCODE_READ, own, segment, peer.base + offset, length)), STATUS_COMPLETED);
        for (size_t at = 0; at < length; at++) CHECK(own[at] == pattern(at, index + 100), "byte %zu", at);
    }
    /* Local memory that is not there. */
    transfer_request_t bad = request(OPCODE_WRITE, (void *)4096, segment, peer.base, 100);
    TRANSFER_FAILS(engine, bad, "not mapped");
    end(&peer);
    destroyTransferEngine(engine);
    free(own);
}

static void unregistered(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    segment_id_t segment = openSegment(engine, peer.name);
    static unsigned char own[4096];
    memset(own, 7, sizeof own);
    transfer_request_t good = request(OPCODE_WRITE, own, segment, peer.base, sizeof own);
    IS(transfer(engine, good), STATUS_COMPLETED);
    transfer_request_t bad = good;
    bad.target_offset = peer.base + SIZE - 4095;
    TRANSFER_FAILS(engine, bad, "end past the registered memory");
    bad.target_offset = peer.base - 1;
    TRANSFER_FAILS(engine, bad, "is not registered");
    bad.target_offset = UINT64_MAX - 10;
    TRANSFER_FAILS(engine, bad, "is not registered");
    bad = good;
    bad.length = UINT64_MAX / 2;
    TRANSFER_FAILS(engine, bad, "end past the registered memory");
    bad.length = UINT64_MAX / 2 + 1;
    batch_id_t batch = allocateBatchID(engine, 10);
    FAILS(submitTransfer(engine, batch, &bad, 1), 1, "there are no");
    IS(freeBatchID(engine, batch), 0);
    /* The memory is given up, and then registered again under the same address. */
    tell(&peer, "unregister 9");
    TRANSFER_FAILS(engine, good, "is not registered");
    CHECK(!strcmp(tell(&peer, "count 7"), "0"), "nothing arrived");
    tell(&peer, "register 1");
    IS(transfer(engine, good), STATUS_COMPLETED);
    CHECK(!strcmp(tell(&peer, "count 7"), "4096"), "it arrived");
    /* Memory without access for peers. */
    tell(&peer, "unregister 9");
    tell(&peer, "register 0");
    TRANSFER_FAILS(engine, good, "without access for peers");
    /* One bad task: nothing of the submission lands. */
    tell(&peer, "unregister 9");
    tell(&peer, "register 1");
    transfer_request_t both[3] = {good, good, good};
    both[1].target_offset = peer.base + SIZE;
    batch = allocateBatchID(engine, 3);
    IS(submitTransfer(engine, batch, both, 3), 0);
    for (size_t task = 0; task < 3; task++) IS(finish(engine, batch, task).status, STATUS_FAILED);
    CHECK(strstr(reason(engine, batch, 0), "because of task 1: "), "%s", reason_text);
    CHECK(strstr(reason(engine, batch, 1), "is not registered there"), "%s", reason_text);
    CHECK(!strcmp(tell(&peer, "count 7"), "0"), "nothing arrived");
    IS(freeBatchID(engine, batch), 0);
    end(&peer);
    destroyTransferEngine(engine);
}

/* More pieces of registered memory than a peer may have open at once. */
static void pieces(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    segment_id_t segment = openSegment(engine, peer.name);
    tell(&peer, "unregister 0");
    tell(&peer, "pieces 5000");
    static unsigned char own[64];
    for (size_t at = 0; at < 5000; at++) {
        memset(own, 1 + (int)(at % 200), sizeof own);
        IS(transfer(engine, request(OPCODE_WRITE, own, segment, peer.base + at * 64, 64)), STATUS_COMPLETED);
    }
    CHECK(!strcmp(tell(&peer, "count 1"), "1600"), "all arrived");
    TRANSFER_FAILS(engine, request(OPCODE_WRITE, own, segment, peer.base + 32, 64), "end past");
    end(&peer);
    destroyTransferEngine(engine);
}

static void death(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    segment_id_t segment = openSegment(engine, peer.name);
    unsigned char *own = malloc(SIZE);
    memset(own, 3, SIZE);
    transfer_request_t small = request(OPCODE_WRITE, own, segment, peer.base, 4096);
    for (int round = 0; round < 5; round++) {
        small.target_offset = peer.base;
        IS(transfer(engine, small), STATUS_COMPLETED);
        /* Killed in the middle of much data. */
        enum { TASKS = 200 };
        static transfer_request_t tasks[TASKS];
        for (int task = 0; task < TASKS; task++) tasks[task] = request(OPCODE_WRITE, own, segment, peer.base, SIZE);
        batch_id_t batch = allocateBatchID(engine, TASKS);
        IS(submitTransfer(engine, batch, tasks, TASKS), 0);
        IS(freeBatchID(engine, batch), 4);
        nap(0.005 * round);
        kill_it(&peer);
        double since = now();
        IS(finish(engine, batch, TASKS - 1).status, STATUS_FAILED);
        CHECK(now() - since < 1, "the failure is told after %.3f s", now() - since);
        CHECK(strstr(reason(engine, batch, TASKS - 1), "is lost"), "%s", reason_text);
        IS(freeBatchID(engine, batch), 0);
        since = now();
        IS(transfer(engine, small), STATUS_FAILED);
        IS(transfer(engine, small), STATUS_FAILED);
        CHECK(now() - since < 1, "further failures take %.3f s", now() - since);
        IS(openSegment(engine, peer.name), segment);
        IS(openSegmentNoCache(engine, peer.name), -1);
        IS(syncSegmentCache(engine), 0);
        /* It returns under the same name, and the number of the segment is still good. */
        char name[64];
        strcpy(name, peer.name);
        peer = start(name);
        CHECK(!strcmp(peer.name, name), "it returns as %s", peer.name);
        if (round % 2) IS(openSegmentNoCache(engine, peer.name), segment);
    }
    small.target_offset = peer.base;
    IS(transfer(engine, small), STATUS_COMPLETED);
    CHECK(!strcmp(tell(&peer, "count 3"), "4096"), "nothing of before arrived");
    end(&peer);
    IS(transfer(engine, small), STATUS_FAILED);
    destroyTransferEngine(engine);
    free(own);
}

static void many(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    segment_id_t segment = openSegment(engine, peer.name);
    for (size_t count = 10000; count <= 100000; count *= 10) {
        /* Each second run of 256 bytes. */
        unsigned char *own = malloc(count * 256);
        transfer_request_t *tasks = malloc(count * sizeof *tasks);
        for (int opcode = OPCODE_WRITE; opcode >= OPCODE_READ; opcode--) {
            for (size_t at = 0; at < count; at++) {
                if (opcode == OPCODE_WRITE) memset(own + at * 256, (int)(at % 250) + 1, 256);
                else memset(own + at * 256, 0, 256);
                tasks[at] = request(opcode, own + at * 256, segment, peer.base + at * 512, 256);
            }
            batch_id_t batch = allocateBatchID(engine, count);
            IS(submitTransfer(engine, batch, tasks, count), 0);
            FAILS(submitTransfer(engine, batch, tasks, 1), 2, "limit of");
            for (size_t at = 0; at < count; at++) {
                transfer_status_t status = finish(engine, batch, at);
                CHECK(status.status == STATUS_COMPLETED && status.transferred_bytes == 256, "task %zu", at);
            }
            IS(freeBatchID(engine, batch), 0);
        }
        for (size_t at = 0; at < count * 256; at++) IS(own[at], (at / 256) % 250 + 1);
        char wanted[32];
        snprintf(wanted, sizeof wanted, "%zu", count / 250 * 256);
        CHECK(!strcmp(tell(&peer, "count 250"), wanted), "all arrived once");
        tell(&peer, "unregister 0");
        tell(&peer, "register 1");
        free(own);
        free(tasks);
    }
    end(&peer);
    destroyTransferEngine(engine);
}

/* Memory is given up while much is under way: nothing lands any more, and the engine goes on. */
static void stopped(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    segment_id_t segment = openSegment(engine, peer.name);
    enum { TASKS = 50000 };
    unsigned char *own = malloc(SIZE);
    memset(own, 5, SIZE);
    transfer_request_t *tasks = malloc(TASKS * sizeof *tasks);
    for (size_t at = 0; at < TASKS; at++)
        tasks[at] = request(OPCODE_WRITE, own, segment, peer.base + at * 64, 1 << 19);
    IS(transfer(engine, tasks[0]), STATUS_COMPLETED);
    batch_id_t batch = allocateBatchID(engine, TASKS);
    IS(submitTransfer(engine, batch, tasks, TASKS), 0);
    transfer_status_t status;
    IS(getTransferStatus(engine, batch, TASKS - 1, &status), 0);
    IS(status.status, STATUS_WAITING);
    nap(0.02);
    /* The target writes 9 to all of it, once it is its own again. */
    tell(&peer, "unregister 9");
    CHECK(!strcmp(tell(&peer, "count 5"), "0"), "nothing landed after it was given up");
    IS(finish(engine, batch, TASKS - 1).status, STATUS_FAILED);
    CHECK(strstr(reason(engine, batch, TASKS - 1), "revoked"), "%s", reason_text);
    size_t done = 0, failed = 0;
    for (size_t at = 0; at < TASKS; at++) {
        status = finish(engine, batch, at);
        if (status.status == STATUS_COMPLETED) done++;
        else failed++;
    }
    CHECK(done > 0 && failed > 0, "%zu done, %zu failed", done, failed);
    tell(&peer, "register 1");
    nap(0.1);
    CHECK(!strcmp(tell(&peer, "count 5"), "0"), "nothing landed");
    IS(transfer(engine, tasks[0]), STATUS_COMPLETED);
    IS(freeBatchID(engine, batch), 0);
    /* An engine that is destroyed lets nothing land, either. */
    batch = allocateBatchID(engine, TASKS);
    IS(submitTransfer(engine, batch, tasks, TASKS), 0);
    destroyTransferEngine(engine);
    tell(&peer, "fill 0 %zu 1", SIZE);
    memset(own, 6, SIZE);
    CHECK(!strcmp(tell(&peer, "check 0 %zu 1", SIZE), "0"), "nothing landed after the end");
    end(&peer);
    free(own);
    free(tasks);
}

static void notified(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    segment_id_t segment = openSegment(engine, peer.name);
    unsigned char *own = malloc(SIZE);
    /* The message comes after the data, although nobody polls the batch. */
    for (int round = 1; round <= 20; round++) {
        size_t length = round % 2 ? SIZE : 100;
        memset(own, round, SIZE);
        transfer_request_t task = request(OPCODE_WRITE, own, segment, peer.base, length);
        char name[] = "initiator", text[] = "data-is-there", wanted[64];
        notify_msg_t message = {name, text};
        batch_id_t batch = allocateBatchID(engine, 1);
        IS(submitTransferWithNotify(engine, batch, &task, 1, message), 0);
        memset(text, 'x', strlen(text));
        snprintf(wanted, sizeof wanted, "1 initiator data-is-there %d", round);
        const char *answer = tell(&peer, "await %zu", length - 1);
        CHECK(!strcmp(answer, wanted), "%s", answer);
        IS(finish(engine, batch, 0).status, STATUS_COMPLETED);
        IS(freeBatchID(engine, batch), 0);
    }
    /* A message after all tasks of the batch, also those of an earlier call; without one after a failure. */
    char name[] = "n", text[] = "m", empty[] = "";
    notify_msg_t message = {name, text};
    memset(own, 77, SIZE);
    transfer_request_t large = request(OPCODE_WRITE, own, segment, peer.base, SIZE);
    transfer_request_t nothing = request(OPCODE_WRITE, own, segment, peer.base, 0);
    batch_id_t batch = allocateBatchID(engine, 4);
    IS(submitTransfer(engine, batch, &large, 1), 0);
    IS(submitTransferWithNotify(engine, batch, &nothing, 1, message), 0);
    const char *answer = tell(&peer, "await %zu", SIZE - 1);
    CHECK(!strcmp(answer, "1 n m 77"), "%s", answer);
    large.target_offset = 4096;
    IS(submitTransferWithNotify(engine, batch, &large, 1, message), 0);
    IS(finish(engine, batch, 2).status, STATUS_FAILED);
    IS(submitTransferWithNotify(engine, batch, &nothing, 1, message), 0);
    IS(finish(engine, batch, 3).status, STATUS_COMPLETED);
    IS(freeBatchID(engine, batch), 0);
    /* Messages alone, in both directions. */
    message.msg = (char *)"alone";
    IS(genNotifyInEngine(engine, (uint64_t)segment, message), 0);
    answer = tell(&peer, "await 0");
    CHECK(!strcmp(answer, "1 n alone 77"), "%s", answer);
    char own_name[64];
    IS(getLocalIpAndPort(engine, own_name, sizeof own_name), 0);
    tell(&peer, "say %s hello", own_name);
    int size = -1;
    notify_msg_t *all = getNotifsFromEngine(engine, &size);
    IS(size, 1);
    CHECK(!strcmp(all->name, "target") && !strcmp(all->msg, "hello"), "%s %s", all->name, all->msg);
    IS(freeNotifsMsgBuf(all, size), 0);
    CHECK(!getNotifsFromEngine(engine, &size), "there are no more");
    IS(size, 0);
    /* The longest message, and one that is too long. */
    size_t most = (256 << 10) - 14;
    char *long_text = malloc(most + 2);
    memset(long_text, 'l', most + 1);
    long_text[most + 1] = 0;
    notify_msg_t long_message = {empty, long_text};
    FAILS(genNotifyInEngine(engine, (uint64_t)segment, long_message), -1, "above the limit");
    long_text[most] = 0;
    IS(genNotifyInEngine(engine, 0, long_message), 0);
    all = getNotifsFromEngine(engine, &size);
    CHECK(size == 1 && strlen(all->msg) == most, "the longest message");
    IS(freeNotifsMsgBuf(all, size), 0);
    /* A target that has ended. */
    kill_it(&peer);
    nap(0.05);
    CHECK(genNotifyInEngine(engine, (uint64_t)segment, message) < 0, "nobody gets it");
    IS(genNotifyInEngine(engine, 77, message), -200);
    destroyTransferEngine(engine);
    free(long_text);
    free(own);
}

static int connect_to(const char *name) {
    struct sockaddr_in place = {.sin_family = AF_INET};
    place.sin_port = htons((uint16_t)atoi(strchr(name, ':') + 1));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int stranger = socket(AF_INET, SOCK_STREAM, 0);
    IS(connect(stranger, (struct sockaddr *)&place, sizeof place), 0);
    return stranger;
}

static void strangers(void) {
    struct process peer = start("127.0.0.1");
    /* Silent, garbled and broken connections. */
    int silent[100];
    for (int at = 0; at < 100; at++) silent[at] = connect_to(peer.name);
    static char garbage[MIB];
    for (size_t at = 0; at < sizeof garbage; at++) garbage[at] = (char)pattern(at, 5);
    for (int at = 0; at < 20; at++) {
        int stranger = connect_to(peer.name);
        char answer;
        (void)!send(stranger, garbage, sizeof garbage >> at, MSG_NOSIGNAL);
        if (sizeof garbage >> at >= 8) CHECK(recv(stranger, &answer, 1, 0) <= 0, "it gets no answer");
        close(stranger);
    }
    transfer_engine_t engine = create("127.0.0.1");
    double since = now();
    segment_id_t segment = openSegment(engine, peer.name);
    CHECK(segment > 0 && now() - since < 1, "it opens in %.3f s", now() - since);
    char byte = 1;
    IS(transfer(engine, request(OPCODE_WRITE, &byte, segment, peer.base, 1)), STATUS_COMPLETED);
    for (int at = 0; at < 100; at++) close(silent[at]);
    /* Programs that are no engines. */
    int other = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in place = {.sin_family = AF_INET};
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof place;
    IS(bind(other, (struct sockaddr *)&place, length), 0);
    IS(listen(other, 5), 0);
    IS(getsockname(other, (struct sockaddr *)&place, &length), 0);
    char name[64];
    snprintf(name, sizeof name, "127.0.0.1:%d", ntohs(place.sin_port));
    since = now();
    FAILS(openSegment(engine, name), -1, "nothing comes");
    CHECK(now() - since < 5, "after %.3f s", now() - since);
    close(other);
    FAILS(openSegment(engine, name), -1, "is not reached");
    FAILS(openSegment(engine, "no.such.host.invalid:1"), -1, "has no address");
    end(&peer);
    destroyTransferEngine(engine);
}

/* All functions, in one process, with the engine's own segment and a second engine. */
static void functions(void) {
    char name[64], second_name[64], links[1024];
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1:0", "ignored", 77, 0);
    CHECK(engine, "an engine");
    IS(discoverTopology(engine), 0);
    IS(getLocalIpAndPort(engine, name, sizeof name), 0);
    CHECK(!strncmp(name, "127.0.0.1:", 10) && atoi(name + 10) > 0, "%s", name);
    char cut[5] = "zzzz";
    IS(getLocalIpAndPort(engine, cut, 4), 0);
    CHECK(!strcmp(cut, "127"), "%s", cut);
    static unsigned char memory[8192], own[8192];
    IS(registerLocalMemory(engine, memory, sizeof memory, "cpu:0", 1), 0);
    IS(openSegment(engine, name), LOCAL_SEGMENT);
    char slash[80];
    snprintf(slash, sizeof slash, "/%s", name);
    IS(openSegment(engine, slash), LOCAL_SEGMENT);

    /* Without a transport nothing is transferred. */
    memset(own, 9, sizeof own);
    transfer_request_t task = request(OPCODE_WRITE, own, LOCAL_SEGMENT, (uint64_t)(size_t)memory, 4096);
    batch_id_t batch = allocateBatchID(engine, 2);
    FAILS(submitTransfer(engine, batch, &task, 1), 8, "no transport");
    CHECK(!installTransport(engine, "rdma", NULL), "there is none");
    SAYS("no transport \"rdma\"");
    void *matrix[1] = {(void *)"{}"};
    transport_t transport = installTransport(engine, "tcp", matrix);
    CHECK(transport && transport == installTransport(engine, "tcp", NULL), "the same");
    IS(submitTransfer(engine, batch, &task, 1), 0);
    IS(finish(engine, batch, 0).status, STATUS_COMPLETED);
    CHECK(memory[0] == 9 && memory[4095] == 9 && memory[4096] == 0, "the own segment");
    char from[] = "me", text[] = "to-myself";
    notify_msg_t message = {from, text};
    IS(submitTransferWithNotify(engine, batch, &task, 1, message), 0);
    IS(finish(engine, batch, 1).status, STATUS_COMPLETED);
    IS(freeBatchID(engine, batch), 0);
    int size = 0;
    notify_msg_t *all = NULL;
    for (double end = now() + 5; !all && now() < end; nap(0.001)) all = getNotifsFromEngine(engine, &size);
    CHECK(size == 1 && !strcmp(all->msg, "to-myself"), "the message");
    IS(freeNotifsMsgBuf(all, size), 0);
    IS(genNotifyInEngine(engine, LOCAL_SEGMENT, message), 0);
    all = getNotifsFromEngine(engine, &size);
    IS(size, 1);
    IS(freeNotifsMsgBuf(all, size), 0);
    IS(freeNotifsMsgBuf(NULL, 0), 0);

    /* A second engine of the process. */
    transfer_engine_t second = create("localhost");
    IS(getLocalIpAndPort(second, second_name, sizeof second_name), 0);
    segment_id_t segment = openSegment(second, name);
    IS(segment, 1);
    IS(openSegment(second, name), 1);
    IS(openSegmentNoCache(second, name), 1);
    IS(openSegment(engine, second_name), 1);
    IS(warmupEfaSegment(second, name), 0);
    IS(syncSegmentCache(second), 0);
    task.target_id = segment;
    memset(own, 11, sizeof own);
    IS(transfer(second, task), STATUS_COMPLETED);
    IS(memory[4095], 11);
    size_t count = 4;
    nic_load_stat_t stats[4];
    IS(getNicLoadStats(second, stats, &count), 0);
    IS(count, 0);
    IS(showLinks(second, links, sizeof links, 0), 0);
    CHECK(strstr(links, "connected") && strstr(links, name), "%s", links);
    IS(showLinks(second, links, sizeof links, 1), 0);
    CHECK(strstr(links, "\"connected\":true") && strstr(links, name), "%s", links);
    IS(closeSegment(second, segment), 0);
    IS(transfer(second, task), STATUS_COMPLETED);
    IS(removeLocalSegment(second, name), 0);
    IS(removeLocalSegment(second, "unknown"), 0);
    batch = allocateBatchID(second, 1);
    FAILS(submitTransfer(second, batch, &task, 1), 1, "no segment 1");
    IS(freeBatchID(second, batch), 0);
    IS(openSegment(second, name), 2);
    IS(uninstallTransport(second, "tcp"), 0);

    /* Memory. */
    IS(registerLocalMemory(engine, memory, sizeof memory, "*", 1), -7);
    IS(registerLocalMemory(engine, memory + 8191, 2, "*", 1), -7);
    IS(registerLocalMemory(engine, own, 0, "*", 1), -1);
    IS(registerLocalMemory(engine, NULL, 10, "*", 1), -1);
    IS(registerLocalMemory(engine, own, SIZE_MAX, "*", 1), -1);
    FAILS(registerLocalMemory(engine, own, 10, "cuda:0", 1), -6, "memory at \"cuda:0\"");
    buffer_entry_t buffers[2] = {{own, 100}, {own + 50, 100}};
    IS(registerLocalMemoryBatch(engine, buffers, 2, "*"), -7);
    buffers[1].addr = own + 100;
    IS(registerLocalMemoryBatch(engine, buffers, 2, "*"), 0);
    void *addrs[3] = {own, own + 1, own + 100};
    IS(unregisterLocalMemoryBatch(engine, addrs, 3), -3);
    IS(unregisterLocalMemory(engine, own + 100), -3);
    IS(registerLocalMemoryBatch(engine, NULL, 0, "*"), 0);
    IS(unregisterLocalMemory(engine, memory), 0);
    IS(unregisterLocalMemory(engine, memory), -3);
    destroyTransferEngine(second);
    destroyTransferEngine(engine);
}

static void bad_input(void) {
    char name[64], text[8];
    CHECK(!createTransferEngine(NULL, "127.0.0.1", "", 0, 1), "null");
    CHECK(!createTransferEngine("P2PHANDSHAKE", NULL, NULL, 0, 1), "null");
    CHECK(!createTransferEngine("P2PHANDSHAKE", "", NULL, 0, 1), "no name");
    SAYS("has no host");
    CHECK(!createTransferEngine("P2PHANDSHAKE", "127.0.0.1:99999", NULL, 0, 1), "no port");
    const char *services[] = {"etcd://127.0.0.1:2379", "redis://127.0.0.1", "http://127.0.0.1:8080/metadata", ""};
    for (int at = 0; at < 4; at++) {
        CHECK(!createTransferEngine(services[at], "127.0.0.1", "", 0, 1), "%s", services[at]);
        SAYS("P2PHANDSHAKE");
    }
    CHECK(!createTransferEngine("P2PHANDSHAKE", "\xff\xfe", "", 0, 1), "no text");
    SAYS("not UTF-8");

    static unsigned char memory[4096];
    transfer_engine_t good = create("127.0.0.1"), gone = create("127.0.0.1");
    IS(getLocalIpAndPort(good, name, sizeof name), 0);
    batch_id_t gone_batch = allocateBatchID(gone, 5);
    destroyTransferEngine(gone);
    destroyTransferEngine(gone);
    SAYS("there is no engine");
    notify_msg_t message = {(char *)"a", (char *)"b"}, none = {NULL, NULL};
    transfer_request_t task = request(OPCODE_WRITE, memory, 0, 1, 1);
    transfer_status_t status = {55, 55};
    transfer_engine_t engines[] = {NULL, gone, (void *)12345, (void *)memory};
    for (int at = 0; at < 4; at++) {
        transfer_engine_t bad = engines[at];
        size_t count = 1;
        nic_load_stat_t stat;
        int size = 77;
        destroyTransferEngine(bad);
        enableGracefulShutdown(bad);
        IS(discoverTopology(bad), -1);
        IS(getLocalIpAndPort(bad, name, 10), -1);
        CHECK(!installTransport(bad, "tcp", NULL), "no engine");
        IS(uninstallTransport(bad, "tcp"), -1);
        IS(openSegment(bad, "127.0.0.1:1"), -1);
        IS(openSegmentNoCache(bad, "127.0.0.1:1"), -1);
        IS(closeSegment(bad, 0), -1);
        IS(warmupEfaSegment(bad, "a"), -1);
        IS(removeLocalSegment(bad, "a"), -1);
        IS(registerLocalMemory(bad, memory, 10, "*", 1), -1);
        IS(unregisterLocalMemory(bad, memory), -1);
        IS(registerLocalMemoryBatch(bad, NULL, 0, "*"), -1);
        IS(unregisterLocalMemoryBatch(bad, NULL, 0), -1);
        CHECK(allocateBatchID(bad, 5) == INVALID_BATCH, "no engine");
        IS(submitTransfer(bad, gone_batch, &task, 1), 1);
        IS(submitTransferWithNotify(bad, gone_batch, &task, 1, message), 1);
        IS(getTransferStatus(bad, gone_batch, 0, &status), 1);
        IS(freeBatchID(bad, gone_batch), 1);
        CHECK(!getNotifsFromEngine(bad, &size), "no engine");
        IS(size, 0);
        IS(genNotifyInEngine(bad, 0, message), -1);
        IS(syncSegmentCache(bad), -1);
        IS(getNicLoadStats(bad, &stat, &count), -1);
        IS(showLinks(bad, text, sizeof text, 0), -1);
        IS(hydrant_transfer_engine_task_error(bad, gone_batch, 0, text, sizeof text), 1);
    }
    IS(status.status, 55);

    IS(getLocalIpAndPort(good, NULL, 10), -1);
    IS(getLocalIpAndPort(good, text, 0), -1);
    IS(showLinks(good, NULL, 10, 1), -1);
    IS(showLinks(good, text, 0, 1), -1);
    CHECK(!installTransport(good, NULL, NULL), "no name");
    IS(openSegment(good, NULL), -1);
    IS(openSegment(good, ""), -1);
    IS(openSegment(good, "/"), -1);
    IS(openSegment(good, "no port"), -1);
    IS(openSegmentNoCache(good, NULL), -1);
    IS(removeLocalSegment(good, ""), -1);
    IS(removeLocalSegment(good, NULL), -1);
    IS(registerLocalMemoryBatch(good, NULL, 3, "*"), -1);
    IS(unregisterLocalMemoryBatch(good, NULL, 3), -1);
    IS(getNicLoadStats(good, NULL, NULL), -1);
    CHECK(!getNotifsFromEngine(good, NULL), "no place");
    IS(genNotifyInEngine(good, 0, none), -1);
    IS(genNotifyInEngine(good, UINT64_MAX, message), -200);
    IS(freeNotifsMsgBuf(NULL, -1), 0);

    batch_id_t batch = allocateBatchID(good, 3), batches[] = {INVALID_BATCH, 0, gone_batch, 1 << 30};
    for (int at = 0; at < 4; at++) {
        IS(submitTransfer(good, batches[at], &task, 1), 1);
        IS(getTransferStatus(good, batches[at], 0, &status), 1);
        IS(freeBatchID(good, batches[at]), 1);
    }
    IS(submitTransfer(good, batch, NULL, 1), 1);
    IS(submitTransfer(good, batch, (transfer_request_t *)(void *)(memory + 1), 1), 1);
    IS(submitTransfer(good, batch, &task, SIZE_MAX), 1);
    IS(submitTransfer(good, batch, NULL, 0), 0);
    IS(submitTransferWithNotify(good, batch, NULL, 0, message), 1);
    IS(submitTransferWithNotify(good, batch, &task, 1, none), 1);
    task.opcode = 2;
    FAILS(submitTransfer(good, batch, &task, 1), 1, "opcode 2");
    task = request(OPCODE_READ, NULL, 0, 1, 1);
    IS(submitTransfer(good, batch, &task, 1), 1);
    task = request(OPCODE_READ, memory, -1, 1, 1);
    IS(submitTransfer(good, batch, &task, 1), 1);
    task = request(OPCODE_READ, memory, 5, 1, 1);
    FAILS(submitTransfer(good, batch, &task, 1), 1, "no segment 5");
    IS(getTransferStatus(good, batch, 0, &status), 1);
    IS(getTransferStatus(good, batch, SIZE_MAX, &status), 1);
    IS(freeBatchID(good, batch), 0);
    IS(freeBatchID(good, batch), 1);
    IS(status.status, 55);
    destroyTransferEngine(good);
}

struct worker {
    transfer_engine_t engine;
    struct process *peer;
    int index;
};

static void *work(void *argument) {
    struct worker *worker = argument;
    unsigned char *own = malloc(MIB);
    for (int round = 0; round < 200; round++) {
        segment_id_t segment = openSegment(worker->engine, worker->peer->name);
        size_t length = round % 10 ? 1000 : MIB;
        uint64_t place = worker->peer->base + (uint64_t)worker->index * MIB;
        memset(own, worker->index * 20 + round % 20, length);
        IS(transfer(worker->engine, request(OPCODE_WRITE, own, segment, place, length)), STATUS_COMPLETED);
        memset(own, 0, length);
        IS(transfer(worker->engine, request(OPCODE_READ, own, segment, place, length)), STATUS_COMPLETED);
        IS(own[length - 1], worker->index * 20 + round % 20);
        IS(registerLocalMemory(worker->engine, own, MIB, "*", 1), 0);
        IS(syncSegmentCache(worker->engine), 0);
        notify_msg_t message = {(char *)"w", (char *)"m"};
        IS(genNotifyInEngine(worker->engine, (uint64_t)segment, message), 0);
        IS(unregisterLocalMemory(worker->engine, own), 0);
    }
    free(own);
    return NULL;
}

static void threads(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    for (int at = 0; at < THREADS; at++) {
        workers[at] = (struct worker){engine, &peer, at};
        IS(pthread_create(&threads[at], NULL, work, &workers[at]), 0);
    }
    for (int at = 0; at < THREADS; at++) IS(pthread_join(threads[at], NULL), 0);
    end(&peer);
    destroyTransferEngine(engine);
}

/* A target that is stopped: its memory is still read and written, and only questions to it wait. */
static void halted(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    segment_id_t segment = openSegment(engine, peer.name);
    static unsigned char own[4096];
    memset(own, 7, sizeof own);
    transfer_request_t task = request(OPCODE_WRITE, own, segment, peer.base, sizeof own);
    IS(transfer(engine, task), STATUS_COMPLETED);
    kill(peer.pid, SIGSTOP);
    nap(0.05);
    double since = now();
    task.target_offset = peer.base + MIB;
    IS(transfer(engine, task), STATUS_COMPLETED);
    CHECK(now() - since < 0.5, "known memory takes %.3f s", now() - since);
    since = now();
    task.target_offset = 4096;
    TRANSFER_FAILS(engine, task, "did not answer within 3000 ms");
    notify_msg_t message = {(char *)"a", (char *)"b"};
    FAILS(genNotifyInEngine(engine, (uint64_t)segment, message), -104, "did not answer");
    FAILS(openSegmentNoCache(engine, peer.name), -1, "nothing comes");
    CHECK(now() - since < 15, "unknown memory, a message and a question take %.3f s", now() - since);
    kill(peer.pid, SIGCONT);
    CHECK(!strcmp(tell(&peer, "count 7"), "8192"), "both are there");
    IS(transfer(engine, task), STATUS_FAILED);
    CHECK(strstr(reason_text, "is not registered"), "%s", reason_text);
    /* It is killed while it is asked. */
    kill(peer.pid, SIGSTOP);
    pid_t killer = fork();
    if (killer == 0) {
        nap(0.3);
        kill(peer.pid, SIGKILL);
        _exit(0);
    }
    since = now();
    TRANSFER_FAILS(engine, task, "is lost");
    CHECK(now() - since < 1.5, "its death is told after %.3f s", now() - since);
    waitpid(killer, NULL, 0);
    waitpid(peer.pid, NULL, 0);
    destroyTransferEngine(engine);
}

static void graceful(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    segment_id_t segment = openSegment(engine, peer.name);
    char byte = 1;
    IS(transfer(engine, request(OPCODE_WRITE, &byte, segment, peer.base, 1)), STATUS_COMPLETED);
    tell(&peer, "graceful");
    kill(peer.pid, SIGTERM);
    int status = 0;
    waitpid(peer.pid, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "status %d", status);
    for (double end = now() + 5; now() < end; nap(0.001)) {
        char links[512];
        IS(showLinks(engine, links, sizeof links, 1), 0);
        if (strstr(links, "\"connected\":false")) break;
    }
    TRANSFER_FAILS(engine, request(OPCODE_WRITE, &byte, segment, peer.base, 1), "is not reached");
    destroyTransferEngine(engine);
}

static void forked(void) {
    struct process peer = start("127.0.0.1");
    transfer_engine_t engine = create("127.0.0.1");
    segment_id_t segment = openSegment(engine, peer.name);
    static char own[4096];
    transfer_request_t task = request(OPCODE_WRITE, own, segment, peer.base, sizeof own);
    IS(transfer(engine, task), STATUS_COMPLETED);
    enableGracefulShutdown(engine);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        batch_id_t batch = allocateBatchID(engine, 1);
        IS(submitTransfer(engine, batch, &task, 1), 0);
        IS(finish(engine, batch, 0).status, STATUS_FAILED);
        CHECK(strstr(reason(engine, batch, 0), "forked"), "%s", reason_text);
        CHECK(registerLocalMemory(engine, own, 10, "*", 1) < 0, "the child lends nothing");
        destroyTransferEngine(engine);
        CHECK(!strstr(hydrant_transfer_engine_last_error(), "destroyTransferEngine"), "it is left to the parent");
        raise(SIGTERM);
        _exit(3);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "status %d", status);
    IS(transfer(engine, task), STATUS_COMPLETED);
    char name[64];
    IS(getLocalIpAndPort(engine, name, sizeof name), 0);
    CHECK(!strcmp(tell(&peer, "say %s hello", name), "said"), "the port is still served");
    end(&peer);
    destroyTransferEngine(engine);
}

int main(int count, char **arguments) {
    if (count == 3 && !strcmp(arguments[1], "target")) return target(arguments[2]);
    struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"data", data}, {"unregistered", unregistered}, {"pieces", pieces}, {"death", death},
        {"many", many}, {"stopped", stopped}, {"notified", notified}, {"strangers", strangers},
        {"functions", functions}, {"bad_input", bad_input}, {"threads", threads},
        {"halted", halted}, {"graceful", graceful}, {"forked", forked},
    };
    for (size_t at = 0; count == 2 && at < sizeof tests / sizeof *tests; at++) {
        if (!strcmp(arguments[1], tests[at].name)) {
            tests[at].run();
            puts("ok");
            return 0;
        }
    }
    fprintf(stderr, "no such test\n");
    return 2;
}
