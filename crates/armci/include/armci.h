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

/* The results of functions after an error. FAIL: a null pointer. FAIL2: a wrong code, handle or address.
   FAIL3: a number out of range. FAIL4: too many stride levels. FAIL5: no such process or group.
   FAIL6: no such memory. FAIL7: another error. FAIL8: ARMCI is not initialized. The function prints the
   reason to the standard error output. */
#define FAIL  -1
#define FAIL2 -2
#define FAIL3 -3
#define FAIL4 -4
#define FAIL5 -5
#define FAIL6 -6
#define FAIL7 -7
#define FAIL8 -8

/* The element types of accumulates. */
#define ARMCI_ACC_OFF 36
#define ARMCI_ACC_INT (ARMCI_ACC_OFF + 1)
#define ARMCI_ACC_DBL (ARMCI_ACC_OFF + 2)
#define ARMCI_ACC_FLT (ARMCI_ACC_OFF + 3)
#define ARMCI_ACC_CPL (ARMCI_ACC_OFF + 4)
#define ARMCI_ACC_DCP (ARMCI_ACC_OFF + 5)
#define ARMCI_ACC_LNG (ARMCI_ACC_OFF + 6)

#define ARMCI_MAX_STRIDE_LEVEL 8
#define ARMCI_DOMAIN_SMP 0

/* Initializes a handle: it names no operation. */
#define ARMCI_INIT_HANDLE(hdl) do { \
        (hdl)->data[0] = (hdl)->data[1] = (hdl)->data[2] = (hdl)->data[3] = 0; \
    } while (0)

#define armci_req_t armci_hdl_t

/* A copy within the memory of this process. */
#define ARMCI_Put1(_s, _d, _b, _p) memcpy(_d, _s, _b), 0

/* Assertions that print a message and end the job. */
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
 * As ARMCI_SWAP, for a `long`.
 */
#define ARMCI_SWAP_LONG 11

/**
 * Adds to a word of a process.
 */
#define ARMCI_FETCH_AND_ADD 12

/**
 * As ARMCI_FETCH_AND_ADD, for a `long`.
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
 * The description of memory that one process allocated, for other processes.
 */
typedef struct {
  /**
   * The address at its process.
   */
  char *armci_addr;
  /**
   * The same address.
   */
  char *addr;
  /**
   * The number of bytes.
   */
  size_t size;
  /**
   * The process.
   */
  int cpid;
  /**
   * Not used.
   */
  long idlist[128];
} armci_meminfo_t;

/**
 * Names a way to group processes by node.
 */
typedef int armci_domain_t;

/**
 * Runs of equal length, from the addresses of one list to those of the other.
 */
typedef struct {
  /**
   * The addresses from which the runs are read.
   */
  void **src_ptr_array;
  /**
   * The addresses to which the runs are written.
   */
  void **dst_ptr_array;
  /**
   * The number of runs.
   */
  int ptr_array_len;
  /**
   * The bytes of each run.
   */
  int bytes;
} armci_giov_t;

/**
 * The handle of non-blocking operations. ARMCI_INIT_HANDLE initializes it.
 */
typedef struct {
  /**
   * A number, the check word, and 1 if the handle is an aggregate.
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
 * As ARMCI_Init. First begins MPI, if the program is linked with it and has not begun it. The
 * program then ends MPI, or its exit does if ARMCI was finalized.
 */
int ARMCI_Init_args(int *argc, char ***argv);

/**
 * As ARMCI_Init. Any thread may call ARMCI, for every requested thread level.
 */
int ARMCI_Init_thread(int _armci_requested);

/**
 * Returns 1 if ARMCI is initialized, else 0.
 */
int ARMCI_Initialized(void);

/**
 * Ends ARMCI, and also the job unless armci_msg_init began it. Does nothing if ARMCI is not
 * initialized. Returns 0, as in ARMCI-MPI. Collective.
 */
int ARMCI_Finalize(void);

/**
 * Prints a message and a number, and ends the job.
 */
void ARMCI_Error(const char *msg, int code);

/**
 * Does nothing: all resources of a process go with it, however it ends.
 */
void ARMCI_Cleanup(void);

/**
 * Prints that a program's assertion does not hold, and ends the job.
 */
int dassertp_fail(const char *cond_string,
                  const char *file,
                  const char *func,
                  unsigned int line,
                  int code);

/**
 * Waits until all processes have arrived and all their operations are done. Collective.
 */
void ARMCI_Barrier(void);

/**
 * Waits until all operations of this process on the memory of a process are done.
 */
void ARMCI_Fence(int proc);

/**
 * As ARMCI_Fence, for all processes.
 */
void ARMCI_AllFence(void);

/**
 * As ARMCI_Fence, for the processes of a group.
 */
void ARMCI_GroupFence(ARMCI_Group *group);

/**
 * Allocates memory at all processes, and lists its addresses. Collective.
 */
int ARMCI_Malloc(void **ptr_arr, armci_size_t bytes);

/**
 * Frees this process's part of memory from ARMCI_Malloc.
 */
int ARMCI_Free(void *ptr);

/**
 * As ARMCI_Malloc. All devices are the same, and their names are ignored.
 */
int ARMCI_Malloc_memdev(void **ptr_arr, armci_size_t bytes, const char *_device);

/**
 * Frees memory from ARMCI_Malloc_memdev or ARMCI_Malloc_group_memdev.
 */
int ARMCI_Free_memdev(void *ptr);

/**
 * Allocates memory of this process. Returns null if there is no more.
 */
void *ARMCI_Malloc_local(armci_size_t bytes);

/**
 * Frees memory from ARMCI_Malloc_local.
 */
int ARMCI_Free_local(void *ptr);

/**
 * As ARMCI_Malloc, for the members of a group.
 */
int ARMCI_Malloc_group(void **ptr_arr, armci_size_t bytes, ARMCI_Group *group);

/**
 * As ARMCI_Malloc_group. All devices are the same, and their names are ignored.
 */
int ARMCI_Malloc_group_memdev(void **ptr_arr,
                              armci_size_t bytes,
                              ARMCI_Group *group,
                              const char *_device);

/**
 * Frees memory from ARMCI_Malloc_group.
 */
int ARMCI_Free_group(void *ptr, ARMCI_Group *_group);

/**
 * Allocates memory of this process, and describes it for other processes.
 */
void ARMCI_Memget(size_t bytes, armci_meminfo_t *meminfo, int _memflg);

/**
 * Returns the address by which this process names memory from ARMCI_Memget, `offset` bytes from
 * its start.
 */
void *ARMCI_Memat(armci_meminfo_t *meminfo, long offset);

/**
 * Ends the use of another process's memory. There is nothing to do for it.
 */
void ARMCI_Memdt(armci_meminfo_t *_meminfo, long _offset);

/**
 * Frees memory from ARMCI_Memget, at the process that allocated it.
 */
void ARMCI_Memctl(armci_meminfo_t *meminfo);

/**
 * Does nothing: the memory of each process is known from the start.
 */
void armci_set_mem_offset(void *_ptr);

/**
 * Does nothing: a process may always load and store in its own memory. ARMCI-MPI needs this call
 * for that.
 */
void ARMCI_Access_begin(void *_ptr);

/**
 * Does nothing, as ARMCI_Access_begin.
 */
void ARMCI_Access_end(void *_ptr);

/**
 * Sets the greatest number of bytes that a process may allocate. Call this before ARMCI_Init.
 */
void ARMCI_Set_shm_limit(unsigned long shmemlimit);

/**
 * Makes `num` mutexes of this process. Collective.
 */
int ARMCI_Create_mutexes(int num);

/**
 * Destroys the mutexes. Collective.
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
 * Returns 1 if the memory of another process is mapped here, as on a node with several processes.
 */
int ARMCI_Uses_shm(void);

/**
 * Returns 1 if the memory of other members of a group is mapped here.
 */
int ARMCI_Uses_shm_grp(ARMCI_Group *group);

/**
 * Returns 1 if a process is on the node of this process.
 */
int ARMCI_Same_node(int proc);

/**
 * Returns 1 if a process is on the node of this process.
 */
int armci_sameclusnode(int proc);

/**
 * The number of processes of a node. A negative number means the node of this process.
 */
int armci_domain_nprocs(armci_domain_t _domain, int id);

/**
 * The node of a process.
 */
int armci_domain_id(armci_domain_t _domain, int glob_proc_id);

/**
 * The number of a process of a node. A negative node number means the node of this process.
 */
int armci_domain_glob_proc_id(armci_domain_t _domain, int id, int loc_proc_id);

/**
 * This process's node.
 */
int armci_domain_my_id(armci_domain_t _domain);

/**
 * The number of nodes.
 */
int armci_domain_count(armci_domain_t _domain);

/**
 * Returns 1 if a process is on the node of this process.
 */
int armci_domain_same_id(armci_domain_t _domain, int proc);

/**
 * Makes a group of members of the default group. Collective over the new members.
 */
void ARMCI_Group_create(int n, int *pid_list, ARMCI_Group *group_out);

/**
 * Makes a group of members of another. Collective over the new members.
 */
void ARMCI_Group_create_child(int n,
                              int *pid_list,
                              ARMCI_Group *group_out,
                              ARMCI_Group *group_parent);

/**
 * Frees a group.
 */
void ARMCI_Group_free(ARMCI_Group *group);

/**
 * Stores this process's number in a group. For a process that is no member, stores and returns -1.
 */
int ARMCI_Group_rank(ARMCI_Group *group, int *rank);

/**
 * Stores the number of a group's members.
 */
void ARMCI_Group_size(ARMCI_Group *group, int *size);

/**
 * Sets the group that new groups are made of.
 */
void ARMCI_Group_set_default(ARMCI_Group *group);

/**
 * Stores the group that new groups are made of.
 */
void ARMCI_Group_get_default(ARMCI_Group *group_out);

/**
 * Stores the group of all processes.
 */
void ARMCI_Group_get_world(ARMCI_Group *group_out);

/**
 * The process of a member of a group.
 */
int ARMCI_Absolute_id(ARMCI_Group *group, int group_rank);

/**
 * Puts bytes to a process. On return the source is free.
 */
int ARMCI_Put(void *src, void *dst, int bytes, int proc);

/**
 * Gets bytes from a process.
 */
int ARMCI_Get(void *src, void *dst, int bytes, int proc);

/**
 * Puts bytes to a process, then a number into a flag there.
 */
int ARMCI_Put_flag(void *src, void *dst, int bytes, int *f, int v, int proc);

/**
 * Multiplies elements by a scale, and adds them to elements of a process.
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
 * Gets a section of an array from a process.
 */
int ARMCI_GetS(void *src_ptr,
               int *src_stride_arr,
               void *dst_ptr,
               int *dst_stride_arr,
               int *count,
               int stride_levels,
               int proc);

/**
 * Multiplies a section of an array by a scale, and adds it to a section of a process.
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
 * Copies a section of an array of this process into a buffer, run after run. `count` has the bytes
 * of a run, then the number of runs at each level.
 */
void armci_write_strided(void *ptr, int stride_levels, int *stride_arr, int *count, char *buf);

/**
 * Copies a buffer into a section of an array of this process. It is the reverse of
 * armci_write_strided.
 */
void armci_read_strided(void *ptr, int stride_levels, int *stride_arr, int *count, char *buf);

/**
 * Puts runs of bytes to a process.
 */
int ARMCI_PutV(armci_giov_t *darr, int len, int proc);

/**
 * Gets runs of bytes from a process.
 */
int ARMCI_GetV(armci_giov_t *darr, int len, int proc);

/**
 * Multiplies runs of elements by a scale, and adds them to elements of a process.
 */
int ARMCI_AccV(int op, void *scale, armci_giov_t *darr, int len, int proc);

/**
 * Puts a value to a process.
 */
int ARMCI_PutValueInt(int src, void *dst, int proc);

/**
 * Gets a value from a process.
 */
int ARMCI_GetValueInt(void *src, int proc);

/**
 * Puts a value to a process.
 */
int ARMCI_PutValueLong(long src, void *dst, int proc);

/**
 * Gets a value from a process.
 */
long ARMCI_GetValueLong(void *src, int proc);

/**
 * Puts a value to a process.
 */
int ARMCI_PutValueFloat(float src, void *dst, int proc);

/**
 * Gets a value from a process.
 */
float ARMCI_GetValueFloat(void *src, int proc);

/**
 * Puts a value to a process.
 */
int ARMCI_PutValueDouble(double src, void *dst, int proc);

/**
 * Gets a value from a process.
 */
double ARMCI_GetValueDouble(void *src, int proc);

/**
 * Changes a word of a process atomically, and stores its previous value.
 */
int ARMCI_Rmw(int op, void *ploc, void *prem, int extra, int proc);

/**
 * Copies bytes within this process.
 */
void ARMCI_Copy(void *src, void *dst, int n);

/**
 * Completes this process's puts to a process, then notifies it. Returns the number of
 * notifications so far.
 */
int armci_notify(int proc);

/**
 * Waits for the next notification from a process. Stores the number of waits so far.
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
 * Waits for the operations that began with a handle.
 */
int ARMCI_Wait(armci_hdl_t *nb_handle);

/**
 * Tests the operations that began with a handle. Returns 0 if they are complete, 1 if not.
 */
int ARMCI_Test(armci_hdl_t *nb_handle);

/**
 * Waits for all operations that began with implicit handles.
 */
int ARMCI_WaitAll(void);

/**
 * Waits for the operations to one process that began with implicit handles.
 */
int ARMCI_WaitProc(int proc);

/**
 * Makes a handle gather the operations that begin with it.
 */
void ARMCI_SET_AGGREGATE_HANDLE(armci_hdl_t *nb_handle);

/**
 * Sends the operations that a handle gathered, and stops it from gathering.
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
/* Programs of MPI define MSG_COMMS_MPI before they include this file. */
#ifdef __cplusplus
extern "C" {
#endif

/* Initializes ARMCI with the processes of a communicator, in its order. Returns 1, or 0 after an error. The
   first ARMCI_Finalize ends it. Collective over these processes. */
int ARMCI_Init_mpi_comm(MPI_Comm comm);

/* As ARMCI_Init, with the processes of a communicator in its order. Any thread may call ARMCI, for
   every requested thread level. */
int ARMCI_Init_thread_comm(int armci_requested, MPI_Comm comm);

/* The communicator of a group that this process is a member of. The program may use it and must not free it.
   Returns MPI_COMM_NULL if there is none, for example if MPI was begun after ARMCI. */
MPI_Comm armci_group_comm(ARMCI_Group *group);

#ifdef __cplusplus
}
#endif
#endif
