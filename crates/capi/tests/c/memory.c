/* Symmetric memory: allocations, addresses, options; pointers, and exposed memory. */
#include "check.h"

static void allocations(void) {
    for (size_t bytes = 0; bytes < 100000; bytes = bytes * 3 + 1) {
        unsigned char *own;
        hydrant_memory *memory = shared(bytes, &own);
        size_t is = 99;
        WORKS(hydrant_memory_bytes(memory, &is));
        IS(is, bytes);
        for (size_t i = 0; i < bytes; i++) IS(own[i], 0);
        fill(own, bytes, me, 1);
        barrier();
        unsigned char *got = room(bytes);
        WORKS(hydrant_get(memory, right, 0, got, bytes));
        IS(differs(got, bytes, right, 1), -1);
        free(got);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            void *there = NULL;
            WORKS(hydrant_address(memory, rank, &there));
            if (there) IS(differs(there, bytes, rank, 1), -1);
        }
        barrier();
        WORKS(hydrant_free(memory));
        FAILS(hydrant_free(memory), HYDRANT_ERROR_HANDLE, "was freed");
        FAILS(hydrant_get(memory, me, 0, NULL, 0), HYDRANT_ERROR_HANDLE, "was freed");
    }
}

static void options(void) {
    hydrant_memory *memory = NULL;
    hydrant_alloc_options given = {.align = 1 << 16};
    WORKS(hydrant_alloc_with(job, 100, &given, &memory));
    WORKS(hydrant_register_in_background(memory));
    WORKS(hydrant_free(memory));
    WORKS(hydrant_alloc_with(job, 100, NULL, &memory));
    WORKS(hydrant_free(memory));
    given.align = 48;
    FAILS(hydrant_alloc_with(job, 100, &given, &memory), HYDRANT_ERROR_ALIGNMENT, "power of two");
    given.align = 0;
    given.huge_pages = 17;
    FAILS(hydrant_alloc_with(job, 100, &given, &memory), HYDRANT_ERROR_ARGUMENT, "17");
    given.huge_pages = HYDRANT_HUGE_PAGES_TRY;
    WORKS(hydrant_alloc_with(job, 100, &given, &memory));
    WORKS(hydrant_free(memory));
    given.huge_pages = HYDRANT_HUGE_PAGES_NO;
    given.reserve = 1;
    WORKS(hydrant_alloc_with(job, 1 << 20, &given, &memory));
    WORKS(hydrant_commit(memory, 4096, 4096));
    FAILS(hydrant_commit(memory, 1 << 20, 1), HYDRANT_ERROR_BOUNDS, "out of bounds");
    uint64_t word = me + 5, got = 0;
    WORKS(hydrant_put(memory, me, 4096, &word, 8));
    WORKS(hydrant_get(memory, me, 4096, &got, 8));
    IS(got, me + 5);
    barrier();
    WORKS(hydrant_free(memory));
    FAILS(hydrant_alloc(job, (size_t)1 << 46, &memory), HYDRANT_ERROR_MEMORY, "HYDRANT_HEAP");
    FAILS(hydrant_alloc(job, SIZE_MAX, &memory), HYDRANT_ERROR_MEMORY, "memory");
}

static void pointers(void) {
    unsigned char *own;
    hydrant_memory *memory = shared(1000, &own);
    hydrant_pointer pointer, moved, back;
    WORKS(hydrant_memory_pointer(memory, right, 10, &pointer));
    uint32_t rank = 99;
    WORKS(hydrant_pointer_rank(&pointer, &rank));
    IS(rank, right);
    WORKS(hydrant_pointer_add(&pointer, 30, &moved));
    unsigned char data[100], got[100];
    fill(data, 100, me, 2);
    WORKS(hydrant_put_to(job, &moved, data, 100));
    WORKS(hydrant_get_from(job, &moved, got, 100));
    IS(memcmp(data, got, 100), 0);
    barrier();
    IS(differs(own + 40, 100, left, 2), -1);
    WORKS(hydrant_pointer_add(&moved, -40, &moved));
    WORKS(hydrant_get_from(job, &moved, got, 40));
    uint64_t packed = 0;
    WORKS(hydrant_pointer_pack(job, &pointer, &packed));
    CHECK(packed != 0, "a packed pointer is not null");
    WORKS(hydrant_pointer_unpack(job, packed, &back));
    IS(memcmp(&back, &pointer, sizeof back), 0);
    FAILS(hydrant_pointer_unpack(job, 0, &back), HYDRANT_ERROR_POINTER, "names nothing");
    WORKS(hydrant_pointer_add(&pointer, 1000, &moved));
    FAILS(hydrant_put_to(job, &moved, data, 1), HYDRANT_ERROR_BOUNDS, "out of bounds");
    FAILS(hydrant_memory_pointer(memory, ranks, 0, &moved), HYDRANT_ERROR_RANK, "out of range");
    FAILS(hydrant_memory_pointer(memory, 0, 1001, &moved), HYDRANT_ERROR_BOUNDS, "out of bounds");
    memset(&back, 0, sizeof back);
    FAILS(hydrant_put_to(job, &back, data, 1), HYDRANT_ERROR_POINTER, "names nothing");
    barrier();
    WORKS(hydrant_free(memory));
    FAILS(hydrant_put_to(job, &pointer, data, 1), HYDRANT_ERROR_FREED, "freed");
}

/* Each rank exposes a buffer of its own, and tells its pointer by symmetric memory. */
static void exposed(void) {
    hydrant_pointer *told;
    hydrant_memory *memory = shared(sizeof *told, &told);
    unsigned char *buffer = room(5000);
    fill(buffer, 5000, me, 3);
    hydrant_exposed *lent = NULL;
    WORKS(hydrant_expose(job, buffer, 5000, &lent));
    hydrant_pointer own, theirs;
    WORKS(hydrant_exposed_pointer(lent, 100, &own));
    FAILS(hydrant_exposed_pointer(lent, 5001, &theirs), HYDRANT_ERROR_BOUNDS, "out of bounds");
    WORKS(hydrant_put(memory, left, 0, &own, sizeof own));
    barrier();
    theirs = *told;
    unsigned char *got = room(4900);
    WORKS(hydrant_get_from(job, &theirs, got, 4900));
    for (size_t i = 0; i < 4900; i++) IS(got[i], pattern(right, 3, i + 100));
    FAILS(hydrant_get_from(job, &theirs, got, 4901), HYDRANT_ERROR_BOUNDS, "out of bounds");
    barrier();
    fill(got, 4900, me, 4);
    WORKS(hydrant_put_to(job, &theirs, got, 4900));
    barrier();
    IS(differs(buffer + 100, 4900, left, 4), -1);
    IS(differs(buffer, 100, me, 3), -1);
    barrier();
    WORKS(hydrant_unexpose(lent));
    FAILS(hydrant_unexpose(lent), HYDRANT_ERROR_HANDLE, "was freed");
    barrier();
    FAILS(hydrant_put_to(job, &theirs, got, 8), HYDRANT_ERROR_REVOKED, "took the exposed memory back");
    barrier();
    free(buffer);
    free(got);
    WORKS(hydrant_free(memory));
}

int main(void) {
    begin();
    allocations();
    options();
    pointers();
    exposed();
    return end();
}
