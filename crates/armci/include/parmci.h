/* The profiling names of ARMCI's functions. A program that replaces these functions by its own
   calls the originals by these names. Made from armci.h, message.h and crates/armci/src/c/parmci.rs. */

#ifndef _PARMCI_H_
#define _PARMCI_H_

#include "armci.h"

#ifdef __cplusplus
extern "C" {
#endif

int PARMCI_Init(void);
int PARMCI_Init_args(int *argc, char ***argv);
int PARMCI_Init_thread(int _armci_requested);
int PARMCI_Initialized(void);
int PARMCI_Finalize(void);
void PARMCI_Barrier(void);
void PARMCI_Fence(int proc);
void PARMCI_AllFence(void);
void PARMCI_GroupFence(ARMCI_Group *group);
int PARMCI_Malloc(void **ptr_arr, armci_size_t bytes);
int PARMCI_Free(void *ptr);
int PARMCI_Malloc_memdev(void **ptr_arr, armci_size_t bytes, const char *_device);
int PARMCI_Malloc_group_memdev(void **ptr_arr, armci_size_t bytes, ARMCI_Group *group, const char *_device);
int PARMCI_Free_memdev(void *ptr);
void PARMCI_Access_begin(void *_ptr);
void PARMCI_Access_end(void *_ptr);
void *PARMCI_Malloc_local(armci_size_t bytes);
int PARMCI_Free_local(void *ptr);
void PARMCI_Memget(size_t bytes, armci_meminfo_t *meminfo, int _memflg);
void *PARMCI_Memat(armci_meminfo_t *meminfo, long offset);
void PARMCI_Memctl(armci_meminfo_t *meminfo);
int PARMCI_Create_mutexes(int num);
int PARMCI_Destroy_mutexes(void);
void PARMCI_Lock(int mutex, int proc);
void PARMCI_Unlock(int mutex, int proc);
int PARMCI_Put(void *src, void *dst, int bytes, int proc);
int PARMCI_Get(void *src, void *dst, int bytes, int proc);
int PARMCI_Put_flag(void *src, void *dst, int bytes, int *f, int v, int proc);
int PARMCI_Acc(int optype, void *scale, void *src, void *dst, int bytes, int proc);
int PARMCI_PutS(void *src_ptr, int *src_stride_arr, void *dst_ptr, int *dst_stride_arr, int *count, int stride_levels, int proc);
int PARMCI_GetS(void *src_ptr, int *src_stride_arr, void *dst_ptr, int *dst_stride_arr, int *count, int stride_levels, int proc);
int PARMCI_AccS(int optype, void *scale, void *src_ptr, int *src_stride_arr, void *dst_ptr, int *dst_stride_arr, int *count, int stride_levels, int proc);
int PARMCI_PutS_flag(void *src_ptr, int *src_stride_arr, void *dst_ptr, int *dst_stride_arr, int *count, int stride_levels, int *flag, int val, int proc);
int PARMCI_PutS_flag_dir(void *src_ptr, int *src_stride_arr, void *dst_ptr, int *dst_stride_arr, int *count, int stride_levels, int *flag, int val, int proc);
int PARMCI_PutV(armci_giov_t *darr, int len, int proc);
int PARMCI_GetV(armci_giov_t *darr, int len, int proc);
int PARMCI_AccV(int op, void *scale, armci_giov_t *darr, int len, int proc);
int PARMCI_PutValueInt(int src, void *dst, int proc);
int PARMCI_GetValueInt(void *src, int proc);
int PARMCI_PutValueLong(long src, void *dst, int proc);
long PARMCI_GetValueLong(void *src, int proc);
int PARMCI_PutValueFloat(float src, void *dst, int proc);
float PARMCI_GetValueFloat(void *src, int proc);
int PARMCI_PutValueDouble(double src, void *dst, int proc);
double PARMCI_GetValueDouble(void *src, int proc);
int PARMCI_Rmw(int op, void *ploc, void *prem, int extra, int proc);
int parmci_notify(int proc);
int parmci_notify_wait(int proc, int *pval);
int PARMCI_NbPut(void *src, void *dst, int bytes, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbGet(void *src, void *dst, int bytes, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbPutS(void *src_ptr, int *src_stride_arr, void *dst_ptr, int *dst_stride_arr, int *count, int stride_levels, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbGetS(void *src_ptr, int *src_stride_arr, void *dst_ptr, int *dst_stride_arr, int *count, int stride_levels, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbPutV(armci_giov_t *darr, int len, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbGetV(armci_giov_t *darr, int len, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbAcc(int optype, void *scale, void *src, void *dst, int bytes, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbAccS(int optype, void *scale, void *src_ptr, int *src_stride_arr, void *dst_ptr, int *dst_stride_arr, int *count, int stride_levels, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbAccV(int op, void *scale, armci_giov_t *darr, int len, int proc, armci_hdl_t *nb_handle);
int PARMCI_Wait(armci_hdl_t *nb_handle);
int PARMCI_Test(armci_hdl_t *nb_handle);
int PARMCI_WaitAll(void);
int PARMCI_WaitProc(int proc);
int PARMCI_NbPutValueInt(int src, void *dst, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbPutValueLong(long src, void *dst, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbPutValueFloat(float src, void *dst, int proc, armci_hdl_t *nb_handle);
int PARMCI_NbPutValueDouble(double src, void *dst, int proc, armci_hdl_t *nb_handle);
void parmci_msg_barrier(void);
void parmci_msg_group_barrier(ARMCI_Group *group);

#ifdef MSG_COMMS_MPI
int PARMCI_Init_mpi_comm(MPI_Comm comm);
int PARMCI_Init_thread_comm(int armci_requested, MPI_Comm comm);
#endif

#ifdef __cplusplus
}
#endif

#endif /* _PARMCI_H_ */
