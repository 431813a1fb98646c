/* Memory by its address, if the first argument is "on"; the refusal, if it is "off". */
#include "check.h"

static unsigned char given[10000];

int main(int argc, char **argv) {
    CHECK(argc == 2, "on or off");
    begin();
    uint64_t own = (uint64_t)(uintptr_t)given, theirs = 0;
    WORKS(hydrant_send_receive(job, left, 1, &own, 8, right, 1, &theirs, 8, NULL));
    unsigned char *mine = room(10000);
    fill(mine, 10000, me, 1);
    if (!strcmp(argv[1], "off")) {
        FAILS(hydrant_put_anywhere(job, right, theirs, mine, 8), HYDRANT_ERROR_REFUSED, "HYDRANT_ANYWHERE");
        barrier();
        return end();
    }
    hydrant_loan *loan = NULL;
    WORKS(hydrant_lend_anywhere(job, given, sizeof given, &loan));
    barrier();
    WORKS(hydrant_put_anywhere(job, right, theirs, mine, 10000));
    barrier();
    IS(differs(given, 10000, left, 1), -1);
    memset(mine, 0, 10000);
    WORKS(hydrant_get_anywhere(job, right, theirs + 10, mine, 9990));
    for (size_t i = 0; i < 9990; i++) IS(mine[i], pattern(me, 1, i + 10));
    if (ranks > 1) FAILS(hydrant_get_anywhere(job, right, 16, mine, 8), HYDRANT_ERROR_ADDRESS, "not mapped");
    FAILS(hydrant_put_anywhere(job, ranks, theirs, mine, 8), HYDRANT_ERROR_RANK, "out of range");
    hydrant_capabilities known;
    WORKS(hydrant_get_capabilities(job, &known, sizeof known));
    IS(known.anywhere, 1);
    barrier();
    WORKS(hydrant_end_loan(loan));
    FAILS(hydrant_end_loan(loan), HYDRANT_ERROR_HANDLE, "was freed");
    free(mine);
    return end();
}
