/* The one file that sees libcurl.
 *
 * Each call takes a line: a multi handle, which keeps its connection between calls, an easy handle, and a timer. Lines that are free lie in a
 * list; a thread that finds none makes one, so calls never wait for each other, and an acquire may be parked on one for minutes. The multi
 * interface is used for what the easy one can't do: end a call at a point of CLOCK_BOOTTIME, or because a descriptor became readable.
 *
 * libcurl up to 8.x makes a socket pair for each multi handle without close-on-exec (sockets we make ourselves). close_pair_on_exec() finds it
 * by its behaviour and mends that.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/wire.h"

#include <curl/curl.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/moment.h"

#define IDLE_LINES_MAX 4
#define URL_MAX        1024

struct line {
    struct line *next;
    CURLM *multi;
    CURL *easy;
    int timer;
};

struct wire {
    struct address address;
    char *ca, *cert, *key; /* NULL: none */
    struct curl_slist *fields;
    pthread_mutex_t lock; /* of the two below */
    struct line *idle;
    int idle_count;
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static CURLcode curl_ready;

static void set_curl_up(void)
{
    curl_ready = curl_global_init(CURL_GLOBAL_NOTHING); /* counted by libcurl, and guarded against other users since 7.84 */
}

/* ---- the socket pair of a multi handle ---- */

#define PAIR_CANDIDATES 32

/* Both ends of an idle pair, as libcurl leaves them: stream sockets of the unix family, inherited by children, with nothing to read. */
static bool could_be_of_pair(int fd)
{
    int domain = 0, type = 0, queued = 0, flags = fcntl(fd, F_GETFD);
    socklen_t len = sizeof(int);

    if (flags < 0 || (flags & FD_CLOEXEC))
        return false;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) != 0 || domain != AF_UNIX)
        return false;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_STREAM)
        return false;
    return ioctl(fd, SIOCINQ, &queued) == 0 && queued == 0 && ioctl(fd, SIOCOUTQ, &queued) == 0 && queued == 0;
}

static int find_candidates(int *ret_fds)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;

    if (!folder)
        return 0;
    while (count < PAIR_CANDIDATES && (entry = readdir(folder))) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);

        if (*end == '\0' && end != entry->d_name && could_be_of_pair((int)fd))
            ret_fds[count++] = (int)fd;
    }
    closedir(folder);
    return count;
}

/* Wakes the handle three times and looks whose state that changed: the reading end has three bytes, the writing end has some on their way.
 * A socket of somebody else that does the same in the same microsecond would become close-on-exec, which is what it should be. */
static void close_pair_on_exec(CURLM *multi)
{
    int fds[PAIR_CANDIDATES], count = find_candidates(fds);

    if (count == 0)
        return;
    for (int i = 0; i < 3; i++)
        (void)curl_multi_wakeup(multi);
    for (int i = 0; i < count; i++) {
        int in = 0, out = 0;

        if (ioctl(fds[i], SIOCINQ, &in) == 0 && ioctl(fds[i], SIOCOUTQ, &out) == 0 && (in == 3 || out > 0))
            (void)fcntl(fds[i], F_SETFD, FD_CLOEXEC);
    }
    (void)curl_multi_poll(multi, NULL, 0, 0, NULL); /* reads them away */
}

/* ---- lines ---- */

static void line_free(struct line *line)
{
    if (!line)
        return;
    if (line->easy)
        curl_easy_cleanup(line->easy);
    if (line->multi)
        curl_multi_cleanup(line->multi);
    if (line->timer >= 0)
        close(line->timer);
    free(line);
}

static struct line *line_new(void)
{
    struct line *line = calloc(1, sizeof(*line));

    if (!line)
        return NULL;
    line->timer = moment_timer();
    line->multi = curl_multi_init();
    line->easy = curl_easy_init();
    if (line->timer < 0 || !line->multi || !line->easy) {
        line_free(line);
        return NULL;
    }
    (void)curl_multi_setopt(line->multi, CURLMOPT_MAXCONNECTS, 1L);
    close_pair_on_exec(line->multi);
    return line;
}

static struct line *take_line(struct wire *wire)
{
    struct line *line;

    pthread_mutex_lock(&wire->lock);
    line = wire->idle;
    if (line) {
        wire->idle = line->next;
        wire->idle_count--;
    }
    pthread_mutex_unlock(&wire->lock);
    return line ? line : line_new();
}

static void give_line(struct wire *wire, struct line *line)
{
    pthread_mutex_lock(&wire->lock);
    if (wire->idle_count < IDLE_LINES_MAX) {
        line->next = wire->idle;
        wire->idle = line;
        wire->idle_count++;
        line = NULL;
    }
    pthread_mutex_unlock(&wire->lock);
    line_free(line);
}

/* ---- opening, closing ---- */

static struct curl_slist *add_field(struct curl_slist *fields, const char *field)
{
    struct curl_slist *longer = fields ? curl_slist_append(fields, field) : NULL;

    if (!longer)
        curl_slist_free_all(fields);
    return longer;
}

/* `authorization`: one more, or NULL. NULL: no memory. */
static struct curl_slist *make_fields(const char *authorization)
{
    struct curl_slist *fields = curl_slist_append(NULL, "Content-Type: application/json");

    fields = add_field(fields, "Accept: application/json");
    fields = add_field(fields, "Expect:"); /* no 100-continue */
    return authorization ? add_field(fields, authorization) : fields;
}

static void free_fields(struct curl_slist *fields)
{
    for (struct curl_slist *field = fields; field; field = field->next)
        explicit_bzero(field->data, strlen(field->data)); /* one may be a secret */
    curl_slist_free_all(fields);
}

bool wire_set_token(struct wire *wire, const char *token)
{
    static const char name[] = "Authorization: Bearer ";
    size_t size = token ? sizeof(name) + strlen(token) : 0;
    char *authorization = token ? malloc(size) : NULL;
    struct curl_slist *fields = NULL;

    if (authorization)
        snprintf(authorization, size, "%s%s", name, token);
    if (authorization || !token)
        fields = make_fields(authorization);
    if (authorization)
        explicit_bzero(authorization, size);
    free(authorization);
    if (!fields)
        return false;
    free_fields(wire->fields);
    wire->fields = fields;
    return true;
}

struct wire *wire_open(const struct address *address)
{
    struct wire *wire = calloc(1, sizeof(*wire));

    if (!wire)
        return NULL;
    pthread_once(&curl_once, set_curl_up);
    wire->fields = curl_ready == CURLE_OK ? make_fields(NULL) : NULL;
    if (!wire->fields || pthread_mutex_init(&wire->lock, NULL) != 0) {
        curl_slist_free_all(wire->fields);
        free(wire);
        return NULL;
    }
    wire->address = *address;
    return wire;
}

static void forget_tls(char *ca, char *cert, char *key)
{
    free(ca);
    free(cert);
    free(key);
}

void wire_close(struct wire *wire)
{
    if (!wire)
        return;
    while (wire->idle) {
        struct line *line = wire->idle;

        wire->idle = line->next;
        line_free(line);
    }
    pthread_mutex_destroy(&wire->lock);
    free_fields(wire->fields);
    forget_tls(wire->ca, wire->cert, wire->key);
    free(wire);
}

bool wire_set_tls(struct wire *wire, const char *ca, const char *cert, const char *key)
{
    char *new_ca = ca ? strdup(ca) : NULL, *new_cert = cert ? strdup(cert) : NULL, *new_key = key ? strdup(key) : NULL;

    if ((ca && !new_ca) || (cert && !new_cert) || (key && !new_key)) {
        forget_tls(new_ca, new_cert, new_key);
        return false;
    }
    forget_tls(wire->ca, wire->cert, wire->key);
    wire->ca = new_ca;
    wire->cert = new_cert;
    wire->key = new_key;
    return true;
}

/* ---- a call ---- */

struct receiver {
    struct wire_answer *answer;
    size_t max;
    bool too_long, no_memory;
};

static size_t receive(char *bytes, size_t size, size_t count, void *arg)
{
    struct receiver *to = arg;
    size_t len = size * count;
    char *longer;

    if (len > to->max - to->answer->len) {
        to->too_long = true;
        return CURL_WRITEFUNC_ERROR;
    }
    longer = realloc(to->answer->body, to->answer->len + len + 1);
    if (!longer) {
        to->no_memory = true;
        return CURL_WRITEFUNC_ERROR;
    }
    to->answer->body = longer;
    memcpy(longer + to->answer->len, bytes, len);
    to->answer->len += len;
    return len;
}

static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *at)
{
    (void)arg;
    (void)purpose;
    return socket(at->family, at->socktype | SOCK_CLOEXEC, at->protocol);
}

#define SET(option, value)                                                                                                                 \
    do {                                                                                                                                   \
        if (curl_easy_setopt(easy, option, value) != CURLE_OK)                                                                             \
            return false;                                                                                                                  \
    } while (0)

/* The server's name and its certificate are checked: that is libcurl's default. */
static bool set_tls(CURL *easy, const struct wire *wire)
{
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (wire->ca)
        SET(CURLOPT_CAINFO, wire->ca);
    if (wire->cert)
        SET(CURLOPT_SSLCERT, wire->cert);
    if (wire->cert)
        SET(CURLOPT_SSLKEY, wire->key ? wire->key : wire->cert);
    return true;
}

/* How every call travels. False: no memory. */
static bool set_manners(CURL *easy, const struct wire *wire)
{
    SET(CURLOPT_NOSIGNAL, 1L); /* neither SIGPIPE nor SIGALRM is touched */
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_NOPROXY, "*"); /* whatever the environment says */
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_HTTPHEADER, wire->fields);
    SET(CURLOPT_USERAGENT, "libpawl/" PACKAGE_VERSION);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_WRITEFUNCTION, receive);
    SET(CURLOPT_MAXAGE_CONN, 60L);  /* pawld closes idle ones after 75 s */
    SET(CURLOPT_TCP_KEEPALIVE, 1L); /* a peer that vanished during a long wait is noticed within a minute or so */
    SET(CURLOPT_TCP_KEEPIDLE, 15L);
    SET(CURLOPT_TCP_KEEPINTVL, 5L);
#if LIBCURL_VERSION_NUM >= 0x075700
    SET(CURLOPT_QUICK_EXIT, 1L); /* a name server that hangs must not hold up the end of a call */
#endif
#if LIBCURL_VERSION_NUM >= 0x075500
    SET(CURLOPT_PROTOCOLS_STR, wire->address.tls ? "https" : "http");
#else
    SET(CURLOPT_PROTOCOLS, (long)(wire->address.tls ? CURLPROTO_HTTPS : CURLPROTO_HTTP));
#endif
    if (wire->address.tls && !set_tls(easy, wire))
        return false;
    if (wire->address.socket[0])
        SET(CURLOPT_UNIX_SOCKET_PATH, wire->address.socket);
    return true;
}

static bool set_call(CURL *easy, const struct wire *wire, const struct wire_call *call, struct receiver *to, char *problem)
{
    char url[URL_MAX];

    if (snprintf(url, sizeof(url), "%s%s", wire->address.base, call->target) >= (int)sizeof(url))
        return false;
    problem[0] = '\0';
    SET(CURLOPT_ERRORBUFFER, problem);
    SET(CURLOPT_URL, url);
    SET(CURLOPT_WRITEDATA, to);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)call->connect_ms);
    if (call->body) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_len);
        SET(CURLOPT_POSTFIELDS, call->body);
    }
    if (call->once) {
        SET(CURLOPT_FRESH_CONNECT, 1L);
        SET(CURLOPT_FORBID_REUSE, 1L);
    }
    return true;
}

static bool transfer_done(CURLM *multi, CURLcode *ret_result)
{
    CURLMsg *said;
    int more;

    while ((said = curl_multi_info_read(multi, &more))) {
        if (said->msg == CURLMSG_DONE) {
            *ret_result = said->data.result;
            return true;
        }
    }
    return false;
}

/* Runs the transfer to its end, the deadline, or a cancel. WIRE_ANSWERED: *ret_result says how it ended. */
static enum wire_outcome drive(struct line *line, const struct wire_call *call, CURLcode *ret_result)
{
    struct pollfd cancelled[2] = {{.fd = call->cancel_fd, .events = POLLIN}, {.fd = call->stop_fd, .events = POLLIN}};
    struct curl_waitfd also[3] = {{.fd = line->timer, .events = CURL_WAIT_POLLIN}};
    unsigned count = 1;
    int running;

    if (call->cancel_fd >= 0)
        also[count++] = (struct curl_waitfd){.fd = call->cancel_fd, .events = CURL_WAIT_POLLIN};
    if (call->stop_fd >= 0)
        also[count++] = (struct curl_waitfd){.fd = call->stop_fd, .events = CURL_WAIT_POLLIN};
    if (poll(cancelled, 2, 0) > 0)
        return WIRE_CANCELLED; /* before anything was sent */
    moment_set(line->timer, call->deadline_us);
    for (;;) {
        if (curl_multi_perform(line->multi, &running) != CURLM_OK)
            return WIRE_NO_MEMORY;
        if (transfer_done(line->multi, ret_result))
            return WIRE_ANSWERED;
        if (moment_now_us() >= call->deadline_us)
            return WIRE_LATE;
        for (unsigned i = 0; i < count; i++)
            also[i].revents = 0;
        if (curl_multi_poll(line->multi, also, count, 60000, NULL) != CURLM_OK)
            return WIRE_NO_MEMORY;
        for (unsigned i = 1; i < count; i++) {
            if (also[i].revents)
                return WIRE_CANCELLED;
        }
    }
}

static enum wire_outcome outcome_of(CURLcode result, const struct receiver *to)
{
    if (to->no_memory)
        return WIRE_NO_MEMORY;
    if (to->too_long)
        return WIRE_GARBLED;
    switch (result) {
    case CURLE_OK:
        return WIRE_ANSWERED;
    case CURLE_OUT_OF_MEMORY:
        return WIRE_NO_MEMORY;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
        return WIRE_GARBLED;
    default:
        return WIRE_FAILED;
    }
}

/* libcurl says nothing of the path of a unix socket, and nothing of the errno. "": it can say it better. */
static const char *say_where(const struct wire *wire, CURLcode result, long error, const char *problem, char *block, size_t cap)
{
    bool local = wire->address.socket[0] != '\0';
    const char *where = local ? wire->address.socket : wire->address.base;

    if (result == CURLE_COULDNT_CONNECT && error > 0)
        snprintf(block, cap, "cannot connect to %s%.180s: %s", local ? "unix:" : "", where, strerror((int)error));
    else if (result == CURLE_SSL_CONNECT_ERROR && strstr(problem, "wrong version number"))
        snprintf(block, cap, "what answers at %.180s speaks no TLS: is it http://?", where);
    else
        block[0] = '\0';
    return block;
}

static void describe(struct wire_answer *answer, enum wire_outcome outcome, CURLcode result, const struct receiver *to, const char *problem,
                     const char *where)
{
    const char *text = where[0] ? where : problem[0] ? problem : curl_easy_strerror(result);

    if (outcome == WIRE_LATE)
        text = "no answer in time";
    else if (outcome == WIRE_CANCELLED)
        text = "cancelled";
    else if (outcome == WIRE_NO_MEMORY)
        text = "out of memory";
    else if (to->too_long)
        text = "the answer is too long";
    snprintf(answer->problem, sizeof(answer->problem), "%s", text);
}

/* The request's head is on its way, or more. */
static bool was_sent(CURL *easy)
{
    long bytes = 0;

    return curl_easy_getinfo(easy, CURLINFO_REQUEST_SIZE, &bytes) != CURLE_OK || bytes > 0;
}

enum wire_outcome wire_call(struct wire *wire, const struct wire_call *call, struct wire_answer *ret_answer)
{
    struct line *line = take_line(wire);
    struct receiver to = {.answer = ret_answer, .max = call->answer_max};
    char problem[CURL_ERROR_SIZE] = "", where[sizeof(ret_answer->problem)];
    enum wire_outcome outcome = WIRE_NO_MEMORY;
    CURLcode result = CURLE_OUT_OF_MEMORY;
    long status = 0, error = 0;

    memset(ret_answer, 0, sizeof(*ret_answer));
    if (!line) {
        snprintf(ret_answer->problem, sizeof(ret_answer->problem), "out of memory or descriptors");
        return WIRE_NO_MEMORY;
    }
    curl_easy_reset(line->easy);
    if (set_manners(line->easy, wire) && set_call(line->easy, wire, call, &to, problem) &&
        curl_multi_add_handle(line->multi, line->easy) == CURLM_OK) {
        outcome = drive(line, call, &result);
        if (outcome == WIRE_ANSWERED)
            outcome = outcome_of(result, &to);
        ret_answer->sent = was_sent(line->easy);
        (void)curl_easy_getinfo(line->easy, CURLINFO_RESPONSE_CODE, &status);
        (void)curl_easy_getinfo(line->easy, CURLINFO_OS_ERRNO, &error);
        (void)curl_multi_remove_handle(line->multi, line->easy); /* closes what is still under way */
    }
    ret_answer->status = (int)status;
    if (outcome != WIRE_ANSWERED)
        describe(ret_answer, outcome, result, &to, problem, say_where(wire, result, error, problem, where, sizeof(where)));
    (void)curl_easy_setopt(line->easy, CURLOPT_ERRORBUFFER, NULL);
    give_line(wire, line);
    return outcome;
}

void wire_answer_close(struct wire_answer *answer)
{
    free(answer->body);
    answer->body = NULL;
    answer->len = 0;
}

bool wire_pause(struct wire *wire, int64_t at_us, int cancel_fd, int stop_fd)
{
    struct line *line = take_line(wire);
    bool woken;

    if (!line) { /* no memory or descriptors for a timer: poll's own must do */
        struct pollfd polled[2] = {{.fd = cancel_fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
        int64_t left_ms = (at_us - moment_now_us()) / 1000;

        return poll(polled, 2, left_ms < 1 ? 1 : left_ms > 1000 ? 1000 : (int)left_ms) > 0;
    }
    woken = moment_pause(line->timer, at_us, cancel_fd, stop_fd);
    give_line(wire, line);
    return woken;
}
