/* ARMCI on Hydrant. Made by cbindgen from armcix.rs of crates/armci/src/c. */

#ifndef _ARMCIX_H_
#define _ARMCIX_H_

#include "armci.h"
#include <stddef.h>



/**
 * A set of mutexes of a group, apart from the mutexes of ARMCI_Create_mutexes.
 */
typedef struct armcix_mutex_hdl_s armcix_mutex_hdl_s;

/**
 * Names a set of mutexes.
 */
typedef armcix_mutex_hdl_s *armcix_mutex_hdl_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a group of the members of another that pass the same color, in the order of their keys.
 * Members with a negative color get no group: -1. Collective over the other group.
 */
int ARMCIX_Group_split(ARMCI_Group *parent, int color, int key, ARMCI_Group *new_group);

/**
 * Makes a group of the same members. Collective over them.
 */
int ARMCIX_Group_dup(ARMCI_Group *parent, ARMCI_Group *new_group);

/**
 * Makes `count` mutexes of this process. Returns null after an error. Collective over a group.
 */
armcix_mutex_hdl_t ARMCIX_Create_mutexes_hdl(int count, ARMCI_Group *pgroup);

/**
 * Destroys mutexes. Collective over their group.
 */
int ARMCIX_Destroy_mutexes_hdl(armcix_mutex_hdl_t hdl);

/**
 * Locks a mutex of a process. `proc` is the process's number among all.
 */
void ARMCIX_Lock_hdl(armcix_mutex_hdl_t hdl, int mutex, int proc);

/**
 * Locks a mutex of a process if it is free. Returns 0 if it locked the mutex, 1 if not.
 */
int ARMCIX_Trylock_hdl(armcix_mutex_hdl_t hdl, int mutex, int proc);

/**
 * Unlocks a mutex of a process.
 */
void ARMCIX_Unlock_hdl(armcix_mutex_hdl_t hdl, int mutex, int proc);

/**
 * Does nothing: the service thread serves other processes.
 */
void ARMCIX_Progress(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* _ARMCIX_H_ */
