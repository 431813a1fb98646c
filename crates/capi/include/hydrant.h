/*
 * hydrant.h: Hydrant's interface for C. Made by cbindgen from crates/capi/src.
 *
 * The ranks of a job read and write each other's memory directly, call each other and compute
 * together. docs/c.md is the manual, with an example.
 *
 * - Each function returns a status, unless it says otherwise: 0 is HYDRANT_SUCCESS, a negative number
 *   names a class of errors. A failed call changes nothing unless its comment says so.
 *   hydrant_strerror() has a few words for each status, and hydrant_last_error() the whole sentence of
 *   this thread's last error. HYDRANT_ERROR_NULL, HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_PANIC and
 *   HYDRANT_ERROR_FORKED may come from any function.
 * - Handles are opaque, and no addresses: a handle that was freed is an error, not a crash.
 * - Sizes and offsets are in bytes, and so are the runs and strides of sections. Ranks are counted
 *   from 0. Times are in nanoseconds.
 * - Any number of threads may call any function at once. Collectives of a team are called by one
 *   thread at a time, in the same order at every member.
 * - Memory that a function reads must not be written meanwhile, and memory that it writes must not be
 *   used. An operation with a handle lasts until hydrant_wait() or a hydrant_test() that says so; one
 *   without a handle lasts until hydrant_quiet() or hydrant_fence().
 */

#ifndef HYDRANT_H
#define HYDRANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HYDRANT_VERSION_MAJOR 0
#define HYDRANT_VERSION_MINOR 1
#define HYDRANT_VERSION_PATCH 0

#ifdef __GNUC__
#define HYDRANT_NORETURN_ __attribute__((noreturn))
#else
#define HYDRANT_NORETURN_
#endif


/**
 * The call succeeded.
 */
#define HYDRANT_SUCCESS 0

/**
 * A pointer that must not be null is null.
 */
#define HYDRANT_ERROR_NULL (-1)

/**
 * A handle is not one of this kind: it was freed, its job is over, or the library did not make it.
 */
#define HYDRANT_ERROR_HANDLE (-2)

/**
 * An argument has none of the values that it may have, such as an unknown type or operation.
 */
#define HYDRANT_ERROR_ARGUMENT (-3)

/**
 * A bug of the library was caught at its edge. Please report it.
 */
#define HYDRANT_ERROR_PANIC (-4)

/**
 * The time of a wait is over.
 */
#define HYDRANT_ERROR_TIMEOUT (-5)

/**
 * There is no such rank in the job or in the team.
 */
#define HYDRANT_ERROR_RANK (-6)

/**
 * Bytes lie outside the memory or the buffer.
 */
#define HYDRANT_ERROR_BOUNDS (-7)

/**
 * An address or an offset is not aligned as its type needs.
 */
#define HYDRANT_ERROR_ALIGNMENT (-8)

/**
 * Memory that must be apart shares bytes.
 */
#define HYDRANT_ERROR_OVERLAP (-9)

/**
 * A size is larger than any memory.
 */
#define HYDRANT_ERROR_OVERFLOW (-10)

/**
 * Two lengths differ that must be equal.
 */
#define HYDRANT_ERROR_LENGTH (-11)

/**
 * A message is longer than the limit, or than the room for it.
 */
#define HYDRANT_ERROR_TOO_LONG (-12)

/**
 * The tag is reserved.
 */
#define HYDRANT_ERROR_TAG (-13)

/**
 * There is no such handler, it failed, or there is no room for another.
 */
#define HYDRANT_ERROR_HANDLER (-14)

/**
 * A handler may reply once, and only to a request.
 */
#define HYDRANT_ERROR_REPLY (-15)

/**
 * A handler called a function that waits.
 */
#define HYDRANT_ERROR_IN_HANDLER (-16)

/**
 * Handlers sent more than their peers have room for.
 */
#define HYDRANT_ERROR_BACKLOG (-17)

/**
 * The ranks called a collective with different arguments.
 */
#define HYDRANT_ERROR_MISMATCH (-18)

/**
 * A call came out of turn, as a second collective of a team in another thread.
 */
#define HYDRANT_ERROR_TURN (-19)

/**
 * Elements of this type have no such operation.
 */
#define HYDRANT_ERROR_OPERATION (-20)

/**
 * The symmetric memory was freed.
 */
#define HYDRANT_ERROR_FREED (-21)

/**
 * The owner took its exposed memory back.
 */
#define HYDRANT_ERROR_REVOKED (-22)

/**
 * A pointer for peers names nothing: no job of this process made it, or it does not fit.
 */
#define HYDRANT_ERROR_POINTER (-23)

/**
 * Memory that was named by its address is not mapped, or does not permit the access.
 */
#define HYDRANT_ERROR_ADDRESS (-24)

/**
 * A rank does not let peers name its memory by address.
 */
#define HYDRANT_ERROR_REFUSED (-25)

/**
 * The job is over.
 */
#define HYDRANT_ERROR_JOB_OVER (-26)

/**
 * This process was forked from a rank, and takes no part in the job.
 */
#define HYDRANT_ERROR_FORKED (-27)

/**
 * A rank died or cannot be reached.
 */
#define HYDRANT_ERROR_PEER_LOST (-28)

/**
 * A rank came to the end of the job, so that the awaited event cannot happen any more.
 */
#define HYDRANT_ERROR_PEER_ENDED (-29)

/**
 * All other ranks came to the end of the job, so that the awaited event cannot happen any more.
 */
#define HYDRANT_ERROR_OTHERS_ENDED (-30)

/**
 * This rank takes no part in the job any more, because it aborted or broke a rule.
 */
#define HYDRANT_ERROR_EXPELLED (-31)

/**
 * There is not enough memory.
 */
#define HYDRANT_ERROR_MEMORY (-32)

/**
 * Memory could not be registered with the network.
 */
#define HYDRANT_ERROR_REGISTRATION (-33)

/**
 * A lock is held that must not be, or is not held that must be.
 */
#define HYDRANT_ERROR_LOCK (-34)

/**
 * An atomic operation was done once, and its result was lost with the connection.
 */
#define HYDRANT_ERROR_RESULT_LOST (-35)

/**
 * A HYDRANT_* variable has an invalid value.
 */
#define HYDRANT_ERROR_SETTING (-36)

/**
 * The job could not be joined.
 */
#define HYDRANT_ERROR_LAUNCH (-37)

/**
 * The network failed.
 */
#define HYDRANT_ERROR_NETWORK (-38)

/**
 * Any other failure; hydrant_last_error tells it.
 */
#define HYDRANT_ERROR_OTHER (-39)

/**
 * A peer has closed its endpoint.
 */
#define HYDRANT_ERROR_LEFT (-40)

/**
 * An endpoint cannot be reached, or does not want to be.
 */
#define HYDRANT_ERROR_UNREACHABLE (-41)

/**
 * The endpoint is closed.
 */
#define HYDRANT_ERROR_CLOSED (-42)

/**
 * The time for which memory was lent is over.
 */
#define HYDRANT_ERROR_EXPIRED (-43)

/**
 * An address or a descriptor is malformed, was changed, or is of another endpoint.
 */
#define HYDRANT_ERROR_DESCRIPTOR (-44)

/**
 * A descriptor, or the system, does not permit the access.
 */
#define HYDRANT_ERROR_PERMISSION (-45)

/**
 * The operation was cancelled. Nothing of it lands any more.
 */
#define HYDRANT_ERROR_CANCELLED (-46)

/**
 * A peer uses the memory, or has not read its messages.
 */
#define HYDRANT_ERROR_BUSY (-47)

/**
 * A table is full.
 */
#define HYDRANT_ERROR_FULL (-48)

/**
 * Elements of type uint8_t.
 */
#define HYDRANT_U8 1

/**
 * Elements of type int8_t.
 */
#define HYDRANT_I8 2

/**
 * Elements of type uint16_t.
 */
#define HYDRANT_U16 3

/**
 * Elements of type int16_t.
 */
#define HYDRANT_I16 4

/**
 * Elements of type uint32_t.
 */
#define HYDRANT_U32 5

/**
 * Elements of type int32_t.
 */
#define HYDRANT_I32 6

/**
 * Elements of type uint64_t.
 */
#define HYDRANT_U64 7

/**
 * Elements of type int64_t.
 */
#define HYDRANT_I64 8

/**
 * Elements of type float.
 */
#define HYDRANT_F32 9

/**
 * Elements of type double.
 */
#define HYDRANT_F64 10

/**
 * Elements of 16-bit floats of IEEE 754.
 */
#define HYDRANT_F16 11

/**
 * Elements of type bfloat16.
 */
#define HYDRANT_BF16 12

/**
 * Elements of type float _Complex: two floats, the real part first.
 */
#define HYDRANT_C32 13

/**
 * Elements of type double _Complex: two doubles, the real part first.
 */
#define HYDRANT_C64 14

/**
 * The sum; integers wrap around.
 */
#define HYDRANT_SUM 1

/**
 * The product; integers wrap around.
 */
#define HYDRANT_PRODUCT 2

/**
 * The smaller one. A float that is not a number loses. Not for complex numbers.
 */
#define HYDRANT_MIN 3

/**
 * The larger one. A float that is not a number loses. Not for complex numbers.
 */
#define HYDRANT_MAX 4

/**
 * The bitwise and; integers alone.
 */
#define HYDRANT_AND 5

/**
 * The bitwise or; integers alone.
 */
#define HYDRANT_OR 6

/**
 * The bitwise exclusive or; integers alone.
 */
#define HYDRANT_XOR 7

/**
 * Gives the value. The operand is ignored.
 */
#define HYDRANT_ATOMIC_LOAD 1

/**
 * Stores the operand, and gives the previous value.
 */
#define HYDRANT_ATOMIC_SWAP 2

/**
 * Stores the operand if the value equals the expected one, bit for bit. Gives the previous value.
 */
#define HYDRANT_ATOMIC_COMPARE_SWAP 3

/**
 * Adds the operand, and gives the previous value. Integers wrap around.
 */
#define HYDRANT_ATOMIC_ADD 4

/**
 * Takes the bitwise and with the operand, and gives the previous value. Integers alone.
 */
#define HYDRANT_ATOMIC_AND 5

/**
 * Takes the bitwise or with the operand, and gives the previous value. Integers alone.
 */
#define HYDRANT_ATOMIC_OR 6

/**
 * Takes the bitwise exclusive or with the operand, and gives the previous value. Integers alone.
 */
#define HYDRANT_ATOMIC_XOR 7

/**
 * Sets the word.
 */
#define HYDRANT_SIGNAL_SET 1

/**
 * Adds to the word.
 */
#define HYDRANT_SIGNAL_ADD 2

/**
 * The word equals the value.
 */
#define HYDRANT_EQ 1

/**
 * The word differs from the value.
 */
#define HYDRANT_NE 2

/**
 * The word is less than the value. Both are unsigned.
 */
#define HYDRANT_LT 3

/**
 * The word is at most the value.
 */
#define HYDRANT_LE 4

/**
 * The word is greater than the value.
 */
#define HYDRANT_GT 5

/**
 * The word is at least the value.
 */
#define HYDRANT_GE 6

/**
 * Huge pages are left to the system.
 */
#define HYDRANT_HUGE_PAGES_NO 0

/**
 * Huge pages are used if the system has them.
 */
#define HYDRANT_HUGE_PAGES_TRY 1

/**
 * The allocation fails if the system has no huge pages.
 */
#define HYDRANT_HUGE_PAGES_REQUIRE 2

/**
 * Any rank, as the source of a receive or a probe.
 */
#define HYDRANT_ANY_SOURCE 4294967295

/**
 * Any tag, for receives and probes.
 */
#define HYDRANT_ANY_TAG 18446744073709551615ull

/**
 * The color of a rank that becomes a member of no team.
 */
#define HYDRANT_NO_COLOR 4294967295

/**
 * The team rank of a rank that is no member.
 */
#define HYDRANT_NO_RANK 4294967295

/**
 * No time limit, in nanoseconds.
 */
#define HYDRANT_FOREVER 18446744073709551615ull

/**
 * The most levels of a section.
 */
#define HYDRANT_MOST_LEVELS 8

/**
 * An endpoint for peers of its host.
 */
#define HYDRANT_HOSTS_NONE 0

/**
 * An endpoint for peers of any host, if there is a network with libfabric, and otherwise of its host.
 */
#define HYDRANT_HOSTS_IF_AVAILABLE 1

/**
 * An endpoint for peers of any host.
 */
#define HYDRANT_HOSTS_REQUIRED 2

/**
 * The right to read a region.
 */
#define HYDRANT_READ 1

/**
 * The right to write a region.
 */
#define HYDRANT_WRITE 2

/**
 * All of a part of a failed batch was transferred.
 */
#define HYDRANT_PART_DONE 0

/**
 * Some of a part of a failed batch was transferred, or may have been.
 */
#define HYDRANT_PART_PARTIAL 1

/**
 * Nothing of a part of a failed batch was transferred.
 */
#define HYDRANT_PART_UNTOUCHED 2

/**
 * A peer is connected.
 */
#define HYDRANT_EVENT_CONNECTED 1

/**
 * A peer is connected whose name another incarnation had before, which is not connected any more.
 */
#define HYDRANT_EVENT_RETURNED 2

/**
 * A peer has closed its endpoint.
 */
#define HYDRANT_EVENT_LEFT 3

/**
 * A peer is lost.
 */
#define HYDRANT_EVENT_LOST 4

/**
 * A peer has sent a message.
 */
#define HYDRANT_EVENT_MESSAGE 5

/**
 * The most bytes of a message to a peer.
 */
#define HYDRANT_MOST_MESSAGE 262144

/**
 * Reads and writes that were started together.
 */
typedef struct hydrant_batch hydrant_batch;

/**
 * A process without a job, which lends memory and uses that of its peers. Any number of threads may use it at once.
 */
typedef struct hydrant_endpoint hydrant_endpoint;

/**
 * A buffer of this rank that peers may put to and get from.
 */
typedef struct hydrant_exposed hydrant_exposed;

/**
 * A job, as seen by this rank. Any number of threads may use it at once.
 */
typedef struct hydrant_job hydrant_job;

/**
 * Memory of this rank that is known to stay mapped, for peers that name it by its address.
 */
typedef struct hydrant_loan hydrant_loan;

/**
 * Locks that all ranks of a job share.
 */
typedef struct hydrant_locks hydrant_locks;

/**
 * Symmetric memory: every rank owns as many bytes. Offsets are counted from the first byte of a rank's part.
 */
typedef struct hydrant_memory hydrant_memory;

/**
 * The message that a handler handles. It is valid in that handler alone, in its thread.
 */
typedef struct hydrant_message hydrant_message;

/**
 * An operation in flight. Null stands for an operation that is complete.
 */
typedef struct hydrant_operation hydrant_operation;

/**
 * Another endpoint, one incarnation of it.
 */
typedef struct hydrant_peer hydrant_peer;

/**
 * Memory that an endpoint lends.
 */
typedef struct hydrant_region hydrant_region;

/**
 * A peer's region, or a part of it, that this process may use.
 */
typedef struct hydrant_remote hydrant_remote;

/**
 * Some of the ranks of a job, which call collectives together. Team ranks are counted from 0.
 */
typedef struct hydrant_team hydrant_team;

/**
 * The capabilities of the network of a job. Later versions may add fields at the end.
 */
typedef struct {
  /**
   * The name of the network, as in HYDRANT_CONDUIT. It ends with a zero byte.
   */
  char conduit[32];
  /**
   * The ranks on this host, this one included.
   */
  uint32_t host_ranks;
  /**
   * 1 if the network only accesses registered memory, else 0.
   */
  uint32_t needs_registration;
  /**
   * 1 if peers may name memory of this rank by its address (HYDRANT_ANYWHERE), else 0.
   */
  uint32_t anywhere;
  /**
   * 1 if NICs change words of 64 bits, else 0.
   */
  uint32_t native_atomics;
  /**
   * The most arguments of a request.
   */
  size_t max_arguments;
  /**
   * The most arguments of a request that puts data first.
   */
  size_t max_arguments_long;
  /**
   * The most bytes of payload of a request or a reply.
   */
  size_t max_payload;
  /**
   * The bytes of symmetric memory that each rank may have (HYDRANT_HEAP).
   */
  size_t heap;
  /**
   * The highest tag of a message.
   */
  uint64_t max_tag;
} hydrant_capabilities;

/**
 * Options of an allocation. Zeros are the default.
 */
typedef struct {
  /**
   * The alignment of the first byte in bytes: a power of two, or 0 for that of a page.
   */
  size_t align;
  /**
   * One of HYDRANT_HUGE_PAGES_NO, HYDRANT_HUGE_PAGES_TRY and HYDRANT_HUGE_PAGES_REQUIRE.
   */
  int huge_pages;
  /**
   * If it is not 0, only addresses are reserved, and hydrant_commit commits memory to a part of them.
   */
  int reserve;
} hydrant_alloc_options;

/**
 * Names a byte in the memory of some rank, in symmetric or in exposed memory. It has the same meaning on every
 * rank of the job, and may be copied, put and sent as plain bytes. It is checked when it is used.
 */
typedef struct {
  /**
   * The content, which has no meaning for programs.
   */
  uint64_t words[4];
} hydrant_pointer;

/**
 * One level of repetition of a section.
 */
typedef struct {
  /**
   * The number of repetitions.
   */
  size_t count;
  /**
   * The bytes from the start of one repetition to the start of the next.
   */
  size_t stride;
} hydrant_level;

/**
 * Bytes of memory, in order: a run of neighbours, repeated by levels. Each level repeats all within it, so that
 * the levels of a section of an array begin with the innermost axis but one.
 */
typedef struct {
  /**
   * The first byte, counted from the start of the memory.
   */
  size_t start;
  /**
   * The bytes of a run.
   */
  size_t run;
  /**
   * The levels, innermost first. It may be null if there are none.
   */
  const hydrant_level *levels;
  /**
   * The number of levels: at most HYDRANT_MOST_LEVELS.
   */
  size_t level_count;
} hydrant_section;

/**
 * The change of a signal word: HYDRANT_SIGNAL_SET or HYDRANT_SIGNAL_ADD.
 */
typedef int hydrant_signal_op;

/**
 * The comparison of a word with a value: one of HYDRANT_EQ to HYDRANT_GE.
 */
typedef int hydrant_compare;

/**
 * The effect of an atomic operation: one of HYDRANT_ATOMIC_LOAD to HYDRANT_ATOMIC_XOR.
 */
typedef int hydrant_atomic_op;

/**
 * The type of the elements of a reduction, an accumulate or an atomic operation: one of HYDRANT_U8 to HYDRANT_C64.
 */
typedef int hydrant_type;

/**
 * The way in which a reduction makes one element of two: one of HYDRANT_SUM to HYDRANT_XOR.
 */
typedef int hydrant_op;

/**
 * A function of C that makes one element of two: it changes the first, and only reads the second.
 */
typedef void (*hydrant_combine_fn)(void *user, void *into, const void *with);

/**
 * A handler of requests and replies. It gets user as it was registered, the message, the arguments and the payload,
 * which may be used until it returns. It may reply once to a request, send requests, access memory that is mapped, and
 * begin operations; it may not wait. Each rank runs one handler at a time, in any of its threads. It returns by itself:
 * no exception or longjmp may leave it.
 */
typedef void (*hydrant_handler_fn)(void *user,
                                   hydrant_message *message,
                                   const uint64_t *arguments,
                                   size_t argument_count,
                                   const void *payload,
                                   size_t bytes);

/**
 * The message that a receive took.
 */
typedef struct {
  /**
   * The tag of the message.
   */
  uint64_t tag;
  /**
   * The bytes of the message.
   */
  size_t bytes;
  /**
   * The rank that sent it.
   */
  uint32_t source;
} hydrant_status;

/**
 * A counter: the number of events at this rank so far, or an amount.
 */
typedef struct {
  /**
   * The name, which is never freed.
   */
  const char *name;
  /**
   * The value.
   */
  uint64_t value;
} hydrant_counter;

/**
 * Options of an endpoint. Zeros are the default.
 */
typedef struct {
  /**
   * The name by which peers know the endpoint, in UTF-8. It may be null.
   */
  const char *name;
  /**
   * How long calls wait for a peer, in nanoseconds; 0 is 3 seconds.
   */
  uint64_t peer_timeout;
  /**
   * Whether peers of other hosts connect: HYDRANT_HOSTS_NONE, HYDRANT_HOSTS_IF_AVAILABLE or HYDRANT_HOSTS_REQUIRED.
   */
  uint32_t hosts;
  /**
   * The port at which peers of other hosts connect; 0 for any.
   */
  uint16_t port;
  /**
   * The network interfaces that may be used: names, addresses or networks, with commas between. If it is null, the
   * variable HYDRANT_OFI_INTERFACE counts, and without that the interface of the default route.
   */
  const char *interfaces;
  /**
   * The most bytes of lent memory that are registered at a time for peers of other hosts; 0 for no limit.
   */
  uint64_t registered;
} hydrant_endpoint_options;

/**
 * A part of a batch: as many bytes of own memory and of a peer's region.
 */
typedef struct {
  /**
   * The region of the peer.
   */
  hydrant_remote *remote;
  /**
   * The first byte in that region.
   */
  uint64_t offset;
  /**
   * The own memory.
   */
  void *local;
  /**
   * The number of bytes.
   */
  size_t bytes;
} hydrant_run;

/**
 * An event of an endpoint. It is given back by hydrant_event_free.
 */
typedef struct {
  /**
   * HYDRANT_EVENT_*; 0 if there is none.
   */
  uint32_t kind;
  /**
   * The peer. hydrant_event_free drops this handle.
   */
  hydrant_peer *peer;
  /**
   * With HYDRANT_EVENT_RETURNED: the incarnation before.
   */
  uint64_t previous;
  /**
   * With HYDRANT_EVENT_MESSAGE: the message. hydrant_event_free frees it.
   */
  void *message;
  /**
   * The bytes of the message.
   */
  size_t bytes;
} hydrant_event;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the text of a status: a few words for its class of errors. The text is never freed, and is the
 * same for each unknown number. It is never null.
 */
const char *hydrant_strerror(int status);

/**
 * Returns the name of a status, such as "HYDRANT_ERROR_RANK", or "unknown". The text is never freed.
 */
const char *hydrant_error_name(int status);

/**
 * Returns the whole sentence of the last error of a call by this thread, with the function's name, the ranks,
 * sizes and limits. It is an empty text if there was none. Another thread does not see it. The text may be used
 * until the next call of this thread that fails. It is never null.
 */
const char *hydrant_last_error(void);

/**
 * Returns the version of the library, as "0.1.0". The text is never freed.
 */
const char *hydrant_version(void);

/**
 * Joins the job that this process was launched in, and stores its handle. Under hydrant run, mpiexec, srun or mpirun
 * every rank runs the same program and calls this once. A process that nobody launched is a job of one. The
 * variables HYDRANT_* of the environment are the settings of the job. Collective.
 *
 * Errors: HYDRANT_ERROR_SETTING, HYDRANT_ERROR_LAUNCH, HYDRANT_ERROR_NETWORK, HYDRANT_ERROR_FORKED.
 */
int hydrant_join(hydrant_job **job);

/**
 * Ends the job in good order: completes the operations of this rank, waits until every rank does the same while it
 * answers them, and leaves. All handles of the job are useless from then on. Collective.
 *
 * Errors: HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_MISMATCH if another rank is in a collective that this rank did not
 * join, HYDRANT_ERROR_TURN, HYDRANT_ERROR_IN_HANDLER. The job then goes on. The first error of an operation without a
 * handle is returned after the job has ended.
 */
int hydrant_finalize(hydrant_job *job);

/**
 * Ends the whole job with a status now: tells peers and the launcher, and exits this process. Never returns. Without a
 * job only this process exits.
 */
void hydrant_abort(hydrant_job *job,
                   int status) HYDRANT_NORETURN_;

/**
 * Stores the rank of this process.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_rank(const hydrant_job *job, uint32_t *rank);

/**
 * Stores the number of ranks.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_size(const hydrant_job *job, uint32_t *size);

/**
 * Stores the ranks whose memory this rank reaches directly: those of its host, itself included. At most room ranks are
 * stored, in increasing order, and their number is stored in count, which may be null.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_host_ranks(const hydrant_job *job,
                       uint32_t *ranks,
                       size_t room,
                       size_t *count);

/**
 * Checks that the program of a rank has not come to its end. It neither waits nor handles messages, and handlers may
 * call it.
 *
 * Errors: HYDRANT_ERROR_PEER_ENDED, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_RANK, HYDRANT_ERROR_JOB_OVER.
 */
int hydrant_check_present(const hydrant_job *job,
                          uint32_t rank);

/**
 * Handles messages that have arrived, and stores their number in handled, which may be null. It is needed only if the
 * rank's service thread is turned off.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_poll(hydrant_job *job,
                 size_t *handled);

/**
 * Stores the nanoseconds since the job started, on the clock of its network.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_now(const hydrant_job *job, uint64_t *nanoseconds);

/**
 * Stores the capabilities of the network, as many bytes of them as size says: sizeof(hydrant_capabilities) of the
 * header that the program was compiled with.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_get_capabilities(const hydrant_job *job,
                             hydrant_capabilities *capabilities,
                             size_t size);

/**
 * Allocates symmetric memory: every rank owns as many bytes, all zero. Collective.
 *
 * Errors: HYDRANT_ERROR_MISMATCH if ranks ask for different amounts, HYDRANT_ERROR_MEMORY if a rank has not so much,
 * HYDRANT_ERROR_REGISTRATION. Every rank then gets an error, and nothing is allocated.
 */
int hydrant_alloc(hydrant_job *job,
                  size_t bytes,
                  hydrant_memory **memory);

/**
 * As hydrant_alloc, with options. Null stands for the default. Collective.
 *
 * Errors: as hydrant_alloc; HYDRANT_ERROR_ALIGNMENT if the alignment is no power of two, HYDRANT_ERROR_ARGUMENT.
 */
int hydrant_alloc_with(hydrant_job *job,
                       size_t bytes,
                       const hydrant_alloc_options *options,
                       hydrant_memory **memory);

/**
 * Frees symmetric memory when every rank has called this. Completes the operations of this rank first. The handle is
 * useless from then on. Null is an error, because ranks must agree. Collective.
 *
 * Errors: HYDRANT_ERROR_HANDLE if it was freed before, HYDRANT_ERROR_MISMATCH if ranks free different memory,
 * HYDRANT_ERROR_PEER_LOST.
 */
int hydrant_free(hydrant_memory *memory);

/**
 * Commits memory to bytes of this rank's part of an allocation that was reserved. They keep their values. Not
 * collective.
 *
 * Errors: HYDRANT_ERROR_MEMORY, HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_HANDLE.
 */
int hydrant_commit(hydrant_memory *memory,
                   size_t offset,
                   size_t bytes);

/**
 * Stores the address in this process of the first byte of a rank's part, or null if it is not mapped here, as on
 * another host. This rank's own part always is. Loads and stores there bypass all checks, and a store wakes no waiter.
 *
 * Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_HANDLE.
 */
int hydrant_address(const hydrant_memory *memory,
                    uint32_t rank,
                    void **address);

/**
 * Stores the number of bytes that each rank owns.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_memory_bytes(const hydrant_memory *memory, size_t *bytes);

/**
 * Begins to register this rank's part with the network, before it is used. Memory that is not registered yet may be
 * used meanwhile. It does nothing where memory is not kept registered. Not collective.
 *
 * Errors: HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_JOB_OVER.
 */
int hydrant_register_in_background(hydrant_memory *memory);

/**
 * Lends a buffer of this rank to all ranks, which reach it by pointers of hydrant_exposed_pointer. The buffer must stay
 * allocated until hydrant_unexpose has returned, and peers may change it at any time. Not collective.
 *
 * Errors: HYDRANT_ERROR_NULL, HYDRANT_ERROR_JOB_OVER, HYDRANT_ERROR_NETWORK if there are too many.
 */
int hydrant_expose(hydrant_job *job,
                   void *buffer,
                   size_t bytes,
                   hydrant_exposed **exposed);

/**
 * Takes an exposed buffer back. When this returns, no peer touches it any more. Later uses of its pointers are
 * HYDRANT_ERROR_REVOKED.
 *
 * Errors: HYDRANT_ERROR_HANDLE; HYDRANT_ERROR_IN_HANDLER, and then the buffer stays exposed.
 */
int hydrant_unexpose(hydrant_exposed *exposed);

/**
 * Makes a pointer to a byte of an exposed buffer, for peers. One past the end is allowed.
 *
 * Errors: HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_HANDLE.
 */
int hydrant_exposed_pointer(const hydrant_exposed *exposed,
                            size_t offset,
                            hydrant_pointer *pointer);

/**
 * Makes a pointer to a byte of a rank's part of symmetric memory, which any rank of the job may use. One past the end
 * is allowed.
 *
 * Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_HANDLE.
 */
int hydrant_memory_pointer(const hydrant_memory *memory,
                           uint32_t rank,
                           size_t offset,
                           hydrant_pointer *pointer);

/**
 * Stores the rank whose memory a pointer leads to. The pointer is not checked.
 *
 * Errors: HYDRANT_ERROR_NULL.
 */
int hydrant_pointer_rank(const hydrant_pointer *pointer, uint32_t *rank);

/**
 * Moves a pointer by a number of bytes, forward or back. It is checked when it is used.
 *
 * Errors: HYDRANT_ERROR_NULL.
 */
int hydrant_pointer_add(const hydrant_pointer *pointer, ptrdiff_t bytes, hydrant_pointer *moved);

/**
 * Packs a pointer into eight bytes, which one atomic operation publishes.
 *
 * Errors: HYDRANT_ERROR_POINTER if it does not fit or was never made.
 */
int hydrant_pointer_pack(const hydrant_job *job, const hydrant_pointer *pointer, uint64_t *packed);

/**
 * Unpacks a pointer that a rank of the job has packed.
 *
 * Errors: HYDRANT_ERROR_POINTER for 0 and for bits that no pointer has, HYDRANT_ERROR_RANK.
 */
int hydrant_pointer_unpack(const hydrant_job *job, uint64_t packed, hydrant_pointer *pointer);

/**
 * Puts bytes into the part of a rank, from an offset on. The put is remotely complete on return.
 *
 * Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_OVERLAP if the source is the target's memory,
 * HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_JOB_OVER, HYDRANT_ERROR_REGISTRATION,
 * HYDRANT_ERROR_IN_HANDLER if the memory is not mapped here.
 */
int hydrant_put(hydrant_memory *memory,
                uint32_t rank,
                size_t offset,
                const void *source,
                size_t bytes);

/**
 * Gets bytes from the part of a rank, from an offset on.
 *
 * Errors: as hydrant_put.
 */
int hydrant_get(const hydrant_memory *memory,
                uint32_t rank,
                size_t offset,
                void *target,
                size_t bytes);

/**
 * Begins to put bytes into the part of a rank. The source must stay as it is until the operation is locally complete.
 * A null operation is stored if the put is complete at once, as where the memory is mapped here.
 *
 * Errors: as hydrant_put, for errors found at once. hydrant_wait and hydrant_test report the others.
 */
int hydrant_put_nb(hydrant_memory *memory,
                   uint32_t rank,
                   size_t offset,
                   const void *source,
                   size_t bytes,
                   hydrant_operation **operation);

/**
 * Begins to get bytes from the part of a rank. The target must not be used until the operation is complete. A null
 * operation is stored if the get is complete at once.
 *
 * Errors: as hydrant_put_nb.
 */
int hydrant_get_nb(const hydrant_memory *memory,
                   uint32_t rank,
                   size_t offset,
                   void *target,
                   size_t bytes,
                   hydrant_operation **operation);

/**
 * Begins to put bytes into the part of a rank, without a handle. The source must stay as it is until hydrant_quiet or
 * hydrant_fence has returned.
 *
 * Errors: as hydrant_put, for errors found at once. hydrant_quiet and hydrant_fence report the others.
 */
int hydrant_put_nbi(hydrant_memory *memory,
                    uint32_t rank,
                    size_t offset,
                    const void *source,
                    size_t bytes);

/**
 * Begins to get bytes from the part of a rank, without a handle. The target must not be used until hydrant_quiet or
 * hydrant_fence has returned.
 *
 * Errors: as hydrant_put_nbi.
 */
int hydrant_get_nbi(const hydrant_memory *memory,
                    uint32_t rank,
                    size_t offset,
                    void *target,
                    size_t bytes);

/**
 * Puts bytes to the memory that a pointer leads to. The put is remotely complete on return.
 *
 * Errors: as hydrant_put; HYDRANT_ERROR_POINTER, HYDRANT_ERROR_REVOKED if the exposed memory was taken back,
 * HYDRANT_ERROR_FREED.
 */
int hydrant_put_to(hydrant_job *job,
                   const hydrant_pointer *to,
                   const void *source,
                   size_t bytes);

/**
 * Gets bytes from the memory that a pointer leads to.
 *
 * Errors: as hydrant_put_to.
 */
int hydrant_get_from(hydrant_job *job, const hydrant_pointer *from, void *target, size_t bytes);

/**
 * Begins to put bytes to the memory that a pointer leads to. Source and operation are as in hydrant_put_nb.
 *
 * Errors: as hydrant_put_to, for errors found at once.
 */
int hydrant_put_to_nb(hydrant_job *job,
                      const hydrant_pointer *to,
                      const void *source,
                      size_t bytes,
                      hydrant_operation **operation);

/**
 * Begins to get bytes from the memory that a pointer leads to. ResultPlace and operation are as in hydrant_get_nb.
 *
 * Errors: as hydrant_put_to, for errors found at once.
 */
int hydrant_get_from_nb(hydrant_job *job,
                        const hydrant_pointer *from,
                        void *target,
                        size_t bytes,
                        hydrant_operation **operation);

/**
 * As hydrant_put_to_nb, without a handle, until hydrant_quiet or hydrant_fence has returned.
 *
 * Errors: as hydrant_put_to, for errors found at once.
 */
int hydrant_put_to_nbi(hydrant_job *job,
                       const hydrant_pointer *to,
                       const void *source,
                       size_t bytes);

/**
 * As hydrant_get_from_nb, without a handle, until hydrant_quiet or hydrant_fence has returned.
 *
 * Errors: as hydrant_put_to, for errors found at once.
 */
int hydrant_get_from_nbi(hydrant_job *job, const hydrant_pointer *from, void *target, size_t bytes);

/**
 * Waits until all puts and gets of this rank so far are remotely complete, and all atomic operations and signals.
 *
 * Errors: HYDRANT_ERROR_PEER_LOST if any rank is lost, HYDRANT_ERROR_IN_HANDLER. The first error of an operation without
 * a handle.
 */
int hydrant_quiet(hydrant_job *job);

/**
 * Orders this rank's puts: each peer sees those before the fence no later than those after it.
 *
 * Errors: as hydrant_quiet.
 */
int hydrant_fence(hydrant_job *job);

/**
 * Polls, and stores in done whether an operation is complete: remotely, if it is a put. If it is, its results are
 * stored where its call said, and null is stored as the operation. A null operation is complete.
 *
 * Errors: those of the operation, which is then over, and null is stored as the operation. HYDRANT_ERROR_HANDLE,
 * HYDRANT_ERROR_TURN while another thread waits for it.
 */
int hydrant_test(hydrant_operation **operation,
                 bool *done);

/**
 * Waits until an operation is complete: remotely, if it is a put. Its results are stored where its call said, and null
 * is stored as the operation. A null operation is complete. Handles messages meanwhile.
 *
 * Errors: those of the operation, which is then over. HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_IN_HANDLER,
 * HYDRANT_ERROR_TURN while another thread waits for it.
 */
int hydrant_wait(hydrant_operation **operation);

/**
 * Waits until a put no longer reads its source, which may then be changed. The operation stays. Other operations are
 * not waited for.
 *
 * Errors: HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_TURN while another thread waits for it.
 */
int hydrant_wait_local(hydrant_operation *operation);

/**
 * Waits until all of count operations are complete, as hydrant_wait, and stores null in their places. All are waited
 * for, also after an error.
 *
 * Errors: the first one among the operations.
 */
int hydrant_wait_all(hydrant_operation **operations,
                     size_t count);

/**
 * Waits until one of count operations is complete, stores its index, and null in its place. Of several it takes the
 * first.
 *
 * Errors: those of the operation, whose index is stored, too; HYDRANT_ERROR_ARGUMENT if count is 0.
 */
int hydrant_wait_any(hydrant_operation **operations,
                     size_t count,
                     size_t *index);

/**
 * Polls, and stores in done whether all of count operations are complete. Null is stored in the places of those that
 * are.
 *
 * Errors: those of the first operation that failed, whose place then is null. The rest may be tested again.
 */
int hydrant_test_all(hydrant_operation **operations,
                     size_t count,
                     bool *done);

/**
 * Lets an operation go on without its handle, and stores null in its place. A put or a get then is as one of
 * hydrant_put_nbi or hydrant_get_nbi. The results of an atomic operation or of a collective are dropped.
 *
 * Errors: HYDRANT_ERROR_ARGUMENT for a send or a receive, which keeps its handle; HYDRANT_ERROR_HANDLE.
 */
int hydrant_detach(hydrant_operation **operation);

/**
 * Polls, and stores in done whether an operation is complete: remotely, if it is a put. If it is, its results are
 * stored where its call said, and null is stored as the operation. A null operation is complete.
 *
 * Errors: those of the operation, which is then over, and null is stored as the operation. HYDRANT_ERROR_HANDLE,
 * HYDRANT_ERROR_TURN while another thread waits for it.
 */
int hydrant_test(hydrant_operation **operation,
                 bool *done);

/**
 * Waits until an operation is complete: remotely, if it is a put. Its results are stored where its call said, and null
 * is stored as the operation. A null operation is complete. Handles messages meanwhile.
 *
 * Errors: those of the operation, which is then over. HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_IN_HANDLER,
 * HYDRANT_ERROR_TURN while another thread waits for it.
 */
int hydrant_wait(hydrant_operation **operation);

/**
 * Waits until a put no longer reads its source, which may then be changed. The operation stays. Other operations are
 * not waited for.
 *
 * Errors: HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_TURN while another thread waits for it.
 */
int hydrant_wait_local(hydrant_operation *operation);

/**
 * Waits until all of count operations are complete, as hydrant_wait, and stores null in their places. All are waited
 * for, also after an error.
 *
 * Errors: the first one among the operations.
 */
int hydrant_wait_all(hydrant_operation **operations,
                     size_t count);

/**
 * Waits until one of count operations is complete, stores its index, and null in its place. Of several it takes the
 * first.
 *
 * Errors: those of the operation, whose index is stored, too; HYDRANT_ERROR_ARGUMENT if count is 0.
 */
int hydrant_wait_any(hydrant_operation **operations,
                     size_t count,
                     size_t *index);

/**
 * Polls, and stores in done whether all of count operations are complete. Null is stored in the places of those that
 * are.
 *
 * Errors: those of the first operation that failed, whose place then is null. The rest may be tested again.
 */
int hydrant_test_all(hydrant_operation **operations,
                     size_t count,
                     bool *done);

/**
 * Lets an operation go on without its handle, and stores null in its place. A put or a get then is as one of
 * hydrant_put_nbi or hydrant_get_nbi. The results of an atomic operation or of a collective are dropped.
 *
 * Errors: HYDRANT_ERROR_ARGUMENT for a send or a receive, which keeps its handle; HYDRANT_ERROR_HANDLE.
 */
int hydrant_detach(hydrant_operation **operation);

/**
 * Puts the bytes that from names, counted from the source, to the bytes of a rank's part that to names, in order. The
 * shapes may differ. The put is remotely complete on return. Other threads may use the bytes between the runs.
 *
 * Errors: as hydrant_put; HYDRANT_ERROR_LENGTH if the sections differ in their number of bytes, HYDRANT_ERROR_OVERLAP if
 * to names a byte twice, HYDRANT_ERROR_OVERFLOW, HYDRANT_ERROR_ARGUMENT for too many levels. Nothing is put then.
 */
int hydrant_put_section(hydrant_memory *memory,
                        uint32_t rank,
                        const hydrant_section *to,
                        const void *source,
                        const hydrant_section *from);

/**
 * Gets the bytes of a rank's part that from names to the bytes that to names, counted from the target, in order.
 *
 * Errors: as hydrant_put_section.
 */
int hydrant_get_section(const hydrant_memory *memory,
                        uint32_t rank,
                        const hydrant_section *from,
                        void *target,
                        const hydrant_section *to);

/**
 * As hydrant_put_section, with the remote section counted from a pointer. All bytes from the first to the last of the
 * local section count as used.
 *
 * Errors: as hydrant_put_section and hydrant_put_to.
 */
int hydrant_put_section_to(hydrant_job *job,
                           const hydrant_pointer *pointer,
                           const hydrant_section *to,
                           const void *source,
                           const hydrant_section *from);

/**
 * As hydrant_get_section, with the remote section counted from a pointer. All bytes from the first to the last of the
 * local section count as used.
 *
 * Errors: as hydrant_put_section and hydrant_put_to.
 */
int hydrant_get_section_from(hydrant_job *job,
                             const hydrant_pointer *pointer,
                             const hydrant_section *from,
                             void *target,
                             const hydrant_section *to);

/**
 * Puts count runs of run bytes each, in order: from the source at each offset in local, to a rank's part at the offset in
 * remote with the same index. The put is remotely complete on return. Other threads may use the bytes between the runs.
 *
 * Errors: as hydrant_put. Nothing is put if a run leaves the memory.
 */
int hydrant_put_list(hydrant_memory *memory,
                     uint32_t rank,
                     size_t run,
                     size_t count,
                     const size_t *remote,
                     const void *source,
                     const size_t *local);

/**
 * Gets count runs of run bytes each, in order: from a rank's part at each offset in remote, to the target at the offset in
 * local with the same index.
 *
 * Errors: as hydrant_put_list.
 */
int hydrant_get_list(const hydrant_memory *memory,
                     uint32_t rank,
                     size_t run,
                     size_t count,
                     const size_t *remote,
                     void *target,
                     const size_t *local);

/**
 * As hydrant_put_list, with remote offsets counted from a pointer. All bytes from the source to the last of the runs
 * count as used.
 *
 * Errors: as hydrant_put_list and hydrant_put_to.
 */
int hydrant_put_list_to(hydrant_job *job,
                        const hydrant_pointer *pointer,
                        size_t run,
                        size_t count,
                        const size_t *remote,
                        const void *source,
                        const size_t *local);

/**
 * As hydrant_get_list, with remote offsets counted from a pointer. All bytes from the target to the last of the runs
 * count as used.
 *
 * Errors: as hydrant_put_list and hydrant_put_to.
 */
int hydrant_get_list_from(hydrant_job *job,
                          const hydrant_pointer *pointer,
                          size_t run,
                          size_t count,
                          const size_t *remote,
                          void *target,
                          const size_t *local);

/**
 * Puts bytes into the part of a rank, then changes the word of 64 bits at an offset of signals on the same rank. A thread
 * that sees the change also sees the data. Both are remotely complete on return.
 *
 * Errors: as hydrant_put, for the data and for the word; HYDRANT_ERROR_ALIGNMENT, HYDRANT_ERROR_ARGUMENT. Nothing is put
 * if the word is wrong.
 */
int hydrant_put_signal(hydrant_memory *memory,
                       uint32_t rank,
                       size_t offset,
                       const void *source,
                       size_t bytes,
                       hydrant_memory *signals,
                       size_t signal_offset,
                       hydrant_signal_op op,
                       uint64_t value);

/**
 * As hydrant_put_signal, without waiting. The source may be used again on return. The operation is complete when data
 * and signal are. A null operation is stored if both are complete at once.
 *
 * Errors: as hydrant_put_signal, for errors found at once.
 */
int hydrant_put_signal_nb(hydrant_memory *memory,
                          uint32_t rank,
                          size_t offset,
                          const void *source,
                          size_t bytes,
                          hydrant_memory *signals,
                          size_t signal_offset,
                          hydrant_signal_op op,
                          uint64_t value,
                          hydrant_operation **operation);

/**
 * As hydrant_put_signal, for a section: see hydrant_put_section.
 *
 * Errors: as hydrant_put_section and hydrant_put_signal.
 */
int hydrant_put_section_signal(hydrant_memory *memory,
                               uint32_t rank,
                               const hydrant_section *to,
                               const void *source,
                               const hydrant_section *from,
                               hydrant_memory *signals,
                               size_t signal_offset,
                               hydrant_signal_op op,
                               uint64_t value);

/**
 * Puts bytes to the memory that a pointer leads to, then changes the word of 64 bits that another pointer leads to, on
 * the same rank. Both are remotely complete on return.
 *
 * Errors: as hydrant_put_to, for both pointers; HYDRANT_ERROR_ARGUMENT if they lead to different ranks.
 */
int hydrant_put_signal_to(hydrant_job *job,
                          const hydrant_pointer *to,
                          const void *source,
                          size_t bytes,
                          const hydrant_pointer *word,
                          hydrant_signal_op op,
                          uint64_t value);

/**
 * As hydrant_put_signal_to, without waiting. The source may be used again on return.
 *
 * Errors: as hydrant_put_signal_to, for errors found at once.
 */
int hydrant_put_signal_to_nb(hydrant_job *job,
                             const hydrant_pointer *to,
                             const void *source,
                             size_t bytes,
                             const hydrant_pointer *word,
                             hydrant_signal_op op,
                             uint64_t value,
                             hydrant_operation **operation);

/**
 * Changes a word of 64 bits of a rank. A thread that sees the change also sees all that this thread has put to the rank
 * by calls that were complete.
 *
 * Errors: as hydrant_put; HYDRANT_ERROR_ALIGNMENT, HYDRANT_ERROR_ARGUMENT.
 */
int hydrant_signal(hydrant_memory *signals,
                   uint32_t rank,
                   size_t offset,
                   hydrant_signal_op op,
                   uint64_t value);

/**
 * Waits until a word of 64 bits of this rank's part compares with a value as wanted. Stores the word in found, which may
 * be null. Waits for at most timeout nanoseconds. Handles messages meanwhile, and sleeps if it takes long.
 *
 * Errors: HYDRANT_ERROR_TIMEOUT, HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_ALIGNMENT, HYDRANT_ERROR_ARGUMENT,
 * HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_PEER_LOST if a rank dies first, HYDRANT_ERROR_OTHERS_ENDED if nobody can change
 * the word any more.
 */
int hydrant_wait_until(const hydrant_memory *signals,
                       size_t offset,
                       hydrant_compare compare,
                       uint64_t value,
                       uint64_t timeout,
                       uint64_t *found);

/**
 * Waits until one of count words at the offsets compares with a value as wanted. Stores its index in the list, and the
 * word in found; both may be null. Of several words it takes the first in the list.
 *
 * Errors: as hydrant_wait_until; HYDRANT_ERROR_ARGUMENT if count is 0.
 */
int hydrant_wait_until_any(const hydrant_memory *signals,
                           const size_t *offsets,
                           size_t count,
                           hydrant_compare compare,
                           uint64_t value,
                           uint64_t timeout,
                           size_t *index,
                           uint64_t *found);

/**
 * Waits until each of count words at the offsets has compared with a value as wanted, not all at the same time. Stores
 * the words in found, in the order of the list, unless it is null.
 *
 * Errors: as hydrant_wait_until_any, without a time limit.
 */
int hydrant_wait_until_all(const hydrant_memory *signals,
                           const size_t *offsets,
                           size_t count,
                           hydrant_compare compare,
                           uint64_t value,
                           uint64_t *found);

/**
 * Stores in met whether a word of 64 bits of this rank's part compares with a value as wanted, and if so the word in
 * found, which may be null. It does not wait, and handlers may call it.
 *
 * Errors: as hydrant_wait_until, but HYDRANT_ERROR_TIMEOUT.
 */
int hydrant_test_until(const hydrant_memory *signals,
                       size_t offset,
                       hydrant_compare compare,
                       uint64_t value,
                       bool *met,
                       uint64_t *found);

/**
 * Stores in met whether one of count words at the offsets compares with a value as wanted, and if so its index and the
 * word, as hydrant_wait_until_any. It does not wait, and handlers may call it.
 *
 * Errors: as hydrant_wait_until_any, but HYDRANT_ERROR_TIMEOUT.
 */
int hydrant_test_until_any(const hydrant_memory *signals,
                           const size_t *offsets,
                           size_t count,
                           hydrant_compare compare,
                           uint64_t value,
                           bool *met,
                           size_t *index,
                           uint64_t *found);

/**
 * Does an atomic operation on the word at an offset of a rank's part. The type is HYDRANT_U32, HYDRANT_I32, HYDRANT_U64,
 * HYDRANT_I64, HYDRANT_F32 or HYDRANT_F64. The operand and the expected value lead to one element each. The operand may
 * be null for HYDRANT_ATOMIC_LOAD, and the expected value for all but HYDRANT_ATOMIC_COMPARE_SWAP. The previous value of
 * the word is stored in previous, which may be null.
 *
 * Errors: as hydrant_put; HYDRANT_ERROR_ALIGNMENT if the offset is not aligned for the type, HYDRANT_ERROR_ARGUMENT,
 * HYDRANT_ERROR_OPERATION for a bitwise operation on floats, HYDRANT_ERROR_RESULT_LOST.
 */
int hydrant_atomic(hydrant_memory *memory,
                   uint32_t rank,
                   size_t offset,
                   hydrant_atomic_op op,
                   hydrant_type type,
                   const void *operand,
                   const void *expected,
                   void *previous);

/**
 * Begins an atomic operation, as hydrant_atomic does it. The previous value is stored when the operation is waited for,
 * or a test of it is true. A null operation is stored if it is complete at once. Handlers may call this.
 *
 * Errors: as hydrant_atomic, for errors found at once.
 */
int hydrant_atomic_nb(hydrant_memory *memory,
                      uint32_t rank,
                      size_t offset,
                      hydrant_atomic_op op,
                      hydrant_type type,
                      const void *operand,
                      const void *expected,
                      void *previous,
                      hydrant_operation **operation);

/**
 * Does an atomic operation on the word that a pointer leads to. In symmetric memory it is one of hydrant_atomic. In
 * exposed memory the owner does it, so that it is atomic among operations by pointers alone.
 *
 * Errors: as hydrant_atomic and hydrant_put_to.
 */
int hydrant_atomic_at(hydrant_job *job,
                      const hydrant_pointer *word,
                      hydrant_atomic_op op,
                      hydrant_type type,
                      const void *operand,
                      const void *expected,
                      void *previous);

/**
 * Begins an atomic operation on the word that a pointer leads to, as hydrant_atomic_nb.
 *
 * Errors: as hydrant_atomic_at, for errors found at once.
 */
int hydrant_atomic_at_nb(hydrant_job *job,
                         const hydrant_pointer *word,
                         hydrant_atomic_op op,
                         hydrant_type type,
                         const void *operand,
                         const void *expected,
                         void *previous,
                         hydrant_operation **operation);

/**
 * Adds factor times each element of the source to the elements from an offset of a rank's part on. The type is
 * HYDRANT_I32, HYDRANT_U32, HYDRANT_I64, HYDRANT_U64, HYDRANT_F32, HYDRANT_F64, HYDRANT_C32 or HYDRANT_C64. The factor
 * leads to one element; null stands for one. The addition is done on return. It is atomic for each element with respect
 * to other accumulates, and not to puts and atomic operations. Bytes are those of whole elements, which may begin at any
 * offset.
 *
 * Errors: as hydrant_put; HYDRANT_ERROR_LENGTH if the bytes are no whole elements, HYDRANT_ERROR_ARGUMENT for another type.
 */
int hydrant_accumulate(hydrant_memory *memory,
                       uint32_t rank,
                       size_t offset,
                       hydrant_type type,
                       const void *factor,
                       const void *source,
                       size_t bytes);

/**
 * As hydrant_accumulate, for sections: see hydrant_put_section. A byte that to names twice is added to twice.
 *
 * Errors: as hydrant_accumulate and hydrant_put_section.
 */
int hydrant_accumulate_section(hydrant_memory *memory,
                               uint32_t rank,
                               const hydrant_section *to,
                               hydrant_type type,
                               const void *factor,
                               const void *source,
                               const hydrant_section *from);

/**
 * As hydrant_accumulate, for a list of runs: see hydrant_put_list.
 *
 * Errors: as hydrant_accumulate and hydrant_put_list.
 */
int hydrant_accumulate_list(hydrant_memory *memory,
                            uint32_t rank,
                            size_t run,
                            size_t count,
                            const size_t *remote,
                            hydrant_type type,
                            const void *factor,
                            const void *source,
                            const size_t *local);

/**
 * Puts bytes to an address of a rank's process. Pages may come and go under it. The put is remotely complete on return.
 * The variable HYDRANT_ANYWHERE must be on for all ranks.
 *
 * Errors: HYDRANT_ERROR_REFUSED without that setting, HYDRANT_ERROR_RANK, HYDRANT_ERROR_PEER_LOST,
 * HYDRANT_ERROR_ADDRESS if the memory is not mapped or is read-only. Part of it may have been written then.
 */
int hydrant_put_anywhere(hydrant_job *job,
                         uint32_t rank,
                         uint64_t address,
                         const void *source,
                         size_t bytes);

/**
 * Gets bytes from an address of a rank's process.
 *
 * Errors: as hydrant_put_anywhere.
 */
int hydrant_get_anywhere(hydrant_job *job,
                         uint32_t rank,
                         uint64_t address,
                         void *target,
                         size_t bytes);

/**
 * Declares that memory stays mapped as it is until hydrant_end_loan. So it may stay registered for peers that name it by
 * its address. Not collective.
 *
 * Errors: HYDRANT_ERROR_NULL, HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_JOB_OVER.
 */
int hydrant_lend_anywhere(hydrant_job *job,
                          void *start,
                          size_t bytes,
                          hydrant_loan **loan);

/**
 * Ends a loan. The memory may be unmapped when this has returned.
 *
 * Errors: HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_IN_HANDLER.
 */
int hydrant_end_loan(hydrant_loan *loan);

/**
 * Stores the team of all ranks, whose team ranks are the ranks of the job. It is not freed.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_world(hydrant_job *job, hydrant_team **team);

/**
 * Makes a team of the members that give the same color, numbered by key and, where keys are equal, by their rank in this
 * team. A member that gives HYDRANT_NO_COLOR gets no team, and null is stored. Collective over the team.
 *
 * Errors: HYDRANT_ERROR_MEMORY at every member if there is no room for another team; as hydrant_barrier.
 */
int hydrant_team_split(hydrant_team *team,
                       uint32_t color,
                       uint32_t key,
                       hydrant_team **part);

/**
 * Frees this rank's handle of a team. Every member frees its own; not collective. Null is ignored.
 *
 * Errors: HYDRANT_ERROR_HANDLE, HYDRANT_ERROR_ARGUMENT for the team of all ranks.
 */
int hydrant_team_free(hydrant_team *team);

/**
 * Stores this rank's number in the team.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_team_rank(const hydrant_team *team, uint32_t *rank);

/**
 * Stores the number of members of the team.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_team_size(const hydrant_team *team, uint32_t *size);

/**
 * Stores the rank in the job of a member.
 *
 * Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_HANDLE.
 */
int hydrant_team_job_rank(const hydrant_team *team, uint32_t team_rank, uint32_t *rank);

/**
 * Stores the team rank of a rank of the job; HYDRANT_NO_RANK if it is no member.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_team_rank_of(const hydrant_team *team, uint32_t rank, uint32_t *team_rank);

/**
 * Stores the ranks in the job of the members, by their rank in the team. At most room ranks are stored, and the number
 * of members is stored in count, which may be null.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_team_members(const hydrant_team *team,
                         uint32_t *ranks,
                         size_t room,
                         size_t *count);

/**
 * Waits for all members of the team. A rank's blocking puts are remotely complete before.
 *
 * Errors of every collective: HYDRANT_ERROR_MISMATCH if members call another collective or give other sizes,
 * HYDRANT_ERROR_TURN if another thread is in a collective of the team, HYDRANT_ERROR_PEER_LOST,
 * HYDRANT_ERROR_PEER_ENDED, HYDRANT_ERROR_JOB_OVER, HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_HANDLE.
 */
int hydrant_barrier(hydrant_team *team);

/**
 * Notifies the members that this one has come to a barrier. hydrant_barrier_wait waits for them.
 *
 * Errors: as hydrant_barrier; HYDRANT_ERROR_TURN if it was notified before.
 */
int hydrant_barrier_notify(hydrant_team *team);

/**
 * Waits until all members have come to the notified barrier.
 *
 * Errors: as hydrant_barrier; HYDRANT_ERROR_TURN if it was not notified.
 */
int hydrant_barrier_wait(hydrant_team *team);

/**
 * Brings the bytes of the member root to all members.
 *
 * Errors: as hydrant_barrier; HYDRANT_ERROR_RANK.
 */
int hydrant_broadcast(hydrant_team *team, uint32_t root, void *data, size_t bytes);

/**
 * Gathers bytes of every member at the member root, in the order of members. There all has room for as many bytes of
 * each; elsewhere it is ignored.
 *
 * Errors: as hydrant_barrier; HYDRANT_ERROR_RANK, HYDRANT_ERROR_OVERLAP.
 */
int hydrant_gather(hydrant_team *team,
                   uint32_t root,
                   const void *mine,
                   size_t bytes,
                   void *all);

/**
 * Gathers blocks of any length at the member root. There counts has the bytes of each member's block, and displacements
 * the offset of each in all; null stands for one block behind the other. Elsewhere the three are ignored.
 *
 * Errors: as hydrant_gather; HYDRANT_ERROR_LENGTH if a member sends another number of bytes, HYDRANT_ERROR_OVERFLOW.
 */
int hydrant_gather_v(hydrant_team *team,
                     uint32_t root,
                     const void *mine,
                     size_t bytes,
                     void *all,
                     const size_t *counts,
                     const size_t *displacements);

/**
 * Gathers bytes of every member at all members, in the order of members: all has room for as many bytes of each. If mine
 * is null, this member's bytes lie in their place in all.
 *
 * Errors: as hydrant_barrier; HYDRANT_ERROR_OVERLAP.
 */
int hydrant_all_gather(hydrant_team *team,
                       const void *mine,
                       size_t bytes,
                       void *all);

/**
 * Gathers blocks of any length at all members, as hydrant_gather_v does at one. If mine is null, this member's block
 * lies in its place in all.
 *
 * Errors: as hydrant_gather_v.
 */
int hydrant_all_gather_v(hydrant_team *team,
                         const void *mine,
                         size_t bytes,
                         void *all,
                         const size_t *counts,
                         const size_t *displacements);

/**
 * Gives each member its part of the bytes of the member root: as many bytes for each, in the order of members. Elsewhere
 * than at the root all is ignored.
 *
 * Errors: as hydrant_gather.
 */
int hydrant_scatter(hydrant_team *team,
                    uint32_t root,
                    const void *all,
                    void *mine,
                    size_t bytes);

/**
 * Gives each member its block of the bytes of the member root; blocks of any length, as in hydrant_gather_v.
 *
 * Errors: as hydrant_gather_v.
 */
int hydrant_scatter_v(hydrant_team *team,
                      uint32_t root,
                      const void *all,
                      const size_t *counts,
                      const size_t *displacements,
                      void *mine,
                      size_t bytes);

/**
 * Gives each member its part of this member's bytes, and gets a part from each: bytes for each member, in their order.
 * If parts is null, they lie in into, and are replaced.
 *
 * Errors: as hydrant_all_gather.
 */
int hydrant_all_to_all(hydrant_team *team,
                       const void *parts,
                       void *into,
                       size_t bytes);

/**
 * As hydrant_all_to_all, with blocks of any length, as in hydrant_gather_v: one for each member in parts, and one from
 * each in into.
 *
 * Errors: as hydrant_gather_v.
 */
int hydrant_all_to_all_v(hydrant_team *team,
                         const void *parts,
                         const size_t *part_counts,
                         const size_t *part_displacements,
                         void *into,
                         const size_t *into_counts,
                         const size_t *into_displacements);

/**
 * Reduces count elements of every member, index by index, to the member root. There the result is stored. Elsewhere
 * result is ignored, unless mine is null: then the elements of this member lie in result, at the root, too. Elements are
 * combined in the order of members, so that the result does not depend on the algorithm.
 *
 * Errors: as hydrant_barrier; HYDRANT_ERROR_RANK, HYDRANT_ERROR_OPERATION if the type has no such operation,
 * HYDRANT_ERROR_ARGUMENT, HYDRANT_ERROR_ALIGNMENT, HYDRANT_ERROR_OVERLAP.
 */
int hydrant_reduce(hydrant_team *team,
                   uint32_t root,
                   const void *mine,
                   void *result,
                   size_t count,
                   hydrant_type type,
                   hydrant_op op);

/**
 * Reduces count elements of every member, index by index, on all members, as hydrant_reduce. If mine is null, the
 * elements of this member lie in result.
 *
 * Errors: as hydrant_reduce.
 */
int hydrant_all_reduce(hydrant_team *team,
                       const void *mine,
                       void *result,
                       size_t count,
                       hydrant_type type,
                       hydrant_op op);

/**
 * Reduces the elements of every member, and gives each member count elements of the result, in the order of members. So
 * data has count elements for each member.
 *
 * Errors: as hydrant_reduce.
 */
int hydrant_reduce_scatter(hydrant_team *team,
                           const void *data,
                           void *mine,
                           size_t count,
                           hydrant_type type,
                           hydrant_op op);

/**
 * Reduces the elements of the members up to this one, itself included. If mine is null, they lie in result.
 *
 * Errors: as hydrant_reduce.
 */
int hydrant_scan(hydrant_team *team,
                 const void *mine,
                 void *result,
                 size_t count,
                 hydrant_type type,
                 hydrant_op op);

/**
 * Reduces the elements of the members before this one. The first member gets the element that changes nothing. If mine
 * is null, this member's elements lie in result.
 *
 * Errors: as hydrant_reduce.
 */
int hydrant_exclusive_scan(hydrant_team *team,
                           const void *mine,
                           void *result,
                           size_t count,
                           hydrant_type type,
                           hydrant_op op);

/**
 * Reduces count elements of every member on all members by a function of the program, in the order of members. An
 * element has 1, 2, 4, 8, 16, 32 or 64 bytes. The function gets user and two elements, which are aligned to 16 bytes or
 * to their size. It must be the same on all members, and calls nothing of this library. If mine is null, the elements of
 * this member lie in result.
 *
 * Errors: as hydrant_reduce; HYDRANT_ERROR_ARGUMENT for elements of another size.
 */
int hydrant_all_reduce_with(hydrant_team *team,
                            const void *mine,
                            void *result,
                            size_t count,
                            size_t element_bytes,
                            hydrant_combine_fn combine,
                            void *user);

/**
 * Begins to wait for all members of the team. The operation is complete when all have begun it.
 *
 * Errors: as hydrant_barrier, for errors found at once.
 */
int hydrant_barrier_nb(hydrant_team *team, hydrant_operation **operation);

/**
 * Begins to bring the bytes of the member root to all members. They are stored in data at the end.
 *
 * Errors: as hydrant_broadcast, for errors found at once.
 */
int hydrant_broadcast_nb(hydrant_team *team,
                         uint32_t root,
                         void *data,
                         size_t bytes,
                         hydrant_operation **operation);

/**
 * Begins to gather bytes of every member at all members, as hydrant_all_gather with this member's bytes in mine.
 *
 * Errors: as hydrant_all_gather, for errors found at once.
 */
int hydrant_all_gather_nb(hydrant_team *team,
                          const void *mine,
                          size_t bytes,
                          void *all,
                          hydrant_operation **operation);

/**
 * Begins to give each member its part of this member's bytes, and to get a part from each, as hydrant_all_to_all with
 * this member's bytes in parts.
 *
 * Errors: as hydrant_all_to_all, for errors found at once.
 */
int hydrant_all_to_all_nb(hydrant_team *team,
                          const void *parts,
                          void *into,
                          size_t bytes,
                          hydrant_operation **operation);

/**
 * Begins to reduce count elements of every member to the member root, as hydrant_reduce with this member's elements in
 * mine. Elsewhere than at the root result is ignored.
 *
 * Errors: as hydrant_reduce, for errors found at once.
 */
int hydrant_reduce_nb(hydrant_team *team,
                      uint32_t root,
                      const void *mine,
                      void *result,
                      size_t count,
                      hydrant_type type,
                      hydrant_op op,
                      hydrant_operation **operation);

/**
 * Begins to reduce count elements of every member on all members, as hydrant_all_reduce with this member's elements in
 * mine.
 *
 * Errors: as hydrant_reduce, for errors found at once.
 */
int hydrant_all_reduce_nb(hydrant_team *team,
                          const void *mine,
                          void *result,
                          size_t count,
                          hydrant_type type,
                          hydrant_op op,
                          hydrant_operation **operation);

/**
 * Begins to reduce the elements of the members up to this one, as hydrant_scan with this member's elements in mine.
 *
 * Errors: as hydrant_reduce, for errors found at once.
 */
int hydrant_scan_nb(hydrant_team *team,
                    const void *mine,
                    void *result,
                    size_t count,
                    hydrant_type type,
                    hydrant_op op,
                    hydrant_operation **operation);

/**
 * Registers a handler, and stores its number, which is the same on every rank: they count from 0. A peer may send to the
 * handler before this returns here. Every rank registers the same handlers in
 * the same order. When this returns, every rank has the handler. Collective.
 *
 * Errors: HYDRANT_ERROR_HANDLER if there are too many, HYDRANT_ERROR_MISMATCH, HYDRANT_ERROR_PEER_LOST,
 * HYDRANT_ERROR_NULL.
 */
int hydrant_register_handler(hydrant_job *job,
                             hydrant_handler_fn function,
                             void *user,
                             uint32_t *handler);

/**
 * Stores the rank that sent a message.
 *
 * Errors: HYDRANT_ERROR_HANDLE outside the message's handler.
 */
int hydrant_message_source(const hydrant_message *message, uint32_t *rank);

/**
 * Replies to a request: runs a handler on its sender. The arguments and the payload are copied before this returns. For
 * handlers alone.
 *
 * Errors: HYDRANT_ERROR_REPLY after a reply or in the handler of one, HYDRANT_ERROR_HANDLER, HYDRANT_ERROR_TOO_LONG,
 * HYDRANT_ERROR_HANDLE outside the message's handler.
 */
int hydrant_reply(hydrant_message *message,
                  uint32_t handler,
                  const uint64_t *arguments,
                  size_t argument_count,
                  const void *payload,
                  size_t bytes);

/**
 * Runs a handler on a rank with arguments and a payload, which may be null if it has no bytes. Both are copied before
 * this returns, and the message is in flight then. Requests from one rank to another are handled in the order sent.
 *
 * Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_HANDLER, HYDRANT_ERROR_TOO_LONG, HYDRANT_ERROR_PEER_LOST,
 * HYDRANT_ERROR_JOB_OVER; in a handler HYDRANT_ERROR_BACKLOG.
 */
int hydrant_request(hydrant_job *job,
                    uint32_t rank,
                    uint32_t handler,
                    const uint64_t *arguments,
                    size_t argument_count,
                    const void *payload,
                    size_t bytes);

/**
 * Puts bytes into the part of a rank, then runs a handler there. The offset and the number of bytes follow its
 * arguments.
 *
 * Errors: as hydrant_request and hydrant_put.
 */
int hydrant_request_long(hydrant_memory *memory,
                         uint32_t rank,
                         uint32_t handler,
                         const uint64_t *arguments,
                         size_t argument_count,
                         size_t offset,
                         const void *source,
                         size_t bytes);

/**
 * Waits until every request that this rank has sent so far was handled, those of its handlers included, and until their
 * replies were handled.
 *
 * Errors: the first failure that a rank has reported since the last call, such as HYDRANT_ERROR_HANDLER;
 * HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_IN_HANDLER.
 */
int hydrant_request_quiet(hydrant_job *job);

/**
 * Sends bytes to a rank under a tag: a number up to max_tag of hydrant_capabilities. On return the data may be used
 * again, but a short message may not have been received yet. Messages of one rank to another that fit the same receives
 * are received in the order sent.
 *
 * Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_TAG, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_PEER_ENDED,
 * HYDRANT_ERROR_JOB_OVER, HYDRANT_ERROR_IN_HANDLER.
 */
int hydrant_send(hydrant_job *job,
                 uint32_t rank,
                 uint64_t tag,
                 const void *data,
                 size_t bytes);

/**
 * Receives the first message that fits into a buffer of bytes, which may be longer. The source is a rank or
 * HYDRANT_ANY_SOURCE, the tag a number or HYDRANT_ANY_TAG. The status of the message is stored in status, which may be
 * null.
 *
 * Errors: as hydrant_send; HYDRANT_ERROR_TOO_LONG for a longer message, which stays for the next receive that fits,
 * HYDRANT_ERROR_OTHERS_ENDED.
 */
int hydrant_receive(hydrant_job *job,
                    uint32_t source,
                    uint64_t tag,
                    void *buffer,
                    size_t bytes,
                    hydrant_status *status);

/**
 * Sends one message and receives another. Neither waits for the other.
 *
 * Errors: as hydrant_send and hydrant_receive.
 */
int hydrant_send_receive(hydrant_job *job,
                         uint32_t rank,
                         uint64_t tag,
                         const void *data,
                         size_t bytes,
                         uint32_t source,
                         uint64_t receive_tag,
                         void *buffer,
                         size_t room,
                         hydrant_status *status);

/**
 * Begins to send bytes to a rank under a tag. The data must stay as it is until the operation is complete, which does
 * not say that the message was received.
 *
 * Errors: as hydrant_send, for errors found at once.
 */
int hydrant_send_nb(hydrant_job *job,
                    uint32_t rank,
                    uint64_t tag,
                    const void *data,
                    size_t bytes,
                    hydrant_operation **operation);

/**
 * Begins to receive the first message that fits into a buffer, as hydrant_receive. The buffer must not be used until the
 * operation is complete. The status is stored then; it may be null.
 *
 * Errors: as hydrant_receive, for errors found at once.
 */
int hydrant_receive_nb(hydrant_job *job,
                       uint32_t source,
                       uint64_t tag,
                       void *buffer,
                       size_t bytes,
                       hydrant_status *status,
                       hydrant_operation **operation);

/**
 * Waits for a message that fits, and stores its status. The message stays. Another thread may receive it first.
 *
 * Errors: as hydrant_receive.
 */
int hydrant_probe(hydrant_job *job,
                  uint32_t source,
                  uint64_t tag,
                  hydrant_status *status);

/**
 * Stores in found whether a message that fits has arrived, and if so its status. It does not wait.
 *
 * Errors: as hydrant_receive.
 */
int hydrant_try_probe(hydrant_job *job,
                      uint32_t source,
                      uint64_t tag,
                      bool *found,
                      hydrant_status *status);

/**
 * Makes locks: count of them at this rank, which may differ between ranks. Collective.
 *
 * Errors: as hydrant_alloc.
 */
int hydrant_locks_make(hydrant_job *job, size_t count, hydrant_locks **locks);

/**
 * Frees locks. Collective.
 *
 * Errors: HYDRANT_ERROR_LOCK at every rank if one of the locks is held or waited for, and then they stay;
 * HYDRANT_ERROR_HANDLE, as hydrant_free.
 */
int hydrant_locks_free(hydrant_locks *locks);

/**
 * Locks the lock with a number of a rank, and waits while others have it. Ranks get it in the order in which they came.
 *
 * Errors: HYDRANT_ERROR_RANK, HYDRANT_ERROR_BOUNDS if there is no such lock, HYDRANT_ERROR_LOCK if this thread has it,
 * HYDRANT_ERROR_IN_HANDLER, HYDRANT_ERROR_HANDLE. HYDRANT_ERROR_PEER_LOST and HYDRANT_ERROR_PEER_ENDED if its holder is
 * gone: then it can no longer be locked.
 */
int hydrant_lock(hydrant_locks *locks,
                 uint32_t rank,
                 size_t number);

/**
 * Unlocks a lock that this rank holds, in any of its threads.
 *
 * Errors: HYDRANT_ERROR_LOCK if this rank does not hold it; as hydrant_lock.
 */
int hydrant_unlock(hydrant_locks *locks, uint32_t rank, size_t number);

/**
 * Stores a snapshot of the counters of this rank: puts, gets, their bytes, hits and misses of registered memory, and so
 * on. At most room counters are stored, and the number of all is stored in count, which may be null. Later versions may
 * have others: programs find them by name.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_counters(const hydrant_job *job,
                     hydrant_counter *counters,
                     size_t room,
                     size_t *count);

/**
 * Opens an endpoint. Options may be null.
 *
 * Errors: HYDRANT_ERROR_TOO_LONG for the name, HYDRANT_ERROR_ARGUMENT if it is not UTF-8, HYDRANT_ERROR_NETWORK if
 * the system refuses something.
 */
int hydrant_endpoint_open(const hydrant_endpoint_options *options,
                          hydrant_endpoint **endpoint);

/**
 * Closes an endpoint, and frees its handle. Its peers hear that it has left, once they have its messages. Regions and
 * peers of it keep their handles, which are to be freed.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_endpoint_close(hydrant_endpoint *endpoint);

/**
 * Writes the address of an endpoint, which others need to connect: at most a few hundred bytes. Stores their number,
 * even if there is no room for them.
 *
 * Errors: HYDRANT_ERROR_TOO_LONG if there is no room.
 */
int hydrant_endpoint_address(hydrant_endpoint *endpoint,
                             void *address,
                             size_t bytes,
                             size_t *length);

/**
 * Connects to an endpoint by its address, or finds the peer if it is connected. Both may connect at once. The handle is
 * freed by hydrant_peer_drop, which does not end the connection.
 *
 * Errors: HYDRANT_ERROR_DESCRIPTOR if the bytes are no address, HYDRANT_ERROR_UNREACHABLE, HYDRANT_ERROR_CLOSED.
 */
int hydrant_connect(hydrant_endpoint *endpoint,
                    const void *address,
                    size_t bytes,
                    hydrant_peer **peer);

/**
 * Frees the handle of a peer.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_peer_drop(hydrant_peer *peer);

/**
 * Writes the name that a peer has given itself, with a 0 behind it, and stores its length without that.
 *
 * Errors: HYDRANT_ERROR_TOO_LONG if there is no room.
 */
int hydrant_peer_name(hydrant_peer *peer,
                      char *name,
                      size_t bytes,
                      size_t *length);

/**
 * Stores the number of a peer's incarnation, which it has drawn at random when it started.
 */
int hydrant_peer_incarnation(hydrant_peer *peer, uint64_t *incarnation);

/**
 * Stores whether a peer is connected.
 */
int hydrant_peer_is_connected(hydrant_peer *peer, bool *is_connected);

/**
 * Sends a message, which arrives once and in order, as an event. Waits at most so many nanoseconds while the peer has
 * 1 MiB of messages that its program has not read.
 *
 * Errors: HYDRANT_ERROR_TOO_LONG, HYDRANT_ERROR_BUSY, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_LEFT,
 * HYDRANT_ERROR_CLOSED.
 */
int hydrant_peer_send(hydrant_peer *peer,
                      const void *message,
                      size_t bytes,
                      uint64_t timeout);

/**
 * Lends new memory, all zero, and stores its address. Peers of this host map it, so that their copies need no system
 * call. It is freed with the region. The address may be null.
 *
 * Errors: HYDRANT_ERROR_NETWORK if there is not so much memory, HYDRANT_ERROR_CLOSED.
 */
int hydrant_region_alloc(hydrant_endpoint *endpoint,
                         size_t bytes,
                         hydrant_region **region,
                         void **start);

/**
 * Lends memory of the program, of any size, without touching it. It must stay allocated until the region is revoked. Peers
 * may change it at any time by descriptors with that right.
 *
 * Errors: HYDRANT_ERROR_CLOSED.
 */
int hydrant_region_expose(hydrant_endpoint *endpoint,
                          void *start,
                          size_t bytes,
                          hydrant_region **region);

/**
 * Revokes a region, and frees its handle. When this returns, no peer touches the memory any more, and each later use of a
 * descriptor fails.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_region_revoke(hydrant_region *region);

/**
 * As hydrant_region_revoke, but waits at most so many nanoseconds for uses under way. No use begins after the call. After
 * an error the handle is kept, and the next call goes on to wait.
 *
 * Errors: HYDRANT_ERROR_BUSY if a peer still uses the memory: it is stopped, or copies much.
 */
int hydrant_region_revoke_within(hydrant_region *region,
                                 uint64_t timeout);

/**
 * Writes a descriptor of bytes of a region, for those who may use them, and stores its length: at most a few hundred
 * bytes. A lease is in nanoseconds from now on; 0 is until the region is revoked.
 *
 * Errors: HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_ARGUMENT for the rights, HYDRANT_ERROR_TOO_LONG if there is no room.
 */
int hydrant_region_describe(hydrant_region *region,
                            uint64_t offset,
                            uint64_t bytes,
                            uint32_t rights_given,
                            uint64_t lease_given,
                            void *descriptor,
                            size_t descriptor_bytes,
                            size_t *length);

/**
 * Writes a descriptor of a part of what another descriptor names, with no more rights and for no longer a time. Anybody
 * who has a descriptor can narrow it, and nobody can widen it.
 *
 * Errors: HYDRANT_ERROR_DESCRIPTOR, HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_ARGUMENT, HYDRANT_ERROR_FULL if it was narrowed too
 * often, HYDRANT_ERROR_TOO_LONG if there is no room.
 */
int hydrant_descriptor_narrow(const void *descriptor,
                              size_t descriptor_bytes,
                              uint64_t offset,
                              uint64_t bytes,
                              uint32_t rights_given,
                              uint64_t lease_given,
                              void *narrowed,
                              size_t narrowed_bytes,
                              size_t *length);

/**
 * Opens what a descriptor names at its owner, which answers even if its program computes. The handle holds for this
 * connection, and is freed by hydrant_remote_close.
 *
 * Errors: HYDRANT_ERROR_DESCRIPTOR, HYDRANT_ERROR_REVOKED, HYDRANT_ERROR_EXPIRED, HYDRANT_ERROR_FULL,
 * HYDRANT_ERROR_TIMEOUT, HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_LEFT.
 */
int hydrant_remote_open(hydrant_peer *peer,
                        const void *descriptor,
                        size_t bytes,
                        hydrant_remote **remote);

/**
 * As hydrant_remote_open, for many descriptors, and in a fraction of the time. Either all are opened or none.
 *
 * Errors: as hydrant_remote_open, the first one.
 */
int hydrant_remote_open_many(hydrant_peer *peer,
                             const void *const *descriptors,
                             const size_t *bytes,
                             size_t count,
                             hydrant_remote **remotes);

/**
 * Frees the handle of a peer's region.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_remote_close(hydrant_remote *remote);

/**
 * Stores the number of bytes of a peer's region.
 */
int hydrant_remote_bytes(hydrant_remote *remote, uint64_t *bytes);

/**
 * Writes bytes into a peer's region. When this returns, they are there.
 *
 * Errors: HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_PERMISSION, HYDRANT_ERROR_REVOKED, HYDRANT_ERROR_EXPIRED,
 * HYDRANT_ERROR_PEER_LOST, HYDRANT_ERROR_LEFT, HYDRANT_ERROR_ADDRESS. Some bytes may have been written.
 */
int hydrant_remote_write(hydrant_remote *remote,
                         uint64_t offset,
                         const void *from,
                         size_t bytes);

/**
 * Reads bytes of a peer's region.
 *
 * Errors: as hydrant_remote_write. Some bytes may have been read.
 */
int hydrant_remote_read(hydrant_remote *remote, uint64_t offset, void *into, size_t bytes);

/**
 * Starts reads (HYDRANT_READ) or writes (HYDRANT_WRITE), in any number, of any peers. A short batch is transferred before
 * this returns. Workers transfer a long one, and nobody has to wait or poll for that. Own memory is in use until the
 * batch is over. With a peer, the message is sent to it once all bytes are there; the peer may be null. A timeout is in
 * nanoseconds from now on; 0 is none. The handle is freed by hydrant_batch_free.
 *
 * Errors: HYDRANT_ERROR_BOUNDS, HYDRANT_ERROR_PERMISSION, HYDRANT_ERROR_TOO_LONG, HYDRANT_ERROR_CLOSED. Nothing is started
 * then. Errors of the transfer come from hydrant_batch_wait.
 */
int hydrant_batch_start(uint32_t direction,
                        const hydrant_run *runs,
                        size_t count,
                        hydrant_peer *peer,
                        const void *message,
                        size_t message_bytes,
                        uint64_t timeout,
                        hydrant_batch **batch);

/**
 * Stores whether a batch is over. Then hydrant_batch_wait returns at once.
 */
int hydrant_batch_test(hydrant_batch *batch, bool *is_over);

/**
 * As hydrant_batch_test, but copies at most 1 MiB in this thread before, if some waits for a worker. A program that polls
 * lends its time so.
 */
int hydrant_batch_help(hydrant_batch *batch,
                       bool *is_over);

/**
 * Waits until a batch is over, and returns its result, each time the same.
 *
 * Errors: those of hydrant_remote_write, HYDRANT_ERROR_TIMEOUT, HYDRANT_ERROR_CANCELLED. Nothing of the batch lands any
 * more. hydrant_batch_part tells the fate of each part.
 */
int hydrant_batch_wait(hydrant_batch *batch);

/**
 * Stops a batch. When this returns, nothing of it lands any more. A batch that was over before keeps its result.
 *
 * Errors: as hydrant_batch_wait.
 */
int hydrant_batch_cancel(hydrant_batch *batch);

/**
 * Stores the fate of a part of a failed batch: HYDRANT_PART_*. Parts are counted as in the call that started it. All
 * parts of a batch without an error are done.
 *
 * Errors: HYDRANT_ERROR_ARGUMENT if there is no such part, or nobody has waited for the batch.
 */
int hydrant_batch_part(hydrant_batch *batch,
                       size_t part,
                       uint32_t *fate);

/**
 * Frees the handle of a batch. A batch that is not over is cancelled first.
 *
 * Errors: HYDRANT_ERROR_HANDLE.
 */
int hydrant_batch_free(hydrant_batch *batch);

/**
 * Takes the next event. Waits for one at most so many nanoseconds: 0 is not at all, UINT64_MAX forever. If there is none,
 * its kind is 0. An event is given back by hydrant_event_free, which does nothing for one of kind 0.
 *
 * Errors: HYDRANT_ERROR_CLOSED if the endpoint is closed and all events were taken.
 */
int hydrant_endpoint_event(hydrant_endpoint *endpoint,
                           uint64_t timeout,
                           hydrant_event *event);

/**
 * Gives an event back: frees its message, and drops its peer. Its kind is 0 then.
 *
 * Errors: HYDRANT_ERROR_HANDLE if its peer was dropped.
 */
int hydrant_event_free(hydrant_event *event);

/**
 * Stores a descriptor for poll and epoll that is readable while there are events. It is only to be polled, and stays the
 * library's.
 *
 * Errors: HYDRANT_ERROR_NETWORK if no descriptors are left.
 */
int hydrant_endpoint_event_descriptor(hydrant_endpoint *endpoint,
                                      int *descriptor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HYDRANT_H */

#ifndef HYDRANT_WORDS_H
#define HYDRANT_WORDS_H

/* Atomic operations on single words, by hydrant_atomic(). The previous value may be null. */
#define HYDRANT_WORD_(type_, name_, number_)                                                       \
    static inline int hydrant_load_##name_(hydrant_memory *memory, uint32_t rank, size_t offset,   \
                                           type_ *value) {                                         \
        return hydrant_atomic(memory, rank, offset, HYDRANT_ATOMIC_LOAD, number_, NULL, NULL,      \
                              value);                                                              \
    }                                                                                              \
    static inline int hydrant_store_##name_(hydrant_memory *memory, uint32_t rank, size_t offset,  \
                                            type_ value) {                                         \
        return hydrant_atomic(memory, rank, offset, HYDRANT_ATOMIC_SWAP, number_, &value, NULL,    \
                              NULL);                                                               \
    }                                                                                              \
    static inline int hydrant_swap_##name_(hydrant_memory *memory, uint32_t rank, size_t offset,   \
                                           type_ value, type_ *previous) {                         \
        return hydrant_atomic(memory, rank, offset, HYDRANT_ATOMIC_SWAP, number_, &value, NULL,    \
                              previous);                                                           \
    }                                                                                              \
    static inline int hydrant_compare_swap_##name_(hydrant_memory *memory, uint32_t rank,          \
                                                   size_t offset, type_ expected, type_ value,     \
                                                   type_ *previous) {                              \
        return hydrant_atomic(memory, rank, offset, HYDRANT_ATOMIC_COMPARE_SWAP, number_, &value,  \
                              &expected, previous);                                                \
    }                                                                                              \
    static inline int hydrant_fetch_add_##name_(hydrant_memory *memory, uint32_t rank,             \
                                                size_t offset, type_ value, type_ *previous) {     \
        return hydrant_atomic(memory, rank, offset, HYDRANT_ATOMIC_ADD, number_, &value, NULL,     \
                              previous);                                                           \
    }
HYDRANT_WORD_(uint32_t, u32, HYDRANT_U32)
HYDRANT_WORD_(uint64_t, u64, HYDRANT_U64)
#undef HYDRANT_WORD_

#endif  /* HYDRANT_WORDS_H */
