/* Releases around a loss: tombstones and `forget` messages. One lock, two nodes, leases 1 to LEASES (the number is the token), one Redis and one older copy.
 *
 * What must not happen: a lease whose holder was told "released" stands in Redis again. Nobody holds it, so the lock would be blocked for the rest of its ttl.
 * Unlike in recover.pml a `forget` takes its time, and may be lost with the connection; then both nodes vouch for one lease. Only what was said of a lease that is
 * released when Redis fails gets there in time: without that the lease may come back until its ttl ends, which no rule can help.
 *
 * Losses: to the copy (which is empty at first, so also of everything), at most LOSSES.
 * Rules that can be switched off:
 *   NO_TOMBSTONE          a release in the window leaves "released, token" at the lock
 *   NO_TOMBSTONE_ABSENT   ... also when the lease isn't there yet and the node knows it
 *   NO_STRICT             a tombstone refuses its own token too, not only lesser ones
 *   NO_OVER_TOMBSTONE     a greater token is put back over a tombstone
 *   NO_FORGET             a release or renewal tells the node that the lock named until then
 *   NO_FORGET_ORDER       a message that was sent before the node itself renewed the lease once more changes nothing
 */
#ifndef LEASES
#define LEASES 2
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#define NODES 2
#define OTHER(n) (1 - (n))

mtype = { P1_two_live, P3_not_back, released_came_back }
#define MUST(condition, promise) if :: (condition) :: else -> printf("BROKEN %e\n", promise); assert(false) fi

/* Redis and the copy */
byte lock, tombstone, old_lock;
bit named, old_named;  /* the node that granted or last renewed */
bool open, window;     /* this life was opened; its window */
byte losses;
/* nodes */
bool attached[NODES];
byte entry[NODES];     /* the lease that the table holds for this lock */
bool todo[NODES];
byte forget[NODES];    /* a message under way to this node: forget this lease */
/* what holders know */
byte granted, live, broken, released; /* live: a lease, or 0; released: the greatest lease whose holder was told so */
byte n, there, told;

inline any_node() { if :: n = 0 :: n = 1 fi }
inline done() { n = 0; there = 0; told = 0 }

inline drop(nn) { entry[nn] = 0; todo[nn] = false }

/* A node hears what was said before, in order. */
inline hear(nn) {
    if :: forget[nn] != 0 && entry[nn] == forget[nn] -> drop(nn) :: else fi;
    forget[nn] = 0
}

/* The lock named another node: tell it. */
inline tell_other(l) {
#ifndef NO_FORGET
    if
    :: named != n -> hear(OTHER(n)); forget[OTHER(n)] = l
    :: else
    fi
#endif
    skip
}

inline bury(l) {
    lock = 0;
#ifndef NO_TOMBSTONE
    if :: window -> tombstone = l :: else fi
#endif
    told = 1
}

inline attach() {
    any_node();
    if
    :: !attached[n] ->
        if :: forget[n] != 0 -> hear(n) :: forget[n] > released -> forget[n] = 0 :: else fi;
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
        :: lock == entry[n] -> skip
        :: lock != entry[n] && (there < entry[n]
#ifdef NO_STRICT
            || tombstone == entry[n]
#endif
#ifdef NO_OVER_TOMBSTONE
            ) && (tombstone == 0
#endif
            ) ->
            MUST(entry[n] > released || entry[n] == live, released_came_back);
            lock = entry[n]; named = n; tombstone = 0
        :: else ->
            entry[n] = 0 /* refused: dropped for good */
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
        granted++; lock = granted; named = n; entry[n] = granted; todo[n] = false;
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
    :: attached[n] && lock == live && (!window || entry[n] == live) ->
        tell_other(live);
#ifndef NO_FORGET_ORDER
        forget[n] = 0; /* what is under way to this node is older than its renewal */
#endif
        named = n; entry[n] = live; printf("RENEW node %d lease %d\n", n, live)
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
        :: told -> printf("RELEASE node %d lease %d\n", n, live); released = live; if :: entry[n] == live -> drop(n) :: else fi; live = 0
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
    :: atomic { losses < LOSSES && open && !window && (old_lock != lock || old_named != named) -> old_lock = lock; old_named = named }
    :: atomic { losses < LOSSES -> losses++; printf("LOSS: lock %d again, was %d\n", old_lock, lock);
        lock = old_lock; named = old_named; tombstone = 0; open = false; window = false; attached[0] = false; attached[1] = false }
    :: atomic { any_node(); if :: attached[n] && forget[n] != 0 -> printf("FORGET node %d lease %d\n", n, forget[n]); hear(n) :: else fi; done() }
    :: atomic { attach() }
    :: atomic { put_back() }
    :: atomic { window -> close_window() }
    :: atomic { open && !window && lock == 0 && granted < LEASES -> acquire() }
    :: atomic { live != 0 -> renew() }
    :: atomic { live != 0 -> release() }
    :: atomic { live != 0 && lock == live && !window && broken == 0 -> break_lease() }
    :: atomic { broken != 0 && lock == broken -> release_broken() }
    od
}
