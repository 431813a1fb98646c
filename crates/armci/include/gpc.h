/* ARMCI on Hydrant. Made by cbindgen from gpc.rs of crates/armci/src/c. */

#ifndef __GPCDEF
#define __GPCDEF

#include "armci.h"
#include <stddef.h>

#define GPC_INIT 1
#define GPC_PROBE 2
#define GPC_WAIT 3
#define GPC_DONE 4
#define GPC_PENDING 5


/**
 * A procedure of C. Its arguments are the process that runs it, the caller, a header and data, the
 * room for the reply's header and data, and GPC_INIT. It stores the lengths of the reply and
 * returns GPC_DONE. If it returns GPC_PENDING, its reply is not complete, and it is run again with
 * the same arguments and GPC_PROBE.
 */
typedef int (*gpc_func_t)(int to,
                          int from,
                          void *hdr,
                          int hlen,
                          void *data,
                          int dlen,
                          void *rhdr,
                          int rhlen,
                          int *rhsize,
                          void *rdata,
                          int rdlen,
                          int *rdsize,
                          int rtype);

/**
 * The handle of a call, which ARMCI_Gpc_wait completes.
 */
typedef struct {
  /**
   * The process that runs the procedure.
   */
  int proc;
  /**
   * The identification of the call.
   */
  armci_hdl_t ahdl;
  /**
   * The room for the reply's header.
   */
  void *rhdr;
  /**
   * The room for the reply's data.
   */
  void *rdata;
} gpc_hdl_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Registers a procedure. Returns its number. All processes register the same procedures in the
 * same order.
 */
int ARMCI_Gpc_register(gpc_func_t func);

/**
 * Unregisters a procedure.
 */
void ARMCI_Gpc_release(int handle);

/**
 * Returns the address by which a process names memory that process `from` named by `ptr`. Memory
 * that ARMCI did not allocate at the process keeps its address.
 */
void *ARMCI_Gpc_translate(void *ptr, int proc, int from);

/**
 * Takes the lock of a process.
 */
void ARMCI_Gpc_lock(int proc);

/**
 * Releases the lock of a process.
 */
void ARMCI_Gpc_unlock(int proc);

/**
 * Takes the lock of a process if it is free. Returns 1 if it took the lock.
 */
int ARMCI_Gpc_trylock(int proc);

/**
 * Has a process run a procedure. Without a handle it waits for the reply. With a handle,
 * ARMCI_Gpc_wait waits.
 */
int ARMCI_Gpc_exec(int h,
                   int p,
                   void *hdr,
                   int hlen,
                   void *data,
                   int dlen,
                   void *rhdr,
                   int rhlen,
                   void *rdata,
                   int rdlen,
                   gpc_hdl_t *nbh);

/**
 * The greatest number of bytes of a call's header.
 */
int ARMCI_Get_gpc_hlen(void);

/**
 * The greatest number of bytes of a call's data.
 */
int ARMCI_Get_gpc_dlen(void);

/**
 * The greatest number of bytes of a call's header.
 */
int ARMCI_Gpc_get_hlen(void);

/**
 * The greatest number of bytes of a call's data.
 */
int ARMCI_Gpc_get_dlen(void);

/**
 * Initializes a handle: it names no call.
 */
void ARMCI_Gpc_init_handle(gpc_hdl_t *nbh);

/**
 * Waits for the reply of a call that was begun with a handle.
 */
void ARMCI_Gpc_wait(gpc_hdl_t *nbh);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* __GPCDEF */
