/* The processes that descend from CMD. See the header for the idea.
 *
 * Children are read from /proc/PID/task/TID/children, or, on a kernel without that file, found by looking at every process's parent. A number
 * can't be taken over by a stranger between reading and signalling while its process is our own child, since only we reap it; for
 * grandchildren there remains an instant.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/cli_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPARE_COUNT (sizeof(((struct cli_tree *)NULL)->spare) / sizeof(int)) /* a folder, and a file in it */

struct pids {
    pid_t *at;
    size_t count, cap;
    bool failed;
};

static void add_pid(struct pids *pids, pid_t pid)
{
    if (pids->count == pids->cap) {
        size_t cap = pids->cap ? pids->cap * 2 : 64;
        pid_t *longer = realloc(pids->at, cap * sizeof(*longer));

        if (!longer) {
            pids->failed = true;
            return;
        }
        pids->at = longer;
        pids->cap = cap;
    }
    pids->at[pids->count++] = pid;
}

/* Something in /proc could not be read: it is gone, or somebody else's; or pawl lacks what it takes to look, and does not know what is there. */
static void see_why(struct pids *pids)
{
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
        pids->failed = true;
}

/* The numbers that name entries of a folder of /proc, each given to `take`. */
static int each_number(const char *path, void (*take)(struct pids *pids, pid_t parent, pid_t number), struct pids *pids, pid_t parent)
{
    DIR *folder = opendir(path);
    struct dirent *entry;

    if (!folder)
        return -1;
    while ((entry = readdir(folder))) {
        char *end;
        long number = strtol(entry->d_name, &end, 10);

        if (*end == '\0' && end != entry->d_name)
            take(pids, parent, (pid_t)number);
    }
    closedir(folder);
    return 0;
}

static pid_t parent_of(struct pids *pids, pid_t pid)
{
    char path[64], text[512], *after;
    FILE *file;
    size_t len;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file) {
        see_why(pids);
        return 0;
    }
    len = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[len] = '\0';
    after = strrchr(text, ')');                                                 /* the program's name before it may hold anything */
    return after && strlen(after) > 4 ? (pid_t)strtol(after + 4, NULL, 10) : 0; /* ") S 123": the state's letter stands between */
}

static void take_if_child(struct pids *pids, pid_t parent, pid_t pid)
{
    if (parent_of(pids, pid) == parent)
        add_pid(pids, pid);
}

static bool have_children_file(void)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    return access(path, R_OK) == 0;
}

static void take_children_of_thread(struct pids *pids, pid_t process, pid_t thread)
{
    char path[80], *word = NULL;
    size_t cap = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)process, (int)thread);
    file = fopen(path, "re");
    if (!file) {
        see_why(pids);
        return;
    }
    errno = 0;
    while (getdelim(&word, &cap, ' ', file) > 0) { /* "12 345 " */
        long pid = strtol(word, NULL, 10);

        if (pid > 0)
            add_pid(pids, (pid_t)pid);
    }
    see_why(pids);
    free(word);
    fclose(file);
}

/* Adds the children of `parent`, ended ones that nobody reaped included. */
static int add_children(struct pids *pids, pid_t parent)
{
    char path[64];

    if (!have_children_file())
        return each_number("/proc", take_if_child, pids, parent);
    snprintf(path, sizeof(path), "/proc/%d/task", (int)parent);
    return each_number(path, take_children_of_thread, pids, parent);
}

/* ---- descriptors to look with ---- */

/* Without them CMD would seem to be alive for as long as descriptors are short, and the lease would be renewed all the while. */
static bool keep_spare(struct cli_tree *tree)
{
    bool all = true;

    for (size_t i = 0; i < SPARE_COUNT; i++) {
        if (tree->spare[i] < 0)
            tree->spare[i] = open("/", O_PATH | O_CLOEXEC);
        all = all && tree->spare[i] >= 0;
    }
    return all;
}

static void use_spare(struct cli_tree *tree)
{
    for (size_t i = 0; i < SPARE_COUNT; i++) {
        if (tree->spare[i] >= 0)
            close(tree->spare[i]);
        tree->spare[i] = -1;
    }
}

/* ---- the tree ---- */

static bool is_stranger(const struct cli_tree *tree, pid_t pid)
{
    for (size_t i = 0; i < tree->stranger_count; i++) {
        if (tree->strangers[i] == pid)
            return true;
    }
    return false;
}

int cli_tree_open(struct cli_tree *tree)
{
    struct pids pids = {0};

    memset(tree, 0, sizeof(*tree));
    for (size_t i = 0; i < SPARE_COUNT; i++)
        tree->spare[i] = -1;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L) != 0)
        return -1;
    if (add_children(&pids, getpid()) != 0 || pids.failed || !keep_spare(tree)) {
        int error = errno;

        use_spare(tree);
        free(pids.at);
        errno = error;
        return -1;
    }
    tree->strangers = pids.at;
    tree->stranger_count = pids.count;
    return 0;
}

static int status_of(const siginfo_t *info)
{
    return info->si_code == CLD_EXITED ? W_EXITCODE(info->si_status, 0) : W_EXITCODE(0, info->si_status);
}

static void look_at_leader(struct cli_tree *tree, int *ret_stopped)
{
    siginfo_t info = {0};

    if (waitid(P_PID, (id_t)tree->leader, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == tree->leader)
        *ret_stopped = info.si_status;
    memset(&info, 0, sizeof(info));
    if (waitid(P_PID, (id_t)tree->leader, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == tree->leader) {
        tree->leader_ended = true;
        tree->leader_status = status_of(&info);
    }
}

bool cli_tree_look(struct cli_tree *tree, int *ret_stopped)
{
    struct pids pids = {0};
    bool left;

    *ret_stopped = 0;
    if (!tree->leader_ended)
        look_at_leader(tree, ret_stopped);
    use_spare(tree);
    left = add_children(&pids, getpid()) != 0 || pids.failed; /* what can't be seen counts as alive */
    (void)keep_spare(tree);
    for (size_t i = 0; i < pids.count; i++) {
        if (pids.at[i] != tree->leader && !is_stranger(tree, pids.at[i]) && waitpid(pids.at[i], NULL, WNOHANG) == 0)
            left = true;
    }
    free(pids.at);
    return left || !tree->leader_ended;
}

void cli_tree_signal_group(const struct cli_tree *tree, int number)
{
    (void)kill(-tree->leader, number);
}

void cli_tree_signal_all(struct cli_tree *tree, int number)
{
    struct pids pids = {0};
    size_t own;

    cli_tree_signal_group(tree, number);
    use_spare(tree);
    (void)add_children(&pids, getpid());
    own = pids.count;
    for (size_t i = 0; i < pids.count; i++) { /* grows while it is walked: breadth first */
        if (i < own && is_stranger(tree, pids.at[i]))
            continue;
        if (getpgid(pids.at[i]) != tree->leader)
            (void)kill(pids.at[i], number);
        (void)add_children(&pids, pids.at[i]);
    }
    (void)keep_spare(tree);
    free(pids.at);
}

void cli_tree_close(struct cli_tree *tree)
{
    if (tree->leader > 0 && tree->leader_ended)
        (void)waitpid(tree->leader, NULL, WNOHANG);
    use_spare(tree);
    free(tree->strangers);
    tree->strangers = NULL;
    tree->stranger_count = 0;
}
