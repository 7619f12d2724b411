/* --min-replicas: a master with REPLICAS replicas, of which MIN must have a grant or renewal before it is told. One lease at the master, another after a failover.
 *
 * The node that granted is cut off together with the deposed master, goes on there for a while, and puts nothing back; so this is what exclusion rests on when
 * recovery can't help. What the new master has is what had been replicated. A renewal moves the deadline on: deadline d passes when `now` comes to d.
 *
 * Must hold: the lease of the new master is not granted while the holder of the old one was told a deadline that is yet to come (P1).
 * Rules that can be switched off:
 *   NO_WAIT_GRANT   a grant waits for the replicas
 *   NO_WAIT_RENEW   a renewal too
 *   NO_OWN_WRITE    WAIT follows a write on its own connection; off: there was none on it, so WAIT has nothing to wait for
 *   NO_WRITE_AFTER  ... and that write follows the run of the script
 */
#ifndef REPLICAS
#define REPLICAS 1
#endif
#ifndef MIN
#define MIN REPLICAS
#endif
#define DEADLINES 3
#define WRITES (3 * DEADLINES)

mtype = { P1_two_live }
#define MUST(condition, promise) if :: (condition) :: else -> printf("BROKEN %e\n", promise); assert(false) fi

/* The master's stream: after write k the lock's deadline is deadline_at[k], 0 when it is free. */
byte writes, deadline_at[WRITES + 1];
byte has[REPLICAS];      /* writes that arrived there */
bool cut;                /* the master is deposed, its stream ends */
byte promoted;           /* replica + 1 */
/* the call under way at the old master's node */
bool ran, waiting;
byte asked, wait_for;    /* the deadline; the write that WAIT waits for */
/* the truth */
byte now, told;          /* the holder's deadline */
bool other_live;
byte r, k;

inline write(d) { writes++; deadline_at[writes] = d }
inline write_elsewhere() { writes++; deadline_at[writes] = deadline_at[writes - 1] } /* another key */

inline count_replicas() {
    r = 0;
    for (k : 0 .. REPLICAS - 1) { if :: has[k] >= wait_for -> r++ :: else fi }
}

inline end_call() { ran = false; waiting = false; asked = 0; wait_for = 0; r = 0; k = 0 }

/* A grant when the lock is free, else a renewal. */
inline call() {
    if :: deadline_at[writes] == 0 -> asked = now + 1 :: else -> asked = deadline_at[writes] + 1 fi;
#ifdef NO_WRITE_AFTER
    write_elsewhere(); wait_for = writes;
#endif
    write(asked); ran = true;
    printf("CALL: deadline %d\n", asked);
#ifdef NO_WAIT_GRANT
    if :: told <= now -> tell() :: else fi;
#endif
#ifdef NO_WAIT_RENEW
    if :: told > now -> tell() :: else fi;
#endif
    skip
}

inline tell() { told = asked; printf("TOLD: deadline %d, at %d\n", told, now); end_call() }

active proctype world() {
end:
    do
    :: atomic { !ran && writes + 3 <= WRITES && (deadline_at[writes] == 0 || deadline_at[writes] > now) && deadline_at[writes] < DEADLINES && now < DEADLINES -> call() }
    :: atomic { ran && !waiting ->
#ifdef NO_WRITE_AFTER
        skip;
#elif defined(NO_OWN_WRITE)
        wait_for = 0;
#else
        write_elsewhere(); wait_for = writes;
#endif
        waiting = true; printf("WAIT for write %d of %d\n", wait_for, writes) }
    :: atomic { ran && waiting ->
        count_replicas();
        if
        :: r >= MIN && asked > now -> tell()
        :: else -> r = 0; k = 0
        fi }
    /* short: a grant is undone, a renewal only not told */
    :: atomic { ran && waiting -> printf("SHORT: 503\n"); if :: told <= now -> write(0) :: else fi; end_call() }
    :: atomic { true ->
        r = 0;
        do :: r < REPLICAS - 1 -> r++ :: break od;
        if :: !cut && has[r] < writes -> has[r]++; printf("REPLICA %d has write %d\n", r, has[r]) :: else fi;
        r = 0 }
    :: atomic { !cut -> cut = true; printf("CUT\n") }
    :: atomic { cut && promoted == 0 ->
        do :: r < REPLICAS - 1 -> r++ :: break od;
        promoted = r + 1; r = 0; printf("PROMOTED replica %d, with write %d\n", promoted - 1, has[promoted - 1]) }
    :: atomic { now < DEADLINES -> now++; printf("TIME %d\n", now) }
    :: atomic { promoted != 0 && !other_live && deadline_at[has[promoted - 1]] <= now ->
        other_live = true; printf("GRANT at the new master\n");
        MUST(told <= now, P1_two_live) }
    od
}
