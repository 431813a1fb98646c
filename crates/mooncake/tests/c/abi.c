/* The interface as programs expect it that are written for Mooncake's header: each function with its exact type, and
 * each structure with its layout. The compiler only checks this file. */
#include "transfer_engine_c.h"

#ifdef __cplusplus
#define FACT(fact) static_assert(fact, #fact)
#else
#include <assert.h>
#define FACT(fact) static_assert(fact, #fact)
#endif

FACT(sizeof(transfer_request_t) == 40);
FACT(offsetof(struct transfer_request, opcode) == 0);
FACT(offsetof(struct transfer_request, source) == 8);
FACT(offsetof(struct transfer_request, target_id) == 16);
FACT(offsetof(struct transfer_request, target_offset) == 24);
FACT(offsetof(struct transfer_request, length) == 32);
FACT(sizeof(transfer_status_t) == 16);
FACT(offsetof(struct transfer_status, transferred_bytes) == 8);
FACT(sizeof(notify_msg_t) == 16);
FACT(offsetof(struct notify_msg, msg) == 8);
FACT(sizeof(buffer_entry_t) == 16);
FACT(offsetof(struct buffer_entry, length) == 8);
FACT(sizeof(nic_load_stat_t) == 80);
FACT(offsetof(struct nic_load_stat, inflight_bytes) == 64);
FACT(offsetof(struct nic_load_stat, ewma_bandwidth_bps) == 72);
FACT(LOCAL_SEGMENT == 0 && INVALID_BATCH == UINT64_MAX && OPCODE_READ == 0 && OPCODE_WRITE == 1);
FACT(STATUS_WAITING == 0 && STATUS_PENDING == 1 && STATUS_INVALID == 2 && STATUS_CANCELED == 3);
FACT(STATUS_COMPLETED == 4 && STATUS_TIMEOUT == 5 && STATUS_FAILED == 6);

/* Each of Mooncake's 27 functions, and the two of Hydrant. */
transfer_engine_t (*const f1)(const char *, const char *, const char *, uint64_t, int) = createTransferEngine;
void (*const f2)(transfer_engine_t) = destroyTransferEngine;
int (*const f3)(transfer_engine_t) = discoverTopology;
int (*const f4)(transfer_engine_t, char *, size_t) = getLocalIpAndPort;
transport_t (*const f5)(transfer_engine_t, const char *, void **) = installTransport;
int (*const f6)(transfer_engine_t, const char *) = uninstallTransport;
segment_id_t (*const f7)(transfer_engine_t, const char *) = openSegment;
segment_handle_t (*const f8)(transfer_engine_t, const char *) = openSegmentNoCache;
int (*const f9)(transfer_engine_t, int32_t) = closeSegment;
int (*const f10)(transfer_engine_t, const char *) = warmupEfaSegment;
int (*const f11)(transfer_engine_t, const char *) = removeLocalSegment;
int (*const f12)(transfer_engine_t, void *, size_t, const char *, int) = registerLocalMemory;
int (*const f13)(transfer_engine_t, void *) = unregisterLocalMemory;
int (*const f14)(transfer_engine_t, buffer_entry_t *, size_t, const char *) = registerLocalMemoryBatch;
int (*const f15)(transfer_engine_t, void **, size_t) = unregisterLocalMemoryBatch;
batch_id_t (*const f16)(transfer_engine_t, size_t) = allocateBatchID;
int (*const f17)(transfer_engine_t, batch_id_t, struct transfer_request *, size_t) = submitTransfer;
int (*const f18)(transfer_engine_t, batch_id_t, struct transfer_request *, size_t, notify_msg_t) =
    submitTransferWithNotify;
int (*const f19)(transfer_engine_t, batch_id_t, size_t, struct transfer_status *) = getTransferStatus;
int (*const f20)(transfer_engine_t, batch_id_t) = freeBatchID;
notify_msg_t *(*const f21)(transfer_engine_t, int *) = getNotifsFromEngine;
int (*const f22)(notify_msg_t *, int) = freeNotifsMsgBuf;
int (*const f23)(transfer_engine_t, uint64_t, notify_msg_t) = genNotifyInEngine;
int (*const f24)(transfer_engine_t) = syncSegmentCache;
int (*const f25)(transfer_engine_t, nic_load_stat_t *, size_t *) = getNicLoadStats;
void (*const f26)(transfer_engine_t) = enableGracefulShutdown;
int (*const f27)(transfer_engine_t, char *, size_t, int) = showLinks;
const char *(*const f28)(void) = hydrant_transfer_engine_last_error;
int (*const f29)(transfer_engine_t, batch_id_t, size_t, char *, size_t) = hydrant_transfer_engine_task_error;
