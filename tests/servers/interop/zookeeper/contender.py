"""A contender by kazoo: reads one command a line, answers one line."""

import sys

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

address, path, counter = sys.argv[1:]
client = KazooClient(hosts=address)
client.start()
# Its own contenders have other names; this makes it see ours.
lock = client.Lock(path, "kazoo", extra_lock_patterns=["-lock-"])


def count(times):
    for _ in range(times):
        with lock:
            with open(counter) as file:
                value = int(file.read())
            with open(counter, "w") as file:
                file.write(str(value + 1))


print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "acquire":
        lock.acquire()
        print("held", flush=True)
    elif word == "try":
        try:
            print("held" if lock.acquire(timeout=0.5) else "busy", flush=True)
        except LockTimeout:
            print("busy", flush=True)
    elif word == "release":
        lock.release()
        print("released", flush=True)
    elif word == "count":
        count(int(rest[0]))
        print("counted", flush=True)
