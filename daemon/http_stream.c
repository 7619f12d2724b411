/* Replies without an end in sight (http.h), as chunks, or as bytes up to the end of the connection for HTTP/1.0.
 *
 * A stream is a state of its connection: its exchange stays open, its client's leaving is watched for as for a parked request's, and no request may follow.
 * Who sends may find that the connection has died since: then it learns it from the sending, and is not told again.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/http_conn.h"

bool http_stream_begin(struct http_exchange *x, const struct http_response *response, const struct http_stream_ops *ops, void *arg)
{
    struct http_conn *c = http_conn_of(x);
    struct http_response_bytes bytes;
    bool open = false;

    if (c->state != BUSY) {
        return false;
    }
    http_conn_enter(c);
    http_conn_move(c, IDLE);
    http_response_lay_head(&bytes, response, &c->set->date, HTTP_CONNECTION_CLOSE, c->is_1_0 ? HTTP_BY_CLOSE : HTTP_BY_CHUNKS);
    if (http_conn_send_parts(c, bytes.parts, bytes.count) == 0 && c->head_only) {
        http_conn_begin_close(c);
    } else if (c->state != DEAD) {
        open = true;
        *x = (struct http_exchange){arg, ops};
        http_conn_move(c, STREAM);
        http_conn_watch_leaving(c);
    }
    http_conn_leave_to_service(c);
    return open;
}

static char *put_chunk_size(char *end, size_t n)
{
    static const char digits[] = "0123456789abcdef";

    do {
        *--end = digits[n % 16];
        n /= 16;
    } while (n > 0);
    return end;
}

/* Frames the parts as one chunk in `framed`; returns how many parts that makes. An empty chunk would be the last. */
static int frame_chunk(struct iovec *framed, char *line, size_t line_len, const struct iovec *parts, int count)
{
    static const char line_end[] = "\r\n";
    size_t len = 0;
    char *size;

    for (int i = 0; i < count; i++) {
        framed[i + 1] = parts[i];
        len += parts[i].iov_len;
    }
    line[line_len - 2] = '\r';
    line[line_len - 1] = '\n';
    size = put_chunk_size(line + line_len - 2, len);
    framed[0] = (struct iovec){size, (size_t)(line + line_len - size)};
    framed[count + 1] = (struct iovec){(char *)line_end, 2};
    return len > 0 ? count + 2 : 0;
}

enum http_stream_result http_stream_send(struct http_exchange *x, const struct iovec *parts, int count)
{
    struct http_conn *c = http_conn_of(x);
    struct iovec framed[HTTP_STREAM_PARTS + 2];
    char line[24];
    enum http_stream_result result = HTTP_STREAM_OPEN;

    if (c->state != STREAM) { /* it failed before, and gone() has not been called yet: it won't be */
        c->owes_gone = false;
        return HTTP_STREAM_GONE;
    }
    http_conn_enter(c);
    count = frame_chunk(framed, line, sizeof(line), parts, count);
    if (count > 0 && http_conn_send_parts(c, framed + c->is_1_0, c->is_1_0 ? count - 2 : count) != 0) {
        c->owes_gone = false;
        result = HTTP_STREAM_GONE;
    } else if (http_output_pending(&c->output) > 0) {
        result = HTTP_STREAM_FULL;
    }
    http_conn_leave_to_service(c);
    return result;
}

void http_stream_end(struct http_exchange *x)
{
    static const char last_chunk[] = "0\r\n\r\n";
    struct iovec part = {(char *)last_chunk, sizeof(last_chunk) - 1};
    struct http_conn *c = http_conn_of(x);

    if (c->state != STREAM) {
        c->owes_gone = false;
        return;
    }
    http_conn_enter(c);
    http_conn_move(c, FLUSH);
    if (c->is_1_0 || http_conn_send_parts(c, &part, 1) == 0) {
        http_conn_begin_close(c);
    }
    http_conn_leave_to_service(c);
}
