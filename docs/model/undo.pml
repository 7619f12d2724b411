/* Undo against retry: one lock, one lease id X whose client repeats its call, another client B.
 *
 * A call of X runs in Redis, and its reply to the client is lost or judged late (deadline, a client that left, too few replicas); its node then sends an undo. The
 * client may repeat the call with the same lease id, through another node or connection, also when it was told already (a copy of the request that was delayed); so
 * an undo may run after any of them, and undos overtake one another.
 *
 * Rules that can be switched off:
 *   NO_CONFIRM   the lock holds the confirm number of the call that it was granted to, and an undo fires on its own number only; off: it goes by the lease id alone
 *   NO_KEPT      a repeat that finds its lease writes 0 there: an earlier call may have been told, so nothing undoes it any more; off: it writes its own number
 */
#ifndef CALLS
#define CALLS 3 /* of X: the first and its repeats */
#endif

mtype = { free, X, B, P1_two_live }
#define MUST(condition, promise) if :: (condition) :: else -> printf("BROKEN %e\n", promise); assert(false) fi

mtype lock = free;
byte confirm;           /* in the lock: number of the call that may still be undone, 0 none */
bool x_live, b_live;    /* what the clients know */
byte calls;
bool undo[CALLS + 1];   /* undos under way: one may overtake another */
bool b_asked;
byte u;

active proctype world() {
    do
    :: atomic { calls < CALLS && (lock == X || lock == free) ->
        calls++;
        if
        :: lock == free -> lock = X; confirm = calls
#ifndef NO_KEPT
        :: lock == X -> confirm = 0
#else
        :: lock == X -> confirm = calls
#endif
        fi;
        if
        :: x_live = true; printf("CALL %d: X told that it holds\n", calls)
        :: undo[calls] = true; printf("CALL %d: X not told, an undo is under way\n", calls)
        fi }
    :: atomic { true ->
        u = 1;
        do :: u < CALLS -> u++ :: break od;
        if
        :: undo[u] ->
            undo[u] = false;
            if
#ifndef NO_CONFIRM
            :: lock == X && confirm == u -> lock = free; confirm = 0
#else
            :: lock == X -> lock = free; confirm = 0
#endif
            :: else
            fi;
            printf("UNDO of call %d: lock %e\n", u, lock)
        :: else
        fi;
        u = 0 }
    :: atomic { lock == free && !b_asked ->
        b_asked = true; lock = B; b_live = true; printf("GRANT to B\n");
        MUST(!x_live, P1_two_live) }
    :: atomic { x_live && lock == X -> x_live = false; lock = free; confirm = 0; calls = CALLS; /* a lease id names one possession */
        printf("RELEASE by X\n") }
    :: atomic { b_live -> b_live = false; lock = free; printf("RELEASE by B\n") }
    od
}
