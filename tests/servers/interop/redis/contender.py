"""A contender by redis-py, with the defaults of its lock: enters again and again, and answers with its waits."""

import sys
import time

import redis

socket, key, counter = sys.argv[1:]
lock = redis.Redis(unix_socket_path=socket).lock(key)

print("ready", flush=True)
section, seconds = map(float, input().split())
begin = time.monotonic()
waits = []
while (asked := time.monotonic()) < begin + seconds:
    lock.acquire()
    waits.append(time.monotonic() - asked)
    with open(counter) as file:
        value = int(file.read())
    time.sleep(section)
    with open(counter, "w") as file:
        file.write(str(value + 1))
    lock.release()
print("waited", *(f"{1000 * wait:.3f}" for wait in waits), flush=True)
