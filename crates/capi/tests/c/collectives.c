/* Teams and their collectives, with results that each rank computes by itself. */
#include "check.h"

static void moves(hydrant_team *team, uint32_t rank, uint32_t size, size_t bytes) {
    unsigned char *mine = room(bytes * size), *all = room(bytes * size), *wanted = room(bytes * size);
    for (uint32_t i = 0; i < size; i++) fill(wanted + i * bytes, bytes, i, 5);
    for (uint32_t root = 0; root < size; root++) {
        fill(mine, bytes, root == rank ? rank : 77, 5);
        WORKS(hydrant_broadcast(team, root, mine, bytes));
        IS(memcmp(mine, wanted + root * bytes, bytes), 0);
        fill(mine, bytes, rank, 5);
        memset(all, 0, bytes * size);
        WORKS(hydrant_gather(team, root, mine, bytes, root == rank ? all : NULL));
        if (root == rank) IS(memcmp(all, wanted, bytes * size), 0);
        memset(mine, 0, bytes);
        WORKS(hydrant_scatter(team, root, root == rank ? wanted : NULL, mine, bytes));
        IS(memcmp(mine, wanted + rank * bytes, bytes), 0);
    }
    memset(all, 0, bytes * size);
    WORKS(hydrant_all_gather(team, mine, bytes, all));
    IS(memcmp(all, wanted, bytes * size), 0);
    memset(all, 0, bytes * size);
    memcpy(all + rank * bytes, mine, bytes);
    WORKS(hydrant_all_gather(team, NULL, bytes, all));
    IS(memcmp(all, wanted, bytes * size), 0);
    /* The part for a member is written in the round of its number. */
    for (uint32_t i = 0; i < size; i++) fill(mine + i * bytes, bytes, rank, (int)i);
    for (uint32_t i = 0; i < size; i++) fill(wanted + i * bytes, bytes, i, (int)rank);
    WORKS(hydrant_all_to_all(team, mine, all, bytes));
    IS(memcmp(all, wanted, bytes * size), 0);
    WORKS(hydrant_all_to_all(team, NULL, mine, bytes));
    IS(memcmp(mine, wanted, bytes * size), 0);
    hydrant_operation *operations[3];
    for (uint32_t i = 0; i < size; i++) fill(mine + i * bytes, bytes, rank, (int)i);
    unsigned char *more = room(bytes * size), *told = room(bytes);
    if (rank == 0) fill(told, bytes, 0, 9);
    WORKS(hydrant_all_to_all_nb(team, mine, all, bytes, &operations[0]));
    WORKS(hydrant_all_gather_nb(team, mine, bytes, more, &operations[1]));
    WORKS(hydrant_broadcast_nb(team, 0, told, bytes, &operations[2]));
    memset(mine, 0, bytes * size);
    WORKS(hydrant_wait_all(operations, 3));
    IS(memcmp(all, wanted, bytes * size), 0);
    for (uint32_t i = 0; i < size; i++) IS(differs(more + i * bytes, bytes, i, 0), -1);
    IS(differs(told, bytes, 0, 9), -1);
    free(mine);
    free(all);
    free(wanted);
    free(more);
    free(told);
}

/* Member i has i + 1 bytes for everybody, with gaps between the blocks. */
static void blocks(hydrant_team *team, uint32_t rank, uint32_t size) {
    size_t counts[16], places[16], packed = 0, length = (size_t)size * 20;
    for (uint32_t i = 0; i < size; i++) {
        counts[i] = i + 1;
        places[i] = (size_t)(size - 1 - i) * 20;
        packed += i + 1;
    }
    unsigned char mine[16], *all = room(length), *row = room(packed);
    fill(mine, rank + 1, rank, 3);
    WORKS(hydrant_all_gather_v(team, mine, rank + 1, row, counts, NULL));
    size_t at = 0;
    for (uint32_t i = 0; i < size; at += ++i) IS(differs(row + at, i + 1, i, 3), -1);
    WORKS(hydrant_all_gather_v(team, mine, rank + 1, all, counts, places));
    for (uint32_t i = 0; i < size; i++) IS(differs(all + places[i], i + 1, i, 3), -1);
    memset(all, 0, length);
    memcpy(all + places[rank], mine, rank + 1);
    WORKS(hydrant_all_gather_v(team, NULL, rank + 1, all, counts, places));
    for (uint32_t i = 0; i < size; i++) IS(differs(all + places[i], i + 1, i, 3), -1);
    uint32_t root = size - 1;
    memset(all, 0, length);
    WORKS(hydrant_gather_v(team, root, mine, rank + 1, all, rank == root ? counts : NULL, rank == root ? places : NULL));
    if (rank == root)
        for (uint32_t i = 0; i < size; i++) IS(differs(all + places[i], i + 1, i, 3), -1);
    memset(mine, 0, sizeof mine);
    WORKS(hydrant_scatter_v(team, root, all, counts, places, mine, rank + 1));
    IS(differs(mine, rank + 1, rank, 3), -1);
    /* Every member sends i + 1 bytes to member i, and gets rank + 1 bytes from each. */
    size_t got[16];
    for (uint32_t i = 0; i < size; i++) got[i] = rank + 1;
    at = 0;
    for (uint32_t i = 0; i < size; at += ++i) fill(row + at, i + 1, rank, (int)i);
    unsigned char *into = room((size_t)size * (rank + 1));
    WORKS(hydrant_all_to_all_v(team, row, counts, NULL, into, got, NULL));
    for (uint32_t i = 0; i < size; i++) IS(differs(into + i * (rank + 1), rank + 1, i, (int)rank), -1);
    size_t endless[16];
    for (uint32_t i = 0; i < size; i++) endless[i] = SIZE_MAX;
    FAILS(hydrant_all_gather_v(team, mine, 1, all, endless, places), HYDRANT_ERROR_OVERFLOW, "any memory");
    free(all);
    free(row);
    free(into);
}

static void combine(void *user, void *into, const void *with) {
    /* Not commutative: the order of members shows. */
    uint64_t *sum = into;
    const uint64_t *next = with;
    sum[0] = sum[0] * *(uint64_t *)user + next[0];
    sum[1] += next[1];
}

static void reductions(hydrant_team *team, uint32_t rank, uint32_t size) {
    double sums[5], result[5];
    int64_t least[3], most[3];
    uint8_t bits = (uint8_t)(1 << rank), all_bits = 0;
    for (int i = 0; i < 5; i++) sums[i] = rank * 10 + i;
    double all = 10.0 * size * (size - 1) / 2, before = 10.0 * rank * (rank - (double)1) / 2, upto = before + 10 * rank;
    WORKS(hydrant_all_reduce(team, sums, result, 5, HYDRANT_F64, HYDRANT_SUM));
    for (int i = 0; i < 5; i++) CHECK(result[i] == all + i * (double)size, "%d: %g", i, result[i]);
    memcpy(result, sums, sizeof sums);
    WORKS(hydrant_all_reduce(team, NULL, result, 5, HYDRANT_F64, HYDRANT_SUM));
    CHECK(result[4] == all + 4.0 * size, "%g", result[4]);
    for (int i = 0; i < 3; i++) least[i] = 100 - (int64_t)rank * 7 - i;
    WORKS(hydrant_all_reduce(team, least, most, 3, HYDRANT_I64, HYDRANT_MAX));
    for (int i = 0; i < 3; i++) IS(most[i], 100 - i);
    WORKS(hydrant_all_reduce(team, &bits, &all_bits, 1, HYDRANT_U8, HYDRANT_XOR));
    IS(all_bits, (1 << size) - 1);
    for (uint32_t root = 0; root < size; root++) {
        memset(result, 0, sizeof result);
        WORKS(hydrant_reduce(team, root, sums, rank == root ? result : NULL, 5, HYDRANT_F64, HYDRANT_SUM));
        if (rank == root) CHECK(result[1] == all + size, "%g", result[1]);
        memcpy(result, sums, sizeof sums);
        WORKS(hydrant_reduce(team, root, NULL, result, 5, HYDRANT_F64, HYDRANT_SUM));
        CHECK(result[1] == (rank == root ? all + size : sums[1]), "%g", result[1]);
    }
    WORKS(hydrant_scan(team, sums, result, 5, HYDRANT_F64, HYDRANT_SUM));
    for (int i = 0; i < 5; i++) CHECK(result[i] == upto + i * (rank + 1.0), "%d: %g", i, result[i]);
    WORKS(hydrant_exclusive_scan(team, sums, result, 5, HYDRANT_F64, HYDRANT_SUM));
    for (int i = 0; i < 5; i++) CHECK(result[i] == before + i * (double)rank, "%d: %g", i, result[i]);
    float *many = room(size * 2 * sizeof *many), two[2];
    for (uint32_t i = 0; i < 2 * size; i++) many[i] = (float)(i + rank);
    WORKS(hydrant_reduce_scatter(team, many, two, 2, HYDRANT_F32, HYDRANT_SUM));
    for (uint32_t i = 0; i < 2; i++)
        CHECK(two[i] == (float)(size * (2 * rank + i) + size * (size - 1) / 2), "%g", two[i]);
    free(many);
    float complex_[2] = {1, (float)rank}, product[2];
    WORKS(hydrant_all_reduce(team, complex_, product, 1, HYDRANT_C32, HYDRANT_SUM));
    CHECK(product[0] == (float)size && product[1] == (float)(size * (size - 1) / 2), "%g %g", product[0], product[1]);
    uint64_t pair[2] = {rank + 1, 1}, folded[2], factor = 10, wanted = 0;
    for (uint32_t i = 0; i < size; i++) wanted = wanted * 10 + i + 1;
    WORKS(hydrant_all_reduce_with(team, pair, folded, 1, sizeof pair, combine, &factor));
    IS(folded[0], wanted);
    IS(folded[1], size);
    hydrant_operation *operations[4];
    double nb[5], at_root[5], scanned[5];
    memset(at_root, 0, sizeof at_root);
    WORKS(hydrant_all_reduce_nb(team, sums, nb, 5, HYDRANT_F64, HYDRANT_SUM, &operations[0]));
    WORKS(hydrant_reduce_nb(team, 0, sums, rank == 0 ? at_root : NULL, 5, HYDRANT_F64, HYDRANT_SUM, &operations[1]));
    WORKS(hydrant_scan_nb(team, sums, scanned, 5, HYDRANT_F64, HYDRANT_SUM, &operations[2]));
    WORKS(hydrant_barrier_nb(team, &operations[3]));
    WORKS(hydrant_wait_all(operations, 4));
    CHECK(nb[3] == all + 3.0 * size, "%g", nb[3]);
    if (rank == 0) CHECK(at_root[3] == nb[3], "%g", at_root[3]);
    CHECK(scanned[2] == upto + 2 * (rank + 1.0), "%g", scanned[2]);

    FAILS(hydrant_all_reduce(team, sums, result, 5, HYDRANT_F64, HYDRANT_AND), HYDRANT_ERROR_OPERATION, "cannot be reduced");
    FAILS(hydrant_all_reduce(team, sums, result, 5, 99, HYDRANT_SUM), HYDRANT_ERROR_ARGUMENT, "99 is no type");
    FAILS(hydrant_all_reduce(team, sums, result, 5, HYDRANT_F64, 99), HYDRANT_ERROR_ARGUMENT, "99 is no operation");
    FAILS(hydrant_all_reduce(team, sums, sums + 1, 4, HYDRANT_F64, HYDRANT_SUM), HYDRANT_ERROR_OVERLAP, "overlap");
    FAILS(hydrant_all_reduce(team, sums, (char *)result + 1, 4, HYDRANT_F64, HYDRANT_SUM), HYDRANT_ERROR_ALIGNMENT, "not aligned");
    FAILS(hydrant_all_reduce(team, sums, result, SIZE_MAX, HYDRANT_F64, HYDRANT_SUM), HYDRANT_ERROR_OVERFLOW, "any memory");
    FAILS(hydrant_all_reduce_with(team, sums, result, 1, 7, combine, NULL), HYDRANT_ERROR_ARGUMENT, "7 bytes");
    FAILS(hydrant_all_reduce_with(team, sums, result, 1, 8, NULL, NULL), HYDRANT_ERROR_ARGUMENT, "null");
    FAILS(hydrant_broadcast(team, size, sums, 8), HYDRANT_ERROR_RANK, "out of range");
}

static void in_team(hydrant_team *team) {
    uint32_t rank = 99, size = 0;
    WORKS(hydrant_team_rank(team, &rank));
    WORKS(hydrant_team_size(team, &size));
    WORKS(hydrant_barrier(team));
    WORKS(hydrant_barrier_notify(team));
    FAILS(hydrant_barrier(team), HYDRANT_ERROR_TURN, "notified");
    WORKS(hydrant_barrier_wait(team));
    FAILS(hydrant_barrier_wait(team), HYDRANT_ERROR_TURN, "not notified");
    const size_t sizes[] = {0, 1, 8, 1000, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) moves(team, rank, size, sizes[i]);
    blocks(team, rank, size);
    reductions(team, rank, size);
}

int main(void) {
    begin();
    in_team(world);
    /* Even and odd ranks, the last rank first. */
    hydrant_team *half = NULL, *none = world;
    WORKS(hydrant_team_split(world, me % 2, ranks - me, &half));
    uint32_t rank = 99, size = 0, members[16], wanted = ranks / 2 + (me % 2 ? 0 : ranks % 2);
    size_t count = 0;
    WORKS(hydrant_team_size(half, &size));
    IS(size, wanted);
    WORKS(hydrant_team_members(half, members, 16, &count));
    IS(count, size);
    WORKS(hydrant_team_rank(half, &rank));
    IS(members[rank], me);
    for (uint32_t i = 0; i < size; i++) {
        uint32_t found = 99;
        WORKS(hydrant_team_job_rank(half, i, &found));
        IS(found, members[i]);
        WORKS(hydrant_team_rank_of(half, members[i], &found));
        IS(found, i);
        if (i > 0) CHECK(members[i] < members[i - 1], "the key orders the members");
    }
    WORKS(hydrant_team_rank_of(half, me ^ 1, &rank));
    IS(rank, HYDRANT_NO_RANK);
    FAILS(hydrant_team_job_rank(half, size, &rank), HYDRANT_ERROR_RANK, "of the team is out of range");
    in_team(half);
    WORKS(hydrant_team_free(half));
    FAILS(hydrant_barrier(half), HYDRANT_ERROR_HANDLE, "was freed");
    WORKS(hydrant_team_free(NULL));
    FAILS(hydrant_team_free(world), HYDRANT_ERROR_ARGUMENT, "not freed");
    WORKS(hydrant_team_split(world, me == 0 ? 1 : HYDRANT_NO_COLOR, 0, &none));
    CHECK((me == 0) == (none != NULL), "only rank 0 has a team");
    WORKS(hydrant_team_free(none));
    /* Ranks that disagree all get an error, and the team stays usable. */
    if (ranks > 1) {
        unsigned char data[16] = {0};
        FAILS(hydrant_broadcast(world, 0, data, me == 0 ? 8 : 16), HYDRANT_ERROR_MISMATCH, "disagree");
    }
    barrier();
    return end();
}
