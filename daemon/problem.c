/* One line of a person's language. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/problem.h"

#include <stdarg.h>
#include <stdio.h>

int problem_say(char *problem, size_t cap, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(problem, cap, format, args);
    va_end(args);
    return -1;
}
