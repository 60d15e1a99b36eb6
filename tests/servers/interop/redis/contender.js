// A contender by redlock, with its defaults: enters again and again, and answers with its waits. With a lease in seconds
// and a journal as further arguments, each entry is written down.

const { once } = require("events");
const fs = require("fs");
const { setTimeout: sleep } = require("timers/promises");
const { default: Redis } = require("ioredis");
const { default: Redlock, ExecutionError } = require("redlock");

const [paths, key, counter, lease = 30, journal] = process.argv.slice(2);
const clients = paths.split(",").map((path) => new Redis({ path }));
const redlock = new Redlock(clients);
// It reports each attempt that found the lock held.
redlock.on("error", () => {});

async function acquire() {
  for (;;) {
    try {
      return await redlock.acquire([key], 1000 * lease);
    } catch (error) {
      // It gives up after ten attempts.
      if (!(error instanceof ExecutionError)) throw error;
    }
  }
}

function note(event) {
  if (journal) fs.appendFileSync(journal, `${process.pid} ${event} ${process.hrtime.bigint()}\n`);
}

async function run(section, seconds) {
  const begin = performance.now();
  const waits = [];
  for (;;) {
    const asked = performance.now();
    if (asked >= begin + 1000 * seconds) return waits;
    const lock = await acquire();
    waits.push(performance.now() - asked);
    note("in");
    const value = Number(fs.readFileSync(counter, "utf8"));
    await sleep(1000 * section);
    fs.writeFileSync(counter, String(value + 1));
    note("out");
    await lock.release();
  }
}

Promise.all(clients.map((client) => once(client, "ready"))).then(() => console.log("ready"));
process.stdin.once("data", async (line) => {
  const waits = await run(...line.toString().split(" ").map(Number));
  console.log("waited " + waits.map((wait) => wait.toFixed(3)).join(" "));
  process.exit(0);
});
