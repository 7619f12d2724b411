/* libpawl: leases on locks, from a pawld.
 *
 *     struct pawl *client;
 *     struct pawl_lease *lease;
 *     struct pawl_problem problem;
 *     struct pawl_acquire_options want = {.ttl_ms = 30000, .wait_ms = 60000, .owner = "billing-7"};
 *
 *     if (pawl_open("http://127.0.0.1:7295", &client, &problem) != 0 || pawl_acquire(client, "report", &want, &lease, &problem) != 0)
 *         return complain(problem.message);
 *     pawl_keep_alive(lease, &(struct pawl_keep_alive_options){.on_event = on_event}, &problem);
 *     ... work, and give pawl_lease_token(lease) with every write to the store that checks it ...
 *     pawl_release(lease, &problem);
 *     pawl_lease_free(lease);
 *     pawl_close(client);
 *
 * What a lease is worth. It ends by itself. Nobody can be kept from working on after that, not even by the keep-alive below: the process may
 * have been stopped while the end came. Only the store that is written to can refuse, by the token (`docs/fencing.md`). So write the token
 * with everything that must not be done twice, and take the events below as the way to stop early, not as the proof of being alone.
 *
 * Units. Durations are in milliseconds and end in _ms. Points in time are microseconds of CLOCK_BOOTTIME, which goes on while the machine is
 * suspended, and end in _us. Texts are UTF-8 and end with a NUL.
 *
 * Errors. Calls return 0, or one of enum pawl_code, all of which are negative. `ret_problem` may be NULL; else it is filled in when the call
 * fails, and untouched when it doesn't. Outputs (`ret_...`) are untouched on failure.
 *
 * Ownership. What a call makes is the caller's, to be ended by the function that its comment names. What is passed in is copied. Texts that a
 * getter returns live as long as their object.
 *
 * Threads. A struct pawl may be used by any number of threads at once; only pawl_close() must come after all of them. A struct pawl_lease may
 * be read by any number of threads; renew, release, keep-alive's start and stop and free are for one thread at a time. Calls block; they end
 * when the answer is there, when their time is over, or when the descriptor given to pawl_set_cancel_fd() becomes readable.
 *
 * What it leaves alone. No signal handlers, no SIGPIPE, no signals to the threads that it starts (all are blocked there), no locale, no
 * environment, no output, no state outside of its objects; libcurl's, which it sets up once in a way that is safe with other users of
 * libcurl, is the exception. Descriptors are close-on-exec. After a fork() without exec, the child must not use the parent's objects, not even
 * to free them.
 *
 * Where the ideas come from: deadlines counted from before the request was sent are Lamport's and Gray and Cheriton's leases; the token is the
 * sequencer of Google's Chubby; renewing at a third of the time to live is what Chubby's and Consul's sessions do; back-off with full jitter
 * is described by Marc Brooker.
 */
#ifndef PAWL_H
#define PAWL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAWL_DEFAULT_ADDRESS "http://127.0.0.1:7295"

#define PAWL_NAME_SIZE     256 /* bytes of a lock's name with its NUL */
#define PAWL_OWNER_SIZE    768 /* of an owner, as pawld shows it; a longer one is cut at a character */
#define PAWL_LEASE_ID_SIZE 37  /* of a lease id in its text form */

enum pawl_code {
    PAWL_ERR_ARGUMENT = -1,    /* refused here or by pawld: something that was asked for cannot be */
    PAWL_ERR_MEMORY = -2,      /* no memory, thread or descriptor for it */
    PAWL_ERR_HELD = -3,        /* acquire: somebody else holds the lock, also after the wait; problem says who */
    PAWL_ERR_LOST = -4,        /* this lease or token does not hold the lock, for good */
    PAWL_ERR_NOT_HELD = -5,    /* break: nobody holds the lock */
    PAWL_ERR_BUSY = -6,        /* too many wait for this lock, or at this node */
    PAWL_ERR_UNAVAILABLE = -7, /* no good answer until the retry budget was spent: the outcome is not known */
    PAWL_ERR_FORBIDDEN = -8,   /* pawld refuses this caller */
    PAWL_ERR_PROTOCOL = -9,    /* what answered does not speak as pawld does */
    PAWL_ERR_CANCELLED = -10   /* the cancel descriptor became readable: the outcome is not known */
};

/* A short name such as "held", for logs; "ok" for 0. Static. */
const char *pawl_code_name(int code);

/* Why a call failed. */
struct pawl_problem {
    int code;          /* what the call returned */
    int http_status;   /* 0: no answer */
    char error[40];    /* pawld's own word for it, such as "store_unavailable"; "" without one */
    char message[320]; /* for a person, one line, without control characters */
    /* PAWL_ERR_HELD: who holds it. holder_token 0: nobody at the moment, but an earlier waiter is about to. */
    char holder_owner[PAWL_OWNER_SIZE];
    int64_t holder_token, holder_ttl_ms, holder_held_ms, waiters;
    int64_t delay_left_ms; /* HELD by nobody: the last lease had a delay, and so much is left of it. 0: there is none */
};

/* ---- a client ---- */

struct pawl;

/* `address` is "http://HOST[:PORT]" or "https://HOST[:PORT]" (port 7295 without one; IPv6 in brackets), or "unix:/PATH"; NULL: PAWL_DEFAULT_ADDRESS. Connects to
 * nothing yet. Proxies named in the environment are not used. End it with pawl_close(). ARGUMENT, MEMORY. */
int pawl_open(const char *address, struct pawl **ret_client, struct pawl_problem *ret_problem);

/* Closes the connections. All leases have to be freed first. NULL is fine. */
void pawl_close(struct pawl *client);

/* For "https://": names of PEM files. `ca_file` holds the authorities that pawld's certificate must come from (NULL: those that the system trusts); its name is
 * always checked. `cert_file` is what this client shows to a pawld that asks for a certificate (NULL: none), `key_file` its private key without a passphrase
 * (NULL: in the same file). They are read at each new connection, so that renewed ones are taken up. Before other threads use the client. ARGUMENT (no https
 * address, a file that can't be read, a key without a certificate), MEMORY. */
int pawl_set_tls(struct pawl *client, const char *ca_file, const char *cert_file, const char *key_file, struct pawl_problem *ret_problem);

/* What pawld, if it has access rules, is shown with every call: 1 to 4096 bytes of printable ASCII without blanks, such as base64 or hex. NULL: nothing, as
 * after pawl_open(). It is copied, and overwritten when it is replaced or the client closed; no problem and no address has it. Over http://
 * everybody on the way can read it. Before other threads use the client. ARGUMENT, MEMORY. */
int pawl_set_access_token(struct pawl *client, const char *token, struct pawl_problem *ret_problem);

/* How long pawld may take for an answer (5000): a connection, and then an answer, after the wait that was asked for. From 1 ms. Before other
 * threads use the client. */
void pawl_set_timeout(struct pawl *client, int64_t timeout_ms);

/* How long a call goes on trying when there is no answer, or a 5xx (10000). 0: tries once. Counted from when pawld was last heard of, so
 * that a wait of minutes survives short outages; tries are spaced by a back-off with jitter. All calls but break can be repeated, and are,
 * with the same lease id. Before other threads use the client. */
void pawl_set_retry_budget(struct pawl *client, int64_t budget_ms);

/* Tells that a call got no good answer, why, and that it goes on trying for left_ms at the most: once for each call, before its second try, in the thread
 * of the call. It must not use the client. The keep-alive tells its failures by its events. NULL: nobody is told. Before other threads use the client. */
void pawl_set_on_retry(struct pawl *client, void (*on_retry)(void *arg, const struct pawl_problem *problem, int64_t left_ms), void *arg);

/* Calls return PAWL_ERR_CANCELLED as soon as `fd` is readable (an eventfd, a signalfd, a pipe; it is not read). -1: none. It stays the
 * caller's, and must be open as long as it is set. It does not concern the keep-alive nor, in pawl_acquire(), giving back what may have been
 * granted meanwhile. Not while other threads use the client. */
void pawl_set_cancel_fd(struct pawl *client, int fd);

/* ---- leases ---- */

struct pawl_lease;

struct pawl_acquire_options {
    int64_t ttl_ms;        /* time to live; 0: 30000 */
    int64_t wait_ms;       /* how long to wait for the lock; 0: asks once */
    const char *owner;     /* shown to others; NULL: none */
    const char *lease_id;  /* NULL: a new one. An old one only to repeat an acquire whose outcome was not known */
    int64_t lock_delay_ms; /* nobody is granted the lock for so long after the lease, unless it is released; 0: no delay */
    int64_t max_hold_ms;   /* the lease ends then however it is renewed, counted from the grant; 0: no bound but pawld's own */
};

/* Takes the lock, or waits for it. NULL options: all zero. After a loss of the connection it comes back with the same lease id, which keeps
 * or finds its lease. When the outcome stays unknown (UNAVAILABLE, CANCELLED) it tries once, for at most a second, to give back what may have
 * been granted; at worst that lease lives for its ttl. LOST: it was granted, but the answer was read after the end (the process was
 * stopped). The lease is the caller's: pawl_lease_free(). ARGUMENT, MEMORY, HELD, LOST, BUSY, UNAVAILABLE, FORBIDDEN, PROTOCOL, CANCELLED. */
int pawl_acquire(struct pawl *client, const char *name, const struct pawl_acquire_options *options, struct pawl_lease **ret_lease,
                 struct pawl_problem *ret_problem);

/* A lease that was acquired elsewhere, by its name and id. Asks nothing: token and deadline are 0 until a renew. ARGUMENT, MEMORY. */
int pawl_lease_adopt(struct pawl *client, const char *name, const char *lease_id, struct pawl_lease **ret_lease,
                     struct pawl_problem *ret_problem);

/* A new time to live from now on, at most; it may be shorter than what is left. 0: that of the acquire. ARGUMENT, MEMORY, LOST, UNAVAILABLE
 * (the lease may stand: pawl_lease_left_ms() tells until when), FORBIDDEN, PROTOCOL, CANCELLED. */
int pawl_renew(struct pawl_lease *lease, int64_t ttl_ms, struct pawl_problem *ret_problem);

/* Stops the keep-alive and ends the lease. A release that had to be repeated and then finds no lease has succeeded. Afterwards the lease is
 * over for this client whatever the answer; free it. ARGUMENT, MEMORY, LOST (it had ended before), UNAVAILABLE (it ends by itself),
 * FORBIDDEN, PROTOCOL, CANCELLED. */
int pawl_release(struct pawl_lease *lease, struct pawl_problem *ret_problem);

/* Stops the keep-alive and forgets the lease without releasing it. NULL is fine. Not from a callback of this lease. */
void pawl_lease_free(struct pawl_lease *lease);

const char *pawl_lease_name(const struct pawl_lease *lease);
const char *pawl_lease_id(const struct pawl_lease *lease); /* a secret: who knows it can renew and release */
int64_t pawl_lease_token(const struct pawl_lease *lease);  /* the fencing token, 1 to 2^53-1; 0: not known (adopted) */
int64_t pawl_lease_ttl_ms(const struct pawl_lease *lease); /* as asked for last */

/* A time before which the lease does not end in Redis, unless somebody ends it: it counts from before the request was sent. 0: not known,
 * lost or released. */
int64_t pawl_lease_deadline_us(const struct pawl_lease *lease);
int64_t pawl_lease_left_ms(const struct pawl_lease *lease); /* until then; 0 when it is over */

/* When the lease ends however it is renewed (max_hold_ms, or pawld's bound); renewals get no deadline after it. 0: no bound, or not known. */
int64_t pawl_lease_hold_end_us(const struct pawl_lease *lease);
bool pawl_lease_is_at_bound(const struct pawl_lease *lease); /* the deadline is that end: no renewal moves it any more */
int64_t pawl_now_us(void);                                   /* CLOCK_BOOTTIME */

/* ---- the keep-alive ---- */

enum pawl_event {
    PAWL_EVENT_RENEWED,    /* the lease has a new deadline; problem is NULL */
    PAWL_EVENT_MAYBE_LOST, /* a renewal failed, problem says how; it is tried again while there is time */
    PAWL_EVENT_LOST /* the last event: pawld said that it is lost, or its end minus the margin came without a good answer, or it may not be held longer */
};

/* Called from the keep-alive's thread, one at a time. Must be short: while it runs, nothing is renewed. It may use the lease's getters; it
 * must not start or stop the keep-alive, release or free. */
typedef void pawl_event_fn(void *arg, struct pawl_lease *lease, enum pawl_event event, const struct pawl_problem *problem);

struct pawl_keep_alive_options {
    int64_t ttl_ms;          /* what each renewal asks for; 0: that of the acquire */
    int64_t margin_ms;       /* how long before the deadline the lease counts as lost; 0: a tenth of the ttl, at most 2000 */
    pawl_event_fn *on_event; /* may be NULL */
    void *arg;
};

/* Starts a thread that renews after a third of the ttl (a little less, at random, so that many started together drift apart), tries again
 * with back-off and jitter when that fails, never longer than to deadline - margin, and stops for good at LOST. It looks at the clock before
 * everything else, so after a stop (SIGSTOP, suspend) that was too long it sends no renewal but calls LOST. Once a lease with a bound can't be prolonged any
 * more, nothing is sent either, and LOST comes at its end minus the margin. NULL options: all zero.
 * ARGUMENT (no deadline known, or running already), MEMORY. */
int pawl_keep_alive(struct pawl_lease *lease, const struct pawl_keep_alive_options *options, struct pawl_problem *ret_problem);

/* Ends the thread; returns when no callback runs and none will come. Fine when there is none. */
void pawl_keep_alive_stop(struct pawl_lease *lease);

/* ---- looking, and what operators do ---- */

/* A lock as pawld shows it. */
struct pawl_lock {
    char name[PAWL_NAME_SIZE];
    int held; /* 0: the rest is 0 and "", but for waiters and recovering */
    char owner[PAWL_OWNER_SIZE];
    int64_t token, ttl_ms, held_ms, waiters;
    int recovering; /* pawld is putting leases back after a loss: what looks free may not be */
    /* of pawl_inspect() alone; 0: none. Held: the delay after this lease, and how long it may be held yet. Not held: for how long nobody is granted it. */
    int64_t lock_delay_ms, max_hold_left_ms, delay_left_ms;
};

/* Is `token` that of the lease that holds the lock? *ret_ttl_ms (may be NULL): what is left of it. LOST when it isn't. No fence: the
 * answer is old when it arrives. ARGUMENT, MEMORY, LOST, UNAVAILABLE, FORBIDDEN, PROTOCOL, CANCELLED. */
int pawl_check(struct pawl *client, const char *name, int64_t token, int64_t *ret_ttl_ms, struct pawl_problem *ret_problem);

/* ARGUMENT, MEMORY, UNAVAILABLE, FORBIDDEN, PROTOCOL, CANCELLED. */
int pawl_inspect(struct pawl *client, const char *name, struct pawl_lock *ret_lock, struct pawl_problem *ret_problem);

/* Calls `each` for every held lock whose name begins with `prefix` (NULL or "": all), in no order, page by page. One that comes and goes
 * meanwhile may be missing or be told twice. `lock` lives for the call; a non-zero answer of `each` ends the walk, which counts as success.
 * *ret_recovering (may be NULL): 1 if any page said so. Reads every key of the Redis database: for people and tools.
 * ARGUMENT, MEMORY, UNAVAILABLE, FORBIDDEN, PROTOCOL, CANCELLED; `each` may have been called before these. */
int pawl_list(struct pawl *client, const char *prefix, int (*each)(void *arg, const struct pawl_lock *lock), void *arg, int *ret_recovering,
              struct pawl_problem *ret_problem);

/* Ends the lease of whoever holds the lock. `reason` (1 to 255 bytes) is logged by pawld. *ret_lock (may be NULL): whose it was. Never sent
 * twice, since the second could hit the next holder. ARGUMENT, MEMORY, NOT_HELD, UNAVAILABLE (inspect before you repeat it), FORBIDDEN,
 * PROTOCOL, CANCELLED. */
int pawl_break(struct pawl *client, const char *name, const char *reason, struct pawl_lock *ret_lock, struct pawl_problem *ret_problem);

#ifdef __cplusplus
}
#endif

#endif
