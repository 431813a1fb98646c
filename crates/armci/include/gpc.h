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
 * A procedure of C: who runs it and who called, a header and data, room for those of its reply and how
 * long they are, and why it is run: GPC_INIT when it is called. If it returns GPC_PENDING, and not
 * GPC_DONE, its reply is not complete, and it is run again with the same arguments and GPC_PROBE.
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
 * The handle of a call. ARMCI_Gpc_wait says when it is complete.
 */
typedef struct {
  /**
   * The process that ran it.
   */
  int proc;
  /**
   * What else is known of the call.
   */
  armci_hdl_t ahdl;
  /**
   * Where its reply goes.
   */
  void *rhdr;
  /**
   * As well.
   */
  void *rdata;
} gpc_hdl_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Registers a procedure: its number. All processes register the same ones, in the same order.
 */
int ARMCI_Gpc_register(gpc_func_t func);

/**
 * Forgets a procedure.
 */
void ARMCI_Gpc_release(int handle);

/**
 * Where a process finds memory that another one named by its address: what ARMCI allocated of the
 * process itself is where the other one calls it.
 */
void *ARMCI_Gpc_translate(void *ptr, int proc, int from);

/**
 * Takes the lock of a process.
 */
void ARMCI_Gpc_lock(int proc);

/**
 * Gives the lock of a process back.
 */
void ARMCI_Gpc_unlock(int proc);

/**
 * Takes the lock of a process, if nobody has it: 1 if it did.
 */
int ARMCI_Gpc_trylock(int proc);

/**
 * Has a process run a procedure. Without a handle it waits for the reply; with one, ARMCI_Gpc_wait does.
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
 * Most bytes of the header of a call.
 */
int ARMCI_Get_gpc_hlen(void);

/**
 * Most bytes of the data of a call.
 */
int ARMCI_Get_gpc_dlen(void);

/**
 * Most bytes of the header of a call.
 */
int ARMCI_Gpc_get_hlen(void);

/**
 * Most bytes of the data of a call.
 */
int ARMCI_Gpc_get_dlen(void);

/**
 * Makes a handle one of no call.
 */
void ARMCI_Gpc_init_handle(gpc_hdl_t *nbh);

/**
 * Waits for a call that was begun with a handle: its reply is there.
 */
void ARMCI_Gpc_wait(gpc_hdl_t *nbh);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* __GPCDEF */
