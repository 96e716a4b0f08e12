/* A disk that fails on purpose, put in front of the C library with LD_PRELOAD.
 *
 * Counts the file operations on the store's files (their path holds MARK) and breaks those numbered first..last:
 * `kill` dies before the operation, `half` writes half of it and dies, `eio` and `enospc` fail, `short` writes half
 * and says so. Armed by the child after it was forked; until then everything goes through, uncounted.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static const char MARK[] = "runs.db";

enum mode { OFF, COUNT, KILL, HALF, EIO_, ENOSPC_, SHORT };
static enum mode mode = OFF;
static long first, last;
static atomic_long count;

void shim_arm(int how, long from, long to) {
    first = from;
    last = to;
    count = 0;
    mode = (enum mode)how;
}

long shim_count(void) { return count; }

static int ours(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return strstr(path, MARK) != NULL && strstr(path, ".lock") == NULL;
}

/* Returns what is to be done to this operation: OFF lets it through. */
static enum mode due(int is_ours) {
    if (mode == OFF || !is_ours) return OFF;
    long number = atomic_fetch_add(&count, 1) + 1;
    if (mode == COUNT || number < first || number > last) return OFF;
    if (mode == KILL) kill(getpid(), SIGKILL);
    return mode;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int failed(enum mode how) {
    if (how == EIO_) errno = EIO;
    else if (how == ENOSPC_) errno = ENOSPC;
    else return 0;
    return 1;
}

#define WRITER(name, offset_type)                                                        \
    ssize_t name(int fd, const void *data, size_t size, offset_type offset) {            \
        enum mode how = due(ours(fd));                                                   \
        if (failed(how)) return -1;                                                      \
        if (how == SHORT || how == HALF) {                                               \
            ssize_t done = REAL(name)(fd, data, size > 1 ? size / 2 : size, offset);     \
            if (how == HALF) kill(getpid(), SIGKILL);                                    \
            return done;                                                                 \
        }                                                                                \
        return REAL(name)(fd, data, size, offset);                                       \
    }

WRITER(pwrite, off_t)
WRITER(pwrite64, off64_t)

#define SYNC(name)                                   \
    int name(int fd) {                               \
        enum mode how = due(ours(fd));               \
        if (failed(how)) return -1;                  \
        int done = REAL(name)(fd);                   \
        if (how == HALF) kill(getpid(), SIGKILL);    \
        return done;                                 \
    }

SYNC(fsync)
SYNC(fdatasync)

#define CUT(name, size_type)                         \
    int name(int fd, size_type size) {               \
        enum mode how = due(ours(fd));               \
        if (failed(how)) return -1;                  \
        int done = REAL(name)(fd, size);             \
        if (how == HALF) kill(getpid(), SIGKILL);    \
        return done;                                 \
    }

CUT(ftruncate, off_t)
CUT(ftruncate64, off64_t)

int unlink(const char *path) {
    enum mode how = due(strstr(path, MARK) != NULL && strstr(path, ".lock") == NULL);
    if (how == EIO_) { errno = EIO; return -1; }
    int done = REAL(unlink)(path);
    if (how == HALF) kill(getpid(), SIGKILL);
    return done;
}
