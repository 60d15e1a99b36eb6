// Preloaded, it moves the wall clock of a process by the milliseconds in the file that LOCK_TEST_CLOCK names (eight
// bytes, read each time); monotonic clocks stay. libfaketime does this too, and redis-server aborts under it.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *moved;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("LOCK_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) abort();
    void *bytes = mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) abort();
    moved = bytes;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && moved && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = now->tv_sec * 1000000000LL + now->tv_nsec + *moved * 1000000LL;
        now->tv_sec = nanos / 1000000000LL;
        now->tv_nsec = nanos % 1000000000LL;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    int result = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *also) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (also) *also = now.tv_sec;
    return now.tv_sec;
}
