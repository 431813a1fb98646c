/*
 * transfer_engine_c.h: the C interface of Mooncake's transfer engine, as Hydrant's library libtransfer_engine has it.
 * Made by cbindgen from crates/mooncake/src. docs/mooncake.md is the manual.
 *
 * - Functions that return int return 0 if they succeed. Those of batches return a positive number if they fail, and the
 *   others a negative one. Engines, transports and batches are numbers, and a wrong one is an error.
 * - hydrant_transfer_engine_last_error() has the sentence of this thread's last error, and
 *   hydrant_transfer_engine_task_error() that of a task.
 * - Any number of threads may call any function at once.
 * - Texts that a function takes may be freed after the call.
 */

#ifndef TRANSFER_ENGINE_C
#define TRANSFER_ENGINE_C

#include <stddef.h>
#include <stdint.h>

/**
 * The segment of the engine itself.
 */
#define LOCAL_SEGMENT 0

/**
 * No batch.
 */
#define INVALID_BATCH UINT64_MAX

/**
 * Copies from the target to `source`.
 */
#define OPCODE_READ 0

/**
 * Copies from `source` to the target.
 */
#define OPCODE_WRITE 1

/**
 * The task is under way.
 */
#define STATUS_WAITING 0

/**
 * Not given by this library.
 */
#define STATUS_PENDING 1

/**
 * Not given by this library.
 */
#define STATUS_INVALID 2

/**
 * Not given by this library.
 */
#define STATUS_CANCELED 3

/**
 * All bytes of the task are there.
 */
#define STATUS_COMPLETED 4

/**
 * Not given by this library.
 */
#define STATUS_TIMEOUT 5

/**
 * The task failed, or another task of its submission did before it was done. Nothing of it lands any more.
 */
#define STATUS_FAILED 6

/**
 * An engine. It is a number and no address.
 */
typedef void *transfer_engine_t;

/**
 * A transport of an engine. It is a number and no address.
 */
typedef void *transport_t;

/**
 * Memory to be registered.
 */
typedef struct buffer_entry {
  /**
   * The first byte.
   */
  void *addr;
  /**
   * The number of bytes.
   */
  size_t length;
} buffer_entry;

/**
 * A peer's memory, by number.
 */
typedef int32_t segment_id_t;

/**
 * A batch.
 */
typedef uint64_t batch_id_t;

/**
 * A run of bytes to be copied.
 */
typedef struct transfer_request {
  /**
   * `OPCODE_READ` or `OPCODE_WRITE`.
   */
  int opcode;
  /**
   * The memory of this process. It need not be registered, and must stay until the task has ended.
   */
  void *source;
  /**
   * The peer's segment.
   */
  segment_id_t target_id;
  /**
   * The address of the memory in the peer's process.
   */
  uint64_t target_offset;
  /**
   * The number of bytes.
   */
  uint64_t length;
} transfer_request;

/**
 * A message: two strings of C.
 */
typedef struct notify_msg {
  /**
   * The sender, as it names itself.
   */
  char *name;
  /**
   * The text.
   */
  char *msg;
} notify_msg;

/**
 * The state of a task.
 */
typedef struct transfer_status {
  /**
   * One of the numbers `STATUS_...`.
   */
  int status;
  /**
   * The bytes that are known to be there: all or 0.
   */
  uint64_t transferred_bytes;
} transfer_status;

/**
 * The load of a network card. This library has none to tell of.
 */
typedef struct nic_load_stat {
  /**
   * The name of the card.
   */
  char device_name[64];
  /**
   * The bytes in flight.
   */
  uint64_t inflight_bytes;
  /**
   * The mean bandwidth in bytes a second.
   */
  double ewma_bandwidth_bps;
} nic_load_stat;

/**
 * A run of bytes to be copied.
 */
typedef struct transfer_request transfer_request_t;

/**
 * The state of a task.
 */
typedef struct transfer_status transfer_status_t;

/**
 * A message: two strings of C.
 */
typedef struct notify_msg notify_msg_t;

/**
 * Memory to be registered.
 */
typedef struct buffer_entry buffer_entry_t;

/**
 * The load of a network card.
 */
typedef struct nic_load_stat nic_load_stat_t;

/**
 * A peer's memory, by number.
 */
typedef int32_t segment_handle_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the sentence of the last failure of a call by this thread, with the function's name. It is an empty text if
 * there was none. The text may be used until the next call of this thread that fails. It is never null. Only
 * Hydrant's library has this function.
 */
const char *hydrant_transfer_engine_last_error(void);

/**
 * Creates an engine. It listens at a TCP port, by which peers find it.
 *
 * - `metadata_conn_string`: "P2PHANDSHAKE".
 * - `local_server_name`: the host or host:port by which peers reach this process. Another port is taken if this one is
 *   in use or left out: see getLocalIpAndPort.
 * - `ip_or_host_name`, `rpc_port`: not used.
 * - `auto_discover`: if it is not 0, the transport is installed at once.
 *
 * Returns null if it fails.
 */
transfer_engine_t createTransferEngine(const char *metadata_conn_string,
                                       const char *local_server_name,
                                       const char *ip_or_host_name,
                                       uint64_t rpc_port,
                                       int auto_discover);

/**
 * Destroys an engine. When this returns, nothing of its transfers lands any more, and no peer touches its memory. Peers
 * hear that it has left.
 */
void destroyTransferEngine(transfer_engine_t engine);

/**
 * Does nothing: the network is chosen for each peer. Returns 0.
 */
int discoverTopology(transfer_engine_t engine);

/**
 * Writes the name by which peers open this engine, host:port, cut to `buf_len` bytes with the 0 at its end. Returns 0,
 * or -1 without an engine or room.
 */
int getLocalIpAndPort(transfer_engine_t engine,
                      char *buf_out,
                      size_t buf_len);

/**
 * Installs a transport: "tcp", or "hydrant", which is the same. Data goes by the fastest network that reaches the peer.
 * `args` is not used. Returns the transport, the same for each call, or null for another name.
 */
transport_t installTransport(transfer_engine_t engine,
                             const char *proto,
                             void **args);

/**
 * Does nothing. Returns 0.
 */
int uninstallTransport(transfer_engine_t engine, const char *proto);

/**
 * Has the engine destroyed when SIGTERM or SIGINT comes. The signal is raised again then, with the handler that was
 * there before.
 */
void enableGracefulShutdown(transfer_engine_t engine);

/**
 * Lets peers read and write memory of any size, without touching or pinning it. It must be mapped while peers use it.
 * `location` is "*", "cpu:0" and so on; null is "*". If `remote_accessible` is 0, peers get no access. Returns 0;
 * -1 for no memory; -6 for memory of a device; -7 if it overlaps with registered memory.
 */
int registerLocalMemory(transfer_engine_t engine,
                        void *addr,
                        size_t length,
                        const char *location,
                        int remote_accessible);

/**
 * Gives up memory that begins at `addr`. When this returns 0, no peer touches it any more. Returns -3 if none is
 * registered that begins there; -4 if a peer that is stopped has been using it for 10 seconds: call it again then.
 */
int unregisterLocalMemory(transfer_engine_t engine,
                          void *addr);

/**
 * As registerLocalMemory for each of `buffer_len` ranges, with access for peers: all or none.
 */
int registerLocalMemoryBatch(transfer_engine_t engine,
                             struct buffer_entry *buffer_list,
                             size_t buffer_len,
                             const char *location);

/**
 * As unregisterLocalMemory for each of `addr_len` addresses. All are tried; the first error is returned.
 */
int unregisterLocalMemoryBatch(transfer_engine_t engine,
                               void **addr_list,
                               size_t addr_len);

/**
 * Opens the segment of the engine at host:port. The first call contacts it, and later ones return the same number, even
 * if the engine has ended. An engine that returns under the same name is found by the next transfer.
 *
 * Returns 0 for the own name, or -1.
 */
segment_id_t openSegment(transfer_engine_t engine,
                         const char *segment_name);

/**
 * As openSegment, but contacts the engine in any case.
 */
segment_id_t openSegmentNoCache(transfer_engine_t engine, const char *segment_name);

/**
 * Does nothing. Returns 0.
 */
int closeSegment(transfer_engine_t engine, segment_id_t segment_id);

/**
 * Forgets the segment of a peer, and its number. Returns 0, even if there was none; -1 for an empty name.
 */
int removeLocalSegment(transfer_engine_t engine,
                       const char *segment_name);

/**
 * Contacts the engines of all segments. Returns 0, even if some are not reached.
 */
int syncSegmentCache(transfer_engine_t engine);

/**
 * Does nothing: no network here needs it. Returns 0.
 */
int warmupEfaSegment(transfer_engine_t engine, const char *segment_name);

/**
 * Allocates a batch for at most `batch_size` tasks, over its whole life. Returns INVALID_BATCH without an engine.
 */
batch_id_t allocateBatchID(transfer_engine_t engine,
                           size_t batch_size);

/**
 * Adds `count` tasks to a batch, numbered on from those it has, and begins to transfer them. A short transfer is over
 * when this returns. The first use of a peer's memory asks the peer, for at most 3 seconds.
 *
 * Each task ends as STATUS_COMPLETED or STATUS_FAILED, without a call for it. If one fails, those of the same call that
 * are not done fail, too. Nothing of these lands any more when getTransferStatus says so.
 *
 * Returns 0, or a number above it, with nothing added. It is 1 for arguments that cannot be used, such as a segment
 * that was not opened. It is 2 if there are too many tasks for the batch, and 8 if no transport is installed. A peer
 * that is not reached fails the tasks.
 */
int submitTransfer(transfer_engine_t engine,
                   batch_id_t batch_id,
                   struct transfer_request *entries,
                   size_t count);

/**
 * As submitTransfer, and sends a message to the target of the first task once all tasks of the batch are there. Nobody
 * has to wait or poll for that. If a task fails, no message is sent. If the message cannot be sent, the tasks fail.
 * `count` is at least 1.
 */
int submitTransferWithNotify(transfer_engine_t engine,
                             batch_id_t batch_id,
                             struct transfer_request *entries,
                             size_t count,
                             struct notify_msg notify_msg);

/**
 * Stores the state of a task: STATUS_WAITING, STATUS_COMPLETED or STATUS_FAILED. Returns 0; 1 if there is no such task.
 * While its data waits for a thread, the call copies up to 1 MiB of it.
 */
int getTransferStatus(transfer_engine_t engine,
                      batch_id_t batch_id,
                      size_t task_id,
                      struct transfer_status *status);

/**
 * Writes the reason why a task failed, cut to `buf_len` bytes with the 0 at its end; an empty text if it did not. Returns
 * 0; 1 if there is no such task, or no room. Only Hydrant's library has this function.
 */
int hydrant_transfer_engine_task_error(transfer_engine_t engine,
                                       batch_id_t batch_id,
                                       size_t task_id,
                                       char *buf_out,
                                       size_t buf_len);

/**
 * Frees a batch. Returns 0; 4 if a task has not ended: the batch stays then.
 */
int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/**
 * Takes all messages that have come, and stores their number. Returns an array for freeNotifsMsgBuf, or null if there
 * are none.
 */
struct notify_msg *getNotifsFromEngine(transfer_engine_t engine,
                                       int *size);

/**
 * Frees what getNotifsFromEngine returned, with the number that it stored. Returns 0.
 */
int freeNotifsMsgBuf(struct notify_msg *msg, int size);

/**
 * Sends a message to the engine of a segment. When this returns 0, that engine has it.
 *
 * Returns -1 for a message that cannot be sent. It is -200 if there is no such segment, or the engine has too many
 * messages. Other negative numbers say that the engine is not reached within 3 seconds.
 */
int genNotifyInEngine(transfer_engine_t engine,
                      uint64_t target_id,
                      struct notify_msg notify_msg);

/**
 * Stores the number of network cards whose load is known, which is 0. Returns 0; -1 if an argument is null.
 */
int getNicLoadStats(transfer_engine_t engine,
                    struct nic_load_stat *stats,
                    size_t *count);

/**
 * Writes what the engine is connected to, for people or as JSON, cut to `len` bytes with the 0 at its end. Returns 0; -1
 * without an engine or room.
 */
int showLinks(transfer_engine_t engine,
              char *buf_out,
              size_t buf_len,
              int json);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TRANSFER_ENGINE_C */
