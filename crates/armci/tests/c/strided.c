/* Sections of arrays with up to 8 stride levels and pseudo-random shapes. */
#include "check.h"

enum { MOST = 600000, ROUNDS = 60 };

typedef struct {
    int levels, count[9], src[8], dst[8];
} Shape;

/* The number of bytes from the first to the last one. */
static long span(const Shape *shape, const int *stride) {
    long bytes = shape->count[0];
    for (int level = 0; level < shape->levels; level++)
        bytes += (long)stride[level] * (shape->count[level + 1] - 1);
    return bytes;
}

static Shape shape_of(uint64_t *seed, int unit) {
    for (;;) {
        Shape shape = {.levels = between(seed, 0, 8)};
        int most = shape.levels > 5 ? 2 : 4;
        shape.count[0] = unit * between(seed, 1, 9);
        int src = shape.count[0], dst = shape.count[0];
        for (int level = 0; level < shape.levels; level++) {
            shape.count[level + 1] = between(seed, 1, most);
            shape.src[level] = src + unit * between(seed, 0, 3);
            shape.dst[level] = dst + unit * between(seed, 0, 3);
            src = shape.src[level] * shape.count[level + 1];
            dst = shape.dst[level] * shape.count[level + 1];
        }
        if (span(&shape, shape.src) <= MOST && span(&shape, shape.dst) <= MOST) return shape;
    }
}

typedef void Act(char *to, const char *from, int bytes);

static void copy(char *to, const char *from, int bytes) { memcpy(to, from, (size_t)bytes); }

static void add_ints(char *to, const char *from, int bytes) {
    for (int at = 0; at < bytes / 4; at++) ((int *)(void *)to)[at] += 3 * ((const int *)(const void *)from)[at];
}

static void add_doubles(char *to, const char *from, int bytes) {
    for (int at = 0; at < bytes / 8; at++)
        ((double *)(void *)to)[at] += 0.5 * ((const double *)(const void *)from)[at];
}

/* The serial answer: one run after the other. */
static void serially(const Shape *shape, int level, char *to, const char *from, Act *act) {
    if (level == 0) {
        act(to, from, shape->count[0]);
        return;
    }
    for (int turn = 0; turn < shape->count[level]; turn++)
        serially(shape, level - 1, to + (long)turn * shape->dst[level - 1], from + (long)turn * shape->src[level - 1], act);
}

static void **all, **flags;
static char *own, *right_answer, *found;
static int right, left;

/* Checks that the memory here holds the left process's serial answer, gaps included. */
static void check_here(const Shape *shape, Act *act, int round, const char *how) {
    ARMCI_Barrier();
    char *their = room(MOST);
    for (int at = 0; at < MOST / 4; at++) ((int *)(void *)their)[at] = left * 1000 + at + round;
    if (act == add_doubles)
        for (int at = 0; at < MOST / 8; at++) ((double *)(void *)their)[at] = left * 1000 + at + round;
    memset(right_answer, 0, MOST);
    serially(shape, shape->levels, right_answer, their, act);
    if (memcmp(right_answer, all[me], MOST)) {
        long at = 0;
        while (right_answer[at] == ((char *)all[me])[at]) at++;
        CHECK(0, "%s of %d levels in round %d: the byte %ld", how, shape->levels, round, at);
    }
    free(their);
    memset(all[me], 0, MOST);
    ARMCI_Barrier();
}

int main(void) {
    begin();
    right = (me + 1) % processes;
    left = (me + processes - 1) % processes;
    all = shared(MOST);
    flags = shared(sizeof(int));
    own = room(MOST);
    right_answer = room(MOST);
    found = room(MOST);
    uint64_t seed = 7;
    int flag = 0;
    for (int round = 0; round < ROUNDS; round++) {
        Shape s = shape_of(&seed, 1);
        void *there = all[right];
        for (int at = 0; at < MOST / 4; at++) ((int *)(void *)own)[at] = me * 1000 + at + round;
        WORKS(ARMCI_PutS(own, s.src, there, s.dst, s.count, s.levels, right));
        check_here(&s, copy, round, "PutS");

        WORKS(ARMCI_PutS_flag(own, s.src, there, s.dst, s.count, s.levels, flags[right], ++flag, right));
        until(flags[me], flag);
        check_here(&s, copy, round, "PutS_flag");
        WORKS(ARMCI_PutS_flag_dir(own, s.src, there, s.dst, s.count, s.levels, flags[right], ++flag, right));
        until(flags[me], flag);
        check_here(&s, copy, round, "PutS_flag_dir");

        armci_hdl_t handle;
        ARMCI_INIT_HANDLE(&handle);
        if (round % 2) ARMCI_SET_AGGREGATE_HANDLE(&handle);
        WORKS(ARMCI_NbPutS(own, s.src, there, s.dst, s.count, s.levels, right, &handle));
        WORKS(ARMCI_Wait(&handle));
        check_here(&s, copy, round, "NbPutS");

        WORKS(ARMCI_Put(own, there, MOST, right));
        memset(found, 0, MOST);
        memset(right_answer, 0, MOST);
        serially(&s, s.levels, right_answer, own, copy);
        WORKS(ARMCI_GetS(there, s.src, found, s.dst, s.count, s.levels, right));
        CHECK(!memcmp(found, right_answer, MOST), "GetS in round %d", round);
        memset(found, 0, MOST);
        WORKS(ARMCI_NbGetS(there, s.src, found, s.dst, s.count, s.levels, right, &handle));
        WORKS(ARMCI_Wait(&handle));
        CHECK(!memcmp(found, right_answer, MOST), "NbGetS in round %d", round);
        ARMCI_Barrier();
        memset(all[me], 0, MOST);
        ARMCI_Barrier();

        s = shape_of(&seed, 4);
        int three = 3;
        WORKS(ARMCI_AccS(ARMCI_ACC_INT, &three, own, s.src, there, s.dst, s.count, s.levels, right));
        check_here(&s, add_ints, round, "AccS of ints");
        s = shape_of(&seed, 8);
        double half = 0.5;
        for (int at = 0; at < MOST / 8; at++) ((double *)(void *)own)[at] = me * 1000 + at + round;
        WORKS(ARMCI_NbAccS(ARMCI_ACC_DBL, &half, own, s.src, there, s.dst, s.count, s.levels, right, &handle));
        WORKS(ARMCI_Wait(&handle));
        check_here(&s, add_doubles, round, "NbAccS of doubles");
    }

    /* Runs that overlap at the destination: the later one stays, and all are added. Also columns, and
       sections that are almost columns. */
    const Shape odd[] = {
        {1, {16, 5}, {16}, {0}}, {1, {16, 5}, {16}, {8}}, {2, {16, 3, 4}, {16, 48}, {32, 8}},
        {1, {16, 5}, {0}, {16}}, {2, {16, 3, 4}, {8, 16}, {16, 48}}, {1, {16, 0}, {16}, {16}},
        {2, {8, 3, 0}, {8, 24}, {8, 24}}, {1, {0, 3}, {8}, {8}},
        {1, {8, 16}, {256}, {8192}}, {1, {8, 500}, {8}, {264}}, {1, {4, 100}, {36}, {4}}, {1, {16, 30}, {24}, {40}},
        {1, {4, 1000}, {4}, {4}}, {1, {12, 20}, {16}, {4}}, {1, {8, 7}, {4}, {4}}, {1, {8, 1}, {0}, {0}},
    };
    for (int at = 0; at < (int)(sizeof odd / sizeof *odd); at++) {
        Shape s = odd[at];
        for (int i = 0; i < MOST / 4; i++) ((int *)(void *)own)[i] = me * 1000 + i + at;
        WORKS(ARMCI_PutS(own, s.src, all[right], s.dst, s.count, s.levels, right));
        check_here(&s, copy, at, "PutS of an odd shape");
        int three = 3;
        WORKS(ARMCI_AccS(ARMCI_ACC_INT, &three, own, s.src, all[right], s.dst, s.count, s.levels, right));
        check_here(&s, add_ints, at, "AccS of an odd shape");
        WORKS(ARMCI_Put(own, all[right], 4096, right));
        memset(found, 0, MOST);
        memset(right_answer, 0, MOST);
        serially(&s, s.levels, right_answer, own, copy);
        WORKS(ARMCI_GetS(all[right], s.src, found, s.dst, s.count, s.levels, right));
        CHECK(!memcmp(found, right_answer, MOST), "GetS of an odd shape, number %d", at);
        ARMCI_Barrier();
        memset(all[me], 0, 4096);
        ARMCI_Barrier();
    }
    release(flags);
    release(all);
    return end();
}
