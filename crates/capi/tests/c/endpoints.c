/* Two processes without a job: this one owns memory, and starts the other, which uses it. */
#include "check.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

#define REFUSES(call, wanted) FAILS(call, wanted, "hydrant_")

enum { BYTES = 3000000 };

static void to_hex(const unsigned char *bytes, size_t count, char *text) {
    for (size_t i = 0; i < count; i++) sprintf(text + 2 * i, "%02x", bytes[i]);
}

static size_t from_hex(const char *text, unsigned char *bytes) {
    size_t count = strlen(text) / 2;
    for (size_t i = 0; i < count; i++) {
        unsigned byte;
        sscanf(text + 2 * i, "%2x", &byte);
        bytes[i] = (unsigned char)byte;
    }
    return count;
}

static hydrant_event next(hydrant_endpoint *endpoint, uint32_t kind) {
    hydrant_event event;
    WORKS(hydrant_endpoint_event(endpoint, 30000000000ull, &event));
    IS(event.kind, kind);
    return event;
}

/* The other process: uses what the first one lends. */
static int user(const char *address_text, const char *mapped_text, const char *copied_text) {
    hydrant_endpoint *endpoint;
    hydrant_endpoint_options options = {"user", 0, HYDRANT_HOSTS_NONE, 0, NULL, 0};
    WORKS(hydrant_endpoint_open(&options, &endpoint));
    unsigned char address[2000], lent[2][1000];
    size_t address_bytes = from_hex(address_text, address);
    size_t lent_bytes[2] = {from_hex(mapped_text, lent[0]), from_hex(copied_text, lent[1])};
    hydrant_peer *peer, *again;
    REFUSES(hydrant_connect(endpoint, address, address_bytes - 1, &peer), HYDRANT_ERROR_DESCRIPTOR);
    WORKS(hydrant_connect(endpoint, address, address_bytes, &peer));
    WORKS(hydrant_connect(endpoint, address, address_bytes, &again));
    WORKS(hydrant_peer_drop(again));
    REFUSES(hydrant_peer_drop(again), HYDRANT_ERROR_HANDLE);
    bool is_connected = false;
    WORKS(hydrant_peer_is_connected(peer, &is_connected));
    IS(is_connected, true);
    hydrant_event connected = next(endpoint, HYDRANT_EVENT_CONNECTED);
    uint64_t one = 0, two = 0;
    WORKS(hydrant_peer_incarnation(peer, &one));
    WORKS(hydrant_peer_incarnation(connected.peer, &two));
    CHECK(one == two && one != 0, "%llx, %llx", (unsigned long long)one, (unsigned long long)two);
    WORKS(hydrant_event_free(&connected));
    WORKS(hydrant_event_free(&connected));
    char name[8];
    size_t length = 0;
    WORKS(hydrant_peer_name(peer, name, sizeof name, &length));
    IS(length, 5);
    IS(strcmp(name, "owner"), 0);
    REFUSES(hydrant_peer_name(peer, name, 5, &length), HYDRANT_ERROR_TOO_LONG);
    IS(length, 5);

    unsigned char *bytes = malloc(BYTES), *back = malloc(BYTES);
    for (int which = 0; which < 2; which++) {
        hydrant_remote *remote;
        unsigned char forged[1000];
        memcpy(forged, lent[which], lent_bytes[which]);
        forged[lent_bytes[which] - 1] ^= 1;
        REFUSES(hydrant_remote_open(peer, forged, lent_bytes[which], &remote), HYDRANT_ERROR_DESCRIPTOR);
        WORKS(hydrant_remote_open(peer, lent[which], lent_bytes[which], &remote));
        uint64_t room = 0;
        WORKS(hydrant_remote_bytes(remote, &room));
        IS(room, BYTES);
        for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i * 7 + which);
        WORKS(hydrant_remote_write(remote, 100, bytes, 5000));
        WORKS(hydrant_remote_read(remote, 100, back, 5000));
        IS(memcmp(bytes, back, 5000), 0);
        REFUSES(hydrant_remote_write(remote, BYTES, bytes, 1), HYDRANT_ERROR_BOUNDS);
        REFUSES(hydrant_remote_write(remote, 0, NULL, 1), HYDRANT_ERROR_NULL);

        /* Many runs, and a message behind them. */
        enum { RUNS = 1000 };
        hydrant_run runs[RUNS];
        for (int i = 0; i < RUNS; i++) {
            hydrant_run run = {remote, (uint64_t)i * 3000, bytes + i * 3000, 3000};
            runs[i] = run;
        }
        hydrant_batch *batch;
        WORKS(hydrant_batch_start(HYDRANT_WRITE, runs, RUNS, peer, "written", 7, 0, &batch));
        WORKS(hydrant_batch_wait(batch));
        WORKS(hydrant_batch_wait(batch));
        bool is_over = false;
        WORKS(hydrant_batch_test(batch, &is_over));
        IS(is_over, true);
        uint32_t fate = 9;
        WORKS(hydrant_batch_part(batch, 5, &fate));
        IS(fate, HYDRANT_PART_DONE);
        WORKS(hydrant_batch_free(batch));
        REFUSES(hydrant_batch_wait(batch), HYDRANT_ERROR_HANDLE);
        for (int i = 0; i < RUNS; i++) runs[i].local = back + i * 3000;
        WORKS(hydrant_batch_start(HYDRANT_READ, runs, RUNS, NULL, NULL, 0, 60000000000ull, &batch));
        int outcome = hydrant_batch_cancel(batch);
        CHECK(outcome == 0 || outcome == HYDRANT_ERROR_CANCELLED, "%d", outcome);
        WORKS(hydrant_batch_free(batch));
        WORKS(hydrant_batch_start(HYDRANT_READ, runs, RUNS, NULL, NULL, 0, 0, &batch));
        REFUSES(hydrant_batch_part(batch, 0, &fate), HYDRANT_ERROR_ARGUMENT);
        WORKS(hydrant_batch_wait(batch));
        WORKS(hydrant_batch_free(batch));
        IS(memcmp(bytes, back, BYTES), 0);
        REFUSES(hydrant_batch_start(7, runs, 1, NULL, NULL, 0, 0, &batch), HYDRANT_ERROR_ARGUMENT);

        /* A batch that this thread helps to copy. */
        WORKS(hydrant_batch_start(HYDRANT_WRITE, runs, RUNS, NULL, NULL, 0, 0, &batch));
        for (is_over = false; !is_over;) WORKS(hydrant_batch_help(batch, &is_over));
        WORKS(hydrant_batch_wait(batch));
        WORKS(hydrant_batch_help(batch, &is_over));
        IS(is_over, true);
        WORKS(hydrant_batch_free(batch));
        REFUSES(hydrant_batch_help(batch, &is_over), HYDRANT_ERROR_HANDLE);

        /* Many regions at once: all, or none and nothing left at the owner. */
        enum { MANY = 200 };
        const void *many[MANY];
        size_t many_bytes[MANY];
        hydrant_remote *all[MANY];
        for (int turn = 0; turn < 100; turn++) {
            for (int i = 0; i < MANY; i++) {
                many[i] = turn > 0 && i == 70 ? forged : lent[which];
                many_bytes[i] = lent_bytes[which];
            }
            if (turn > 0) {
                REFUSES(hydrant_remote_open_many(peer, many, many_bytes, MANY, all), HYDRANT_ERROR_DESCRIPTOR);
                continue;
            }
            WORKS(hydrant_remote_open_many(peer, many, many_bytes, MANY, all));
            WORKS(hydrant_remote_read(all[MANY - 1], 0, back, 100));
            for (int i = 0; i < MANY; i++) WORKS(hydrant_remote_close(all[i]));
        }
        REFUSES(hydrant_remote_open_many(peer, many, many_bytes, MANY, NULL), HYDRANT_ERROR_NULL);

        /* A part, to be read only. */
        unsigned char narrow[1000];
        size_t narrow_bytes = 0;
        WORKS(hydrant_descriptor_narrow(lent[which], lent_bytes[which], 10, 20, HYDRANT_READ, 60000000000ull, narrow,
                                        sizeof narrow, &narrow_bytes));
        REFUSES(hydrant_descriptor_narrow(lent[which], lent_bytes[which], BYTES, 1, HYDRANT_READ, 0, narrow, sizeof narrow,
                                        &length), HYDRANT_ERROR_BOUNDS);
        hydrant_remote *part;
        WORKS(hydrant_remote_open(peer, narrow, narrow_bytes, &part));
        REFUSES(hydrant_remote_write(part, 0, bytes, 1), HYDRANT_ERROR_PERMISSION);
        WORKS(hydrant_remote_read(part, 0, back, 20));
        IS(memcmp(back, bytes + 10, 20), 0);
        WORKS(hydrant_remote_close(part));

        /* The owner revokes the memory when it is told. */
        WORKS(hydrant_peer_send(peer, "revoke", 6, 1000000000));
        hydrant_event message = next(endpoint, HYDRANT_EVENT_MESSAGE);
        WORKS(hydrant_event_free(&message));
        REFUSES(hydrant_remote_write(remote, 0, bytes, 1), HYDRANT_ERROR_REVOKED);
        REFUSES(hydrant_remote_open(peer, lent[which], lent_bytes[which], &part), HYDRANT_ERROR_REVOKED);
        WORKS(hydrant_remote_close(remote));
    }
    REFUSES(hydrant_peer_send(peer, bytes, HYDRANT_MOST_MESSAGE + 1, 0), HYDRANT_ERROR_TOO_LONG);
    WORKS(hydrant_peer_drop(peer));
    WORKS(hydrant_endpoint_close(endpoint));
    REFUSES(hydrant_endpoint_close(endpoint), HYDRANT_ERROR_HANDLE);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 4) return user(arguments[1], arguments[2], arguments[3]);

    hydrant_endpoint *endpoint;
    hydrant_endpoint_options options = {"owner", 5000000000ull, HYDRANT_HOSTS_NONE, 0, NULL, 0};
    REFUSES(hydrant_endpoint_open(&options, NULL), HYDRANT_ERROR_NULL);
    WORKS(hydrant_endpoint_open(&options, &endpoint));
    unsigned char bytes[2000];
    char address[4000], lent[2][2000];
    size_t length = 0;
    REFUSES(hydrant_endpoint_address(endpoint, bytes, 3, &length), HYDRANT_ERROR_TOO_LONG);
    WORKS(hydrant_endpoint_address(endpoint, bytes, sizeof bytes, &length));
    to_hex(bytes, length, address);
    hydrant_peer *self;
    REFUSES(hydrant_connect(endpoint, bytes, length, &self), HYDRANT_ERROR_UNREACHABLE);

    hydrant_region *regions[2];
    void *starts[2] = {NULL, calloc(BYTES, 1)};
    WORKS(hydrant_region_alloc(endpoint, BYTES, &regions[0], &starts[0]));
    WORKS(hydrant_region_expose(endpoint, starts[1], BYTES, &regions[1]));
    for (int which = 0; which < 2; which++) {
        WORKS(hydrant_region_describe(regions[which], 0, BYTES, HYDRANT_READ | HYDRANT_WRITE, 0, bytes, sizeof bytes,
                                      &length));
        to_hex(bytes, length, lent[which]);
        REFUSES(hydrant_region_describe(regions[which], 1, BYTES, HYDRANT_READ, 0, bytes, sizeof bytes, &length),
              HYDRANT_ERROR_BOUNDS);
        REFUSES(hydrant_region_describe(regions[which], 1, 1, 0, 0, bytes, sizeof bytes, &length), HYDRANT_ERROR_ARGUMENT);
    }
    int descriptor = -1;
    WORKS(hydrant_endpoint_event_descriptor(endpoint, &descriptor));
    struct pollfd poll_for = {descriptor, POLLIN, 0};
    IS(poll(&poll_for, 1, 0), 0);
    hydrant_event none;
    WORKS(hydrant_endpoint_event(endpoint, 0, &none));
    IS(none.kind, 0);
    WORKS(hydrant_event_free(&none));

    char *child_arguments[] = {arguments[0], address, lent[0], lent[1], NULL};
    pid_t child;
    IS(posix_spawn(&child, "/proc/self/exe", NULL, NULL, child_arguments, environ), 0);
    IS(poll(&poll_for, 1, 30000), 1);
    hydrant_event event = next(endpoint, HYDRANT_EVENT_CONNECTED);
    hydrant_event_free(&event);
    for (int which = 0; which < 2; which++) {
        event = next(endpoint, HYDRANT_EVENT_MESSAGE);
        IS(event.bytes, 7);
        IS(memcmp(event.message, "written", 7), 0);
        WORKS(hydrant_event_free(&event));
        const unsigned char *start = starts[which];
        for (int i = 0; i < BYTES; i++) IS(start[i], (unsigned char)(i * 7 + which));
        event = next(endpoint, HYDRANT_EVENT_MESSAGE);
        IS(event.bytes, 6);
        if (which == 0) WORKS(hydrant_region_revoke(regions[which]));
        else WORKS(hydrant_region_revoke_within(regions[which], 10000000000ull));
        REFUSES(hydrant_region_revoke(regions[which]), HYDRANT_ERROR_HANDLE);
        WORKS(hydrant_peer_send(event.peer, "revoked", 7, 1000000000));
        WORKS(hydrant_event_free(&event));
    }
    event = next(endpoint, HYDRANT_EVENT_LEFT);
    REFUSES(hydrant_peer_send(event.peer, "?", 1, 0), HYDRANT_ERROR_LEFT);
    WORKS(hydrant_event_free(&event));
    int status = -1;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
    WORKS(hydrant_endpoint_close(endpoint));
    free(starts[1]);
    puts("ok");
    return 0;
}
