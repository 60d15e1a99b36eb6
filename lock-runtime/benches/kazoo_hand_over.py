"""Measures the time from the release by one client of kazoo to the entry of the other, which waits.

Each input line is a number of hand-overs; prints the time of each in µs, on one line.
"""

import sys
import threading
import time

from kazoo.client import KazooClient

clients = [KazooClient(hosts=sys.argv[1]) for _ in range(2)]
for client in clients:
    client.start()
locks = [client.Lock("/kazoo/handed-over", "k") for client in clients]
for line in sys.stdin:
    took = []
    locks[0].acquire()
    count = int(line)
    for number in range(count):
        holder, waiter = locks[number % 2], locks[(number + 1) % 2]
        entered = []

        def wait():
            waiter.acquire()
            entered.append(time.perf_counter())

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.005)
        released = time.perf_counter()
        holder.release()
        thread.join()
        took.append((entered[0] - released) * 1e6)
    locks[count % 2].release()
    print(*took, flush=True)
