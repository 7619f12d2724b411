/* The files of the built-in page, put into the program by build-aux/embed-files.sh: those of daemon/page, in the order in which daemon/daemon.am lists them. */
#ifndef PAWL_PAGE_FILES_H
#define PAWL_PAGE_FILES_H

#include <stddef.h>

enum page_file_id { PAGE_HTML, PAGE_SCRIPT, PAGE_STYLE, PAGE_ICON };

struct page_file {
    const char *name;
    const char *at; /* not NUL-terminated */
    size_t len;
};

extern const struct page_file page_files[];

#endif
