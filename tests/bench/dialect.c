#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/dialect.h"

#include <errno.h>

bool dialect_ask(const struct dialect *d, struct wire *w, struct frame *f, const struct words *words, dialect_reader read,
                 struct reply *ret)
{
    enum reading got = READING_MORE;

    frame_fill(f, words);
    if (wire_send(w, f->bytes, f->len) != 0)
        return false;
    while (got == READING_MORE) {
        if (wire_wait(w, 10000) < 0)
            return false;
        got = read(d, words, w->in, w->in_len, ret);
    }
    if (got == READING_OK) {
        wire_drop(w, ret->len);
        return true;
    }
    errno = EPROTO;
    return false;
}
