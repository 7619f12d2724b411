/* What the service does with a request that it was handed (http.h): it answers, at once or later, or waits.
 *
 * A reply is written on the spot, and what became of it is told as far as it is known: that is what keeps a grant from a client that has left. The
 * connection is in the middle of its run, or not: in the latter case what else there is to do is put off to the end of the turn.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/http_conn.h"

#include "proto/errors.h"

void http_exchange_set_data(struct http_exchange *x, void *data)
{
    x->data = data;
}

void *http_exchange_data(const struct http_exchange *x)
{
    return x->data;
}

const char *http_exchange_peer(const struct http_exchange *x)
{
    return ((const struct http_conn *)(const void *)((const char *)x - offsetof(struct http_conn, exchange)))->peer.text;
}

void http_exchange_park(struct http_exchange *x)
{
    struct http_conn *c = http_conn_of(x);

    if (c->state != BUSY) {
        return;
    }
    http_conn_move(c, PARKED);
    http_conn_watch_leaving(c);
}

/* Sends, and says what became of it. The exchange has ended when this returns; the connection may be dead. */
static enum http_delivery send_reply(struct http_conn *c, const struct http_response *response, struct http_receipt *receipt,
                                     http_receipt_fn *fn, void *arg)
{
    bool closing = !c->keep_alive || c->set->draining || c->set->seeing_off || (c->eof && http_conn_buffered(c) == 0);
    enum http_connection_field field = closing ? HTTP_CONNECTION_CLOSE : c->is_1_0 ? HTTP_CONNECTION_KEEP_ALIVE : HTTP_CONNECTION_NONE;
    enum http_delivery delivery = HTTP_LOST;

    http_conn_move(c, IDLE);
    if (http_conn_send_response(c, response, field, c->head_only) == 0) {
        delivery = http_output_delivery(&c->output, &c->stream, c->eof);
        if (receipt != NULL && delivery == HTTP_DELIVERED && !closing) {
            /* It may have closed between our last look and the writing: its next bytes, its end or an error will tell. */
            delivery = HTTP_DELIVERY_PENDING;
        }
        if (delivery == HTTP_LOST) {
            http_conn_fail(c);
        }
    }
    if (receipt != NULL && delivery == HTTP_DELIVERY_PENDING) {
        http_output_expect(&c->output, receipt, fn, arg);
    } else if (receipt != NULL) {
        http_output_unreserve(&c->output, receipt);
    }
    if (c->state != DEAD && closing) {
        http_conn_begin_close(c);
    }
    return delivery;
}

enum http_delivery http_reply(struct http_exchange *x, const struct http_response *response, http_receipt_fn *receipt, void *arg)
{
    struct http_conn *c = http_conn_of(x);
    struct http_receipt *place = NULL;
    enum http_delivery delivery = HTTP_LOST;

    if (!http_conn_has_exchange(c)) {
        return HTTP_LOST;
    }
    http_conn_enter(c);
    if (receipt != NULL && !c->running) {
        c->eof |= stream_at_end(&c->stream); /* its leaving may wait behind what brought this reply in the same turn */
        c->readable |= c->stream.more && !c->eof;
    }
    if (receipt != NULL) {
        place = http_output_reserve(&c->output);
    }
    if (receipt != NULL && place == NULL) {
        /* No memory to learn what becomes of the reply: so the client doesn't get it. */
        http_conn_move(c, IDLE);
        http_conn_close(c, true);
    } else {
        delivery = send_reply(c, response, place, receipt, arg);
    }
    if (!c->running && c->state == IDLE && (http_conn_buffered(c) > 0 || c->readable || c->eof)) {
        http_conns_defer(c);
    }
    http_conn_leave_to_service(c);
    return delivery;
}

enum http_delivery http_reply_error(struct http_exchange *x, enum pawl_error error, const char *message)
{
    struct http_error_bytes bytes;
    struct http_response response = http_response_error(&bytes, error, message);
    enum http_delivery delivery = http_reply(x, &response, NULL, NULL);

    http_response_error_close(&bytes);
    return delivery;
}
