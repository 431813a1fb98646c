/* A bare TCP connection in `cargo xtask beside-peers`, with which libraries over TCP are compared:
 *
 *     tcp ADDRESS PORT     rank 0, which measures
 *     tcp listen PORT      rank 1
 *
 * Both ends spin. A put is its bytes there and a word back, a get a word there and its bytes back. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#define TCP_ALONE
#include "suite.h"

enum { FIELD = 16 << 20, WINDOW = 16 };

static int connection;

/* The longest of both directions. The first word of what rank 0 sends says whether it is the last. */
static union {
    uint64_t last;
    char bytes[FIELD];
} field;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void all(int sends, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        char *at = field.bytes + done;
        ssize_t n = sends ? send(connection, at, bytes - done, MSG_DONTWAIT)
                          : recv(connection, at, bytes - done, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            fail("the connection");
        done += n > 0 ? n : 0;
    }
}

static void exchange(size_t there, size_t back)
{
    all(1, there);
    all(0, back);
}

/* A row: rank 1 is told the bytes of both directions first. */
static void measure(const char *name, size_t bytes, int each, size_t there, size_t back)
{
    uint64_t plan[2] = {there, back};
    memcpy(field.bytes, plan, sizeof plan);
    all(1, sizeof plan);
    field.last = 0;
    MEASURE(name, bytes, each, 1, {
        field.last = 0;
        exchange(there, back);
    });
    field.last = 1;
    exchange(there, back);
}

static void serve(void)
{
    uint64_t plan[2], last;
    for (;;) {
        all(0, sizeof plan);
        memcpy(plan, field.bytes, sizeof plan);
        if (plan[0] == 0)
            return;
        do {
            all(0, plan[0]);
            last = field.last;
            all(1, plan[1]);
        } while (!last);
    }
}

static void ask(void)
{
    static const size_t sizes[] = {65536, 1 << 20, FIELD};
    measure("put", 8, 1, 8, 8);
    measure("get", 8, 1, 8, 8);
    measure("message there and back", 0, 1, 8, 8);
    for (int s = 0; s < 3; s++) {
        size_t window = FIELD / sizes[s] < WINDOW ? FIELD / sizes[s] : WINDOW, bytes = sizes[s];
        measure("put bandwidth", bytes, window, bytes * window, 8);
        measure("get bandwidth", bytes, window, 8, bytes * window);
    }
    memset(field.bytes, 0, 16);
    all(1, 16);
}

int main(int count, char **arguments)
{
    if (count != 3) {
        fprintf(stderr, "usage: %s ADDRESS|listen PORT\n", arguments[0]);
        return 2;
    }
    int listens = strcmp(arguments[1], "listen") == 0, one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[2]))};
    int made = socket(AF_INET, SOCK_STREAM, 0);
    memset(field.bytes, 1, FIELD);
    if (listens) {
        setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(made, (struct sockaddr *)&address, sizeof address) < 0 || listen(made, 1) < 0)
            fail("cannot listen");
        connection = accept(made, NULL, NULL);
    } else {
        inet_pton(AF_INET, arguments[1], &address.sin_addr);
        for (int tries = 0; connect(made, (struct sockaddr *)&address, sizeof address) < 0; tries++) {
            if (tries == 100)
                fail("cannot connect");
            usleep(50000);
            close(made);
            made = socket(AF_INET, SOCK_STREAM, 0);
        }
        connection = made;
    }
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    listens ? serve() : ask();
    return 0;
}
