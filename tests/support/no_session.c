// Preloaded, a process that asks for a session of its own gets a process group only. Linux may divide the processors
// among sessions, not processes: beside thirty of PostgreSQL's, each of which makes one, the tests themselves would be
// left a thirtieth.
#include <sys/types.h>
#include <unistd.h>

pid_t setsid(void) {
    setpgid(0, 0);
    return getpid();
}
