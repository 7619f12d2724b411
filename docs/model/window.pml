/* The recovery window counts ticks: time in half ticks, node 0 that has opened it and beats, node 1 that attaches later and puts back.
 *
 * Time goes on by one unit only when all that is due has been done: nodes and Redis are in time, except that, JUMPS times, Redis stalls for however long (then beats
 * have queued up behind it) or its clock steps, forward or back. `age` is the time since the opening without the stalls. Node 1 attaches at any age up to LATEST:
 * what DESIGN.md's sum (beat, timeouts, delays) comes to; then it has PUT_BACKS leases to put back, one a unit.
 *
 * Must hold: the window is open when node 1 attaches and at each of its put-backs (else P3 is lost), and it closes in time: half a tick more than W after the
 * opening when nothing was put back, 4 W and two ticks at most.
 *
 * Rules that can be switched off:
 *   NO_TICKS       it counts ticks, one for each command at most; off: it counts the time of Redis' clock
 *   NO_PACE        at most one tick each W/6, however many nodes beat
 *   NO_BACK        a clock that went back ticks too
 *   NO_FAST_BEAT   while it is open nodes beat every W/6; off: every W/3
 *   NO_KEEP        each accepted put-back keeps it open for 3 ticks or more
 *   NO_CAP         ... to at most 4 W
 *   NO_MARGIN      W - W/6 is greater than the sum; off: equal to it
 */
#ifndef JUMPS
#define JUMPS 1
#endif
#ifndef PUT_BACKS
#define PUT_BACKS 0
#endif
#ifndef KEEP
#define KEEP 3 /* ticks that an accepted put-back leaves at least */
#endif
#define TICK 2 /* units */
#define W (6 * TICK)
#ifndef NO_MARGIN
#define LATEST (W - TICK - 1)
#else
#define LATEST (W - TICK)
#endif
#ifndef NO_FAST_BEAT
#define BEAT TICK
#else
#define BEAT (2 * TICK)
#endif

mtype = { P3_window_lapsed, window_stays_open }
#define MUST(condition, promise) if :: (condition) :: else -> printf("BROKEN %e\n", promise); assert(false) fi

/* Redis */
bool open = true;
byte left = 6, used;  /* ticks left and gone */
byte since;           /* units since the last tick, TICK at most */
bool back;            /* the clock is before the last tick */
byte jumps, age;
#ifdef NO_TICKS
byte elapsed;         /* by Redis' clock */
#endif
/* nodes */
byte beat_in[2] = BEAT;
bool attached;        /* node 1 */
byte todo = PUT_BACKS, put_back_in;
bool was_put_back;

inline tick() {
#ifdef NO_TICKS
    if :: elapsed >= W -> left = 0 :: else fi;
#else
    if
    :: since >= TICK && !back -> left--; used++; since = 0
#ifndef NO_BACK
    :: back -> left--; used++; since = 0; back = false
#endif
#ifdef NO_PACE
    :: since < TICK && !back -> left--; used++; since = 0
#endif
    :: else
    fi;
#endif
    if :: left == 0 && open -> open = false; printf("WINDOW CLOSES at %d\n", age) :: else fi
}

inline beat(n) { tick(); beat_in[n] = BEAT; printf("BEAT node %d at %d: left %d\n", n, age, left) }

inline forward() {
    since = TICK;
#ifdef NO_TICKS
    elapsed = W;
#endif
    skip
}

active proctype world() {
end:
    do
    :: atomic { open && beat_in[0] > 0 && (!attached || (beat_in[1] > 0 && (put_back_in > 0 || todo == 0))) && (attached || age < LATEST) ->
        age++; beat_in[0]--;
        if :: since < TICK -> since++ :: else fi;
#ifdef NO_TICKS
        if :: elapsed < W -> elapsed++ :: else fi;
#endif
        if :: attached -> beat_in[1]-- :: else fi;
        if :: put_back_in > 0 -> put_back_in-- :: else fi;
        MUST(age <= 4 * W + 2 * TICK && (was_put_back || age <= W + TICK / 2), window_stays_open) }
    :: atomic { open && beat_in[0] == 0 -> beat(0) }
    :: atomic { open && attached && beat_in[1] == 0 -> beat(1) }
    :: atomic { !attached ->
        tick(); printf("ATTACH node 1 at %d: left %d\n", age, left);
        MUST(open, P3_window_lapsed);
        attached = true; beat_in[1] = BEAT }
    :: atomic { attached && todo > 0 && put_back_in == 0 && (open || used < 22) ->
        printf("PUT BACK at %d: left %d\n", age, left);
        MUST(open, P3_window_lapsed);
#ifndef NO_KEEP
        was_put_back = true;
#ifndef NO_CAP
        if :: left < KEEP && used < 22 -> left = KEEP :: else fi;
#else
        if :: left < KEEP -> left = KEEP :: else fi;
#endif
#endif
        todo--; put_back_in = 1 }
    :: atomic { open && jumps < JUMPS -> jumps++;
        if
        :: forward(); beat_in[0] = 0; if :: attached -> beat_in[1] = 0 :: else fi; printf("STALL at %d\n", age)
        :: forward(); printf("CLOCK FORWARD at %d\n", age)
        :: back = true; printf("CLOCK BACK at %d\n", age)
        fi }
    od
}
