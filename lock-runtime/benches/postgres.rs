//! PostgreSQL: acquiring and releasing a lock against the bare statements, the hand-over against a bare notification,
//! and one contended key against `sqlx`'s advisory lock and a row that transactions lock.
//!
//! `cargo bench -p lock-runtime-benches --bench postgres [-- rounds]`. A private server with `fsync = off`: what is
//! measured is the client and the server's CPU, not the disk.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    reason = "a benchmark"
)]

mod support;
#[allow(dead_code, unreachable_pub, reason = "shared with the tests")]
#[path = "../../tests/support/mod.rs"]
mod tests_support;
#[path = "../src/backend/kits/postgres/uuid.rs"]
mod uuid;

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use lock_runtime::LockManager;
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, PgPool,
    postgres::{PgAdvisoryLock, PgConnectOptions, PgListener, PgPoolOptions},
};
use support::{
    in_turn,
    latency::{self, HAND_OVERS, LENGTH, hand_overs, latency, row},
    median, publish, ratios,
    targets::Target,
};
use tests_support::postgres_server::PostgresServer;
use uuid::Uuid;

const ROUNDS: usize = 9;
const PROCESSES: usize = 4;
const TASKS: usize = 32;
const MINUTE: Duration = Duration::from_mins(1);

/// The statements that everyone would write.
const TAKE: &str = "INSERT INTO bare AS b VALUES ($1, $2::uuid, 1, clock_timestamp() + interval '30 s') ON CONFLICT (name) DO \
     UPDATE SET owner = $2::uuid, version = b.version + 1, expires_at = clock_timestamp() + interval '30 s' WHERE b.owner \
     IS NULL OR b.expires_at <= clock_timestamp() RETURNING version";
const FREE: &str = "UPDATE bare SET owner = NULL WHERE name = $1 AND owner = $2::uuid";
const OWNER: Uuid = Uuid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

const HOT: [&str; 4] = ["lock-runtime", "lock-runtime, advisory", "PgAdvisoryLock", "SELECT … FOR UPDATE"];
/// The first of them that is not of this library.
const PEERS: usize = 2;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Some(at) = arguments.iter().position(|argument| argument == "--child") {
        return runtime.block_on(child(&arguments[at + 1], &arguments[at + 2]));
    }
    let rounds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS);
    runtime.block_on(measure(rounds));
}

fn url(folder: &str) -> String {
    format!("postgres:///postgres?host={folder}&user=postgres&create_table=true")
}

fn advisory_url(folder: &str) -> String {
    url(folder).replace("postgres:", "postgres+advisory:")
}

fn options(folder: &str) -> PgConnectOptions {
    PgConnectOptions::new().socket(folder).username("postgres").database("postgres")
}

async fn measure(rounds: usize) {
    let server = PostgresServer::start(&[]);
    let folder = server.folder().to_str().unwrap().to_owned();
    server.query(
        "CREATE TABLE bare (name text COLLATE \"C\" PRIMARY KEY, owner uuid, version bigint NOT NULL, expires_at timestamptz \
         NOT NULL) WITH (fillfactor = 50); CREATE TABLE hot (id int PRIMARY KEY); INSERT INTO hot VALUES (1)",
    );
    let locks = LockManager::connect(&url(&folder)).await.unwrap().wait(MINUTE);
    let advisory = LockManager::connect(&advisory_url(&folder)).await.unwrap().wait(MINUTE);
    let mut rows = Vec::new();
    let mut targets = Vec::new();

    // Alone, over one connection each.
    let bare = PgConnection::connect_with(&options(&folder)).await.unwrap();
    let bare = Arc::new(tokio::sync::Mutex::new(bare));
    let (lock, in_session) = (locks.lock("k"), advisory.lock("k"));
    // Their rows are created, and their statements are prepared.
    for lock in [&lock, &in_session].into_iter().cycle().take(200) {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let alone = async || {
        let (plain, same, peer) = (Arc::clone(&bare), Arc::clone(&bare), Arc::clone(&bare));
        let (ours, in_session) = (lock.clone(), in_session.clone());
        [
            in_tasks(1, move |_| {
                let bare = Arc::clone(&plain);
                async move { plain_cycle(&mut *bare.lock().await, "k").await }
            })
            .await,
            in_tasks(1, move |_| {
                let bare = Arc::clone(&same);
                async move { same_cycle(&mut *bare.lock().await, "k").await }
            })
            .await,
            in_tasks(1, move |_| {
                let lock = ours.clone();
                async move { lock.acquire().await.unwrap().release().await.unwrap() }
            })
            .await,
            in_tasks(1, move |_| {
                let lock = in_session.clone();
                async move { lock.acquire().await.unwrap().release().await.unwrap() }
            })
            .await,
            in_tasks(1, move |_| {
                let bare = Arc::clone(&peer);
                async move {
                    let lock = PgAdvisoryLock::new("k of sqlx");
                    lock.acquire(&mut *bare.lock().await).await.unwrap().release_now().await.unwrap();
                }
            })
            .await,
        ]
    };
    let [plain, same, cycled, in_session, peer] = latency::rounds(rounds, alone).await;
    rows.push(row("upsert and UPDATE", "one task", &plain, &same));
    rows.push(row("bare statements", "one task", &same, &same));
    rows.push(row("lock-runtime", "one task", &cycled, &same));
    rows.push(row("lock-runtime, advisory", "one task", &in_session, &same));
    rows.push(row("PgAdvisoryLock", "one task", &peer, &same));
    targets.push(Target::at_least(
        "one task, of the bare statements",
        ratios(&cycled.rates, &same.rates),
        0.9,
    ));

    // Distinct keys, over as many connections.
    let pool = PgPoolOptions::new()
        .max_connections(4)
        .test_before_acquire(false)
        .connect_lazy_with(options(&folder));
    for n in 0..16 {
        locks.lock(format!("k{n}")).acquire().await.unwrap().release().await.unwrap();
        advisory.lock(format!("k{n}")).acquire().await.unwrap().release().await.unwrap();
    }
    let sixteen = async || {
        let (plain, same, ours, in_session) = (pool.clone(), pool.clone(), locks.clone(), advisory.clone());
        [
            in_tasks(16, move |n| {
                let pool = plain.clone();
                async move { plain_cycle(&mut pool.acquire().await.unwrap(), &format!("k{n}")).await }
            })
            .await,
            in_tasks(16, move |n| {
                let pool = same.clone();
                async move { same_cycle(&mut pool.acquire().await.unwrap(), &format!("k{n}")).await }
            })
            .await,
            in_tasks(16, move |n| {
                let lock = ours.lock(format!("k{n}"));
                async move { lock.acquire().await.unwrap().release().await.unwrap() }
            })
            .await,
            in_tasks(16, move |n| {
                let lock = in_session.lock(format!("k{n}"));
                async move { lock.acquire().await.unwrap().release().await.unwrap() }
            })
            .await,
        ]
    };
    let [plain, same, cycled, in_session] = latency::rounds(rounds, sixteen).await;
    rows.push(row("upsert and UPDATE", "16 tasks, 4 connections", &plain, &same));
    rows.push(row("bare statements", "16 tasks, 4 connections", &same, &same));
    rows.push(row("lock-runtime", "16 tasks, 4 connections", &cycled, &same));
    rows.push(row("lock-runtime, advisory", "16 tasks, one connection", &in_session, &same));
    targets.push(Target::at_least(
        "16 tasks, of the bare statements",
        ratios(&cycled.rates, &same.rates),
        0.9,
    ));

    // From a release to the entry of the other client.
    let two = [&locks, &LockManager::connect(&url(&folder)).await.unwrap()]
        .map(|locks| locks.clone().wait(MINUTE).lock("handed over"));
    let pool = PgPool::connect_lazy_with(options(&folder));
    let mut listener = PgListener::connect_with(&pool).await.unwrap();
    listener.listen("bare").await.unwrap();
    let mut notifier = PgConnection::connect_with(&options(&folder)).await.unwrap();
    locks.lock("bare hand-over").acquire().await.unwrap().release().await.unwrap();
    server.query("UPDATE distributed_locks SET wanted_until = 'infinity' WHERE name = 'bare hand-over'");
    let mut bare_clients = [
        PgConnection::connect_with(&options(&folder)).await.unwrap(),
        PgConnection::connect_with(&options(&folder)).await.unwrap(),
    ];
    let (mut bare, mut statements, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let bare_times = notifications(&mut notifier, &mut listener).await;
        let bare_hand_overs = bare_hand_overs(&mut bare_clients, &mut listener).await;
        let handed_over = hand_overs(&two).await;
        if round > 0 {
            bare.push(bare_times);
            statements.push(bare_hand_overs);
            ours.push(handed_over);
        }
    }
    let medians = |rounds: &[Vec<f64>]| rounds.iter().map(|micros| median(micros)).collect::<Vec<_>>();
    let bare_medians = medians(&bare);
    rows.push(latency("bare NOTIFY", &bare, &bare_medians));
    rows.push(latency("bare statements", &statements, &bare_medians));
    rows.push(latency("lock-runtime", &ours, &bare_medians));
    targets.push(Target::at_most("hand-over, of a bare NOTIFY", ratios(&medians(&ours), &bare_medians), 2.0));

    // One key.
    let mut entries = HOT.map(|_| Vec::new());
    for round in 0..=rounds as u64 {
        for (contender, rates) in in_turn(round, HOT.into_iter().zip(&mut entries)) {
            let rate = hot(contender, &folder);
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    let best =
        (PEERS..HOT.len()).max_by(|a, b| median(&entries[*a]).total_cmp(&median(&entries[*b]))).unwrap();
    for (contender, rates) in HOT.into_iter().zip(&entries) {
        let rate = format!("{:.0}", median(rates));
        let of = ratios(rates, &entries[best]).to_string();
        let what = format!("one key, {PROCESSES} × {TASKS}");
        rows.push(vec![contender.into(), what, rate, of, "–".into(), "–".into()]);
    }
    targets.push(Target::at_least("one key, of the best peer", ratios(&entries[0], &entries[best]), 20.0));
    publish(
        "postgres",
        &[
            "who",
            "what",
            "a second",
            "of the first, or the best peer [95 %]",
            "p50 µs [least–most]",
            "p99 µs",
        ],
        &rows,
        support::plot::NONE,
        &targets,
    );
}

async fn plain_cycle(connection: &mut PgConnection, name: &str) {
    let version: i64 =
        sqlx::query_scalar(TAKE).bind(name).bind(OWNER).fetch_one(&mut *connection).await.unwrap();
    assert!(version > 0);
    sqlx::query(FREE).bind(name).bind(OWNER).execute(connection).await.unwrap();
}

/// The statements of this library, without it.
async fn same_cycle(connection: &mut PgConnection, name: &str) {
    take(connection, name).await;
    release(connection, name).await;
}

static TEXTS: LazyLock<[Arc<str>; 2]> = LazyLock::new(|| {
    [
        include_str!("../src/backend/stores/postgres/sql/take.sql"),
        include_str!("../src/backend/stores/postgres/sql/release.sql"),
    ]
    .map(|text| {
        let lines: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        let text = lines.join("\n").replace("{table}", "distributed_locks").replace("{channel}", "bare");
        text.replace("{lock}", "'the lock'").into()
    })
});

async fn take(connection: &mut PgConnection, name: &str) {
    let taken = sqlx::query(AssertSqlSafe(Arc::clone(&TEXTS[0])))
        .bind(name)
        .bind(OWNER)
        .bind(30_000_000_i64)
        .bind(i64::MAX)
        .bind("bench")
        .bind(1_i64)
        .fetch_all(connection)
        .await
        .unwrap();
    assert_eq!(taken.len(), 1);
}

async fn release(connection: &mut PgConnection, name: &str) {
    let released = sqlx::query(AssertSqlSafe(Arc::clone(&TEXTS[1])))
        .bind(name)
        .bind(OWNER)
        .bind(1_i64)
        .fetch_all(connection)
        .await
        .unwrap();
    assert_eq!(released.len(), 1);
}

/// Cycles per second of some tasks, and the median time of one in µs. Also a single one has a task of its own, as a handler
/// has: outside of the runtime's workers, each wake-up would be one of a thread.
async fn in_tasks<F: Future<Output = ()> + Send>(
    count: usize,
    cycle: impl Fn(usize) -> F + Clone + Send + Sync + 'static,
) -> (f64, f64) {
    let began = Instant::now();
    let tasks = (0..count).map(|n| {
        let cycle = cycle.clone();
        tokio::spawn(async move {
            let mut took = Vec::new();
            while began.elapsed() < LENGTH {
                let before = Instant::now();
                cycle(n).await;
                took.push(before.elapsed().as_secs_f64() * 1e6);
            }
            took
        })
    });
    let mut took = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        took.extend(task.await.unwrap());
    }
    (took.len() as f64 / began.elapsed().as_secs_f64(), median(&took))
}

/// Times from a notification to its arrival, in µs.
async fn notifications(notifier: &mut PgConnection, listener: &mut PgListener) -> Vec<f64> {
    let mut took = Vec::new();
    for _ in 0..HAND_OVERS {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let sent = Instant::now();
        let (sent_off, received) =
            tokio::join!(sqlx::query("SELECT pg_notify('bare', '')").execute(&mut *notifier), async {
                listener.recv().await.unwrap();
                sent.elapsed()
            });
        sent_off.unwrap();
        took.push(received.as_secs_f64() * 1e6);
    }
    took
}

/// Times from a release to the end of the next grant, in µs: a notification between two statements.
async fn bare_hand_overs(two: &mut [PgConnection; 2], listener: &mut PgListener) -> Vec<f64> {
    let mut took = Vec::new();
    let [holder, next] = two;
    take(holder, "bare hand-over").await;
    for _ in 0..HAND_OVERS {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let sent = Instant::now();
        let ((), entered) = tokio::join!(release(holder, "bare hand-over"), async {
            listener.recv().await.unwrap();
            take(next, "bare hand-over").await;
            sent.elapsed()
        });
        took.push(entered.as_secs_f64() * 1e6);
        std::mem::swap(holder, next);
    }
    release(holder, "bare hand-over").await;
    listener.recv().await.unwrap();
    took
}

/// Entries per second of all processes.
fn hot(contender: &str, folder: &str) -> f64 {
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new(env::current_exe().unwrap());
            command.args(["--child", contender, folder]).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "ready");
            (child, lines)
        })
        .collect();
    let mut entries = 0.0;
    let mut children = children;
    for (child, _) in &mut children {
        drop(child.stdin.take());
    }
    for (child, lines) in &mut children {
        entries += lines.next().unwrap().unwrap().parse::<f64>().unwrap();
        child.wait().unwrap();
    }
    entries / LENGTH.as_secs_f64()
}

/// A process with tasks that want the same lock.
async fn child(contender: &str, folder: &str) {
    let pool = PgPoolOptions::new()
        .max_connections(TASKS as u32)
        .acquire_timeout(MINUTE)
        .test_before_acquire(false)
        .connect_lazy_with(options(folder));
    let ours = match contender {
        "lock-runtime" => Some(url(folder)),
        "lock-runtime, advisory" => Some(advisory_url(folder)),
        _ => None,
    };
    let locks = if let Some(url) = ours {
        Some(LockManager::connect(&url).await.unwrap().wait(MINUTE))
    } else {
        // All connections are made before the time counts.
        let mut connections = Vec::new();
        for _ in 0..TASKS {
            connections.push(pool.acquire().await.unwrap());
        }
        None
    };
    let advisory = Arc::new(PgAdvisoryLock::new("hot"));
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let end = Instant::now() + LENGTH;
    let is_advisory = contender == "PgAdvisoryLock";
    let tasks = (0..TASKS).map(|_| {
        let (locks, pool, advisory) = (locks.clone(), pool.clone(), advisory.clone());
        tokio::spawn(async move {
            let mut entries = 0;
            while Instant::now() < end {
                if let Some(locks) = &locks {
                    locks.lock("hot").acquire().await.unwrap().release().await.unwrap();
                } else if is_advisory {
                    let mut connection = pool.acquire().await.unwrap();
                    advisory.acquire(&mut *connection).await.unwrap().release_now().await.unwrap();
                } else {
                    let mut transaction = pool.begin().await.unwrap();
                    sqlx::query("SELECT 1 FROM hot WHERE id = 1 FOR UPDATE")
                        .execute(&mut *transaction)
                        .await
                        .unwrap();
                    transaction.commit().await.unwrap();
                }
                entries += 1;
            }
            entries
        })
    });
    let mut entries = 0_u64;
    for task in tasks.collect::<Vec<_>>() {
        entries += task.await.unwrap();
    }
    println!("{entries}");
}
