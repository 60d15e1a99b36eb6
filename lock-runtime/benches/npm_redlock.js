// The contender by npm `redlock`, with its defaults. For each line "<tasks> <one key: 0 or 1> <ms>" it answers
// "<cycles/s> <p50 in us>".

const { once } = require("events");
const readline = require("readline");
const { default: Redis } = require("ioredis");
const { default: Redlock, ExecutionError } = require("redlock");

const clients = process.argv.slice(2).map((port) => new Redis(Number(port)));
const redlock = new Redlock(clients);
// It reports each attempt that found the lock held.
redlock.on("error", () => {});
clients.forEach((client) => client.on("error", () => {}));

async function cycle(key) {
  for (;;) {
    try {
      const lock = await redlock.acquire([key], 30_000);
      await lock.release();
      return;
    } catch (error) {
      // It gives up after ten attempts.
      if (!(error instanceof ExecutionError)) throw error;
    }
  }
}

async function run(tasks, oneKey, length) {
  const began = performance.now();
  const times = [];
  const task = async (number) => {
    const key = oneKey ? "npm:one" : `npm:user:${number}`;
    for (;;) {
      const asked = performance.now();
      if (asked >= began + length) return;
      await cycle(key);
      times.push(performance.now() - asked);
    }
  };
  await Promise.all(Array.from({ length: tasks }, (_, number) => task(number)));
  times.sort((a, b) => a - b);
  const took = performance.now() - began;
  return `${(1000 * times.length) / took} ${1000 * times[times.length >> 1]}`;
}

const ready = Promise.all(clients.map((client) => once(client, "ready")));
readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  await ready;
  console.log(await run(...line.split(" ").map(Number)));
});
