// Preloaded, no thread starts while the file exists that LOCK_TEST_NO_THREADS names, and the look-up of a name that ends
// with ".hangs.test" takes a minute.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int pthread_create(pthread_t *thread, const pthread_attr_t *settings, void *(*run)(void *), void *with) {
    const char *none = getenv("LOCK_TEST_NO_THREADS");
    if (none && access(none, F_OK) == 0) return EAGAIN;
    return NEXT(pthread_create)(thread, settings, run, with);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    const char *end = name ? strstr(name, ".hangs.test") : NULL;
    if (end) sleep(60);
    return NEXT(getaddrinfo)(name, service, hints, found);
}
