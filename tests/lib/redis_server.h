/* A redis-server of a test's own, on a unix socket in a folder: start it, freeze it, kill it, talk to it.
 *
 * It dies with the process that started it, however that ends (PR_SET_PDEATHSIG), so a failed assertion leaves none behind. Everything that goes
 * wrong in here fails the test. The folder is made and removed apart from the server, in fixtures that also run when a test failed. */
#ifndef PAWL_TESTS_REDIS_SERVER_H
#define PAWL_TESTS_REDIS_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <hiredis/hiredis.h>

struct redis_server {
    pid_t pid; /* 0: none runs */
    bool frozen;
    char folder[64];
    char socket[80];
    redisContext *context; /* the test's own connection, blocking */
};

void redis_server_make_folder(struct redis_server *s);
void redis_server_remove_folder(struct redis_server *s);

/* Without persistence unless `options` (words of the command line, NULL-terminated; may be NULL) say so; a dump.rdb in the folder is loaded. Returns
 * when the server answers, if only that it is loading. */
void redis_server_start(struct redis_server *s, const char *const *options);
void redis_server_kill(struct redis_server *s);   /* SIGKILL, and reaped; of none: nothing */
void redis_server_freeze(struct redis_server *s); /* SIGSTOP; has taken hold on return */
void redis_server_thaw(struct redis_server *s);
void redis_server_drop_data(struct redis_server *s); /* removes the dump.rdb */

/* One command on the test's own connection; `format` is hiredis'. An error reply fails the test, but in redis_server_try. The reply is the
 * caller's to free. */
redisReply *redis_server_do(struct redis_server *s, const char *format, ...);
redisReply *redis_server_try(struct redis_server *s, const char *format, ...);
int64_t redis_server_int(struct redis_server *s, const char *format, ...); /* of an integer reply, or of a string of digits */
void redis_server_ok(struct redis_server *s, const char *format, ...);     /* whatever it answers but an error */
/* The string reply, "(nil)" when there is none; valid until the call after next. */
const char *redis_server_text(struct redis_server *s, const char *format, ...);
/* Written to the socket at once and not waited for, so also to a frozen server. The answer must be taken with redis_server_answer. */
void redis_server_write(struct redis_server *s, const char *format, ...);
void redis_server_answer(struct redis_server *s);

#endif
