/* Requests out, answers back: the only door to the HTTP library.
 *
 * What this is: connections to one pawld, kept open and used again, each for one call at a time, by any number of threads. What it is not:
 * it repeats nothing (call.c does), and knows neither JSON nor what the calls mean.
 */
#ifndef PAWL_WIRE_H
#define PAWL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/address.h"

struct wire;

struct wire_call {
    const char *target; /* of the request, percent-encoded, from "/" on */
    const char *body;   /* JSON of a POST; NULL: a GET */
    size_t body_len;
    size_t answer_max;      /* bytes of body that an answer may have */
    int64_t connect_ms;     /* until there is a connection */
    int64_t deadline_us;    /* of the whole call */
    int cancel_fd, stop_fd; /* the call ends as soon as one is readable; -1: none */
    bool once;              /* over a connection of its own, so that nothing below can send it twice */
};

enum wire_outcome {
    WIRE_ANSWERED,
    WIRE_FAILED,    /* problem says how */
    WIRE_LATE,      /* deadline_us came */
    WIRE_CANCELLED, /* a descriptor was readable */
    WIRE_NO_MEMORY, /* or no descriptors */
    WIRE_GARBLED    /* not HTTP, or too much of it */
};

struct wire_answer {
    int status;
    char *body; /* not NUL-terminated; ended by wire_answer_close() */
    size_t len;
    bool sent;         /* the request, or a part of it, went out: it may have been carried out */
    char problem[256]; /* of all outcomes but WIRE_ANSWERED */
};

/* NULL: no memory. wire_close: no call may be under way. */
struct wire *wire_open(const struct address *address);
void wire_close(struct wire *wire);

/* The bearer token of all later calls, copied; NULL: none. False: no memory, and it is what it was. No call may be under way. */
bool wire_set_token(struct wire *wire, const char *token);

/* PEM files for https: whom to trust (NULL: what the system trusts), the certificate to show (NULL: none) and its key (NULL: in the certificate's file). Read at
 * each connection. False: no memory, and what was set before stays. Before the first call. */
bool wire_set_tls(struct wire *wire, const char *ca, const char *cert, const char *key);

/* Sets *ret_answer in every case; close it. */
enum wire_outcome wire_call(struct wire *wire, const struct wire_call *call, struct wire_answer *ret_answer);
void wire_answer_close(struct wire_answer *answer);

/* Waits until at_us, or returns true as soon as one of the descriptors (-1: none) is readable. */
bool wire_pause(struct wire *wire, int64_t at_us, int cancel_fd, int stop_fd);

#endif
