/* ARMCI on Hydrant. Made by cbindgen from message/mod.rs of crates/armci/src/c. */

#ifndef _MESSAGE_H_
#define _MESSAGE_H_

#include "armci.h"
#include <stddef.h>

/* The element types of collectives. */
#define ARMCI_INT       -99
#define ARMCI_LONG      -101
#define ARMCI_LONG_LONG -102
#define ARMCI_FLOAT     -306
#define ARMCI_DOUBLE    -307

/* The scopes: all processes, the processes of a node, and the first process of each node. */
#define SCOPE_ALL     333
#define SCOPE_NODE    337
#define SCOPE_MASTERS 339

#define armci_msg_sel(x, n, op, type, contribute) \
    armci_msg_sel_scope(SCOPE_ALL, (x), (n), (op), (type), (contribute))


#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Joins the job. Messages then work until armci_msg_finalize, even after ARMCI_Finalize. First
 * begins MPI, if the program is linked with it and has not begun it. Collective.
 */
void armci_msg_init(int *argc, char ***argv);

/**
 * Ends the job, and MPI if it was begun. Collective.
 */
void armci_msg_finalize(void);

/**
 * Ends the job, with all its processes, with a status.
 */
void armci_msg_abort(int code);

/**
 * This process's number.
 */
int armci_msg_me(void);

/**
 * The number of processes.
 */
int armci_msg_nproc(void);

/**
 * Seconds since a fixed time in the past.
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
 * Waits for a message from a process.
 */
void armci_msg_rcv(int tag, void *buffer, int buflen, int *msglen, int from);

/**
 * Waits for a message from any process. Returns the sender.
 */
int armci_msg_rcvany(int tag, void *buffer, int buflen, int *msglen);

/**
 * Broadcasts bytes of a process to all. Collective.
 */
void armci_msg_bcast(void *buffer, int len, int root);

/**
 * Broadcasts bytes of a process to all. Collective.
 */
void armci_msg_brdcst(void *buffer, int len, int root);

/**
 * Broadcasts bytes of a process to all processes of a scope. Collective over the scope.
 */
void armci_msg_bcast_scope(int scope, void *buffer, int len, int root);

/**
 * Broadcasts bytes of a node's first process to all processes of the node. Collective over the
 * node.
 */
void armci_msg_clus_brdcst(void *buf, int len);

/**
 * Waits for all members of a group. Collective over the group.
 */
void armci_msg_group_barrier(ARMCI_Group *group);

/**
 * Broadcasts bytes of a member to the other members of a scope. The root is given by its number
 * among all processes. Collective over the members of the scope.
 */
void armci_msg_group_bcast_scope(int scope, void *buf, int len, int root, ARMCI_Group *group);

/**
 * Broadcasts bytes from one member of a group to the members after it, by their numbers in the
 * group. Collective over these members.
 */
void armci_grp_clus_brdcst(void *buf,
                           int len,
                           int grp_master,
                           int grp_clus_nproc,
                           ARMCI_Group *mastergroup);

/**
 * The neighbours of this process in a binary tree of a scope; -1 for none.
 */
void armci_msg_bintree(int scope, int *Root, int *Up, int *Left, int *Right);

/**
 * Combines elements of all processes. The first process gets the result. Collective.
 */
void armci_msg_reduce(void *x, int n, char *op, int type_);

/**
 * Combines elements of all processes of a scope. The first of them gets the result. Collective
 * over the scope.
 */
void armci_msg_reduce_scope(int scope, void *x, int n, char *op, int type_);

/**
 * Combines elements of all processes of a scope. Each of them gets the result. Collective over the
 * scope.
 */
void armci_msg_gop_scope(int scope, void *x, int n, char *op, int type_);

/**
 * Combines elements of all processes. Each process gets the result. Collective.
 */
void armci_msg_igop(int *x, int n, char *op);

/**
 * Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
 */
void armci_msg_clus_igop(int *x,
                         int n,
                         char *op);

/**
 * Combines elements of all members of a group. Each member gets the result. Collective over the group.
 */
void armci_msg_group_igop(int *x,
                          int n,
                          char *op,
                          ARMCI_Group *group);

/**
 * Combines elements of all processes. Each process gets the result. Collective.
 */
void armci_msg_lgop(long *x, int n, char *op);

/**
 * Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
 */
void armci_msg_clus_lgop(long *x,
                         int n,
                         char *op);

/**
 * Combines elements of all members of a group. Each member gets the result. Collective over the group.
 */
void armci_msg_group_lgop(long *x,
                          int n,
                          char *op,
                          ARMCI_Group *group);

/**
 * Combines elements of all processes. Each process gets the result. Collective.
 */
void armci_msg_llgop(long long *x, int n, char *op);

/**
 * Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
 */
void armci_msg_clus_llgop(long long *x,
                          int n,
                          char *op);

/**
 * Combines elements of all members of a group. Each member gets the result. Collective over the group.
 */
void armci_msg_group_llgop(long long *x,
                           int n,
                           char *op,
                           ARMCI_Group *group);

/**
 * Combines elements of all processes. Each process gets the result. Collective.
 */
void armci_msg_fgop(float *x, int n, char *op);

/**
 * Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
 */
void armci_msg_clus_fgop(float *x,
                         int n,
                         char *op);

/**
 * Combines elements of all members of a group. Each member gets the result. Collective over the group.
 */
void armci_msg_group_fgop(float *x,
                          int n,
                          char *op,
                          ARMCI_Group *group);

/**
 * Combines elements of all processes. Each process gets the result. Collective.
 */
void armci_msg_dgop(double *x, int n, char *op);

/**
 * Combines elements of all processes of a node. Each of them gets the result. Collective over the node.
 */
void armci_msg_clus_dgop(double *x,
                         int n,
                         char *op);

/**
 * Combines elements of all members of a group. Each member gets the result. Collective over the group.
 */
void armci_msg_group_dgop(double *x,
                          int n,
                          char *op,
                          ARMCI_Group *group);

/**
 * Combines elements of the members of a group that are in a scope. Each of them gets the result.
 * Collective over these members.
 */
void armci_msg_group_gop_scope(int scope, void *x, int n, char *op, int type_, ARMCI_Group *group);

/**
 * Selects the process of a scope whose first element is the largest (`max`) or the smallest
 * (`min`), among those that contribute. All processes of the scope get its bytes. Collective over
 * the scope.
 */
void armci_msg_sel_scope(int scope, void *x, int n, char *op, int type_, int contribute);

/**
 * Sums addresses: each process passes its own address and nulls. Each process gets the result.
 * Collective.
 */
void armci_exchange_address(void **ptr_ar, int n);

/**
 * As armci_exchange_address, for the members of a group. Collective over the group.
 */
void armci_exchange_address_grp(void **ptr_arr, int n, ARMCI_Group *group);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* _MESSAGE_H_ */

#ifdef MSG_COMMS_MPI
#ifdef __cplusplus
extern "C" {
#endif

/* As armci_msg_init, with the processes of a communicator in its order. Collective over these
   processes. */
void armci_msg_init_comm(MPI_Comm comm);

#ifdef __cplusplus
}
#endif
#endif
