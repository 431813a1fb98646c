/* UCP of UCX in `cargo xtask beside-peers`. UCX has no launcher and no collectives:
 *
 *     ucx RANK FOLDER     one of two ranks, which exchange their addresses by files in a folder
 */
#include <ucp/api/ucp.h>

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIELD = 16 << 20, ENTER = 1, REQUEST, REPLY, IDS };

static int rank, ranks = 2;
static char *own;
static uint64_t there;
static ucp_worker_h worker;
static ucp_ep_h peer;
static ucp_rkey_h key;
/* The messages of each kind that have arrived. */
static int arrived[IDS];

static void ask_for(ucs_status_t status)
{
    if (status != UCS_OK) {
        fprintf(stderr, "UCX: %s\n", ucs_status_string(status));
        exit(1);
    }
}

static inline void wait_for(ucs_status_ptr_t request)
{
    if (!UCS_PTR_IS_PTR(request)) {
        ask_for(UCS_PTR_STATUS(request));
        return;
    }
    while (ucp_request_check_status(request) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    ucp_request_free(request);
}

static const ucp_request_param_t none;

/* A request of a batch is freed at once; the flush waits for it. */
static inline void put_later(size_t at, size_t bytes)
{
    ucs_status_ptr_t request = ucp_put_nbx(peer, own + at, bytes, there + at, key, &none);
    if (UCS_PTR_IS_PTR(request))
        ucp_request_free(request);
}

static inline void get_later(size_t at, size_t bytes)
{
    ucs_status_ptr_t request = ucp_get_nbx(peer, own + at, bytes, there + at, key, &none);
    if (UCS_PTR_IS_PTR(request))
        ucp_request_free(request);
}

static inline void quiet(void) { wait_for(ucp_ep_flush_nbx(peer, &none)); }

static inline void put_now(size_t at, size_t bytes)
{
    put_later(at, bytes);
    quiet();
}

static inline void get_now(size_t at, size_t bytes)
{
    wait_for(ucp_get_nbx(peer, own + at, bytes, there + at, key, &none));
}

static ucs_status_t handle(void *kind, const void *header, size_t header_length, void *data, size_t length,
                           const ucp_am_recv_param_t *param)
{
    (void)header, (void)header_length, (void)data, (void)length, (void)param;
    arrived[(intptr_t)kind]++;
    return UCS_OK;
}

static void tell(int kind) { wait_for(ucp_am_send_nbx(peer, kind, NULL, 0, own, 8, &none)); }

static void hear(int kind, int count)
{
    while (arrived[kind] < count)
        ucp_worker_progress(worker);
}

static void serve(int requests)
{
    static int served;
    for (; requests > 0; requests--) {
        hear(REQUEST, ++served);
        tell(REPLY);
    }
}

static void ask(void)
{
    int before = arrived[REPLY];
    tell(REQUEST);
    hear(REPLY, before + 1);
}

static void barrier(void)
{
    static int met;
    tell(ENTER);
    hear(ENTER, ++met);
}

#define NO_COLLECTIVES
#include "suite.h"

/* What a rank tells the other one: a length before each part. */
static void write_all(const char *folder, const void *const parts[], const size_t lengths[])
{
    char name[4096], final[4096];
    snprintf(name, sizeof name, "%s/new.%d", folder, rank);
    snprintf(final, sizeof final, "%s/rank.%d", folder, rank);
    FILE *file = fopen(name, "w");
    for (int i = 0; i < 3; i++) {
        fwrite(&lengths[i], sizeof lengths[i], 1, file);
        fwrite(parts[i], 1, lengths[i], file);
    }
    fclose(file);
    rename(name, final);
}

static void *read_part(FILE *file)
{
    size_t length;
    if (fread(&length, sizeof length, 1, file) != 1)
        exit(1);
    char *part = malloc(length);
    if (fread(part, 1, length, file) != length)
        exit(1);
    return part;
}

static void connect_both(const char *folder, ucp_context_h context)
{
    ucp_mem_map_params_t area = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_ADDRESS,
        .address = aligned_alloc(4096, FIELD),
        .length = FIELD,
    };
    ucp_mem_h memory;
    ucp_address_t *address;
    void *packed;
    size_t lengths[3] = {0, 0, sizeof area.address};
    char name[4096];
    FILE *file;
    memset(area.address, 1, FIELD);
    ask_for(ucp_mem_map(context, &area, &memory));
    ask_for(ucp_rkey_pack(context, memory, &packed, &lengths[1]));
    ask_for(ucp_worker_get_address(worker, &address, &lengths[0]));
    write_all(folder, (const void *const[]){address, packed, &area.address}, lengths);
    snprintf(name, sizeof name, "%s/rank.%d", folder, 1 - rank);
    while ((file = fopen(name, "r")) == NULL)
        usleep(10000);
    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = read_part(file)};
    ask_for(ucp_ep_create(worker, &to, &peer));
    ask_for(ucp_ep_rkey_unpack(peer, read_part(file), &key));
    there = *(uint64_t *)read_part(file);
    fclose(file);
}

int main(int count, char **arguments)
{
    ucp_params_t features = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA | UCP_FEATURE_AM};
    ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE};
    ucp_context_h context;
    if (count != 3) {
        fprintf(stderr, "usage: %s RANK FOLDER\n", arguments[0]);
        return 2;
    }
    rank = atoi(arguments[1]);
    own = aligned_alloc(4096, FIELD);
    memset(own, 1, FIELD);
    ask_for(ucp_init(&features, NULL, &context));
    ask_for(ucp_worker_create(context, &single, &worker));
    for (intptr_t kind = ENTER; kind < IDS; kind++) {
        ucp_am_handler_param_t handler = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            .id = kind,
            .cb = handle,
            .arg = (void *)kind,
        };
        ask_for(ucp_worker_set_am_recv_handler(worker, &handler));
    }
    connect_both(arguments[2], context);
    barrier();
    measure_all(0);
    barrier();
    usleep(100000);
    return 0;
}
