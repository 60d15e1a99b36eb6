//! Shared by the benchmarks: a private server, links to it, peers, interleaved rounds, tables, charts and targets.

#![allow(dead_code, reason = "each benchmark uses a part of it")]

pub(crate) mod curve;
pub(crate) mod latency;
pub(crate) mod link;
pub(crate) mod peers;
pub(crate) mod plot;
pub(crate) mod program;
pub(crate) mod targets;

use std::{
    fmt, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};

/// A Redis server of the benchmark's own; stopped when dropped.
pub(crate) struct Server {
    child: Child,
    dir: PathBuf,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_in(&std::env::temp_dir(), &[])
    }

    /// Starts one that writes everything to the disk before it answers: a file system in memory, where there is one.
    pub(crate) fn start_durable() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let settings =
            ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "16mb"];
        Self::start_in(&folder, &settings)
    }

    fn start_in(folder: &Path, settings: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = folder.join(format!("lock-bench-{}-{port}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(&dir)
            .args(settings)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed (Debian: apt-get install redis-server)");
        let this = Self { child, dir, port };
        let mut connection = None;
        for _ in 0..500 {
            connection = redis::Client::open(this.url()).unwrap().get_connection().ok();
            if connection.is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        connection.expect("redis-server answers within 5 s");
        this
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// CPU time that the server has used so far.
    pub(crate) fn cpu(&self) -> Duration {
        cpu_of(&self.child.id().to_string())
    }

    /// Stops the server in the middle of its work: it hangs, and its connections stay open.
    pub(crate) fn hang(&self) {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    pub(crate) fn go_on(&self) {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// CPU time that this process has used so far.
pub(crate) fn own_cpu() -> Duration {
    cpu_of("self")
}

/// User and system time of all threads, in ticks of 10 ms.
fn cpu_of(process: &str) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks =
        |n: usize| after_name.split_whitespace().nth(n).and_then(|t| t.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// The measurements of one round of one contender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    pub(crate) cycles: usize,
    pub(crate) took: Duration,
    pub(crate) latencies: Vec<Duration>,
    pub(crate) server_cpu: Duration,
    pub(crate) client_cpu: Duration,
    /// CPU time of the relay, where the benchmark measures one.
    pub(crate) relay_cpu: Duration,
}

impl Round {
    pub(crate) fn per_second(&self) -> f64 {
        self.cycles as f64 / self.took.as_secs_f64()
    }

    /// CPU time of client and server, in µs.
    pub(crate) fn cpu_per_cycle(&self) -> f64 {
        (self.client_cpu + self.server_cpu).as_secs_f64() * 1e6 / self.cycles.max(1) as f64
    }

    pub(crate) fn percentile(&mut self, p: f64) -> Duration {
        if self.latencies.is_empty() {
            return Duration::ZERO;
        }
        self.latencies.sort_unstable();
        self.latencies[((self.latencies.len() - 1) as f64 * p) as usize]
    }
}

/// Runs `cycle` in `tasks` tasks for `length`; `cycle` gets the number of its task and of its cycle.
pub(crate) async fn round<F, Fut>(server: &Server, tasks: usize, length: Duration, cycle: F) -> Round
where
    F: Fn(usize, usize) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    round_with(|| server.cpu(), tasks, length, cycle).await
}

/// Runs a [`round`], in which `server_cpu` tells the CPU time that the servers have used so far.
pub(crate) async fn round_with<F, Fut>(
    server_cpu: impl Fn() -> Duration,
    tasks: usize,
    length: Duration,
    cycle: F,
) -> Round
where
    F: Fn(usize, usize) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    let (server_before, client_before) = (server_cpu(), own_cpu());
    let start = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let cycle = cycle.clone();
        running.spawn(async move {
            let mut latencies = Vec::new();
            for n in 0.. {
                let before = Instant::now();
                if before.duration_since(start) >= length {
                    break;
                }
                cycle(task, n).await;
                latencies.push(before.elapsed());
            }
            latencies
        });
    }
    let latencies = running.join_all().await.concat();
    Round {
        cycles: latencies.len(),
        took: start.elapsed(),
        latencies,
        server_cpu: server_cpu().saturating_sub(server_before),
        client_cpu: own_cpu().saturating_sub(client_before),
        relay_cpu: Duration::ZERO,
    }
}

/// Reverses every second round: a machine that slows down or speeds up favours no contender.
pub(crate) fn in_turn<T>(round: u64, contenders: impl Iterator<Item = T>) -> Vec<T> {
    let mut contenders: Vec<T> = contenders.collect();
    if round % 2 == 1 {
        contenders.reverse();
    }
    contenders
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count => f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
    }
}

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(crate) from: f64,
    pub(crate) median: f64,
    pub(crate) to: f64,
}

impl Interval {
    /// The median of `values` and the interval that holds the median of such values in 95 % of runs: all of seven
    /// values, the middle 18 of 60.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let outside = outside(sorted.len());
        let at = |n: usize| sorted.get(n).copied().unwrap_or(f64::NAN);
        Self { from: at(outside), median: median(values), to: at(sorted.len().saturating_sub(1 + outside)) }
    }
}

/// `median [from–to]` with two decimals or the given precision, without decimals above 100; the median alone of a
/// single value.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, median, to } = *self;
        let digits = if median >= 100.0 { 0 } else { f.precision().unwrap_or(2) };
        write!(f, "{median:.digits$}")?;
        if from < to { write!(f, " [{from:.digits$}–{to:.digits$}]") } else { Ok(()) }
    }
}

/// The ratios of each round to the same round of the first contender.
pub(crate) fn ratios(values: &[f64], base: &[f64]) -> Interval {
    let ratios: Vec<f64> = values.iter().zip(base).map(|(value, base)| value / base).collect();
    Interval::of(&ratios)
}

/// Number of sorted values, of `rounds`, to either side of the 95 % interval of their median: each value is below or
/// above the median as by the toss of a coin.
fn outside(rounds: usize) -> usize {
    let mut term = 0.5_f64.powi(i32::try_from(rounds).unwrap());
    let mut below = term;
    let mut outside = 0;
    while below + term * (rounds - outside) as f64 / (outside + 1) as f64 <= 0.025 {
        term *= (rounds - outside) as f64 / (outside + 1) as f64;
        below += term;
        outside += 1;
    }
    outside
}

/// Prints a Markdown table and the targets missed and met, and writes both, with the same numbers as CSV and the plots
/// as SVG, below `target/bench/`.
pub(crate) fn publish(
    name: &str,
    header: &[&str],
    rows: &[Vec<String>],
    charts: &[impl plot::Plot],
    targets: &[targets::Target],
) {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let header: Vec<String> = header.iter().map(ToString::to_string).collect();
    let rule = line(&vec!["---".to_owned(); header.len()]);
    let table: String = [line(&header), rule].into_iter().chain(rows.iter().map(|row| line(row))).collect();
    let verdict = targets::verdict(targets);
    println!("\n{table}\n{name}: {verdict}");
    let csv: String = [header].iter().chain(rows).map(|row| row.join(";") + "\n").collect();
    let dir = results();
    fs::write(dir.join(format!("{name}.md")), table).unwrap();
    fs::write(dir.join(format!("{name}.targets.md")), verdict).unwrap();
    fs::write(dir.join(format!("{name}.csv")), csv).unwrap();
    plot::write(&dir.join(format!("{name}.svg")), charts);
    println!("written to {}", dir.display());
}

/// The folder of the results.
pub(crate) fn results() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")), PathBuf::from);
    let dir = target.join("bench");
    fs::create_dir_all(&dir).unwrap();
    dir
}
