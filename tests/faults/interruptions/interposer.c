/* Counts the calls that change files under a folder and makes one of them go wrong.
 *
 * Loaded with LD_PRELOAD, so that it sees the calls of Python, SQLite, Arrow and safetensors alike. Nothing
 * happens before `fault_arm`. The counter is shared with forked children.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum action { NONE, KILL, FULL, DENY, DELETE };
enum kind { WRITES, NAMES }; /* needs space, or only changes names */

static struct shared {
    long count;
    char call[64];
} *shared;
static enum action action = NONE;
static long moment;
static char folder[PATH_MAX], victim[PATH_MAX], aside[PATH_MAX];
static int armed;

/* Maps the shared counter; call it in the parent. */
void fault_prepare(void) {
    if (!shared)
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(shared, 0, sizeof *shared);
}
long fault_count(void) { return shared->count; }
const char *fault_call(void) { return shared->call; }

/* Starts counting; `at` is the call (from 1) at which the action happens, and for FULL and DENY goes on. */
void fault_arm(int what, long at, const char *under, const char *deleted, const char *moved_to) {
    action = what;
    moment = at;
    snprintf(folder, sizeof folder, "%s/", under);
    snprintf(victim, sizeof victim, "%s", deleted);
    snprintf(aside, sizeof aside, "%s", moved_to);
    armed = 1;
}
void fault_disarm(void) { armed = 0; }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_inside(int directory, const char *path) {
    char full[2 * PATH_MAX], link[64];
    ssize_t size = 0;
    if (path[0] != '/') {
        if (directory == AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        size = readlink(link, full, PATH_MAX);
        if (size < 0)
            return 0;
        full[size++] = '/';
    }
    snprintf(full + size, sizeof full - size, "%s", path);
    return !strncmp(full, folder, strlen(folder));
}

static int is_open_inside(int descriptor) {
    char link[64], full[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, full, sizeof full - 1);
    if (size < 0)
        return 0;
    full[size] = 0;
    return !strncmp(full, folder, strlen(folder));
}

/* Returns -1 with errno set if the call must fail, 1 if the process dies after half of it, else 0. */
static int before(const char *call, enum kind kind, int half) {
    long number = __atomic_add_fetch(&shared->count, 1, __ATOMIC_SEQ_CST);
    if (action == NONE || number < moment)
        return 0;
    if (number == moment)
        snprintf(shared->call, sizeof shared->call, "%s", call);
    if (action == KILL && number == moment) {
        if (half)
            return 1;
        kill(getpid(), SIGKILL);
    }
    if (action == DELETE && number == moment)
        REAL(rename)(victim, aside);
    if (action == FULL && kind == WRITES) {
        errno = ENOSPC;
        return -1;
    }
    if (action == DENY) {
        errno = EACCES;
        return -1;
    }
    return 0;
}

#define CHANGES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE(flags, mode)                                                                                    \
    mode_t mode = 0;                                                                                         \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                   \
        va_list rest;                                                                                        \
        va_start(rest, flags);                                                                               \
        mode = va_arg(rest, mode_t);                                                                         \
        va_end(rest);                                                                                        \
    }

#define DEFINE_OPEN(name)                                                                                    \
    int name(const char *path, int flags, ...) {                                                             \
        MODE(flags, mode)                                                                                    \
        if (armed && CHANGES(flags) && is_inside(AT_FDCWD, path) &&                                          \
            before(#name, flags & O_CREAT ? WRITES : NAMES, 0))                                              \
            return -1;                                                                                       \
        return REAL(name)(path, flags, mode);                                                                \
    }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(name)                                                                                  \
    int name(int directory, const char *path, int flags, ...) {                                              \
        MODE(flags, mode)                                                                                    \
        if (armed && CHANGES(flags) && is_inside(directory, path) &&                                         \
            before(#name, flags & O_CREAT ? WRITES : NAMES, 0))                                              \
            return -1;                                                                                       \
        return REAL(name)(directory, path, flags, mode);                                                     \
    }
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

/* A process killed in a write has written a part of it. */
#define DEFINE_WRITE(name, parameters, arguments, halves)                                                    \
    ssize_t name parameters {                                                                                \
        if (armed && is_open_inside(descriptor)) {                                                           \
            int fate = before(#name, WRITES, 1);                                                             \
            if (fate < 0)                                                                                    \
                return -1;                                                                                   \
            if (fate) {                                                                                      \
                REAL(name) halves;                                                                           \
                kill(getpid(), SIGKILL);                                                                     \
            }                                                                                                \
        }                                                                                                    \
        return REAL(name) arguments;                                                                         \
    }
DEFINE_WRITE(write, (int descriptor, const void *data, size_t size), (descriptor, data, size),
             (descriptor, data, size / 2))
DEFINE_WRITE(pwrite, (int descriptor, const void *data, size_t size, off_t at), (descriptor, data, size, at),
             (descriptor, data, size / 2, at))
DEFINE_WRITE(pwrite64, (int descriptor, const void *data, size_t size, off64_t at),
             (descriptor, data, size, at), (descriptor, data, size / 2, at))
DEFINE_WRITE(writev, (int descriptor, const struct iovec *parts, int count), (descriptor, parts, count),
             (descriptor, parts, count / 2))

#define DEFINE_ON_FILE(name, parameters, arguments)                                                          \
    int name parameters {                                                                                    \
        if (armed && is_open_inside(descriptor) && before(#name, WRITES, 0))                                 \
            return -1;                                                                                       \
        return REAL(name) arguments;                                                                         \
    }
DEFINE_ON_FILE(fsync, (int descriptor), (descriptor))
DEFINE_ON_FILE(fdatasync, (int descriptor), (descriptor))
DEFINE_ON_FILE(ftruncate, (int descriptor, off_t size), (descriptor, size))
DEFINE_ON_FILE(ftruncate64, (int descriptor, off64_t size), (descriptor, size))

#define DEFINE_ON_NAME(name, kind, parameters, arguments, directory, path)                                   \
    int name parameters {                                                                                    \
        if (armed && is_inside(directory, path) && before(#name, kind, 0))                                   \
            return -1;                                                                                       \
        return REAL(name) arguments;                                                                         \
    }
DEFINE_ON_NAME(mkdir, WRITES, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)
DEFINE_ON_NAME(rmdir, NAMES, (const char *path), (path), AT_FDCWD, path)
DEFINE_ON_NAME(unlink, NAMES, (const char *path), (path), AT_FDCWD, path)
DEFINE_ON_NAME(unlinkat, NAMES, (int from, const char *path, int flags), (from, path, flags), from, path)
DEFINE_ON_NAME(rename, NAMES, (const char *path, const char *to), (path, to), AT_FDCWD, path)
DEFINE_ON_NAME(renameat, NAMES, (int from, const char *path, int to, const char *name),
               (from, path, to, name), from, path)
DEFINE_ON_NAME(renameat2, NAMES, (int from, const char *path, int to, const char *name, unsigned int flags),
               (from, path, to, name, flags), from, path)
DEFINE_ON_NAME(link, WRITES, (const char *path, const char *to), (path, to), AT_FDCWD, path)
DEFINE_ON_NAME(linkat, WRITES, (int from, const char *path, int to, const char *name, int flags),
               (from, path, to, name, flags), from, path)
