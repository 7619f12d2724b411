/* The list of errors, laid out as a table. Nothing is decided here: the rows stand in errors.h. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "proto/errors.h"

#include <stddef.h>

struct row {
    int status;
    const char *wire;
    const char *text;
};

static const struct row rows[PAWL_ERROR_COUNT] = {[PAWL_OK] = {200, "ok", ""},
#define PAWL_ERROR_ROW(name, status, wire, text) [PAWL_E_##name] = {status, wire, text},
                                                  PAWL_ERRORS(PAWL_ERROR_ROW)
#undef PAWL_ERROR_ROW
};

/* A number that is no error of ours is a bug in the caller; it must not read as success, nor as memory that isn't ours. */
static const struct row stranger = {500, "unknown", "an unknown error"};

static const struct row *row_of(enum pawl_error error)
{
    size_t i = (size_t)error;

    return i < PAWL_ERROR_COUNT ? &rows[i] : &stranger;
}

int pawl_error_status(enum pawl_error error)
{
    return row_of(error)->status;
}

const char *pawl_error_wire(enum pawl_error error)
{
    return row_of(error)->wire;
}

const char *pawl_error_text(enum pawl_error error)
{
    return row_of(error)->text;
}
