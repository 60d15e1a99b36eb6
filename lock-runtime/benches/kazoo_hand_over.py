"""From the release by one client of kazoo to the entry of the other, which waits: prints each in µs."""

import sys
import threading
import time

from kazoo.client import KazooClient

address, count = sys.argv[1], int(sys.argv[2])
clients = [KazooClient(hosts=address) for _ in range(2)]
for client in clients:
    client.start()
locks = [client.Lock("/kazoo/handed-over", "k") for client in clients]
locks[0].acquire()
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
    print((entered[0] - released) * 1e6)
