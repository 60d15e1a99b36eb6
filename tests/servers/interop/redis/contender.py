"""A contender by redis-py, with the defaults of its lock: enters again and again, and answers with its waits.

With a lease in seconds and a journal as further arguments, each entry is written down.
"""

import os
import sys
import time

import redis

socket, key, counter, *further = sys.argv[1:]
lease, journal = (float(further[0]), further[1]) if further else (None, None)
lock = redis.Redis(unix_socket_path=socket).lock(key, timeout=lease)


def note(event):
    if journal:
        with open(journal, "a") as file:
            file.write(f"{os.getpid()} {event} {time.monotonic_ns()}\n")


print("ready", flush=True)
section, seconds = map(float, input().split())
begin = time.monotonic()
waits = []
while (asked := time.monotonic()) < begin + seconds:
    lock.acquire()
    waits.append(time.monotonic() - asked)
    note("in")
    with open(counter) as file:
        # Empty after a process that was killed while it wrote.
        value = int(file.read() or 0)
    time.sleep(section)
    with open(counter, "w") as file:
        file.write(str(value + 1))
    note("out")
    lock.release()
print("waited", *(f"{1000 * wait:.3f}" for wait in waits), flush=True)
