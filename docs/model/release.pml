/* Releases around a loss: tombstones and `forget` messages. One lock, two nodes, leases 1 to LEASES (the number is the token), one Redis and one older copy.
 *
 * What must not happen: a lease whose holder was told "released" stands in Redis again. Nobody holds it, so the lock would be blocked for the rest of its ttl.
 * Unlike in recover.pml a `forget` takes its time, and may be lost with the connection; then both nodes vouch for one lease. Only what was said of a lease that is
 * released when Redis fails gets there in time: without that the lease may come back until its ttl ends, which no rule can help. The answer to a renewal takes its
 * time too, on another connection, so it and a message may overtake each other. Each confirmation has a number, counted by its node; lock, table and message carry it.
 *
 * Losses: to the copy (which is empty at first, so also of everything), at most LOSSES. At most RENEWALS. With ANSWERS_LOST an answer under way is lost when Redis is.
 * Rules that can be switched off:
 *   NO_TOMBSTONE          a release in the window leaves "released, token" at the lock
 *   NO_TOMBSTONE_ABSENT   ... also when the lease isn't there yet and the node knows it
 *   NO_STRICT             a tombstone refuses its own token too, not only lesser ones
 *   NO_OVER_TOMBSTONE     a greater token is put back over a tombstone
 *   NO_FORGET             a release or renewal tells the node that the lock named until then
 *   NO_FORGET_ORDER       a message that was sent before the node itself renewed the lease once more changes nothing: its number is less than the table's
 *   NO_FORGET_AHEAD       a message that comes before the answer to the renewal that it is about makes that answer one that is not taken in
 *   NO_RELEASE_AHEAD      a release does the same to the answers that its node waits for
 */
#ifndef LEASES
#define LEASES 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef RENEWALS
#define RENEWALS 2
#endif
#define NODES 2
#define OTHER(n) (1 - (n))

mtype = { P1_two_live, P3_not_back, released_came_back }
#define MUST(condition, promise) if :: (condition) :: else -> printf("BROKEN %e\n", promise); assert(false) fi

/* Redis and the copy */
byte lock, tombstone, old_lock;
bit named, old_named;  /* the node that granted or last renewed ... */
byte stands, old_stands; /* ... under this number */
bool open, window;     /* this life was opened; its window */
byte losses, renewals;
/* nodes */
bool attached[NODES];
byte entry[NODES];     /* the lease that the table holds for this lock */
byte known[NODES];     /* its number */
bool todo[NODES];
byte numbers[NODES];   /* counts confirmations */
chan says[NODES] = [2] of { byte, byte }; /* messages under way to this node: forget this lease, as far as this number */
byte answer[NODES], answer_number[NODES]; /* to a renewal, under way to this node */
bool given_up[NODES];  /* it is not to be taken in */
/* what holders know */
byte granted, live, broken, released; /* live: a lease, or 0; released: the greatest lease whose holder was told so */
byte n, there, told, l, k;

inline any_node() { if :: n = 0 :: n = 1 fi }
inline done() { n = 0; there = 0; told = 0; l = 0; k = 0 }

inline drop(nn) { entry[nn] = 0; known[nn] = 0; todo[nn] = false }

inline no_answer(nn) { answer[nn] = 0; answer_number[nn] = 0; given_up[nn] = false }

inline hear(nn) {
    says[nn] ? l, k;
    if
    :: (entry[nn] == l
#ifndef NO_FORGET_ORDER
        && known[nn] <= k
#endif
        ) -> drop(nn)
    :: else
    fi;
#ifndef NO_FORGET_AHEAD
    if :: answer[nn] == l && answer_number[nn] <= k -> given_up[nn] = true :: else fi
#endif
    skip
}

/* The lock named another node: tell it. One that has not heard for long hears now. */
inline tell_other(lease) {
#ifndef NO_FORGET
    if
    :: named != n ->
        if :: full(says[OTHER(n)]) -> hear(OTHER(n)) :: nfull(says[OTHER(n)]) fi;
        says[OTHER(n)] ! lease, stands
    :: else
    fi
#endif
    skip
}

/* The lock names this node from now on, under a new number. */
inline confirm_by(nn) { numbers[nn]++; named = nn; stands = numbers[nn] }

inline take_answer(nn) {
    if :: !given_up[nn] -> entry[nn] = answer[nn]; known[nn] = answer_number[nn] :: given_up[nn] fi;
    no_answer(nn)
}

/* The connection breaks. */
inline last_answer(nn) {
    if
    :: answer[nn] != 0 -> take_answer(nn)
#ifdef ANSWERS_LOST
    :: answer[nn] != 0 -> no_answer(nn)
#endif
    :: answer[nn] == 0
    fi
}

inline bury(lease) {
    lock = 0;
#ifndef NO_TOMBSTONE
    if :: window -> tombstone = lease :: else fi
#endif
    told = 1
}

inline attach() {
    any_node();
    if
    :: !attached[n] ->
        do
        :: nempty(says[n]) -> hear(n)
        :: nempty(says[n]) -> says[n] ? <l, k>; if :: l > released -> says[n] ? l, k :: else -> hear(n) fi /* lost */
        :: empty(says[n]) -> break
        od;
        if :: !open -> open = true; window = true; tombstone = 0 :: else fi;
        attached[n] = true; todo[n] = (entry[n] != 0 && window);
        printf("ATTACH node %d: lock %d, entry %d\n", n, lock, entry[n])
    :: else
    fi;
    done()
}

inline put_back() {
    any_node();
    if
    :: attached[n] && todo[n] ->
        todo[n] = false;
        there = (lock != 0 -> lock : tombstone);
        printf("PUT BACK node %d lease %d: lock %d tombstone %d\n", n, entry[n], lock, tombstone);
        if
        :: lock == entry[n] -> if :: named == n && stands == known[n] :: else -> confirm_by(n) fi
        :: lock != entry[n] && (there < entry[n]
#ifdef NO_STRICT
            || tombstone == entry[n]
#endif
#ifdef NO_OVER_TOMBSTONE
            ) && (tombstone == 0
#endif
            ) ->
            MUST(entry[n] > released || entry[n] == live, released_came_back);
            lock = entry[n]; named = n; stands = known[n]; tombstone = 0
        :: else ->
            drop(n) /* refused: dropped for good */
        fi
    :: else
    fi;
    done()
}

inline close_window() {
    if
    :: attached[0] && attached[1] && !todo[0] && !todo[1] ->
        window = false; tombstone = 0; printf("WINDOW CLOSES: lock %d live %d\n", lock, live);
        MUST(live == 0 || lock == live, P3_not_back)
    :: else
    fi
}

inline acquire() {
    any_node();
    if
    :: attached[n] ->
        granted++; lock = granted; confirm_by(n); entry[n] = granted; known[n] = stands; todo[n] = false; no_answer(n);
        printf("GRANT node %d lease %d\n", n, granted);
        MUST(live == 0, P1_two_live);
        live = granted
    :: else
    fi;
    done()
}

inline renew() {
    any_node();
    if
    :: attached[n] && answer[n] == 0 && lock == live && (!window || entry[n] == live) ->
        renewals++; tell_other(live); confirm_by(n); answer[n] = live; answer_number[n] = stands;
        printf("RENEW node %d lease %d number %d\n", n, live, stands)
    :: else
    fi;
    done()
}

inline release() {
    any_node();
    if
    :: attached[n] ->
        there = (lock != 0 -> lock : tombstone);
        if
        :: lock == live -> tell_other(live); bury(live)
#ifndef NO_TOMBSTONE_ABSENT
        :: lock != live && window && entry[n] == live && there <= live -> bury(live)
#else
        :: lock != live && window && entry[n] == live && there <= live -> told = 1
#endif
        :: else /* recovering; after the window P3 has found it */
        fi;
        if
        :: told ->
            printf("RELEASE node %d lease %d\n", n, live); released = live;
#ifndef NO_RELEASE_AHEAD
            if :: answer[n] == live -> given_up[n] = true :: else fi;
#endif
            if :: entry[n] == live -> drop(n) :: else fi; live = 0
        :: else
        fi
    :: else
    fi;
    done()
}

/* An operator ends the lease; its holder doesn't know and may still release it, which Redis takes if it went back to the copy. */
inline break_lease() {
    any_node();
    if
    :: attached[n] ->
        printf("BREAK node %d lease %d\n", n, live);
        tell_other(live); if :: entry[n] == live -> drop(n) :: else fi;
        if :: answer[n] == live -> given_up[n] = true :: else fi; /* the answer to a break comes after it */
        broken = live; live = 0; lock = 0
    :: else
    fi;
    done()
}

inline release_broken() {
    any_node();
    if
    :: attached[n] -> printf("RELEASE node %d lease %d, which was broken\n", n, broken); tell_other(broken); bury(broken)
    :: else
    fi;
    done()
}

active proctype world() {
    do
    :: atomic { losses < LOSSES && open && !window && (old_lock != lock || old_named != named || old_stands != stands) ->
        old_lock = lock; old_named = named; old_stands = stands }
    :: atomic { losses < LOSSES -> losses++; printf("LOSS: lock %d again, was %d\n", old_lock, lock);
        last_answer(0); last_answer(1);
        lock = old_lock; named = old_named; stands = old_stands; tombstone = 0; open = false; window = false; attached[0] = false; attached[1] = false }
    :: atomic { any_node(); if :: attached[n] -> if :: nempty(says[n]) -> hear(n); printf("FORGET node %d lease %d number %d\n", n, l, k) :: empty(says[n]) fi :: else fi; done() }
    :: atomic { any_node(); if :: answer[n] != 0 -> printf("ANSWER node %d lease %d number %d\n", n, answer[n], answer_number[n]); take_answer(n) :: else fi; done() }
    :: atomic { attach() }
    :: atomic { put_back() }
    :: atomic { window -> close_window() }
    :: atomic { open && !window && lock == 0 && granted < LEASES -> acquire() }
    :: atomic { live != 0 && renewals < RENEWALS -> renew() }
    :: atomic { live != 0 -> release() }
    :: atomic { live != 0 && lock == live && !window && broken == 0 -> break_lease() }
    :: atomic { broken != 0 && lock == broken -> release_broken() }
    od
}
