/* Atomic operations of every kind, type and target. */
#include "check.h"

static hydrant_memory *memory;
static void *own;

static void words(void) {
    uint64_t previous = 99, value = 0;
    uint32_t small = 99;
    barrier();
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (int i = 0; i < 100; i++) {
            WORKS(hydrant_fetch_add_u64(memory, rank, 0, me + 1, &previous));
            WORKS(hydrant_fetch_add_u32(memory, rank, 12, 3, &small));
        }
    barrier();
    WORKS(hydrant_load_u64(memory, me, 0, &value));
    IS(value, 100 * (ranks * (ranks + 1) / 2));
    WORKS(hydrant_load_u32(memory, me, 12, &small));
    IS(small, 300 * ranks);
    barrier();
    WORKS(hydrant_store_u64(memory, right, 16, 5));
    WORKS(hydrant_swap_u64(memory, right, 16, 6, &previous));
    IS(previous, 5);
    WORKS(hydrant_compare_swap_u64(memory, right, 16, 5, 7, &previous));
    IS(previous, 6);
    WORKS(hydrant_compare_swap_u64(memory, right, 16, 6, 0xff0f, NULL));
    WORKS(hydrant_store_u32(memory, right, 24, 5));
    WORKS(hydrant_swap_u32(memory, right, 24, 6, NULL));
    WORKS(hydrant_compare_swap_u32(memory, right, 24, 6, 8, &small));
    IS(small, 6);
    uint64_t bits = 0xf0f0;
    WORKS(hydrant_atomic(memory, right, 16, HYDRANT_ATOMIC_AND, HYDRANT_U64, &bits, NULL, &previous));
    IS(previous, 0xff0f);
    WORKS(hydrant_atomic(memory, right, 16, HYDRANT_ATOMIC_OR, HYDRANT_I64, &bits, NULL, &previous));
    IS(previous, 0xf000);
    bits = 0xff;
    WORKS(hydrant_atomic(memory, right, 16, HYDRANT_ATOMIC_XOR, HYDRANT_U64, &bits, NULL, &previous));
    IS(previous, 0xf0f0);
    WORKS(hydrant_load_u64(memory, right, 16, &value));
    IS(value, 0xf00f);
    int32_t minus = -5, before = 0;
    WORKS(hydrant_atomic(memory, right, 24, HYDRANT_ATOMIC_ADD, HYDRANT_I32, &minus, NULL, &before));
    IS(before, 8);
    WORKS(hydrant_atomic(memory, right, 24, HYDRANT_ATOMIC_ADD, HYDRANT_I32, &minus, NULL, &before));
    WORKS(hydrant_atomic(memory, right, 24, HYDRANT_ATOMIC_LOAD, HYDRANT_I32, NULL, NULL, &before));
    IS(before, -2);
    float half = 0.5f, part = 9;
    double quarter = 0.25, whole = 9;
    WORKS(hydrant_atomic(memory, right, 32, HYDRANT_ATOMIC_ADD, HYDRANT_F32, &half, NULL, NULL));
    WORKS(hydrant_atomic(memory, right, 32, HYDRANT_ATOMIC_ADD, HYDRANT_F32, &half, NULL, &part));
    CHECK(part == 0.5f, "%g", part);
    WORKS(hydrant_atomic(memory, right, 40, HYDRANT_ATOMIC_SWAP, HYDRANT_F64, &quarter, NULL, &whole));
    WORKS(hydrant_atomic(memory, right, 40, HYDRANT_ATOMIC_LOAD, HYDRANT_F64, NULL, NULL, &whole));
    CHECK(whole == 0.25, "%g", whole);
    barrier();
}

static void in_the_background(void) {
    hydrant_operation *operations[16];
    uint64_t before[16], two = 2, sum = 0;
    for (int i = 0; i < 16; i++)
        WORKS(hydrant_atomic_nb(memory, right, 48, HYDRANT_ATOMIC_ADD, HYDRANT_U64, &two, NULL, &before[i], &operations[i]));
    WORKS(hydrant_wait_all(operations, 16));
    for (int i = 0; i < 16; i++) sum += before[i];
    IS(sum, 15 * 16);
    WORKS(hydrant_atomic_nb(memory, right, 48, HYDRANT_ATOMIC_ADD, HYDRANT_U64, &two, NULL, NULL, &operations[0]));
    WORKS(hydrant_detach(&operations[0]));
    WORKS(hydrant_quiet(job));
    barrier();
    WORKS(hydrant_load_u64(memory, me, 48, &sum));
    IS(sum, 34);
    barrier();
}

static void by_pointers(void) {
    uint64_t *buffer = room(64);
    hydrant_exposed *lent;
    hydrant_pointer own_pointer, theirs, there;
    WORKS(hydrant_expose(job, buffer, 64, &lent));
    WORKS(hydrant_exposed_pointer(lent, 8, &own_pointer));
    WORKS(hydrant_send_receive(job, left, 3, &own_pointer, sizeof own_pointer, right, 3, &theirs, sizeof theirs, NULL));
    WORKS(hydrant_memory_pointer(memory, right, 56, &there));
    const hydrant_pointer *both[] = {&theirs, &there};
    for (int i = 0; i < 2; i++) {
        uint64_t value = 11, other = 4, previous = 99;
        WORKS(hydrant_atomic_at(job, both[i], HYDRANT_ATOMIC_ADD, HYDRANT_U64, &value, NULL, &previous));
        IS(previous, 0);
        WORKS(hydrant_atomic_at(job, both[i], HYDRANT_ATOMIC_COMPARE_SWAP, HYDRANT_U64, &other, &value, &previous));
        IS(previous, 11);
        hydrant_operation *operation = NULL;
        WORKS(hydrant_atomic_at_nb(job, both[i], HYDRANT_ATOMIC_OR, HYDRANT_U64, &value, NULL, &previous, &operation));
        WORKS(hydrant_wait(&operation));
        IS(previous, 4);
    }
    barrier();
    IS(buffer[1], 15);
    FAILS(hydrant_atomic_at(job, &theirs, 99, HYDRANT_U64, buffer, NULL, NULL), HYDRANT_ERROR_ARGUMENT, "99");
    hydrant_pointer odd;
    WORKS(hydrant_pointer_add(&theirs, 4, &odd));
    FAILS(hydrant_atomic_at(job, &odd, HYDRANT_ATOMIC_LOAD, HYDRANT_U64, NULL, NULL, buffer), HYDRANT_ERROR_ALIGNMENT, "multiple");
    barrier();
    WORKS(hydrant_unexpose(lent));
    free(buffer);
}

static void wrong(void) {
    uint64_t one = 1;
    FAILS(hydrant_fetch_add_u64(memory, right, 4, 1, NULL), HYDRANT_ERROR_ALIGNMENT, "multiple of 8");
    FAILS(hydrant_fetch_add_u64(memory, right, 4096, 1, NULL), HYDRANT_ERROR_BOUNDS, "8 bytes at offset 4096");
    FAILS(hydrant_fetch_add_u32(memory, ranks, 0, 1, NULL), HYDRANT_ERROR_RANK, "out of range");
    FAILS(hydrant_atomic(memory, right, 0, 99, HYDRANT_U64, &one, NULL, NULL), HYDRANT_ERROR_ARGUMENT, "99 is no atomic");
    FAILS(hydrant_atomic(memory, right, 0, HYDRANT_ATOMIC_ADD, HYDRANT_U16, &one, NULL, NULL), HYDRANT_ERROR_ARGUMENT, "no type of words");
    FAILS(hydrant_atomic(memory, right, 0, HYDRANT_ATOMIC_AND, HYDRANT_F64, &one, NULL, NULL), HYDRANT_ERROR_OPERATION, "bitwise");
    FAILS(hydrant_atomic(memory, right, 0, HYDRANT_ATOMIC_ADD, HYDRANT_U64, NULL, NULL, NULL), HYDRANT_ERROR_NULL, "the operand is null");
    FAILS(hydrant_atomic(memory, right, 0, HYDRANT_ATOMIC_COMPARE_SWAP, HYDRANT_U64, &one, NULL, NULL), HYDRANT_ERROR_NULL, "expected");
    FAILS(hydrant_atomic_nb(memory, right, 0, HYDRANT_ATOMIC_ADD, HYDRANT_U64, &one, NULL, NULL, NULL), HYDRANT_ERROR_NULL, "operation");
}

int main(void) {
    begin();
    memory = shared(4096, &own);
    words();
    in_the_background();
    by_pointers();
    wrong();
    return end();
}
