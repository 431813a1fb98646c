/* ARMCI on Hydrant. Made by cbindgen from armci/types.rs, armci/lifecycle.rs, armci/synchronize.rs, armci/allocate.rs, armci/mutexes.rs, armci/nodes.rs, armci/group.rs, transfer.rs, nonblocking.rs of crates/armci/src/c. */

#ifndef _ARMCI_H
#define _ARMCI_H

#include <stdio.h>
#include <stdlib.h>
#include <stdarg.h>
#include <string.h>
#ifdef MSG_COMMS_MPI
#include <mpi.h>
#endif
#include <stddef.h>

/* What functions return besides 0. FAIL: a null pointer. FAIL2: a code or an address that cannot be.
   FAIL3: a number that is too small. FAIL4: too many stride levels. FAIL5: no such process or group.
   FAIL6: no such memory. FAIL7: all else. FAIL8: ARMCI is not initialized. The reason is said on the
   standard error output. */
#define FAIL  -1
#define FAIL2 -2
#define FAIL3 -3
#define FAIL4 -4
#define FAIL5 -5
#define FAIL6 -6
#define FAIL7 -7
#define FAIL8 -8

/* What is accumulated. */
#define ARMCI_ACC_OFF 36
#define ARMCI_ACC_INT (ARMCI_ACC_OFF + 1)
#define ARMCI_ACC_DBL (ARMCI_ACC_OFF + 2)
#define ARMCI_ACC_FLT (ARMCI_ACC_OFF + 3)
#define ARMCI_ACC_CPL (ARMCI_ACC_OFF + 4)
#define ARMCI_ACC_DCP (ARMCI_ACC_OFF + 5)
#define ARMCI_ACC_LNG (ARMCI_ACC_OFF + 6)

#define ARMCI_MAX_STRIDE_LEVEL 8
#define ARMCI_DOMAIN_SMP 0

/* Makes a handle one of nothing. */
#define ARMCI_INIT_HANDLE(hdl) do { \
        (hdl)->data[0] = (hdl)->data[1] = (hdl)->data[2] = (hdl)->data[3] = 0; \
    } while (0)

#define armci_req_t armci_hdl_t

/* A copy by this process itself, whose memory it must be. */
#define ARMCI_Put1(_s, _d, _b, _p) memcpy(_d, _s, _b), 0

/* Assertions that print something, and end the job. */
static inline void derr_printf(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}
#ifndef FUNCTION_NAME
#define FUNCTION_NAME __func__
#endif
#define dassertp(_enable, _cond, _plist) do { \
        if ((_enable) && !(_cond)) { \
            derr_printf _plist; \
            dassertp_fail(#_cond, __FILE__, FUNCTION_NAME, __LINE__, 1); \
        } \
    } while (0)
#define dassertc(_enable, _cond, _plist, _code) do { \
        if ((_enable) && !(_cond)) { \
            derr_printf _plist; \
            dassertp_fail(#_cond, __FILE__, FUNCTION_NAME, __LINE__, _code); \
        } \
    } while (0)
#define dassert(_enable, _cond) dassertp((_enable), (_cond), (""))
#define dassert1(_enable, _cond, _ival) \
    dassertp((_enable), (_cond), ("%d: error ival=%d\n", armci_msg_me(), (int)(_ival)))
#define armci_die(_msg, _code) \
    dassertc(1, 0, ("%d:%s: %d\n", armci_msg_me(), (_msg), (_code)), _code)
#define armci_die2(_msg, _code1, _code2) \
    dassertc(1, 0, ("%d:%s: (%d,%d)\n", armci_msg_me(), (_msg), (_code1), (_code2)), _code1)


/**
 * Gives a word of a process another value.
 */
#define ARMCI_SWAP 10

/**
 * The same, of a `long`.
 */
#define ARMCI_SWAP_LONG 11

/**
 * Adds to a word of a process.
 */
#define ARMCI_FETCH_AND_ADD 12

/**
 * The same, of a `long`.
 */
#define ARMCI_FETCH_AND_ADD_LONG 13

/**
 * Names a group of processes.
 */
typedef int ARMCI_Group;

/**
 * A number of bytes.
 */
typedef long armci_size_t;

/**
 * Memory that one process allocated, as others are told of it.
 */
typedef struct {
  /**
   * Where its process has it.
   */
  char *armci_addr;
  /**
   * The same.
   */
  char *addr;
  /**
   * Its bytes.
   */
  size_t size;
  /**
   * Its process.
   */
  int cpid;
  /**
   * Not used.
   */
  long idlist[128];
} armci_meminfo_t;

/**
 * Names a way to group processes by their nodes.
 */
typedef int armci_domain_t;

/**
 * Runs of equally many bytes: from the places of one list to those of the other.
 */
typedef struct {
  /**
   * Where runs are read.
   */
  void **src_ptr_array;
  /**
   * Where they are written.
   */
  void **dst_ptr_array;
  /**
   * How many there are.
   */
  int ptr_array_len;
  /**
   * Bytes of each.
   */
  int bytes;
} armci_giov_t;

/**
 * The handle of non-blocking operations, which ARMCI_INIT_HANDLE makes one of none.
 */
typedef struct {
  /**
   * A number, the check word, and whether the handle is an aggregate.
   */
  int data[4];
  /**
   * Not used.
   */
  double dummy[72];
} armci_hdl_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Initializes ARMCI, and joins the job. Collective.
 */
int ARMCI_Init(void);

/**
 * As ARMCI_Init. Begins MPI before, if the program is linked with it and has not begun it. The program then ends
 * MPI, or its exit does if ARMCI was finalized.
 */
int ARMCI_Init_args(int *argc,
                    char ***argv);

/**
 * As ARMCI_Init. Any thread may call ARMCI, for any level that is asked for.
 */
int ARMCI_Init_thread(int _armci_requested);

/**
 * Whether ARMCI is initialized.
 */
int ARMCI_Initialized(void);

/**
 * Ends ARMCI, and the job, unless armci_msg_init began it. Does nothing if ARMCI is not initialized. Returns 0, as
 * in ARMCI-MPI. Collective.
 */
int ARMCI_Finalize(void);

/**
 * Says a message and a number, and ends the job.
 */
void ARMCI_Error(const char *msg, int code);

/**
 * Does nothing: what a process has goes with it, however it ends.
 */
void ARMCI_Cleanup(void);

/**
 * Says that a condition does not hold that a program asserts, and ends the job.
 */
int dassertp_fail(const char *cond_string,
                  const char *file,
                  const char *func,
                  unsigned int line,
                  int code);

/**
 * Waits until all processes have come, and all that they did is done. Collective.
 */
void ARMCI_Barrier(void);

/**
 * Waits until all that this process did to the memory of a process is done.
 */
void ARMCI_Fence(int proc);

/**
 * As ARMCI_Fence, of all processes.
 */
void ARMCI_AllFence(void);

/**
 * As ARMCI_Fence, of the processes of a group.
 */
void ARMCI_GroupFence(ARMCI_Group *group);

/**
 * Allocates memory of all processes, and lists where it is. Collective.
 */
int ARMCI_Malloc(void **ptr_arr, armci_size_t bytes);

/**
 * Frees memory of ARMCI_Malloc, of which this process's part is given.
 */
int ARMCI_Free(void *ptr);

/**
 * As ARMCI_Malloc; all devices are the same, and their names are ignored.
 */
int ARMCI_Malloc_memdev(void **ptr_arr, armci_size_t bytes, const char *_device);

/**
 * Frees memory of ARMCI_Malloc_memdev or ARMCI_Malloc_group_memdev.
 */
int ARMCI_Free_memdev(void *ptr);

/**
 * Allocates memory of this process; null if there is no more.
 */
void *ARMCI_Malloc_local(armci_size_t bytes);

/**
 * Frees memory of ARMCI_Malloc_local.
 */
int ARMCI_Free_local(void *ptr);

/**
 * As ARMCI_Malloc, of the members of a group.
 */
int ARMCI_Malloc_group(void **ptr_arr, armci_size_t bytes, ARMCI_Group *group);

/**
 * As ARMCI_Malloc_group; all devices are the same, and their names are ignored.
 */
int ARMCI_Malloc_group_memdev(void **ptr_arr,
                              armci_size_t bytes,
                              ARMCI_Group *group,
                              const char *_device);

/**
 * Frees memory of ARMCI_Malloc_group.
 */
int ARMCI_Free_group(void *ptr, ARMCI_Group *_group);

/**
 * Allocates memory of this process that others are told of.
 */
void ARMCI_Memget(size_t bytes, armci_meminfo_t *meminfo, int _memflg);

/**
 * Where this process finds memory of ARMCI_Memget, so many bytes from its start.
 */
void *ARMCI_Memat(armci_meminfo_t *meminfo, long offset);

/**
 * Ends the use of memory that another process has; nothing need be done for it.
 */
void ARMCI_Memdt(armci_meminfo_t *_meminfo, long _offset);

/**
 * Frees memory of ARMCI_Memget, at the process that has it.
 */
void ARMCI_Memctl(armci_meminfo_t *meminfo);

/**
 * Does nothing: each process's memory is known from the start.
 */
void armci_set_mem_offset(void *_ptr);

/**
 * Does nothing: a process may load and store in its own memory at any time, without ARMCI-MPI's permission.
 */
void ARMCI_Access_begin(void *_ptr);

/**
 * Does nothing, as ARMCI_Access_begin.
 */
void ARMCI_Access_end(void *_ptr);

/**
 * Sets how many bytes a process may allocate at most. Before ARMCI_Init.
 */
void ARMCI_Set_shm_limit(unsigned long shmemlimit);

/**
 * Makes mutexes, so many of this process. Collective.
 */
int ARMCI_Create_mutexes(int num);

/**
 * Does away with the mutexes. Collective.
 */
int ARMCI_Destroy_mutexes(void);

/**
 * Locks a mutex of a process.
 */
void ARMCI_Lock(int mutex, int proc);

/**
 * Unlocks a mutex of a process.
 */
void ARMCI_Unlock(int mutex, int proc);

/**
 * Whether any process's memory is mapped here, as on nodes with several.
 */
int ARMCI_Uses_shm(void);

/**
 * Whether memory of other members of a group is mapped here.
 */
int ARMCI_Uses_shm_grp(ARMCI_Group *group);

/**
 * Whether a process is on this one's node.
 */
int ARMCI_Same_node(int proc);

/**
 * Whether a process is on this one's node.
 */
int armci_sameclusnode(int proc);

/**
 * How many processes a node has; this process's, if the number is negative.
 */
int armci_domain_nprocs(armci_domain_t _domain, int id);

/**
 * The node of a process.
 */
int armci_domain_id(armci_domain_t _domain, int glob_proc_id);

/**
 * The number of a process of a node; of this process's, if the node's number is negative.
 */
int armci_domain_glob_proc_id(armci_domain_t _domain, int id, int loc_proc_id);

/**
 * This process's node.
 */
int armci_domain_my_id(armci_domain_t _domain);

/**
 * How many nodes there are.
 */
int armci_domain_count(armci_domain_t _domain);

/**
 * Whether a process is on this one's node.
 */
int armci_domain_same_id(armci_domain_t _domain, int proc);

/**
 * Makes a group of members of the default one. Collective over those.
 */
void ARMCI_Group_create(int n, int *pid_list, ARMCI_Group *group_out);

/**
 * Makes a group of members of another. Collective over those.
 */
void ARMCI_Group_create_child(int n,
                              int *pid_list,
                              ARMCI_Group *group_out,
                              ARMCI_Group *group_parent);

/**
 * Forgets a group.
 */
void ARMCI_Group_free(ARMCI_Group *group);

/**
 * This process's number in a group; -1, and not 0 returned, if it is no member.
 */
int ARMCI_Group_rank(ARMCI_Group *group, int *rank);

/**
 * How many members a group has.
 */
void ARMCI_Group_size(ARMCI_Group *group, int *size);

/**
 * Sets the group that new ones are made of.
 */
void ARMCI_Group_set_default(ARMCI_Group *group);

/**
 * The group that new ones are made of.
 */
void ARMCI_Group_get_default(ARMCI_Group *group_out);

/**
 * The group of all processes.
 */
void ARMCI_Group_get_world(ARMCI_Group *group_out);

/**
 * The process that is a member of a group.
 */
int ARMCI_Absolute_id(ARMCI_Group *group, int group_rank);

/**
 * Puts bytes to a process; the source is free when it returns.
 */
int ARMCI_Put(void *src, void *dst, int bytes, int proc);

/**
 * Gets bytes of a process.
 */
int ARMCI_Get(void *src, void *dst, int bytes, int proc);

/**
 * Puts bytes to a process, then a number into a flag there.
 */
int ARMCI_Put_flag(void *src, void *dst, int bytes, int *f, int v, int proc);

/**
 * Adds a scale's multiple of elements to those of a process.
 */
int ARMCI_Acc(int optype, void *scale, void *src, void *dst, int bytes, int proc);

/**
 * Puts a section of an array to a process.
 */
int ARMCI_PutS(void *src_ptr,
               int *src_stride_arr,
               void *dst_ptr,
               int *dst_stride_arr,
               int *count,
               int stride_levels,
               int proc);

/**
 * Gets a section of an array of a process.
 */
int ARMCI_GetS(void *src_ptr,
               int *src_stride_arr,
               void *dst_ptr,
               int *dst_stride_arr,
               int *count,
               int stride_levels,
               int proc);

/**
 * Adds a scale's multiple of a section of an array to one of a process.
 */
int ARMCI_AccS(int optype,
               void *scale,
               void *src_ptr,
               int *src_stride_arr,
               void *dst_ptr,
               int *dst_stride_arr,
               int *count,
               int stride_levels,
               int proc);

/**
 * Puts a section of an array to a process, then a number into a flag there.
 */
int ARMCI_PutS_flag(void *src_ptr,
                    int *src_stride_arr,
                    void *dst_ptr,
                    int *dst_stride_arr,
                    int *count,
                    int stride_levels,
                    int *flag,
                    int val,
                    int proc);

/**
 * Puts a section of an array to a process, then a number into a flag there.
 */
int ARMCI_PutS_flag_dir(void *src_ptr,
                        int *src_stride_arr,
                        void *dst_ptr,
                        int *dst_stride_arr,
                        int *count,
                        int stride_levels,
                        int *flag,
                        int val,
                        int proc);

/**
 * Copies a section of an array of this process into a buffer, run behind run. `count` is the bytes of a run, then
 * the number of runs at each level.
 */
void armci_write_strided(void *ptr,
                         int stride_levels,
                         int *stride_arr,
                         int *count,
                         char *buf);

/**
 * Copies a buffer into a section of an array of this process: the reverse of armci_write_strided.
 */
void armci_read_strided(void *ptr, int stride_levels, int *stride_arr, int *count, char *buf);

/**
 * Puts runs of bytes to a process.
 */
int ARMCI_PutV(armci_giov_t *darr, int len, int proc);

/**
 * Gets runs of bytes of a process.
 */
int ARMCI_GetV(armci_giov_t *darr, int len, int proc);

/**
 * Adds a scale's multiple of runs of elements to those of a process.
 */
int ARMCI_AccV(int op, void *scale, armci_giov_t *darr, int len, int proc);

/**
 * Puts a value to a process.
 */
int ARMCI_PutValueInt(int src, void *dst, int proc);

/**
 * Gets a value of a process.
 */
int ARMCI_GetValueInt(void *src, int proc);

/**
 * Puts a value to a process.
 */
int ARMCI_PutValueLong(long src, void *dst, int proc);

/**
 * Gets a value of a process.
 */
long ARMCI_GetValueLong(void *src, int proc);

/**
 * Puts a value to a process.
 */
int ARMCI_PutValueFloat(float src, void *dst, int proc);

/**
 * Gets a value of a process.
 */
float ARMCI_GetValueFloat(void *src, int proc);

/**
 * Puts a value to a process.
 */
int ARMCI_PutValueDouble(double src, void *dst, int proc);

/**
 * Gets a value of a process.
 */
double ARMCI_GetValueDouble(void *src, int proc);

/**
 * Changes a word of a process at once, and stores what it was.
 */
int ARMCI_Rmw(int op, void *ploc, void *prem, int extra, int proc);

/**
 * Copies bytes of this process.
 */
void ARMCI_Copy(void *src, void *dst, int n);

/**
 * Notifies a process, after all that this one put there: how often it did.
 */
int armci_notify(int proc);

/**
 * Waits for the next notification of a process; how many there were.
 */
int armci_notify_wait(int proc, int *pval);

/**
 * Begins ARMCI_Put.
 */
int ARMCI_NbPut(void *src, void *dst, int bytes, int proc, armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_Get.
 */
int ARMCI_NbGet(void *src, void *dst, int bytes, int proc, armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_PutS.
 */
int ARMCI_NbPutS(void *src_ptr,
                 int *src_stride_arr,
                 void *dst_ptr,
                 int *dst_stride_arr,
                 int *count,
                 int stride_levels,
                 int proc,
                 armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_GetS.
 */
int ARMCI_NbGetS(void *src_ptr,
                 int *src_stride_arr,
                 void *dst_ptr,
                 int *dst_stride_arr,
                 int *count,
                 int stride_levels,
                 int proc,
                 armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_PutV.
 */
int ARMCI_NbPutV(armci_giov_t *darr, int len, int proc, armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_GetV.
 */
int ARMCI_NbGetV(armci_giov_t *darr, int len, int proc, armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_Acc.
 */
int ARMCI_NbAcc(int optype,
                void *scale,
                void *src,
                void *dst,
                int bytes,
                int proc,
                armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_AccS.
 */
int ARMCI_NbAccS(int optype,
                 void *scale,
                 void *src_ptr,
                 int *src_stride_arr,
                 void *dst_ptr,
                 int *dst_stride_arr,
                 int *count,
                 int stride_levels,
                 int proc,
                 armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_AccV.
 */
int ARMCI_NbAccV(int op,
                 void *scale,
                 armci_giov_t *darr,
                 int len,
                 int proc,
                 armci_hdl_t *nb_handle);

/**
 * Waits for what was begun with a handle.
 */
int ARMCI_Wait(armci_hdl_t *nb_handle);

/**
 * Whether what was begun with a handle is under way: 0 if it is complete, 1 if not.
 */
int ARMCI_Test(armci_hdl_t *nb_handle);

/**
 * Waits for what was begun with implicit handles.
 */
int ARMCI_WaitAll(void);

/**
 * Waits for what was begun with implicit handles, to one process.
 */
int ARMCI_WaitProc(int proc);

/**
 * Makes a handle gather what is begun with it.
 */
void ARMCI_SET_AGGREGATE_HANDLE(armci_hdl_t *nb_handle);

/**
 * Sends what a handle gathered, and stops it from gathering.
 */
void ARMCI_UNSET_AGGREGATE_HANDLE(armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_PutValueInt.
 */
int ARMCI_NbPutValueInt(int src, void *dst, int proc, armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_PutValueLong.
 */
int ARMCI_NbPutValueLong(long src, void *dst, int proc, armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_PutValueFloat.
 */
int ARMCI_NbPutValueFloat(float src, void *dst, int proc, armci_hdl_t *nb_handle);

/**
 * Begins ARMCI_PutValueDouble.
 */
int ARMCI_NbPutValueDouble(double src, void *dst, int proc, armci_hdl_t *nb_handle);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* _ARMCI_H */

#ifdef MSG_COMMS_MPI
/* For programs of MPI, which define this before they include this file. */
#ifdef __cplusplus
extern "C" {
#endif

/* Initializes ARMCI, with the processes of a communicator in its order: 1, or 0 after an error. What it
   began the first ARMCI_Finalize ends. Collective over them. */
int ARMCI_Init_mpi_comm(MPI_Comm comm);

/* As ARMCI_Init, with the processes of a communicator in its order. Any thread may call ARMCI, whatever is
   asked for. */
int ARMCI_Init_thread_comm(int armci_requested, MPI_Comm comm);

/* The communicator of a group of which this process is a member: the program may use it, and does not free
   it. MPI_COMM_NULL if there is none, as where MPI was begun after ARMCI. */
MPI_Comm armci_group_comm(ARMCI_Group *group);

#ifdef __cplusplus
}
#endif
#endif
