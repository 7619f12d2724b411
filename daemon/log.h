/* One event, one line, on standard error or in a file: text or JSON.
 *
 *     2026-11-29T17:25:01.123Z info lock_broken name="deploy/prod" token=1792... reason="node lost"
 *     {"time": "...", "level": "info", "event": "lock_broken", "name": "deploy/prod", "token": 1792..., "reason": "node lost"}
 *
 * Every value is data, never a format. Control characters and non-ASCII bytes that are not UTF-8 are escaped, a value is cut at 256 bytes and a line
 * at 2 KiB. A write that fails or would block is dropped: logging never stops the daemon. Configured once at start (log_init); the one piece of
 * process-wide state in the daemon. The name of an event is a constant of the program.
 *
 * A flood of lines of one event is summed (log_flood.h): "repeated" tells of which event, and how many lines were left out. At level debug unlike lines are all
 * written, and records always are.
 */
#ifndef PAWL_LOG_H
#define PAWL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

struct log_field {
    const char *key;
    const char *text; /* NULL: an integer */
    size_t len;
    int64_t number;
};
#define LOG_STR(key, s)        log_field_text((key), (s), SIZE_MAX)
#define LOG_TEXT(key, at, len) log_field_text((key), (at), (len))
#define LOG_INT(key, n)        ((struct log_field){(key), NULL, 0, (int64_t)(n)})
#define LOG_ID(key, id)        log_field_text((key), (id), strnlen((id), 8)) /* the first 8 characters of a lease id: it is a secret */

/* A value without text (an absent header, say) is an empty one, not a number. SIZE_MAX: a C string. */
static inline struct log_field log_field_text(const char *key, const char *at, size_t len)
{
    if (!at)
        return (struct log_field){key, "", 0, 0};
    return (struct log_field){key, at, len == SIZE_MAX ? strlen(at) : len, 0};
}

void log_init(enum log_level level, enum log_format format); /* forgets all windows */

/* For a program's main: from now on, where standard error is a terminal or a pipe, the log has an open file of its own there, which nobody's reading less can make
 * it wait for. It stays open. Where it can't be opened all is as before. */
void log_own_stderr(void);

/* From now on lines go to the end of this file, which is made if it isn't there; `path` must outlive the log. Returns 0, or -1 with errno (nothing has
 * changed). log_reopen opens it anew, for a file that was moved away; one that can't be opened is told of in the one that stays. log_close goes back to standard
 * error. */
int log_open(const char *path) __attribute__((warn_unused_result));
void log_reopen(void);
void log_close(void);

/* Writes the sums of all windows that are over; `all`: of the open ones too, before the end. To be called every second or so. */
void log_settle(bool all);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *event, const struct log_field *fields, size_t count);
void log_write_record(const char *event, const struct log_field *fields, size_t count); /* see log_record */

#define LOG_EVENT(level, event, ...)                                                                                                       \
    do {                                                                                                                                   \
        if (log_enabled(level)) {                                                                                                          \
            const struct log_field log_fields_[] = {__VA_ARGS__};                                                                          \
            log_write((level), (event), log_fields_, sizeof(log_fields_) / sizeof(log_fields_[0]));                                        \
        }                                                                                                                                  \
    } while (0)
#define log_error(event, ...) LOG_EVENT(LOG_LEVEL_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...)  LOG_EVENT(LOG_LEVEL_WARN, event, __VA_ARGS__)
#define log_info(event, ...)  LOG_EVENT(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) LOG_EVENT(LOG_LEVEL_DEBUG, event, __VA_ARGS__)

/* At level info, for what somebody did and may have to answer for: unlike lines are written, however many there are. */
#define log_record(event, ...)                                                                                                             \
    do {                                                                                                                                   \
        const struct log_field log_fields_[] = {__VA_ARGS__};                                                                              \
        log_write_record((event), log_fields_, sizeof(log_fields_) / sizeof(log_fields_[0]));                                              \
    } while (0)

/* A gate lets one line a second through and counts the rest; the next line that passes says so (LOG_INT("suppressed", n)). Zero-initialise. */
struct log_gate {
    int64_t next_us;
    uint64_t suppressed;
};
/* True: write the line, with *ret_suppressed lines left out since the last. */
bool log_gate_pass(struct log_gate *gate, int64_t now_us, uint64_t *ret_suppressed);

#endif
