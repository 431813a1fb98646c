/* GASNet-EX in `cargo xtask beside-peers`, by the conduit for which it is compiled. */
#include <gasnetex.h>
#include <gasnet_coll.h>

enum { FIELD = 16 << 20, REQUEST = GEX_AM_INDEX_BASE, REPLY };

static int rank, ranks;
static char *own, *there;
static gex_TM_t team;
static volatile int requests, replies;

static inline void put_later(size_t at, size_t bytes)
{
    gex_RMA_PutNBI(team, 1, there + at, own + at, bytes, GEX_EVENT_DEFER, 0);
}

static inline void get_later(size_t at, size_t bytes)
{
    gex_RMA_GetNBI(team, own + at, 1, there + at, bytes, 0);
}

static inline void quiet(void) { gex_NBI_Wait(GEX_EC_ALL, 0); }

static inline void put_now(size_t at, size_t bytes)
{
    gex_RMA_PutBlocking(team, 1, there + at, own + at, bytes, 0);
}

static inline void get_now(size_t at, size_t bytes)
{
    gex_RMA_GetBlocking(team, own + at, 1, there + at, bytes, 0);
}

#define HAS_VALUES
static inline void put_value(size_t at, uint64_t word)
{
    gex_RMA_PutBlockingVal(team, 1, there + at, word, 8, 0);
}

static void answer(gex_Token_t token)
{
    requests++;
    gex_AM_ReplyShort0(token, REPLY, 0);
}

static void answered(gex_Token_t token)
{
    (void)token;
    replies++;
}

static void serve(int count)
{
    static int served;
    served += count;
    GASNET_BLOCKUNTIL(requests >= served);
}

static void ask(void)
{
    int before = replies;
    gex_AM_RequestShort0(team, 1, REQUEST, 0);
    GASNET_BLOCKUNTIL(replies != before);
}

static void barrier(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

static void all_reduce(int n);

#include "suite.h"

static void all_reduce(int n)
{
    gex_Event_Wait(gex_Coll_ReduceToAllNB(team, numbers, numbers, GEX_DT_DBL, sizeof(double), n, GEX_OP_ADD, NULL,
                                          NULL, 0));
}

int main(int count, char **arguments)
{
    gex_Client_t client;
    gex_EP_t endpoint;
    gex_Segment_t segment;
    gex_AM_Entry_t handlers[] = {
        {REQUEST, (gex_AM_Fn_t)answer, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "answer"},
        {REPLY, (gex_AM_Fn_t)answered, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0, NULL, "answered"},
    };
    gex_Client_Init(&client, &endpoint, &team, "peers", &count, &arguments, 0);
    rank = gex_TM_QueryRank(team);
    ranks = gex_TM_QuerySize(team);
    gex_Segment_Attach(&segment, team, FIELD);
    gex_EP_RegisterHandlers(endpoint, handlers, 2);
    memset(gex_Segment_QueryAddr(segment), 1, FIELD);
    own = malloc(FIELD);
    memset(own, 1, FIELD);
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, ranks > 1, (void **)&there, NULL, NULL, 0));
    barrier();
    measure_all(count > 1 && strcmp(arguments[1], "smp") == 0);
    barrier();
    gasnet_exit(0);
    return 0;
}
