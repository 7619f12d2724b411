/* OpenSSL over a BIO of our own, which is nothing but send and recv. That is what makes the promises of stream.h possible: no SIGPIPE, the errno of the
 * socket as it was, the knowledge whether the socket has been read empty (a short read, as in http_conn), and a FIN that can be told from a failure.
 *
 * Two questions need care:
 *
 * - Is there more to read? OpenSSL keeps what came in one piece; no event tells of it. `more` in struct stream says so after a read.
 * - Has the other side ended its sending? Under TLS the end is a record like others (close_notify), so to see it the records before it must be opened.
 *   SSL_peek does that and keeps what it finds. What was taken off the socket raises no edge any more, and that too is told by `more`.
 *
 * A FIN without close_notify is an end as well: a process that was killed sends just that, and whoever waits must be given up. Nobody can cut a message short
 * with it, since messages here say their lengths.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/tls_stream.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "daemon/tls_config.h"

#define RECORD_MAX  16384 /* bytes in one record */
#define JUNK_ROUNDS 64

struct tls_stream {
    SSL *ssl;
    int fd;
    int error;    /* of the socket, once it failed */
    bool drained; /* the last recv got less than it asked for */
    bool heard;   /* something was received, */
    char first;   /* and this was its first byte */
    bool fin;     /* the socket's end was read */
    bool ended;   /* the other side's sending has ended: by close_notify or by a FIN */
    bool greeted, failed, our_end_sent;
    char problem[160];
};

/* ---- the BIO ---- */

static bool try_again(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static int socket_write(BIO *bio, const char *at, int len)
{
    struct tls_stream *t = BIO_get_data(bio);
    ssize_t n = send(t->fd, at, (size_t)len, MSG_NOSIGNAL);

    BIO_clear_retry_flags(bio);
    if (n < 0 && try_again(errno))
        BIO_set_retry_write(bio);
    else if (n < 0)
        t->error = errno;
    return (int)n;
}

static int socket_read(BIO *bio, char *at, int len)
{
    struct tls_stream *t = BIO_get_data(bio);
    ssize_t n = recv(t->fd, at, (size_t)len, 0);

    BIO_clear_retry_flags(bio);
    t->drained = n < len;
    if (n > 0 && !t->heard) {
        t->heard = true;
        t->first = at[0];
    }
    if (n == 0)
        t->fin = true;
    else if (n < 0 && try_again(errno))
        BIO_set_retry_read(bio);
    else if (n < 0)
        t->error = errno;
    return (int)n;
}

static long socket_control(BIO *bio, int what, long number, void *pointer)
{
    const struct tls_stream *t = BIO_get_data(bio);

    (void)number;
    (void)pointer;
    return what == BIO_CTRL_FLUSH || (what == BIO_CTRL_EOF && t->fin);
}

/* Made at the first use and kept for good, as OpenSSL's own methods are. */
static const BIO_METHOD *socket_method(void)
{
    static BIO_METHOD *method;

    if (!method) {
        method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "pawl socket");
        if (method && (BIO_meth_set_write(method, socket_write) != 1 || BIO_meth_set_read(method, socket_read) != 1 ||
                       BIO_meth_set_ctrl(method, socket_control) != 1)) {
            BIO_meth_free(method);
            method = NULL;
        }
    }
    return method;
}

static BIO *socket_bio(struct tls_stream *t)
{
    const BIO_METHOD *method = socket_method();
    BIO *bio = method ? BIO_new(method) : NULL;

    if (bio) {
        BIO_set_data(bio, t);
        BIO_set_init(bio, 1);
    }
    return bio;
}

/* ---- what a call of OpenSSL came to ---- */

enum outcome { DONE, AGAIN, AGAIN_WITH_ROOM, ENDED, FAILED };

/* In words, while OpenSSL still knows. */
static void describe_failure(struct tls_stream *t)
{
    long verified = SSL_get_verify_result(t->ssl);
    unsigned long error = ERR_peek_error();
    const char *text = error ? ERR_reason_error_string(error) : NULL;

    if (verified != X509_V_OK)
        snprintf(t->problem, sizeof(t->problem), "the certificate is not accepted: %s", X509_verify_cert_error_string(verified));
    else if (t->error != 0 || t->fin)
        snprintf(t->problem, sizeof(t->problem), "%s%s", t->error != 0 ? strerror(t->error) : "closed",
                 t->greeted ? "" : " in the middle of the handshake");
    else
        snprintf(t->problem, sizeof(t->problem), "%s", text ? text : "this is no TLS");
}

static enum outcome outcome(struct tls_stream *t, int result)
{
    if (result > 0)
        return DONE;
    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return AGAIN;
    case SSL_ERROR_WANT_WRITE:
        return AGAIN_WITH_ROOM;
    case SSL_ERROR_ZERO_RETURN:
        t->ended = true;
        return ENDED;
    default:
        break;
    }
    if (t->greeted && t->fin && t->error == 0) {
        t->ended = true;
        return ENDED;
    }
    t->failed = true;
    describe_failure(t);
    return FAILED;
}

static int fail_with(int error)
{
    errno = error;
    return -1;
}

static int failure(const struct tls_stream *t)
{
    return fail_with(t->error != 0 ? t->error : EPROTO);
}

/* ---- reading ---- */

/* What nobody wants any more goes past. As recv: above 0, there may be more. */
static ssize_t read_junk(const struct tls_stream *t)
{
    char junk[512];
    ssize_t n = 1;

    for (int i = 0; i < JUNK_ROUNDS && n > 0; i++)
        n = recv(t->fd, junk, sizeof(junk), 0);
    return n;
}

/* After the end only the socket has news: the FIN behind a close_notify, or a reset. */
static ssize_t read_after_end(const struct tls_stream *t)
{
    return read_junk(t) < 0 && !try_again(errno) ? -1 : 0;
}

/* The handshake has failed, and our alert is on its way: all that is wanted is the other side's end. */
static ssize_t read_refused(const struct tls_stream *t)
{
    ssize_t n = read_junk(t);

    return n > 0 ? fail_with(EAGAIN) : n;
}

static ssize_t tls_read(struct stream *s, char *at, size_t cap)
{
    struct tls_stream *t = s->tls;
    int n;

    s->more = s->read_wants_room = false;
    if (t->ended)
        return read_after_end(t);
    if (t->failed)
        return t->greeted ? failure(t) : read_refused(t);
    ERR_clear_error();
    n = SSL_read(t->ssl, at, cap < INT_MAX ? (int)cap : INT_MAX);
    switch (outcome(t, n)) {
    case DONE:
        s->more = !t->drained || SSL_has_pending(t->ssl);
        return n;
    case AGAIN_WITH_ROOM:
        s->read_wants_room = true;
        return fail_with(EAGAIN);
    case AGAIN:
        return fail_with(EAGAIN);
    case ENDED:
        return 0;
    case FAILED:
        break;
    }
    return failure(t);
}

static bool tls_has_news(struct stream *s)
{
    struct tls_stream *t = s->tls;
    char byte;

    if (t->ended || t->failed || SSL_has_pending(t->ssl))
        return true;
    return recv(t->fd, &byte, 1, MSG_PEEK) >= 0 || !try_again(errno);
}

static bool tls_at_end(struct stream *s)
{
    struct tls_stream *t = s->tls;
    char byte;

    if (t->ended || t->failed)
        return t->ended;
    ERR_clear_error();
    switch (outcome(t, SSL_peek(t->ssl, &byte, 1))) {
    case AGAIN:
        s->more |= SSL_has_pending(t->ssl) != 0;
        break;
    case DONE:
    case AGAIN_WITH_ROOM:
    case ENDED:
    case FAILED:
        s->more = true;
        break;
    }
    return t->ended;
}

/* ---- writing ---- */

struct place { /* in a list of parts */
    const struct iovec *part, *end;
    size_t offset;
};

static void move_on(struct place *at, size_t n)
{
    while (at->part < at->end && n >= at->part->iov_len - at->offset) {
        n -= at->part->iov_len - at->offset;
        at->part++;
        at->offset = 0;
    }
    at->offset += n;
}

/* The next bytes, as many as make a record: where they are if one part has them all, gathered into `block` else, so that a reply of several parts is one record.
 * Returns their number, 0 at the end. */
static size_t next_record(struct place at, char *block, const char **ret)
{
    size_t len = 0;

    move_on(&at, 0); /* over empty parts */
    if (at.part < at.end && (at.part + 1 == at.end || at.part->iov_len - at.offset >= RECORD_MAX)) {
        *ret = (const char *)at.part->iov_base + at.offset;
        len = at.part->iov_len - at.offset;
        return len < RECORD_MAX ? len : RECORD_MAX;
    }
    while (at.part < at.end && len < RECORD_MAX) {
        size_t n = at.part->iov_len - at.offset;

        if (n > RECORD_MAX - len)
            n = RECORD_MAX - len;
        memcpy(block + len, (const char *)at.part->iov_base + at.offset, n);
        len += n;
        move_on(&at, n);
    }
    *ret = block;
    return len;
}

/* A record that the socket did not take is kept by OpenSSL, encrypted, and counts as not written; it wants to be offered the same bytes again, which is what
 * stream_write's caller does with bytes that were not taken. */
static ssize_t tls_write(struct stream *s, const struct iovec *parts, int count)
{
    struct tls_stream *t = s->tls;
    struct place at = {parts, parts + count, 0};
    char block[RECORD_MAX];
    const char *record;
    ssize_t taken = 0;
    size_t len;

    if (t->failed || t->our_end_sent)
        return fail_with(t->error != 0 ? t->error : EPIPE);
    while ((len = next_record(at, block, &record)) > 0) {
        int n;

        ERR_clear_error();
        n = SSL_write(t->ssl, record, (int)len);
        if (n > 0) {
            taken += n;
            move_on(&at, (size_t)n);
            continue;
        }
        switch (SSL_get_error(t->ssl, n)) {
        case SSL_ERROR_WANT_READ:
        case SSL_ERROR_WANT_WRITE:
            return taken > 0 ? taken : fail_with(EAGAIN);
        default:
            t->failed = true;
            return failure(t);
        }
    }
    return taken;
}

static enum stream_reach tls_reach(struct stream *s)
{
    const struct tls_stream *t = s->tls;

    return t->error != 0 ? STREAM_BROKEN : stream_tcp_reach(s);
}

/* ---- the ends ---- */

/* close_notify as far as the socket takes it: who does not get it sees a FIN. */
static void say_end(struct tls_stream *t)
{
    if (t->greeted && !t->failed && !t->our_end_sent) {
        ERR_clear_error();
        (void)SSL_shutdown(t->ssl);
    }
    t->our_end_sent = true;
}

static void tls_end(struct stream *s)
{
    say_end(s->tls);
    (void)shutdown(s->fd, SHUT_WR);
}

static void tls_free(struct tls_stream *t)
{
    SSL_free(t->ssl); /* and the BIO */
    free(t);
    ERR_clear_error();
}

static void tls_close(struct stream *s, bool abort)
{
    if (s->tls != NULL) {
        if (!abort)
            say_end(s->tls);
        tls_free(s->tls);
        s->tls = NULL;
    }
    stream_close_socket(s, abort);
}

/* ---- the handshake ---- */

/* HTTP begins with a method, TLS with a byte that is no letter. */
static bool speaks_plain(const struct tls_stream *t)
{
    return SSL_is_server(t->ssl) && t->heard && ((t->first >= 'A' && t->first <= 'Z') || (t->first >= 'a' && t->first <= 'z'));
}

static int greet_failed(struct stream *s)
{
    struct tls_stream *t = s->tls;

    if (speaks_plain(t)) {
        tls_free(t);
        stream_init_tcp(s, s->fd);
        return fail_with(TLS_STREAM_SPEAKS_PLAIN);
    }
    if (!t->heard && t->fin)
        return fail_with(TLS_STREAM_SAID_NOTHING);
    return failure(t);
}

static int tls_greet(struct stream *s)
{
    struct tls_stream *t = s->tls;
    int result;

    s->read_wants_room = false;
    if (t->failed)
        return failure(t);
    ERR_clear_error();
    result = SSL_do_handshake(t->ssl);
    switch (outcome(t, result)) {
    case DONE:
        t->greeted = true;
        s->more = true;
        return 0;
    case AGAIN_WITH_ROOM:
        s->read_wants_room = true;
        return fail_with(EAGAIN);
    case AGAIN:
        return fail_with(EAGAIN);
    case ENDED:
        describe_failure(t);
        break;
    case FAILED:
        break;
    }
    t->failed = true;
    return greet_failed(s);
}

const char *tls_stream_problem(const struct stream *s)
{
    return s->tls != NULL ? s->tls->problem : "";
}

int tls_stream_subject(const struct stream *s, char **ret)
{
    const X509 *peer = s->tls != NULL ? SSL_get0_peer_certificate(s->tls->ssl) : NULL;
    char *at = NULL, *text = NULL;
    BIO *bio;

    *ret = NULL;
    if (!peer)
        return 0;
    bio = BIO_new(BIO_s_mem());
    if (bio && X509_NAME_print_ex(bio, X509_get_subject_name(peer), 0, XN_FLAG_RFC2253 & ~(unsigned long)ASN1_STRFLGS_ESC_MSB) >= 0) {
        size_t len = (size_t)BIO_get_mem_data(bio, &at);

        text = strndup(at, len);
    }
    BIO_free(bio);
    *ret = text;
    return text ? 0 : -1;
}

/* ---- birth ---- */

static const struct stream_ops tls_ops = {.read = tls_read,
                                          .write = tls_write,
                                          .has_news = tls_has_news,
                                          .at_end = tls_at_end,
                                          .reach = tls_reach,
                                          .proves_loss = stream_tcp_proves_loss,
                                          .end = tls_end,
                                          .end_sends = true,
                                          .close = tls_close,
                                          .greet = tls_greet};

static int init(struct stream *s, int fd, const struct tls_config *config, const char *host)
{
    struct tls_stream *t = calloc(1, sizeof(*t));
    BIO *bio = t ? socket_bio(t) : NULL;

    if (bio)
        t->ssl = tls_config_begin(config, host);
    if (!bio || !t->ssl) {
        BIO_free(bio);
        free(t);
        ERR_clear_error();
        return -1;
    }
    t->fd = fd;
    SSL_set_bio(t->ssl, bio, bio);
    *s = (struct stream){.ops = &tls_ops, .fd = fd, .tls = t};
    return 0;
}

int tls_stream_init_server(struct stream *s, int fd, const struct tls_config *config)
{
    return init(s, fd, config, NULL);
}

int tls_stream_init_client(struct stream *s, int fd, const struct tls_config *config, const char *host)
{
    return init(s, fd, config, host);
}
