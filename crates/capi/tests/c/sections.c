/* Sections, lists of runs and accumulates, each checked against a copy that is changed byte by byte. */
#include "check.h"

#define ROWS 24
#define COLUMNS 40
#define BYTES (ROWS * COLUMNS * 8)

static hydrant_memory *memory;
static unsigned char *own, *right_answer, *mine;

static size_t starts(const hydrant_section *section, size_t *at) {
    size_t count = 1, made = 1;
    at[0] = section->start;
    for (size_t level = 0; level < section->level_count; level++) {
        made = 0;
        size_t before[1024];
        memcpy(before, at, count * sizeof *at);
        for (size_t i = 0; i < section->levels[level].count; i++)
            for (size_t j = 0; j < count; j++) at[made++] = before[j] + i * section->levels[level].stride;
        count = made;
    }
    return count;
}

/* The offset of each byte of a section. */
static size_t bytes_of(const hydrant_section *section, size_t *bytes) {
    size_t at[1024], count = starts(section, at), made = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < section->run; j++) bytes[made++] = at[i] + j;
    return made;
}

static void reset(int round) {
    fill(own, BYTES, me, round);
    fill(right_answer, BYTES, left, round + 1);
    for (size_t i = 0; i < BYTES; i++) right_answer[i] = pattern(me, round, i);
    fill(mine, BYTES, me, round + 1);
    barrier();
}

static void sections(void) {
    const hydrant_level rows = {.count = 6, .stride = COLUMNS * 8}, narrow = {.count = 6, .stride = 16};
    const hydrant_level nested[] = {{.count = 3, .stride = 32}, {.count = 4, .stride = COLUMNS * 16}};
    const hydrant_level other[] = {{.count = 2, .stride = 24}, {.count = 6, .stride = 100}};
    struct { hydrant_section to, from; } cases[] = {
        {{.start = 16, .run = 8, .levels = &rows, .level_count = 1}, {.start = 0, .run = 8, .levels = &narrow, .level_count = 1}},
        {{.start = 8, .run = 24, .levels = &rows, .level_count = 1}, {.start = 40, .run = 144}},
        {{.start = 5, .run = 10, .levels = nested, .level_count = 2}, {.start = 3, .run = 10, .levels = other, .level_count = 2}},
        {{.start = 100, .run = 60}, {.start = 1, .run = 6, .levels = &(hydrant_level){10, 9}, .level_count = 1}},
        {{.start = 0, .run = 0}, {.start = 7, .run = 0}},
        /* The shapes do not divide each other. */
        {{.start = 0, .run = 6, .levels = &(hydrant_level){5, 11}, .level_count = 1}, {.start = 2, .run = 10, .levels = &(hydrant_level){3, 17}, .level_count = 1}},
    };
    size_t there[4096], here[4096];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int by = 0; by < 2; by++) {
            reset((int)i);
            hydrant_pointer pointer;
            WORKS(hydrant_memory_pointer(memory, right, 0, &pointer));
            if (by == 0) WORKS(hydrant_put_section(memory, right, &cases[i].to, mine, &cases[i].from));
            else WORKS(hydrant_put_section_to(job, &pointer, &cases[i].to, mine, &cases[i].from));
            barrier();
            size_t count = bytes_of(&cases[i].to, there);
            IS(bytes_of(&cases[i].from, here), count);
            for (size_t j = 0; j < count; j++) right_answer[there[j]] = pattern(left, (int)i + 1, here[j]);
            IS(memcmp(own, right_answer, BYTES), 0);
            barrier();
            /* The other way: from the right neighbour, who has what this rank has put. */
            memset(mine, 0, BYTES);
            if (by == 0) WORKS(hydrant_get_section(memory, right, &cases[i].to, mine, &cases[i].from));
            else WORKS(hydrant_get_section_from(job, &pointer, &cases[i].to, mine, &cases[i].from));
            unsigned char *wanted = room(BYTES);
            for (size_t j = 0; j < count; j++) wanted[here[j]] = pattern(me, (int)i + 1, here[j]);
            IS(memcmp(mine, wanted, BYTES), 0);
            free(wanted);
            barrier();
        }
    }
    hydrant_section twice = {.start = 0, .run = 8, .levels = &(hydrant_level){2, 4}, .level_count = 1};
    hydrant_section plain = {.start = 0, .run = 16}, outside = {.start = BYTES - 8, .run = 16};
    FAILS(hydrant_put_section(memory, right, &twice, mine, &plain), HYDRANT_ERROR_OVERLAP, "twice");
    FAILS(hydrant_put_section(memory, right, &outside, mine, &plain), HYDRANT_ERROR_BOUNDS, "out of bounds");
    hydrant_section shorter = {.start = 0, .run = 15}, endless = {.start = 1, .run = SIZE_MAX};
    FAILS(hydrant_put_section(memory, right, &plain, mine, &shorter), HYDRANT_ERROR_LENGTH, "16");
    FAILS(hydrant_put_section(memory, right, &plain, mine, &endless), HYDRANT_ERROR_OVERFLOW, "further than any memory");
    hydrant_section deep = {.start = 0, .run = 1, .levels = nested, .level_count = 99};
    hydrant_level many[HYDRANT_MOST_LEVELS + 1];
    for (int i = 0; i <= HYDRANT_MOST_LEVELS; i++) many[i] = (hydrant_level){1, 1};
    deep.levels = many;
    FAILS(hydrant_put_section(memory, right, &deep, mine, &plain), HYDRANT_ERROR_ARGUMENT, "levels");
    deep.levels = NULL;
    deep.level_count = 1;
    FAILS(hydrant_put_section(memory, right, &deep, mine, &plain), HYDRANT_ERROR_NULL, "levels");
    barrier();
    /* Own memory: interleaved runs work, and runs that share bytes do not. */
    reset(50);
    hydrant_section even = {.start = 0, .run = 8, .levels = &(hydrant_level){10, 16}, .level_count = 1};
    hydrant_section odd = {.start = 8, .run = 8, .levels = &(hydrant_level){10, 16}, .level_count = 1};
    hydrant_section near = {.start = 4, .run = 8, .levels = &(hydrant_level){10, 16}, .level_count = 1};
    WORKS(hydrant_put_section(memory, me, &odd, own, &even));
    for (size_t i = 0; i < 10; i++)
        for (size_t j = 0; j < 8; j++) IS(own[i * 16 + 8 + j], pattern(me, 50, i * 16 + j));
    FAILS(hydrant_put_section(memory, me, &near, own, &even), HYDRANT_ERROR_OVERLAP, "overlap");
    FAILS(hydrant_get_section(memory, me, &near, own, &even), HYDRANT_ERROR_OVERLAP, "overlap");
    barrier();
}

static void lists(void) {
    const size_t run = 12, count = 50;
    size_t remote[50], local[50];
    for (size_t i = 0; i < count; i++) {
        remote[i] = (i * 37 % count) * 15 + 2;
        local[i] = (i * 11 % count) * 13;
    }
    hydrant_pointer pointer;
    WORKS(hydrant_memory_pointer(memory, right, 0, &pointer));
    for (int by = 0; by < 2; by++) {
        reset(60);
        if (by == 0) WORKS(hydrant_put_list(memory, right, run, count, remote, mine, local));
        else WORKS(hydrant_put_list_to(job, &pointer, run, count, remote, mine, local));
        barrier();
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < run; j++) right_answer[remote[i] + j] = pattern(left, 61, local[i] + j);
        IS(memcmp(own, right_answer, BYTES), 0);
        barrier();
        memset(mine, 0, BYTES);
        if (by == 0) WORKS(hydrant_get_list(memory, right, run, count, remote, mine, local));
        else WORKS(hydrant_get_list_from(job, &pointer, run, count, remote, mine, local));
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < run; j++) IS(mine[local[i] + j], pattern(me, 61, local[i] + j));
        barrier();
    }
    /* Runs that share bytes are put in order. */
    reset(70);
    size_t same[] = {100, 104, 100}, from[] = {0, 20, 40};
    WORKS(hydrant_put_list(memory, right, 8, 3, same, mine, from));
    barrier();
    for (size_t j = 0; j < 8; j++) {
        right_answer[104 + j] = pattern(left, 71, 20 + j);
    }
    for (size_t j = 0; j < 8; j++) right_answer[100 + j] = pattern(left, 71, 40 + j);
    IS(memcmp(own, right_answer, BYTES), 0);
    barrier();
    WORKS(hydrant_get_list(memory, right, 8, 3, from, mine, same));
    for (size_t j = 0; j < 8; j++) IS(mine[100 + j], pattern(right, 70, 40 + j));
    WORKS(hydrant_put_list(memory, right, 8, 0, NULL, NULL, NULL));
    size_t bad[] = {0, BYTES - 7};
    FAILS(hydrant_put_list(memory, right, 8, 2, bad, mine, from), HYDRANT_ERROR_BOUNDS, "out of bounds");
    FAILS(hydrant_put_list(memory, right, 8, 2, NULL, mine, from), HYDRANT_ERROR_NULL, "remote offsets");
    size_t endless[] = {0, SIZE_MAX};
    FAILS(hydrant_put_list(memory, right, 8, 2, from, mine, endless), HYDRANT_ERROR_OVERFLOW, "any memory");
    size_t overlapping[] = {0, 4};
    FAILS(hydrant_put_list(memory, me, 8, 1, overlapping, own, overlapping + 1), HYDRANT_ERROR_OVERLAP, "overlap");
    barrier();
}

static void accumulates(void) {
    double *sums = (double *)(void *)own, two = 2, data[8];
    for (int i = 0; i < 100; i++) sums[i] = 1;
    for (int i = 0; i < 8; i++) data[i] = me + i;
    barrier();
    for (uint32_t rank = 0; rank < ranks; rank++) {
        WORKS(hydrant_accumulate(memory, rank, 0, HYDRANT_F64, &two, data, sizeof data));
        hydrant_section to = {.start = 80, .run = 8, .levels = &(hydrant_level){4, 16}, .level_count = 1};
        hydrant_section from = {.start = 0, .run = 8, .levels = &(hydrant_level){4, 8}, .level_count = 1};
        WORKS(hydrant_accumulate_section(memory, rank, &to, HYDRANT_F64, NULL, data, &from));
        size_t remote[] = {400, 408, 424}, local[] = {0, 16, 8};
        WORKS(hydrant_accumulate_list(memory, rank, 8, 3, remote, HYDRANT_F64, &two, data, local));
    }
    barrier();
    double all = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) all += rank;
    for (int i = 0; i < 8; i++) CHECK(sums[i] == 1 + 2 * (all + i * (double)ranks), "%d: %g", i, sums[i]);
    for (int i = 0; i < 4; i++) CHECK(sums[10 + 2 * i] == 1 + all + i * (double)ranks, "%d: %g", i, sums[10 + 2 * i]);
    int which[] = {50, 51, 53}, index[] = {0, 2, 1};
    for (int i = 0; i < 3; i++)
        CHECK(sums[which[i]] == 1 + 2 * (all + index[i] * (double)ranks), "%d: %g", i, sums[which[i]]);
    CHECK(sums[52] == 1 && sums[11] == 1 && sums[8] == 1, "others stay");
    barrier();
    int32_t *small = (int32_t *)(void *)own, minus = -3, one = 1;
    small[0] = 100;
    barrier();
    WORKS(hydrant_accumulate(memory, right, 0, HYDRANT_I32, &minus, &one, 4));
    barrier();
    IS(small[0], 97);
    float complex_[2] = {1, 2}, times[2] = {0, 1};
    float *there = (float *)(void *)own;
    there[0] = there[1] = 0;
    barrier();
    WORKS(hydrant_accumulate(memory, right, 0, HYDRANT_C32, times, complex_, 8));
    barrier();
    CHECK(there[0] == -2 && there[1] == 1, "%g %g", there[0], there[1]);
    FAILS(hydrant_accumulate(memory, right, 0, HYDRANT_F64, &two, data, 12), HYDRANT_ERROR_LENGTH, "whole");
    FAILS(hydrant_accumulate(memory, right, 0, HYDRANT_U8, &two, data, 8), HYDRANT_ERROR_ARGUMENT, "no type");
    FAILS(hydrant_accumulate(memory, right, BYTES - 4, HYDRANT_F64, &two, data, 8), HYDRANT_ERROR_BOUNDS, "bounds");
    barrier();
}

int main(void) {
    begin();
    memory = shared(BYTES, &own);
    right_answer = room(BYTES);
    mine = room(BYTES);
    sections();
    lists();
    accumulates();
    WORKS(hydrant_free(memory));
    free(right_answer);
    free(mine);
    return end();
}
