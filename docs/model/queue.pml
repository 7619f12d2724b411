/* The queue of one lock: CLIENTS clients at two nodes, each of which wants the lock once. Tickets, wake-ups, dead nodes, clients that leave, a loss.
 *
 * Must hold: nobody is granted past a live waiter that came earlier (P6), and nobody waits for ever: when nothing can happen any more, nobody waits.
 * Every step of a node is one run of a script. A wake-up is a hint that may be lost; the slow poll is there for that.
 *
 * Faults (-D): DEATH (a node dies with its waiters, its key ends later; once), LEAVE (one client leaves), LOSS (once: the queue goes back to a copy, the clock to 0; the holder's
 * lease is put back, see recover.pml; the window closes when the waiters of living nodes have entered again), MESSAGES_KEPT (not a fault: no message is lost, and nobody polls).
 * Rules that can be switched off:
 *   NO_TURN          an acquire that finds the lock free takes it only if nobody alive is before it
 *   NO_FENCE_TICKET  tickets come from the fence; off: from Redis' clock
 *   NO_OLD_TICKET    after a loss a waiter enters again with the ticket that it had; off: with a new one
 *   NO_NODE_KEY      places of nodes whose key is gone are passed over
 *   NO_LIFE          places from another life are passed over, once the window is closed
 *   NO_GIVE_UP       a waiter whose client left gives up its place
 *   NO_POLL          waiters look again now and then in any case
 *   NO_WAKE          a release wakes the first waiter                           (with MESSAGES_KEPT)
 *   NO_WAKE_NEXT     so does a first waiter that leaves while the lock is free   (with MESSAGES_KEPT)
 *   NO_TIMER         waiters look when the holder's lease would end             (with MESSAGES_KEPT)
 */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifdef MESSAGES_KEPT
#define NO_POLL
#endif
#define NODE(c) ((c) % 2)

mtype = { idle, waits, holds, gone, P6_passed, waits_for_ever }
#define MUST(condition, promise) if :: (condition) :: else -> printf("BROKEN %e\n", promise); assert(false) fi

/* Redis: the place of each client (0 none), the life in which it was taken, and the copy */
byte ticket[CLIENTS], born[CLIENTS], old_ticket[CLIENTS], old_born[CLIENTS];
byte holder;           /* client + 1, 0 none */
byte fence, clock, life = 1;
bool window, lost, copied, left;
bool key[2] = true;    /* nodes' keys */
/* nodes */
bool alive[2] = true;
byte had[CLIENTS];     /* ticket, as the node remembers it */
bool wake[CLIENTS];    /* a message under way for this waiter */
bool due[CLIENTS];     /* its timer has run out */
/* the truth */
mtype client[CLIENTS] = idle;
byte came[CLIENTS];    /* in which order */
byte arrivals;
byte c, k, first;      /* scratch; first: client + 1 */

#ifndef NO_NODE_KEY
#define KEY_OK(w) (key[NODE(w)])
#else
#define KEY_OK(w) (true)
#endif
#ifndef NO_LIFE
#define LIFE_OK(w) (born[w] == life)
#else
#define LIFE_OK(w) (true)
#endif
#define COUNTS(w) (ticket[w] != 0 && KEY_OK(w) && LIFE_OK(w))
#define WAITING(w) (client[w] == waits && alive[NODE(w)])

inline any_client() { c = 0; do :: c < CLIENTS - 1 -> c++ :: break od }
inline done() { c = 0; k = 0; first = 0 }

/* Whose turn is it? */
inline find_first() {
    first = 0;
    for (k : 0 .. CLIENTS - 1) {
        if
        :: COUNTS(k) && (first == 0 || ticket[k] < ticket[first - 1]) -> first = k + 1
        :: else
        fi
    }
}

inline wake_first() {
    find_first();
    if :: first != 0 -> wake[first - 1] = true :: else fi
}

inline take_ticket() {
#ifndef NO_FENCE_TICKET
    fence++; ticket[c] = fence;
#else
    clock++; ticket[c] = clock;
#endif
    born[c] = life; had[c] = ticket[c]
}

inline grant() {
    for (k : 0 .. CLIENTS - 1) { MUST(k == c || !WAITING(k) || came[k] > came[c], P6_passed) }
    holder = c + 1; client[c] = holds; ticket[c] = 0; born[c] = 0; had[c] = 0; came[c] = 0; wake[c] = false; due[c] = false;
    printf("GRANT client %d\n", c)
}

inline arrive() {
    any_client();
    if
    :: client[c] == idle && alive[NODE(c)] ->
        find_first(); arrivals++; came[c] = arrivals; client[c] = waits;
        if
#ifndef NO_TURN
        :: holder == 0 && !window && first == 0 -> grant()
        :: !(holder == 0 && !window && first == 0) ->
#else
        :: holder == 0 && !window -> grant()
        :: !(holder == 0 && !window) ->
#endif
            take_ticket(); printf("WAIT client %d ticket %d\n", c, ticket[c]);
            if :: holder == 0 && !window && first != 0 -> wake[first - 1] = true :: else fi
        fi
    :: else
    fi;
    done()
}

/* The acquire of a waiter, run again. */
inline look() {
    find_first();
    if
    :: holder == 0 && !window && first == c + 1 -> grant()
    :: holder == 0 && !window && first != c + 1 && first != 0 -> wake[first - 1] = true
    :: else
    fi
}

inline hear() {
    any_client();
    if
    :: wake[c] -> wake[c] = false; if :: WAITING(c) && born[c] == life -> look() :: else fi
    :: else
    fi;
    done()
}

inline timer() {
    any_client();
    if
    :: due[c] -> due[c] = false; if :: WAITING(c) && born[c] == life -> look() :: else fi
    :: else
    fi;
    done()
}

/* One that helps: the others change nothing. */
inline poll() {
    any_client(); find_first();
    if
    :: WAITING(c) && born[c] == life && first == c + 1 -> printf("POLL client %d\n", c); grant()
    :: else
    fi;
    done()
}

inline release() {
    printf("RELEASE client %d\n", holder - 1);
    client[holder - 1] = gone; holder = 0;
#ifndef NO_WAKE
    if :: !window -> wake_first() :: else fi;
#endif
    done()
}

inline expire() {
    printf("EXPIRES client %d\n", holder - 1);
    client[holder - 1] = gone; holder = 0;
#ifndef NO_TIMER
    for (k : 0 .. CLIENTS - 1) { if :: WAITING(k) -> due[k] = true :: else fi };
#endif
    done()
}

inline leave() {
    any_client();
    if
    :: WAITING(c) ->
        printf("LEAVE client %d\n", c);
        left = true; find_first(); client[c] = gone; came[c] = 0; had[c] = 0; due[c] = false;
#ifndef NO_GIVE_UP
        ticket[c] = 0; born[c] = 0;
#ifndef NO_WAKE_NEXT
        if :: first == c + 1 && holder == 0 && !window -> wake_first() :: else fi;
#endif
#endif
    :: else
    fi;
    done()
}

inline die() {
    if :: c = 0 :: c = 1 fi;
    printf("DEATH of node %d\n", c); alive[c] = false;
    for (k : 0 .. CLIENTS - 1) {
        if
        :: NODE(k) == c && client[k] != holds -> client[k] = gone; came[k] = 0; had[k] = 0; wake[k] = false; due[k] = false
        :: else
        fi
    }
    done()
}

inline copy_queue() {
    copied = true;
    for (k : 0 .. CLIENTS - 1) { old_ticket[k] = ticket[k]; old_born[k] = born[k] }
    done()
}

inline lose() {
    printf("LOSS\n");
    lost = true; window = true; life = 2; clock = 0;
    for (k : 0 .. CLIENTS - 1) { ticket[k] = old_ticket[k]; born[k] = old_born[k]; old_ticket[k] = 0; old_born[k] = 0; wake[k] = false }
    done()
}

inline enter_again() {
    any_client();
    if
    :: WAITING(c) && born[c] != life ->
#ifndef NO_OLD_TICKET
        ticket[c] = had[c]; born[c] = life;
#else
        take_ticket();
#endif
        printf("ENTER AGAIN client %d ticket %d\n", c, ticket[c])
    :: else
    fi;
    done()
}

inline close_window() {
    first = 1;
    for (k : 0 .. CLIENTS - 1) { if :: WAITING(k) && born[k] != life -> first = 0 :: else fi }
    if
    :: first == 1 -> window = false; printf("WINDOW CLOSES\n"); for (k : 0 .. CLIENTS - 1) { if :: WAITING(k) -> due[k] = true :: else fi }
    :: else
    fi;
    done()
}

#define SOME(what) (what(0) || what(1) || what(2) || (CLIENTS > 3 && what(CLIENTS - 1)))
#define MAY_ARRIVE(w) (client[w] == idle && alive[NODE(w)])
#define WOKEN(w) (wake[w])
#define DUE(w) (due[w])
#define OUTSIDE(w) (WAITING(w) && born[w] != life)
#define NOT_BEFORE(k, w) ((k) >= CLIENTS || !COUNTS((k) % CLIENTS) || ticket[(k) % CLIENTS] >= ticket[w])
#define COMES_FIRST(w) (WAITING(w) && COUNTS(w) && born[w] == life && NOT_BEFORE(0, w) && NOT_BEFORE(1, w) && NOT_BEFORE(2, w) && NOT_BEFORE(3, w))

active proctype world() {
end:
    do
    :: atomic { SOME(MAY_ARRIVE) -> arrive() }
    :: atomic { SOME(WOKEN) -> hear() }
    :: atomic { SOME(DUE) -> timer() }
#ifndef NO_POLL
    :: atomic { holder == 0 && !window && SOME(COMES_FIRST) -> poll() }
#endif
    :: atomic { holder != 0 && alive[NODE(holder - 1)] && !window -> release() }
    :: atomic { holder != 0 -> expire() }
    :: atomic { window && SOME(OUTSIDE) -> enter_again() }
    :: atomic { window -> close_window() }
#ifndef MESSAGES_KEPT
    :: atomic { SOME(WOKEN) -> any_client(); wake[c] = false; done() }
#endif
#ifdef LEAVE
    :: atomic { !left && SOME(WAITING) -> leave() }
#endif
#ifdef DEATH
    :: atomic { alive[0] && alive[1] -> die() }
    :: atomic { !alive[0] && key[0] -> key[0] = false; printf("KEY of node 0 ends\n") }
    :: atomic { !alive[1] && key[1] -> key[1] = false; printf("KEY of node 1 ends\n") }
#endif
#ifdef LOSS
    :: atomic { !lost && !copied -> copy_queue() }
    :: atomic { !lost -> lose() }
#endif
    :: timeout -> MUST(!SOME(WAITING), waits_for_ever); break
    od
}
