#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/fake_pawld.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void fake_pawld_lease_id(const char *request, char *out)
{
    const char *at = strstr(request, "\"lease_id\": \"");

    out[0] = '\0';
    if (at && strlen(at) >= 13 + 36) {
        memcpy(out, at + 13, 36);
        out[36] = '\0';
    }
}

/* Head and body, by Content-Length; a GET has none. */
static size_t read_request(int fd, char *text, size_t cap)
{
    size_t len = 0;

    for (;;) {
        char *end, *length;
        ssize_t n = recv(fd, text + len, cap - 1 - len, 0);

        if (n <= 0)
            return 0;
        len += (size_t)n;
        text[len] = '\0';
        end = strstr(text, "\r\n\r\n");
        length = strcasestr(text, "content-length:");
        if (end && len >= (size_t)(end + 4 - text) + (length ? strtoul(length + 15, NULL, 10) : 0))
            return len;
    }
}

/* Pours the answer out; long ones may not be wanted to their end. */
static void send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

        if (n <= 0)
            return;
        bytes += n;
        len -= (size_t)n;
    }
}

static void answer(int fd, const char *told, const char *request)
{
    char id[40], head[256];
    const char *body = strchr(told, ' ') + 1, *mark = strstr(body, "%L");
    size_t len = strlen(body) + 64;
    char *text = malloc(len);

    if (!text)
        abort();
    fake_pawld_lease_id(request, id);
    if (mark)
        snprintf(text, len, "%.*s%s%s", (int)(mark - body), body, id, mark + 2);
    else
        snprintf(text, len, "%s", body);
    snprintf(head, sizeof(head), "HTTP/1.1 %.3s X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
             told, strlen(text));
    send_all(fd, head, strlen(head));
    send_all(fd, text, strlen(text));
    free(text);
}

static void serve(struct fake_pawld *f, int fd)
{
    char request[1024], rest[64];
    const char *told;
    size_t n;

    if (read_request(fd, request, sizeof(request)) == 0)
        return;
    pthread_mutex_lock(&f->lock);
    n = f->request_count++;
    if (n < FAKE_REQUESTS_MAX)
        memcpy(f->requests[n], request, sizeof(request));
    pthread_mutex_unlock(&f->lock);
    told = f->answers[n < f->answer_count ? n : f->answer_count - 1];
    if (told == FAKE_HANG)
        while (recv(fd, rest, sizeof(rest), 0) > 0)
            continue;
    else if (told != FAKE_CUT)
        answer(fd, told, request);
}

static void *run(void *arg)
{
    struct fake_pawld *f = arg;
    int fd;

    while ((fd = accept(f->listener, NULL, NULL)) >= 0) {
        serve(f, fd);
        close(fd);
    }
    return NULL;
}

void fake_pawld_start(struct fake_pawld *f, const char *const *answers, size_t count)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);

    memset(f, 0, sizeof(*f));
    f->answers = answers;
    f->answer_count = count;
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (f->listener < 0 || bind(f->listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(f->listener, 64) != 0 ||
        getsockname(f->listener, (struct sockaddr *)&at, &len) != 0 || pthread_mutex_init(&f->lock, NULL) != 0)
        abort();
    snprintf(f->address, sizeof(f->address), "http://127.0.0.1:%d", ntohs(at.sin_port));
    if (pthread_create(&f->thread, NULL, run, f) != 0)
        abort();
}

void fake_pawld_stop(struct fake_pawld *f)
{
    shutdown(f->listener, SHUT_RDWR);
    pthread_join(f->thread, NULL);
    close(f->listener);
    pthread_mutex_destroy(&f->lock);
}

size_t fake_pawld_count(struct fake_pawld *f)
{
    size_t n;

    pthread_mutex_lock(&f->lock);
    n = f->request_count;
    pthread_mutex_unlock(&f->lock);
    return n;
}
