/* ARMCI on Hydrant. Made by cbindgen from message.rs of crates/armci/src/c. */

#ifndef _MESSAGE_H_
#define _MESSAGE_H_

#include "armci.h"
#include <stddef.h>

/* What is combined. */
#define ARMCI_INT       -99
#define ARMCI_LONG      -101
#define ARMCI_LONG_LONG -102
#define ARMCI_FLOAT     -306
#define ARMCI_DOUBLE    -307

/* By whom: all processes, those of a node, the first of each node. */
#define SCOPE_ALL     333
#define SCOPE_NODE    337
#define SCOPE_MASTERS 339

#define armci_msg_sel(x, n, op, type, contribute) \
    armci_msg_sel_scope(SCOPE_ALL, (x), (n), (op), (type), (contribute))


#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Joins the job, so that messages go on after ARMCI_Finalize, until armci_msg_finalize. Begins MPI before, if the
 * program is linked with it and has not begun it. Collective.
 */
void armci_msg_init(int *argc,
                    char ***argv);

/**
 * Ends the job, and MPI, if that was begun. Collective.
 */
void armci_msg_finalize(void);

/**
 * Ends the job, and all its processes, with a status.
 */
void armci_msg_abort(int code);

/**
 * This process's number.
 */
int armci_msg_me(void);

/**
 * How many processes there are.
 */
int armci_msg_nproc(void);

/**
 * Seconds since some time.
 */
double armci_timer(void);

/**
 * Waits for all processes. Collective.
 */
void armci_msg_barrier(void);

/**
 * Sends bytes to a process.
 */
void armci_msg_snd(int tag, void *buffer, int len, int to);

/**
 * Waits for a message of a process.
 */
void armci_msg_rcv(int tag, void *buffer, int buflen, int *msglen, int from);

/**
 * Waits for a message of any process: whose it is.
 */
int armci_msg_rcvany(int tag, void *buffer, int buflen, int *msglen);

/**
 * Brings bytes of a process to all. Collective.
 */
void armci_msg_bcast(void *buffer, int len, int root);

/**
 * Brings bytes of a process to all. Collective.
 */
void armci_msg_brdcst(void *buffer, int len, int root);

/**
 * Brings bytes of a process to all of a scope. Collective over it.
 */
void armci_msg_bcast_scope(int scope, void *buffer, int len, int root);

/**
 * Brings bytes of a node's first process to all of the node. Collective over it.
 */
void armci_msg_clus_brdcst(void *buf, int len);

/**
 * Combines elements of all processes, at the first. Collective.
 */
void armci_msg_reduce(void *x, int n, char *op, int type_);

/**
 * Combines elements of all of a scope, at the first. Collective over it.
 */
void armci_msg_reduce_scope(int scope, void *x, int n, char *op, int type_);

/**
 * Combines elements of all of a scope, at each. Collective over it.
 */
void armci_msg_gop_scope(int scope, void *x, int n, char *op, int type_);

/**
 * Combines elements of all processes, at each. Collective.
 */
void armci_msg_igop(int *x, int n, char *op);

/**
 * Combines elements of all processes of a node, at each. Collective over it.
 */
void armci_msg_clus_igop(int *x, int n, char *op);

/**
 * Combines elements of all members of a group, at each. Collective over it.
 */
void armci_msg_group_igop(int *x, int n, char *op, ARMCI_Group *group);

/**
 * Combines elements of all processes, at each. Collective.
 */
void armci_msg_lgop(long *x, int n, char *op);

/**
 * Combines elements of all processes of a node, at each. Collective over it.
 */
void armci_msg_clus_lgop(long *x, int n, char *op);

/**
 * Combines elements of all members of a group, at each. Collective over it.
 */
void armci_msg_group_lgop(long *x, int n, char *op, ARMCI_Group *group);

/**
 * Combines elements of all processes, at each. Collective.
 */
void armci_msg_llgop(long long *x, int n, char *op);

/**
 * Combines elements of all processes of a node, at each. Collective over it.
 */
void armci_msg_clus_llgop(long long *x, int n, char *op);

/**
 * Combines elements of all members of a group, at each. Collective over it.
 */
void armci_msg_group_llgop(long long *x, int n, char *op, ARMCI_Group *group);

/**
 * Combines elements of all processes, at each. Collective.
 */
void armci_msg_fgop(float *x, int n, char *op);

/**
 * Combines elements of all processes of a node, at each. Collective over it.
 */
void armci_msg_clus_fgop(float *x, int n, char *op);

/**
 * Combines elements of all members of a group, at each. Collective over it.
 */
void armci_msg_group_fgop(float *x, int n, char *op, ARMCI_Group *group);

/**
 * Combines elements of all processes, at each. Collective.
 */
void armci_msg_dgop(double *x, int n, char *op);

/**
 * Combines elements of all processes of a node, at each. Collective over it.
 */
void armci_msg_clus_dgop(double *x, int n, char *op);

/**
 * Combines elements of all members of a group, at each. Collective over it.
 */
void armci_msg_group_dgop(double *x, int n, char *op, ARMCI_Group *group);

/**
 * Combines elements of all members of a group that are in a scope, at each of them. Collective over these.
 */
void armci_msg_group_gop_scope(int scope,
                               void *x,
                               int n,
                               char *op,
                               int type_,
                               ARMCI_Group *group);

/**
 * Brings the bytes to all of a scope whose first element is the largest (`max`) or the smallest (`min`) of those that contribute. Collective over it.
 */
void armci_msg_sel_scope(int scope,
                         void *x,
                         int n,
                         char *op,
                         int type_,
                         int contribute);

/**
 * Adds up addresses, of which each process has its own and nulls. Collective.
 */
void armci_exchange_address(void **ptr_ar, int n);

/**
 * As armci_exchange_address, of the members of a group. Collective over it.
 */
void armci_exchange_address_grp(void **ptr_arr, int n, ARMCI_Group *group);

/**
 * Waits for all members of a group. Collective over it.
 */
void armci_msg_group_barrier(ARMCI_Group *group);

/**
 * Brings bytes from a member of a group to all members that are in a scope. The root is given by its number among
 * all processes. Collective over these.
 */
void armci_msg_group_bcast_scope(int scope,
                                 void *buf,
                                 int len,
                                 int root,
                                 ARMCI_Group *group);

/**
 * Brings bytes from a member of a group to the next members in number order, by their numbers in the group.
 * Collective over these.
 */
void armci_grp_clus_brdcst(void *buf,
                           int len,
                           int grp_master,
                           int grp_clus_nproc,
                           ARMCI_Group *mastergroup);

/**
 * This process's place in a binary tree of a scope; -1 where there is none.
 */
void armci_msg_bintree(int scope, int *Root, int *Up, int *Left, int *Right);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* _MESSAGE_H_ */

#ifdef MSG_COMMS_MPI
#ifdef __cplusplus
extern "C" {
#endif

/* As armci_msg_init, with the processes of a communicator in its order. Collective over them. */
void armci_msg_init_comm(MPI_Comm comm);

#ifdef __cplusplus
}
#endif
#endif
