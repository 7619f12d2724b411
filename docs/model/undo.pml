/* Undo against retry: one lock, one lease id X whose client repeats its call through either of two nodes, another client B.
 *
 * A call of X runs in Redis, and its reply to the client is lost or judged late (deadline, a client that left, too few replicas); its node then sends an undo. The
 * client may repeat the call with the same lease id, through another node or connection, also when it was told already (a copy of the request that was delayed); so
 * an undo may run after any of them, and undos overtake one another.
 *
 * With LOSS Redis may fall back once to an older copy of its data, or to none. A window opens; each node puts its lease of X back, under the number it knows; undos
 * under way run in the window or after it, but never between a node's attach and what it puts back (one connection, in order). A lease is in the table of the node
 * whose call was answered last; the message to the other node is lost here, if it would help.
 *
 * Rules that can be switched off:
 *   NO_CONFIRM      the lock holds the confirm number of the call that it was granted to, and an undo fires on its own number only; off: it goes by the lease id alone
 *   NO_KEPT         a repeat that finds its lease takes it under a number that no undo carries: an earlier call may have been told; off: it writes its call's own
 *   NO_KEPT_BACK    a put-back that finds the lease there under another number than its own does the same; off: it leaves what is there
 *   NO_PUT_NUMBER   a put-back writes the number that the lease stood under, so that an undo still under way finds it; off: one that no undo carries
 *   NO_DROP         who sends an undo drops the lease that it is about from its table
 *   NO_UNDO_BELOW   an undo in the window leaves a tombstone for lesser tokens only: the other node may vouch for this very lease; off: for this one too
 */
#ifndef CALLS
#define CALLS 3 /* of X: the first and its repeats */
#endif
#define KEPT 99 /* a number that no undo carries */

mtype = { free, X, B, P1_two_live, P8_not_undone }
#define MUST(condition, promise) if :: (condition) :: else -> printf("BROKEN %e\n", promise); assert(false) fi

mtype lock = free, old_lock = free;
byte confirm, old_confirm; /* in the lock: number of the call that may still be undone */
bit named, old_named;   /* its node */
bool tombstone;         /* refuses X */
bool x_live, b_live;    /* what the clients know */
byte calls;
bool undo[CALLS + 1];   /* undos under way: one may overtake another */
bit by[CALLS + 1];      /* the call's node */
bool told[CALLS + 1];   /* the call's client */
byte entry[2];          /* the number under which the node's table has the lease of X, 0: not there */
bool todo[2];           /* it has to put it back */
bool window, lost, b_asked;
bool again;             /* what was undone stands again, in the copy */
byte u;
bit n;

/* Where X called only once, and the call was undone, nothing of it stands. (Once it has repeated the call, the lease may have to live out its ttl; and so it has when
 * a copy has what was undone since.) */
inline check_leak() {
    MUST(calls != 1 || told[1] || undo[1] || lock != X || again, P8_not_undone)
}

active proctype world() {
    do
    :: atomic { calls < CALLS && !window && (lock == X || lock == free) ->
        calls++;
        if :: n = 0 :: n = 1 fi;
        by[calls] = n;
        if
        :: lock == free -> lock = X; confirm = calls
#ifndef NO_KEPT
        :: lock == X -> confirm = KEPT
#else
        :: lock == X -> confirm = calls
#endif
        fi;
        named = n; entry[n] = confirm;
        if
        :: x_live = true; told[calls] = true; printf("CALL %d by node %d: X told that it holds\n", calls, n)
        :: undo[calls] = true; printf("CALL %d by node %d: X not told, an undo is under way\n", calls, n);
#ifndef NO_DROP
            if :: confirm == calls -> entry[n] = 0 :: else fi
#endif
        fi;
        n = 0 }
    :: atomic { true ->
        u = 1;
        do :: u < CALLS -> u++ :: break od;
        if
        :: undo[u] && !todo[by[u]] ->
            undo[u] = false;
            if
#ifndef NO_CONFIRM
            :: lock == X && confirm == u && named == by[u] ->
#else
            :: lock == X ->
#endif
                lock = free; confirm = 0;
#ifdef NO_UNDO_BELOW
                tombstone = window
#endif
            :: else
            fi;
            printf("UNDO of call %d: lock %e\n", u, lock)
        :: else
        fi;
        u = 0; check_leak() }
#ifdef LOSS
    :: atomic { !lost && lock != B -> old_lock = lock; old_confirm = confirm; old_named = named }
    :: atomic { !lost && !b_asked && calls > 0 ->
        lost = true; window = true;
        if
        :: lock = free; confirm = 0
        :: old_lock == X -> again = (calls == 1 && lock == free && !undo[1]); lock = X; confirm = old_confirm; named = old_named
        fi;
        todo[0] = (entry[0] != 0); todo[1] = (entry[1] != 0);
        printf("LOSS: lock %e number %d of node %d\n", lock, confirm, named) }
    :: atomic { window ->
        if :: n = 0 :: n = 1 fi;
        if
        :: todo[n] ->
            todo[n] = false;
            if
            :: lock == free && !tombstone ->
                lock = X; named = n;
#ifndef NO_PUT_NUMBER
                confirm = entry[n]
#else
                confirm = KEPT
#endif
#ifndef NO_KEPT_BACK
            :: lock == X && (confirm != entry[n] || named != n) -> confirm = KEPT; named = n
#endif
            :: else -> if :: lock == free -> entry[n] = 0 :: else fi
            fi;
            printf("PUT BACK by node %d: lock %e number %d\n", n, lock, confirm)
        :: else
        fi;
        n = 0; check_leak() }
    /* A client that has its answer now finds out that it can't have: what was told was not read. */
    :: atomic { lost && calls > 0 && told[calls] && calls == 1 && !undo[1] && !todo[by[1]] ->
        told[1] = false; undo[1] = true; x_live = false; printf("CALL 1 was not read: an undo is under way\n");
#ifndef NO_DROP
        if :: entry[by[1]] == 1 -> entry[by[1]] = 0 :: else fi
#endif
        }
    :: atomic { window && !todo[0] && !todo[1] -> window = false; tombstone = false; printf("WINDOW CLOSES: lock %e\n", lock) }
#endif
    :: atomic { lock == free && !window && !b_asked ->
        b_asked = true; lock = B; b_live = true; printf("GRANT to B\n");
        MUST(!x_live, P1_two_live) }
    :: atomic { x_live && lock == X && !window -> x_live = false; lock = free; confirm = 0; calls = CALLS; entry[0] = 0; entry[1] = 0;
        told[1] = true; /* a lease id names one possession */
        printf("RELEASE by X\n") }
    :: atomic { b_live -> b_live = false; lock = free; printf("RELEASE by B\n") }
    od
}
