/* Log lines. One request may cause one line and no more, whatever bytes a client, a Redis or a config file put into it: so every value is escaped here,
 * in the one place that all lines go through, and nothing that came from outside is ever a format.
 *
 * A line is built in a block on the stack and leaves in one write(2), so lines of several processes on one pipe don't mix. Each field is put in whole or
 * taken out again: a line that grew too long is still valid JSON, and says how many fields are missing ("cut").
 *
 * A line is with the kernel before the daemon goes on: what led to a crash is in the log.
 *
 * Standard error may be a pipe or a terminal whose reader has stalled. Making it non-blocking would do so for everyone who shares it, so it is opened once
 * more, and what is set there is set for this process alone. Where that can't be done, the write is preceded by a poll that does not wait: a pipe or socket
 * that polls writable has room for a page, and a line is smaller than that. (Of a terminal that is not true: it may have room for a byte.)
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/log_flood.h"
#include "proto/utf8.h"

#define LINE_MAX_BYTES  2048
#define VALUE_MAX_BYTES 256
#define TAIL_RESERVE    40 /* for the count of fields left out and the end of the line */
#define GATE_US         1000000

static struct {
    enum log_level level;
    enum log_format format;
    bool torn; /* the last write was cut short: the next line starts on a line of its own */
    int fd;
    int own;          /* standard error, opened once more; -1: it is not */
    const char *path; /* NULL: standard error */
    struct log_flood flood;
} log_state = {.level = LOG_LEVEL_INFO, .format = LOG_FORMAT_TEXT, .fd = STDERR_FILENO, .own = -1};

static const char *const level_names[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

struct line {
    char at[LINE_MAX_BYTES];
    size_t len;
    size_t limit; /* below the size of the block while fields are added */
    bool full;    /* something did not fit since it was last cleared */
};

void log_init(enum log_level level, enum log_format format)
{
    log_state.level = level;
    log_state.format = format;
    memset(&log_state.flood, 0, sizeof(log_state.flood));
}

/* Never waits for the reader of a pipe, and never becomes the terminal of a process that has none. */
static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
}

static void change_to(int fd)
{
    if (log_state.path)
        close(log_state.fd);
    log_state.fd = fd;
    log_state.torn = false;
}

int log_open(const char *path)
{
    int fd = open_file(path);

    if (fd < 0)
        return -1;
    change_to(fd);
    log_state.path = path;
    return 0;
}

void log_reopen(void)
{
    int fd = log_state.path ? open_file(log_state.path) : -1;

    if (fd >= 0)
        change_to(fd);
    else if (log_state.path)
        log_error("log_file_kept", LOG_STR("file", log_state.path), LOG_STR("reason", strerror(errno)));
}

static void change_to_stderr(void)
{
    change_to(log_state.own >= 0 ? log_state.own : STDERR_FILENO);
    log_state.path = NULL;
}

void log_own_stderr(void)
{
    struct stat found;

    if (log_state.own < 0 && fstat(STDERR_FILENO, &found) == 0 && (S_ISFIFO(found.st_mode) || S_ISCHR(found.st_mode)))
        log_state.own = open("/proc/self/fd/2", O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (!log_state.path)
        change_to_stderr();
}

void log_close(void)
{
    change_to_stderr();
}

bool log_enabled(enum log_level level)
{
    return level <= log_state.level;
}

static void put(struct line *line, const char *bytes, size_t len)
{
    if (line->full || len > line->limit - line->len) {
        line->full = true;
        return;
    }
    memcpy(line->at + line->len, bytes, len);
    line->len += len;
}

static void put_str(struct line *line, const char *s)
{
    put(line, s, strlen(s));
}

static __attribute__((format(printf, 2, 3))) void put_fmt(struct line *line, const char *format, ...)
{
    char piece[64];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(piece, sizeof(piece), format, args);
    va_end(args);
    if (n > 0 && (size_t)n < sizeof(piece))
        put(line, piece, (size_t)n);
}

/* Characters that move the cursor, start a line or turn the reading direction: all that lets a value look like something else on a screen. */
static bool deceives(uint32_t c)
{
    return utf8_is_control(c) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0x200e || c == 0x200f || c == 0xfeff;
}

static void put_escape(struct line *line, uint32_t c)
{
    switch (c) {
    case '\n':
        put_str(line, "\\n");
        break;
    case '\r':
        put_str(line, "\\r");
        break;
    case '\t':
        put_str(line, "\\t");
        break;
    default:
        put_fmt(line, "\\u%04" PRIx32, c);
    }
}

/* The value in quotes. Text and JSON differ in one thing: a byte that is no UTF-8 has no spelling of its own in JSON. */
static void put_value(struct line *line, const char *value, size_t len)
{
    size_t i = 0;

    put(line, "\"", 1);
    while (i < len) {
        uint32_t c = 0;
        size_t n = utf8_sequence(value + i, len - i, &c);

        if (i + (n ? n : 1) > VALUE_MAX_BYTES) {
            put_str(line, "...");
            break;
        }
        if (n == 0 && log_state.format == LOG_FORMAT_JSON)
            put_str(line, "\\ufffd");
        else if (n == 0)
            put_fmt(line, "\\x%02x", (unsigned char)value[i]);
        else if (deceives(c))
            put_escape(line, c);
        else {
            if (c == '"' || c == '\\')
                put(line, "\\", 1);
            put(line, value + i, n);
        }
        i += n ? n : 1;
    }
    put(line, "\"", 1);
}

static void put_field(struct line *line, const struct log_field *field)
{
    bool json = log_state.format == LOG_FORMAT_JSON;

    put_str(line, json ? ", \"" : " ");
    put_str(line, field->key);
    put_str(line, json ? "\": " : "=");
    if (field->text)
        put_value(line, field->text, field->len);
    else
        put_fmt(line, "%" PRId64, field->number);
}

static void put_time(struct line *line)
{
    struct timespec now;
    struct tm tm;

    /* Neither can fail for a clock within some billions of years; the line is worth more than its stamp in any case. */
    if (clock_gettime(CLOCK_REALTIME, &now) < 0 || !gmtime_r(&now.tv_sec, &tm)) {
        put_str(line, "1970-01-01T00:00:00.000Z");
        return;
    }
    put_fmt(line, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
            now.tv_nsec / 1000000);
}

static void put_head(struct line *line, enum log_level level, const char *event)
{
    if (log_state.torn)
        put(line, "\n", 1);
    if (log_state.format == LOG_FORMAT_JSON) {
        put_str(line, "{\"time\": \"");
        put_time(line);
        put_fmt(line, "\", \"level\": \"%s\", \"event\": ", level_names[level]);
        put_value(line, event, strlen(event));
    } else {
        put_time(line);
        put_fmt(line, " %s ", level_names[level]);
        put_str(line, event);
    }
}

static void put_fields(struct line *line, const struct log_field *fields, size_t count)
{
    size_t cut = 0;

    for (size_t i = 0; i < count; i++) {
        size_t before = line->len;

        put_field(line, &fields[i]);
        if (line->full) {
            line->len = before;
            line->full = false;
            cut++;
        }
    }
    line->limit = sizeof(line->at);
    if (cut > 0)
        put_field(line, &LOG_INT("cut", cut));
}

static void send_line(const struct line *line)
{
    struct pollfd ready = {.fd = log_state.fd, .events = POLLOUT};
    ssize_t n;

    if (poll(&ready, 1, 0) <= 0 || !(ready.revents & POLLOUT))
        return;
    do
        n = write(log_state.fd, line->at, line->len);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        log_state.torn = (size_t)n < line->len;
}

static void write_line(enum log_level level, const char *event, const struct log_field *fields, size_t count)
{
    struct line line = {.limit = sizeof(line.at) - TAIL_RESERVE};

    put_head(&line, level, event);
    put_fields(&line, fields, count);
    put_str(&line, log_state.format == LOG_FORMAT_JSON ? "}\n" : "\n");
    send_line(&line);
}

/* FNV-1a, the 64-bit form. */
static uint64_t add_to_hash(uint64_t hash, const void *bytes, size_t len)
{
    for (const unsigned char *at = bytes; len > 0; len--)
        hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
    return hash;
}

/* Of all that a line says, but for its time. Two that are unlike and have one hash in one second: one of them is counted and not shown. */
static uint64_t hash_fields(const struct log_field *fields, size_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < count; i++) {
        hash = add_to_hash(hash, fields[i].key, strlen(fields[i].key) + 1);
        if (fields[i].text)
            hash = add_to_hash(hash, fields[i].text, fields[i].len);
        hash = add_to_hash(hash, &fields[i].number, sizeof(fields[i].number));
        hash = add_to_hash(hash, &fields[i].len, sizeof(fields[i].len));
    }
    return hash;
}

static void write_sum(const struct log_flood_sum *sum)
{
    const struct log_field fields[] = {LOG_STR("of", sum->event), LOG_INT("lines", sum->lines)};

    write_line((enum log_level)sum->level, "repeated", fields, 2);
}

static void write_unless_flooded(enum log_level level, const char *event, const struct log_field *fields, size_t count, bool all_unlike)
{
    struct log_flood_sum sum;
    int saved = errno;
    bool pass;

    if (!log_enabled(level))
        return;
    pass = log_flood_pass(&log_state.flood, clock_now_us(&clock_boottime), event, (int)level, hash_fields(fields, count), all_unlike, &sum);
    if (sum.lines > 0)
        write_sum(&sum);
    if (pass)
        write_line(level, event, fields, count);
    errno = saved;
}

void log_write(enum log_level level, const char *event, const struct log_field *fields, size_t count)
{
    write_unless_flooded(level, event, fields, count, log_enabled(LOG_LEVEL_DEBUG));
}

void log_write_record(const char *event, const struct log_field *fields, size_t count)
{
    write_unless_flooded(LOG_LEVEL_INFO, event, fields, count, true);
}

void log_settle(bool all)
{
    struct log_flood_sum sum;

    while (log_flood_settle(&log_state.flood, all ? INT64_MAX : clock_now_us(&clock_boottime), &sum))
        write_sum(&sum);
}

bool log_gate_pass(struct log_gate *gate, int64_t now_us, uint64_t *ret_suppressed)
{
    if (now_us < gate->next_us) {
        gate->suppressed++;
        return false;
    }
    *ret_suppressed = gate->suppressed;
    gate->suppressed = 0;
    gate->next_us = now_us + GATE_US;
    return true;
}
