//! The cost of the server's queue, and requests that arrive late.

use std::time::{Duration, Instant};

use lock_runtime::{LockErrorKind, LockManager, backend::redis::GroupCommit};

use super::{LONG, connected, url};
use crate::support::{
    redis_server::RedisServer,
    repeat,
    resp::Value,
    stopwatch::{Moment, Took},
    until,
};

const MS: Duration = Duration::from_millis(1);

/// Number of calls of a command that a server has executed, in scripts, too.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let Value::Text(stats) = server.command(&["INFO", "commandstats"]) else { panic!("INFO is a text") };
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or_default()
}

/// Number of script calls that a server has answered.
fn scripts(server: &RedisServer) -> u64 {
    calls(server, "evalsha")
}

/// Number of writes that a server has made.
fn writes(server: &RedisServer) -> u64 {
    let Value::Text(info) = server.command(&["INFO", "persistence"]) else { panic!("INFO is a text") };
    let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    line.and_then(|count| count.parse().ok()).expect("a number")
}

#[tokio::test]
async fn a_stall_of_the_server_leaves_no_holder_that_nobody_knows() {
    let mut server = RedisServer::start(&[]);
    let ttl = 1000 * MS;
    for grouped in [GroupCommit::Auto, GroupCommit::Always] {
        let url = url(&server, "?response_timeout=300ms");
        let locks = connected(&url, grouped).await.ttl(ttl);
        let before = calls(&server, "set");
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        let of_one_grant = calls(&server, "set") - before;
        for _ in 0..3 {
            let before = calls(&server, "set");
            server.pause();
            for wait in [Duration::ZERO, 700 * MS] {
                let error = locks.lock("k").wait(wait).acquire().await.expect_err("the server stands still");
                assert_eq!(error.kind(), LockErrorKind::Backend, "{error}");
            }
            tokio::time::sleep(2 * ttl).await;
            server.bring_back();
            let healed = Moment::now();
            let other = connected(&url, grouped).await;
            let guard = other.lock("k").wait(LONG).acquire().await.unwrap();
            assert!(healed.within(500 * MS), "only after {:?}", healed.took());
            guard.release().await.unwrap();
            assert_eq!(
                calls(&server, "set") - before,
                of_one_grant,
                "granted to an attempt that was given up"
            );
        }
        locks.shutdown().await;
    }
}

#[tokio::test]
async fn jumps_of_the_server_s_clock_cost_one_round_trip_at_most() {
    let server = RedisServer::start_with_clock(&[]);
    let clock = server.clock().expect("asked for");
    for grouped in [GroupCommit::Never, GroupCommit::Always] {
        clock.set_right();
        let locks = connected(&url(&server, ""), grouped).await;
        let cycle = async || {
            let before = scripts(&server);
            let guard = locks.lock("k").wait(Duration::ZERO).acquire().await.unwrap();
            let after = scripts(&server);
            guard.release().await.unwrap();
            after - before
        };
        // The first one also checks the permissions.
        cycle().await;
        let usual = cycle().await;
        for seconds in [40, 0, -40, 0, 40, -40, 3, -3, 0] {
            let by = Duration::from_secs(u64::try_from(i64::abs(seconds)).unwrap());
            if seconds < 0 {
                clock.set_back(by);
            } else {
                clock.set_forward(by);
            }
            let calls = cycle().await;
            assert!(calls <= usual + 1, "{calls} calls instead of {usual} after a jump to {seconds} s");
            assert_eq!(cycle().await, usual, "once only");
        }
    }
}

#[tokio::test]
async fn a_refused_attempt_writes_nothing_and_is_answered_also_when_memory_is_full() {
    let server = RedisServer::start(&["--maxmemory-policy", "noeviction"]);
    let ours = LockManager::connect(&url(&server, "")).await.unwrap();
    let guard = ours.lock("k").acquire().await.unwrap();
    for grouped in [GroupCommit::Auto, GroupCommit::Always] {
        let theirs = connected(&url(&server, ""), grouped).await;
        let before = writes(&server);
        for _ in 0..50 {
            assert!(theirs.lock("k").try_acquire().await.unwrap().is_none());
        }
        assert_eq!(writes(&server), before);
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        assert!(theirs.lock("k").try_acquire().await.unwrap().is_none(), "held, despite the lack of memory");
        let error = theirs.lock("free").try_acquire().await.expect_err("there is no room");
        assert!(error.to_string().contains("memory"), "{error}");
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    }
    guard.release().await.unwrap();
}

/// Fills a queue with waiters that never poll.
const FILL: &str = "local t = redis.call('TIME') local now = t[1] .. string.format('%06d', t[2]) \
    for i = 1, tonumber(ARGV[1]) do \
      redis.call('RPUSH', KEYS[1], 'other' .. i) redis.call('HSET', KEYS[2], 'other' .. i, '30000 ' .. now .. ' 1 x') \
    end";

#[tokio::test]
async fn a_batch_takes_no_lock_that_has_waiters() {
    let server = RedisServer::start(&[]);
    let [queue, places] = ["queue", "places"].map(|what| format!("lock:{{lock:k}}:~1:{what}"));
    let locks = connected(&url(&server, ""), GroupCommit::Always).await;
    locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
    server.command(&["EVAL", FILL, "2", &queue, &places, "1"]);
    server.command(&["SET", "lock:~1:queues", ""]);
    let [wanted, free] = ["k", "free"].map(|name| locks.lock(name));
    let (wanted, free) = tokio::join!(wanted.try_acquire(), free.try_acquire());
    assert!(wanted.unwrap().is_none());
    assert!(free.unwrap().is_some());
    // The attempt that is made alone afterwards hands the lock over.
    let Value::Text(holder) = server.command(&["GET", "lock:k"]) else { panic!("no client holds the lock") };
    assert!(holder.starts_with("other1:"), "{holder}");
}

#[tokio::test]
async fn a_release_in_a_batch_hands_the_lock_to_a_waiter() {
    let server = RedisServer::start(&[]);
    let [queue, places, open] = ["queue", "places", "open"].map(|what| format!("lock:{{lock:k}}:~1:{what}"));
    let locks = connected(&url(&server, ""), GroupCommit::Always).await;
    let guard = locks.lock("k").acquire().await.unwrap();
    // The holder's process is not notified of this waiter: otherwise, it would release the lock alone.
    server.command(&["EVAL", FILL, "2", &queue, &places, "1"]);
    server.command(&["SET", "lock:~1:queues", ""]);
    guard.release().await.unwrap();
    // Handed over, or left open for other clients.
    let left = server.command(&["EXISTS", "lock:k", &open]);
    assert_eq!(left.int(), 1, "it was released as one without waiters");
}

#[tokio::test]
async fn locks_under_two_prefixes_have_two_counters_of_fences_also_in_one_batch() {
    let server = RedisServer::start(&[]);
    let locks = connected(&url(&server, ""), GroupCommit::Always).await;
    let [a, b] = ["a:", "b:"].map(|prefix| locks.clone().with_prefix(prefix).unwrap());
    for locks in [&a, &b] {
        locks.lock("warm").acquire().await.unwrap().release().await.unwrap();
    }
    server.command(&["DEL", "a:~1:fence", "b:~1:fence"]);
    let (a, b) = (a.lock("k"), b.lock("k"));
    let guards = tokio::join!(a.acquire(), b.acquire());
    assert_eq!(server.command(&["EXISTS", "a:~1:fence", "b:~1:fence"]).int(), 2);
    drop((guards.0.unwrap(), guards.1.unwrap()));
}

/// The cost of one poll to the server with this many waiters: the median, in microseconds.
async fn cost_of_a_look(server: &RedisServer, others: u32) -> f64 {
    let [queue, places] = ["queue", "places"].map(|what| format!("lock:{{lock:k}}:~1:{what}"));
    server.command(&["FLUSHALL"]);
    let holder = LockManager::connect(&url(server, "")).await.unwrap();
    let guard = holder.lock("k").acquire().await.unwrap();
    server.command(&["EVAL", FILL, "2", &queue, &places, &others.to_string()]);
    // A process has one place; here each manager counts as a process.
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let locks = connected(&url(server, ""), GroupCommit::Never).await;
        tasks.push(tokio::spawn(async move { locks.lock("k").wait(LONG).acquire().await.map(drop) }));
    }
    let waiting = i64::from(others) + 20;
    until("all wait", || match server.command(&["LLEN", &queue]).int() {
        count if count == waiting => Ok(()),
        count => Err(count),
    })
    .await;
    server.command(&["CONFIG", "RESETSTAT"]);
    tokio::time::sleep(5500 * MS).await;
    let looks = scripts(server);
    let Value::Text(stats) = server.command(&["INFO", "latencystats"]) else { panic!("INFO is a text") };
    let line = stats.lines().find_map(|line| line.strip_prefix("latency_percentiles_usec_evalsha:p50="));
    let median = line.and_then(|rest| rest.split(',').next()?.parse().ok()).expect("a number");
    for task in tasks {
        task.abort();
    }
    drop(guard);
    assert!((40..=80).contains(&looks), "{looks} polls by 20 waiters that are far back: two each");
    median
}

#[tokio::test]
async fn a_look_costs_the_same_however_many_wait() {
    let server = RedisServer::start(&[]);
    // Other programs that take the processor from the server lengthen some of the forty polls.
    repeat(3, async || {
        let (few, many) = (cost_of_a_look(&server, 100).await, cost_of_a_look(&server, 10_000).await);
        let costs = format!("a poll costs {few:.1} µs with 100 waiters and {many:.1} µs with 10,000");
        println!("{costs}");
        if many <= 3.0 * few { Ok(()) } else { Err(costs) }
    })
    .await;
}

#[tokio::test]
async fn a_waiter_that_gives_up_far_back_is_removed_at_once() {
    let server = RedisServer::start(&[]);
    let holder = LockManager::connect(&url(&server, "")).await.unwrap();
    let guard = holder.lock("k").acquire().await.unwrap();
    let [queue, places] = ["queue", "places"].map(|what| format!("lock:{{lock:k}}:~1:{what}"));
    server.command(&["EVAL", FILL, "2", &queue, &places, "10000"]);
    let length = |count| {
        let (server, queue) = (&server, &queue);
        until("the queue has this length", move || match server.command(&["LLEN", queue]).int() {
            length if length == count => Ok(()),
            length => Err(length),
        })
    };
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let locks = LockManager::connect(&url(&server, "")).await.unwrap();
        tasks.push(tokio::spawn(async move { locks.lock("k").wait(LONG).acquire().await.map(drop) }));
    }
    length(10_020).await;
    // Only commands that block the server for longer than 10 ms are recorded.
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "10000"]);
    server.command(&["SLOWLOG", "RESET"]);
    for task in tasks {
        task.abort();
    }
    length(10_000).await;
    assert_eq!(server.command(&["SLOWLOG", "LEN"]).int(), 0);
    assert_eq!(server.command(&["HLEN", &places]).int(), 10_000);
    drop(guard);
}

#[tokio::test]
async fn looks_of_many_locks_share_calls() {
    const LOCKS: u64 = 400;
    let server = RedisServer::start(&[]);
    let ours = LockManager::connect(&url(&server, "")).await.unwrap();
    let theirs = LockManager::connect(&url(&server, "")).await.unwrap();
    let names = || (0..LOCKS).map(|number| format!("k{number}"));
    let mut guards = Vec::new();
    for name in names() {
        guards.push(ours.lock(name).acquire().await.unwrap());
    }
    let mut tasks = Vec::new();
    for name in names() {
        let lock = theirs.lock(name).wait(LONG);
        tasks.push(tokio::spawn(async move { lock.acquire().await.unwrap().release().await }));
    }
    let queues = "lock:{lock:k*}:~1:queue";
    until("all wait", || match server.command(&["KEYS", queues]).texts().len() {
        400 => Ok(()),
        count => Err(count),
    })
    .await;
    // They began one after the other, and poll together from the second time on.
    tokio::time::sleep(1500 * MS).await;
    let before = scripts(&server);
    tokio::time::sleep(2500 * MS).await;
    let after = scripts(&server);
    assert!(after - before < 2 * LOCKS / 5, "{} calls for {} polls", after - before, 2 * LOCKS);
    assert!(after - before >= 4, "they poll each second");
    // Each of them still gets its lock at once.
    for guard in guards {
        guard.release().await.unwrap();
    }
    let released = Moment::now();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert!(released.within(1000 * MS), "{:?}", released.took());
}

#[tokio::test]
async fn a_counter_of_fences_that_has_no_numbers_left_is_named_and_one_that_is_none_is_mended() {
    let server = RedisServer::start(&[]);
    for grouped in [GroupCommit::Never, GroupCommit::Always] {
        let locks = connected(&url(&server, ""), grouped).await;
        for counter in
            ["4503599627370495", "4800000000000000", "9223372036854775807", "18446744073709551616", "inf"]
        {
            server.command(&["SET", "lock:~1:fence", counter]);
            for wait in [Duration::ZERO, LONG] {
                let error = locks.lock("k").wait(wait).acquire().await.expect_err(counter);
                assert!(
                    error.to_string().contains("~1:fence") && !error.is_retryable(),
                    "{counter}: {error}"
                );
            }
            assert_eq!(
                server.command(&["GET", "lock:~1:fence"]),
                Value::Text(counter.into()),
                "the counter is kept"
            );
            assert_eq!(server.command(&["EXISTS", "lock:k"]).int(), 0);
        }
        for counter in ["4503599627370494", "4503599627370493"] {
            server.command(&["SET", "lock:~1:fence", counter]);
            let guard = locks.lock("k").acquire().await;
            // Below the limit there is one more token.
            guard.unwrap_or_else(|error| panic!("{counter}: {error}")).release().await.unwrap();
        }
        for counter in ["", "text", "-1", "nan"] {
            server.command(&["SET", "lock:~1:fence", counter]);
            let [first, second] = [(); 2].map(|()| locks.lock("k"));
            let guard = first.acquire().await.unwrap();
            let token = guard.fencing_token();
            guard.release().await.unwrap();
            assert!(second.acquire().await.unwrap().fencing_token() > token);
        }
    }
}

#[tokio::test]
async fn the_counter_of_fences_outlasts_every_lease_and_not_for_ever() {
    let server = RedisServer::start(&[]);
    for grouped in [GroupCommit::Never, GroupCommit::Always] {
        let prefix = format!("{grouped:?}");
        let locks = connected(&url(&server, ""), grouped).await.with_prefix(&prefix).unwrap();
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        let left = server.command(&["TTL", &format!("{prefix}:~1:fence")]).int();
        assert!((47 * 3600..=48 * 3600).contains(&left), "{left} s");
    }
}

#[tokio::test]
async fn a_lock_that_is_left_open_is_open_to_all_but_us() {
    let server = RedisServer::start(&[]);
    let ours = LockManager::connect(&url(&server, "")).await.unwrap();
    let theirs = LockManager::connect(&url(&server, "")).await.unwrap();
    let mut opened = 0;
    for round in 0..12 {
        if opened >= 2 {
            break;
        }
        // Behind another kind of client the periods are short.
        let foreign = |owner: &str| server.command(&["SET", "lock:k", owner, "NX", "PX", "60000"]);
        assert_eq!(foreign("foreign"), Value::Text("OK".into()));
        let lock = ours.lock("k").wait(LONG);
        let first = tokio::spawn(async move { lock.acquire().await.unwrap() });
        let queue = "lock:{lock:k}:~1:queue";
        let waiting = async || {
            until("one waits", || match server.command(&["LLEN", queue]).int() {
                1 => Ok(()),
                number => Err(number),
            })
            .await;
        };
        waiting().await;
        server.command(&["DEL", "lock:k"]);
        let guard = first.await.unwrap();
        let lock = theirs.lock("k").wait(LONG);
        let second = tokio::spawn(async move { lock.acquire().await.unwrap() });
        waiting().await;
        // Held over the end of a period in most rounds.
        tokio::time::sleep(if round == 0 { 2100 * MS } else { 700 * MS }).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        let left = server.command(&["PTTL", "lock:{lock:k}:~1:open"]).int();
        let window = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        if window.is_zero() {
            assert!(round > 0 || released.elapsed() > 100 * MS, "held for longer than a period");
            second.await.unwrap().release().await.unwrap();
            continue;
        }
        // Neither the last holder nor a waiter takes it; a client of another kind can.
        let mine = ours.lock("k").try_acquire().await.unwrap();
        let lock = ours.lock("k").wait(LONG);
        let mine_later = tokio::spawn(async move { lock.acquire().await.unwrap() });
        tokio::time::sleep(20 * MS).await;
        let taken = foreign("guest");
        // Proves something only if the machine got here within the window.
        if released.elapsed() < window {
            opened += 1;
            assert!(mine.is_none(), "taken by the client that left it open");
            assert_eq!(taken, Value::Text("OK".into()), "taken by one of ours, open for {window:?}");
            assert!(!second.is_finished() && !mine_later.is_finished());
        }
        drop(mine);
        if taken != Value::Nil {
            server.command(&["DEL", "lock:k"]);
        }
        let freed = Instant::now();
        let guard = second.await.unwrap();
        println!("found {:?} after the other kind of client had left", freed.elapsed());
        guard.release().await.unwrap();
        mine_later.await.unwrap().release().await.unwrap();
    }
    assert!(opened >= 1, "never");
}

/// Puts dead waiters whose places have these ages before a live waiter; returns how long the latter waits after the
/// release.
async fn behind_dead_places(server: &RedisServer, name: &str, ages: &[Duration], opens: bool) -> Took {
    let [ours, theirs] = [
        LockManager::connect(&url(server, "")).await.unwrap(),
        LockManager::connect(&url(server, "")).await.unwrap(),
    ];
    let [queue, places] = ["queue", "places"].map(|what| format!("lock:{{lock:{name}}}:~1:{what}"));
    let guard = ours.lock(name).acquire().await.unwrap();
    let lock = theirs.lock(name).wait(LONG);
    let live = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("it waits", || match server.command(&["LLEN", &queue]).int() {
        1 => Ok(()),
        number => Err(number),
    })
    .await;
    let Value::Array(time) = server.command(&["TIME"]) else { panic!("TIME is an array") };
    let time: Vec<u64> = Value::Array(time).texts().iter().map(|part| part.parse().unwrap()).collect();
    for (number, age) in ages.iter().enumerate() {
        let refreshed = time[0] * 1_000_000 + time[1] - u64::try_from(age.as_micros()).unwrap();
        server.command(&["HSET", &places, &format!("dead{number}"), &format!("30000 {refreshed} 1 nowhere")]);
        server.command(&["LPUSH", &queue, &format!("dead{number}")]);
    }
    if opens {
        let Value::Text(holder) = server.command(&["GET", &format!("lock:{name}")]) else {
            panic!("it is held")
        };
        let (owner, fence) = holder.rsplit_once(':').unwrap();
        let fence = fence.parse::<u64>().unwrap() - 11_000_000;
        server.command(&["SET", &format!("lock:{name}"), &format!("{owner}:{fence}"), "KEEPTTL"]);
    }
    let released = Moment::now();
    drop(guard);
    let guard = live.await.unwrap();
    let waited = released.took();
    guard.release().await.unwrap();
    waited
}

#[tokio::test]
async fn a_dead_waiter_of_any_age_costs_a_claim_window_and_a_look() {
    let server = std::sync::Arc::new(RedisServer::start(&[]));
    let mut tasks = Vec::new();
    for opens in [false, true] {
        for age in [0, 1000, 2500, 4000, 4900] {
            let server = std::sync::Arc::clone(&server);
            let name = format!("{opens}{age}");
            tasks.push(
                async move { (opens, age, behind_dead_places(&server, &name, &[age * MS], opens).await) },
            );
        }
    }
    let eight = {
        let server = std::sync::Arc::clone(&server);
        tokio::spawn(async move { behind_dead_places(&server, "eight", &[Duration::ZERO; 8], true).await })
    };
    let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
    for task in tasks {
        let (opens, age, waited) = task.await.unwrap();
        println!("after {waited:?}, behind a place of {age} ms, left open: {opens}");
        assert!(
            waited.within(3300 * MS),
            "only after {waited:?}, behind a place of {age} ms, left open: {opens}"
        );
    }
    let waited = eight.await.unwrap();
    println!("after {waited:?}, behind eight");
    assert!(waited.within(12_000 * MS), "only after {waited:?}, behind eight");
}
