// Preloaded, files cannot grow while the file exists that LOCK_TEST_DISK_FULL names: the disk is full, and what has its
// room already can still be changed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int has_room(int file, off64_t end) {
    const char *full = getenv("LOCK_TEST_DISK_FULL");
    struct stat64 now;
    if (full && fstat64(file, &now) == 0 && S_ISREG(now.st_mode) && end > now.st_size && access(full, F_OK) == 0) {
        errno = ENOSPC;
        return 0;
    }
    return 1;
}

static off64_t length(const struct iovec *parts, int count) {
    off64_t sum = 0;
    for (int i = 0; i < count; i++) sum += parts[i].iov_len;
    return sum;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    return has_room(file, at + count) ? NEXT(pwrite64)(file, bytes, count, at) : -1;
}

ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) {
    return has_room(file, at + length(parts, count)) ? NEXT(pwritev64)(file, parts, count, at) : -1;
}

int posix_fallocate64(int file, off64_t at, off64_t count) {
    return has_room(file, at + count) ? NEXT(posix_fallocate64)(file, at, count) : ENOSPC;
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) { return pwrite64(file, bytes, count, at); }

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) { return pwritev64(file, parts, count, at); }

int posix_fallocate(int file, off_t at, off_t count) { return posix_fallocate64(file, at, count); }
