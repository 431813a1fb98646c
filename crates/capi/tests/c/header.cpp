// The header is C++, too, and several headers may include it.
#include "hydrant.h"
#include "hydrant.h"

#include <cstdio>

int main() {
    hydrant_job *job = nullptr;
    hydrant_memory *memory = nullptr;
    uint64_t previous = 9;
    if (hydrant_join(&job) != HYDRANT_SUCCESS || hydrant_alloc(job, 8, &memory) != HYDRANT_SUCCESS ||
        hydrant_fetch_add_u64(memory, 0, 0, 5, &previous) != HYDRANT_SUCCESS || previous != 0 ||
        hydrant_finalize(job) != HYDRANT_SUCCESS) {
        std::fprintf(stderr, "%s\n", hydrant_last_error());
        return 1;
    }
    std::puts("ok");
}
