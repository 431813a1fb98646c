/* The nodes, and the processes of each. */
#include "check.h"

int main(void) {
    begin();
    armci_domain_t d = ARMCI_DOMAIN_SMP;
    int nodes = armci_domain_count(d), all = 0;
    CHECK(nodes >= 1 && nodes <= processes, "%d nodes", nodes);
    for (int node = 0; node < nodes; node++) {
        int number = armci_domain_nprocs(d, node);
        CHECK(number >= 1, "%d processes", number);
        for (int at = 0; at < number; at++, all++) {
            int proc = armci_domain_glob_proc_id(d, node, at);
            IS(armci_domain_id(d, proc), node);
            IS(armci_domain_same_id(d, proc), node == armci_domain_my_id(d));
            IS(ARMCI_Same_node(proc), node == armci_domain_my_id(d));
            IS(armci_sameclusnode(proc), node == armci_domain_my_id(d));
            if (node == armci_domain_my_id(d)) IS(armci_domain_glob_proc_id(d, -1, at), proc);
        }
    }
    IS(all, processes);
    IS(armci_domain_id(d, me), armci_domain_my_id(d));
    IS(armci_domain_nprocs(d, -1), armci_domain_nprocs(d, armci_domain_my_id(d)));
    return end();
}
