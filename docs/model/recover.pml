/* Attach and recover: one lock, NODES nodes, LEASES leases ever granted, one Redis and one older copy of its data.
 *
 * Redis runs one script at a time, so every event here is one atomic step, and there is one process: the world, which picks any event that can happen.
 * What a client knows of its lease is the truth (`live`); Redis and the tables of the nodes may lag behind it. Time is not measured: a deadline may pass at any
 * moment, the window closes at any moment at which the nodes that granted have attached and put back (window.pml makes numbers of that).
 *
 * Faults, each possible with its -D, at most LOSSES in a run:
 *   FULL      a crash that loses all data                      STALE        a restart or failover to the older copy
 *   FLUSH     FLUSHALL: data gone, connections stay            FAILBACK     an earlier server comes back with its run_id and its older data
 *   RESTART   a node loses its tables (one node, once)         BREAK        an operator ends a lease
 *   SAME_ID   a lease id that was released is asked for again  LATE_REPLY   a reply is read after its node has attached to the next life
 *   LATE      the window may close before every node is back: P1 and P3 are not promised then (LATE_P1 asks for P1 all the same), P2 is; and nothing comes back
 *             once the new life has granted
 * Rules that can be switched off (README.md says what breaks): NO_UUID NO_REPLID NO_LIFE_CHECK NO_FENCE_CHECK NO_CLOCK NO_JUMP NO_WINDOW NO_WINDOW_CHECK NO_GREATER_TOKEN
 *   NO_PUT_BACK NO_AGAIN NO_OWN_TABLE NO_PARK NO_NEW_TOKEN NO_FORGET NO_LATE_REPLY
 */
#ifndef NODES
#define NODES 2
#endif
#ifndef LEASES
#define LEASES 3
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#define JUMP 8 /* J: more than all grants of a run */

#define BIT(i) (1 << (i))
#define MAX(a, b) ((a) > (b) -> (a) : (b))

mtype = { P1_two_live, P2_token_fell, P3_not_back, released_came_back, put_back_after_grant }
#define MUST(condition, promise) if :: (condition) :: else -> printf("BROKEN %e\n", promise); assert(false) fi

/* What Redis keeps. life: the incarnation, 0 none; life_of: the server that it names; base: the fence at its opening. later: the lock's PX is that of a renewal. */
typedef data {
    byte fence, life, life_of, base;
    byte lock, token;
    bit later, window
}
data redis, old; /* old: the copy */
byte server = 1; /* run_id and master_replid of the server that answers */
byte servers = 1, lives, losses, restarts;

typedef node_state {
    bit connected;
    byte life, g;      /* as attached; the greatest fence seen */
    byte table, later; /* leases it vouches for; those of them whose renewal it knows */
    byte todo;         /* still to be put back */
#ifdef NO_AGAIN
    byte was_put_back;
#endif
    byte reply, reply_life /* a grant whose reply is under way, and the life in which it was asked for */
}
node_state node[NODES];

/* The truth. Sets of leases are masks. */
byte granted;           /* leases are numbered in the order of their grants */
byte token[LEASES + 1]; /* as told to the client */
byte live, renewed, told, released, broken;
#ifdef LATE
byte granted_before;    /* grants made before this life was opened */
#endif

byte n, i, k, m; /* scratch, 0 between events */
bit ok;

#define ATTACHED(n) (node[n].connected && node[n].life == redis.life && redis.life != 0)
#ifndef NO_FENCE_CHECK
#define FENCE_OK(n) (redis.fence >= node[n].g)
#else
#define FENCE_OK(n) (true)
#endif
/* the head of every script */
#ifndef NO_LIFE_CHECK
#define MAY_RUN(n) (ATTACHED(n) && FENCE_OK(n))
#else
#define MAY_RUN(n) (node[n].connected && FENCE_OK(n))
#endif

#ifndef NO_JUMP
#define ADOPTED(n) ((node[n].g > 0 && node[n].life != redis.life) -> node[n].g + JUMP : node[n].g)
#else
#define ADOPTED(n) (node[n].g)
#endif

#ifndef NO_WINDOW
#define MAY_GRANT (!redis.window)
#else
#define MAY_GRANT (true)
#endif

inline any_node() { n = 0; do :: n < NODES - 1 -> n++ :: break od }
inline any_lease() { i = 1; do :: i < LEASES -> i++ :: break od }
inline done() { n = 0; i = 0; k = 0; m = 0; ok = 0 }

inline copy(to, from) {
    to.fence = from.fence; to.life = from.life; to.life_of = from.life_of; to.base = from.base;
    to.lock = from.lock; to.token = from.token; to.later = from.later; to.window = from.window
}
inline wipe() {
    redis.fence = 0; redis.life = 0; redis.life_of = 0; redis.base = 0;
    free_lock(); redis.window = 0
}
inline free_lock() { redis.lock = 0; redis.token = 0; redis.later = 0 }
inline new_server() { servers++; server = servers }
inline drop_connections() { for (k : 0 .. NODES - 1) { node[k].connected = 0 } }
inline drop_entry(nn, l) { node[nn].table = node[nn].table & ~BIT(l); node[nn].todo = node[nn].todo & ~BIT(l) }
inline drop_everywhere(l) { for (k : 0 .. NODES - 1) { drop_entry(k, l) } }

/* No reply of the grant that stands in Redis is under way. */
inline reply_arrived() {
    ok = 1;
    for (k : 0 .. NODES - 1) { if :: node[k].reply == redis.lock -> ok = 0 :: else fi }
}

inline must_be_alone() {
#if !defined(LATE) || defined(LATE_P1)
    MUST((live & (live - 1)) == 0, P1_two_live)
#else
    skip
#endif
}

/* l was just told to its client: of two grants the later has the greater token. */
inline must_be_in_order(l) {
    for (k : 1 .. granted) {
        MUST(!(told & BIT(k)) || k == l || (k < l && token[k] < token[l]) || (k > l && token[k] > token[l]), P2_token_fell)
    }
}

/* A new life. The clock is past every token; where it is behind (NO_CLOCK) only the jump helps. */
inline open_life(nn) {
#ifndef NO_FENCE_CHECK
    redis.fence = MAX(redis.fence, node[nn].g);
#endif
#ifndef NO_JUMP
    redis.fence = redis.fence + JUMP;
#endif
#ifndef NO_CLOCK
    for (k : 1 .. granted) { redis.fence = MAX(redis.fence, token[k]) }
#endif
    redis.fence = MAX(redis.fence, 1);
#ifndef NO_UUID
    lives++; redis.life = lives;
#else
    redis.life = server;
#endif
    redis.life_of = server; redis.base = redis.fence; redis.window = 1;
#ifdef LATE
    granted_before = granted
#endif
}

inline attach() {
    any_node();
    if
    :: (!node[n].connected || node[n].life != redis.life || !FENCE_OK(n)) &&
#ifdef LATE_REPLY
        true ->
#else
        (node[n].reply == 0 || !node[n].connected) ->
            if :: !node[n].connected -> node[n].reply = 0 :: else fi; /* what wasn't read from a dead connection is lost */
#endif
        node[n].connected = 1;
        if
        :: redis.life != 0 && redis.life_of == server && redis.fence != 0 && FENCE_OK(n) -> redis.fence = MAX(redis.fence, ADOPTED(n))
        :: else -> open_life(n)
        fi;
        node[n].life = redis.life;
#ifdef NO_PUT_BACK
        skip;
#elif defined(NO_AGAIN)
        node[n].todo = node[n].table & ~node[n].was_put_back; /* what went back once is thought to be there for good */
#else
        node[n].todo = node[n].table;
#endif
        node[n].g = MAX(node[n].g, redis.fence);
        printf("ATTACH node %d: life %d fence %d window %d\n", n, redis.life, redis.fence, redis.window)
    :: else
    fi;
    done()
}

/* The window closes. */
inline close_window() {
    ok = 1;
#ifndef LATE
    for (k : 0 .. NODES - 1) {
        if
        :: !(MAY_RUN(k) && node[k].todo == 0 && node[k].reply == 0) && (node[k].g > 0 || node[k].table != 0 || node[k].reply != 0) -> ok = 0
        :: else
        fi
    }
#endif
    if
    :: ok -> redis.window = 0; printf("WINDOW CLOSES: lock %d, live %d\n", redis.lock, live);
#ifndef LATE
        MUST(live == 0 || (redis.lock != 0 && (live & BIT(redis.lock))), P3_not_back)
#endif
    :: else
    fi;
    done()
}

inline put_back() {
    any_node(); any_lease();
    if
    :: MAY_RUN(n) && (node[n].todo & BIT(i)) ->
        node[n].todo = node[n].todo & ~BIT(i);
#ifdef NO_AGAIN
        node[n].was_put_back = node[n].was_put_back | BIT(i);
#endif
        printf("PUT BACK node %d lease %d token %d: window %d, there %d token %d\n", n, i, token[i], redis.window, redis.lock, redis.token);
        if
#ifndef NO_WINDOW_CHECK
        :: redis.window ->
#else
        :: true ->
#endif
            if
            :: redis.lock == i && redis.token == token[i] -> if :: node[n].later & BIT(i) -> redis.later = 1 :: else fi
#ifndef NO_GREATER_TOKEN
            :: redis.lock != 0 && redis.lock != i && redis.token >= token[i] -> node[n].table = node[n].table & ~BIT(i)
            :: redis.lock == 0 || (redis.lock != i && redis.token < token[i]) ->
#else
            :: redis.lock != 0 && redis.lock != i -> skip /* whoever came first stays */
            :: redis.lock == 0 ->
#endif
#ifdef LATE
                MUST(granted == granted_before, put_back_after_grant);
#endif
#ifndef SAME_ID
                MUST(!(released & BIT(i)), released_came_back);
#endif
                redis.lock = i; redis.token = token[i]; redis.fence = MAX(redis.fence, token[i]);
                redis.later = ((node[n].later & BIT(i)) != 0)
            :: else /* another token of the same lease */
            fi
#ifndef NO_WINDOW_CHECK
        :: else -> if :: redis.lock != i -> node[n].table = node[n].table & ~BIT(i) :: else fi
#endif
        fi
    :: else
    fi;
    done()
}

inline grant() {
    granted++; redis.fence++; token[granted] = redis.fence;
    redis.lock = granted; redis.token = redis.fence; redis.later = 0
}

inline acquire() {
    any_node();
    if
    :: MAY_RUN(n) && node[n].reply == 0 ->
        grant(); node[n].reply = granted; node[n].reply_life = node[n].life;
        printf("GRANT node %d lease %d token %d\n", n, granted, redis.fence)
    :: else
    fi;
    done()
}

inline told_of_grant() {
    any_node();
    if
    :: node[n].reply != 0 ->
        i = node[n].reply; node[n].reply = 0; ok = 1;
        printf("REPLY node %d lease %d token %d\n", n, i, token[i]);
#ifndef NO_LATE_REPLY
        if :: node[n].reply_life != node[n].life -> ok = 0 :: else fi;
#endif
        node[n].reply_life = 0;
        if
        :: ok ->
            node[n].g = MAX(node[n].g, token[i]);
            for (m : 1 .. LEASES) { if :: (node[n].table & BIT(m)) && token[m] < token[i] -> drop_entry(n, m) :: else fi } /* by lock, the greatest token */
            node[n].table = node[n].table | BIT(i);
            told = told | BIT(i); live = live | BIT(i);
            must_be_in_order(i); must_be_alone()
        :: else
        fi
    :: else
    fi;
    done()
}

inline renew() {
    any_node(); any_lease();
    if
    :: MAY_RUN(n) && ((live | broken) & BIT(i)) && node[n].reply == 0 ->
        if
        :: redis.lock == i && redis.token == token[i] &&
#ifndef NO_OWN_TABLE
            (!redis.window || (node[n].table & BIT(i))) ->
#else
            true ->
#endif
            redis.later = 1; printf("RENEW node %d lease %d\n", n, i);
            if
            :: renewed = renewed | BIT(i); live = live | BIT(i); broken = broken & ~BIT(i);
                node[n].table = node[n].table | BIT(i); node[n].later = node[n].later | BIT(i); node[n].g = MAX(node[n].g, token[i]);
                must_be_alone()
            :: skip /* its reply is lost */
            fi
        :: redis.lock != i && !redis.window ->
            live = live & ~BIT(i); broken = broken & ~BIT(i); drop_entry(n, i); printf("LEASE LOST node %d lease %d\n", n, i)
        :: else /* recovering */
        fi
    :: else
    fi;
    done()
}

/* By its holder, or the holder gave up and the reply may be lost. */
inline release() {
    any_node(); any_lease();
    if
    :: MAY_RUN(n) && (live & BIT(i)) && node[n].reply == 0 ->
        printf("RELEASE node %d lease %d: there %d\n", n, i, redis.lock);
        live = live & ~BIT(i); released = released | BIT(i); drop_entry(n, i);
        if :: redis.lock == i -> free_lock() :: else fi;
#ifndef NO_FORGET
        drop_everywhere(i)
#endif
    :: else
    fi;
    done()
}

inline break_lease() {
    any_node(); reply_arrived();
    if
    :: ok && MAY_RUN(n) ->
        printf("BREAK node %d lease %d\n", n, redis.lock);
        if :: live & BIT(redis.lock) -> broken = broken | BIT(redis.lock); live = live & ~BIT(redis.lock) :: else fi;
        node[n].table = node[n].table & ~BIT(redis.lock); node[n].todo = node[n].todo & ~BIT(redis.lock);
#ifndef NO_FORGET
        for (k : 0 .. NODES - 1) { node[k].table = node[k].table & ~BIT(redis.lock); node[k].todo = node[k].todo & ~BIT(redis.lock) }
#endif
        free_lock()
    :: else
    fi;
    done()
}

/* A delayed copy of an acquire, or a client that uses one lease id for ever: the lease was released, and Redis, whose data are older, shows it as the holder. */
inline acquire_same_id() {
    any_node(); i = redis.lock;
    if
    :: MAY_RUN(n) && node[n].reply == 0 &&
#ifndef NO_PARK
        !redis.window ->
#else
        true ->
#endif
        printf("SAME ID node %d lease %d token %d base %d\n", n, i, redis.token, redis.base);
        if
#ifndef NO_NEW_TOKEN
        :: redis.token <= redis.base && granted < LEASES -> grant(); node[n].reply = granted; node[n].reply_life = node[n].life
        :: redis.token <= redis.base && granted == LEASES -> skip /* a grant more than this run has */
#endif
        :: else ->
            live = live | BIT(i);
            must_be_in_order(i); must_be_alone()
        fi
    :: else
    fi;
    done()
}

/* Leases that no other node knows at their last deadline are outside P3. */
inline restart_node() {
    any_node(); restarts++; printf("RESTART node %d\n", n);
    node[n].connected = 0; node[n].life = 0; node[n].g = 0; node[n].table = 0; node[n].later = 0; node[n].todo = 0; node[n].reply = 0; node[n].reply_life = 0;
    for (k : 0 .. NODES - 1) { m = m | (node[k].table & (node[k].later | ~renewed)) }
    live = live & m;
    done()
}

/* A holder's last deadline: the nodes know none that is later. */
inline deadline() {
    any_lease();
    if :: live & BIT(i) -> live = live & ~BIT(i); drop_everywhere(i); printf("DEADLINE lease %d\n", i) :: else fi;
    done()
}

/* PX: the holder is gone, or Redis doesn't know of the renewal. */
inline expire() {
    reply_arrived();
    if :: ok -> printf("EXPIRES lease %d\n", redis.lock); free_lock() :: else fi;
    done()
}

/* An entry that was renewed through another node ends at the deadline that it has. */
inline lapse() {
    any_node(); any_lease();
    if :: (node[n].table & BIT(i)) && (renewed & BIT(i)) && !(node[n].later & BIT(i)) -> drop_entry(n, i); printf("LAPSE node %d lease %d\n", n, i) :: else fi;
    done()
}

#define COPY_DIFFERS (old.fence != redis.fence || old.life != redis.life || old.life_of != redis.life_of || old.lock != redis.lock || old.token != redis.token || old.later != redis.later || old.window != redis.window)

active proctype world() {
    do
#if defined(STALE) || defined(FAILBACK)
    :: atomic { losses < LOSSES && COPY_DIFFERS -> printf("COPY fence %d life %d lock %d\n", redis.fence, redis.life, redis.lock); copy(old, redis) }
#endif
#ifdef FULL
    :: atomic { losses < LOSSES -> losses++; printf("LOSS of everything\n"); wipe(); new_server(); drop_connections(); done() }
#endif
#ifdef STALE
    :: atomic { losses < LOSSES -> losses++; printf("LOSS back to the copy\n"); copy(redis, old); new_server(); drop_connections(); done() }
#endif
#ifdef FLUSH
    :: atomic { losses < LOSSES -> losses++; printf("LOSS by FLUSHALL\n"); wipe() }
#endif
#ifdef FAILBACK
    :: atomic { losses < LOSSES && old.life != 0 && old.life_of != 0 && old.life_of != server ->
        losses++; printf("LOSS back to an earlier server\n"); copy(redis, old); redis.window = 0;
#ifndef NO_REPLID
        new_server();
#else
        server = old.life_of;
#endif
        drop_connections(); done() }
#endif
#ifdef RESTART
    :: atomic { restarts < 1 -> restart_node() }
#endif
#ifdef BREAK
    :: atomic { redis.lock != 0 && !redis.window && broken == 0 -> break_lease() }
#endif
#ifdef SAME_ID
    :: atomic { redis.lock != 0 && (released & BIT(redis.lock)) && !(live & BIT(redis.lock)) -> acquire_same_id() }
#endif
    :: atomic { live != 0 -> deadline() }
    :: atomic { redis.lock != 0 && ((live & BIT(redis.lock)) == 0 || ((renewed & BIT(redis.lock)) && !redis.later)) -> expire() }
    :: atomic { lapse() }
    :: atomic { redis.window -> close_window() }
    :: atomic { attach() }
    :: atomic { put_back() }
    :: atomic { granted < LEASES && redis.lock == 0 && MAY_GRANT -> acquire() }
    :: atomic { told_of_grant() }
    :: atomic { renew() }
    :: atomic { live != 0 -> release() }
    od
}
