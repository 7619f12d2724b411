/* What the commands print: tables for people, JSON for scripts, and problems with their exit codes. */
#ifndef PAWL_CLI_OUTPUT_H
#define PAWL_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "client/cli.h"
#include "client/pawl.h"

/* The exit code that stands for an enum pawl_code. */
int cli_exit_of(int code);

/* Says what went wrong: a sentence on stderr, or with --json an object on stdout. Returns the exit code. */
int cli_complain(const struct cli *cli, const char *name, const struct pawl_problem *problem);

/* "1.5s", "2m05s", "3h04m", "2d03h": short enough for a column. */
const char *cli_time(int64_t ms, char *block, size_t cap);

/* Everything about a lock as one JSON object, with a newline. */
void cli_json_lock(const struct pawl_lock *lock);
void cli_json_string(const char *text);

/* A table of locks. widths are those of the name and the owner. */
void cli_row_head(int name_width);
void cli_row(const struct pawl_lock *lock, int name_width);

#endif
