//! Processes of their own for the points of a curve, and what they and the server use.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

/// The first argument of a process that measures a point.
pub(crate) const FLAG: &str = "--child";

/// A process that measures a point, or a part of it. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(curve: &str, arguments: &[String]) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([FLAG, curve])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Waits for the next line of the process, and returns its numbers.
    pub(crate) fn numbers(&mut self) -> Vec<f64> {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "a process failed");
        line.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    /// Lets the process go on after [`wait_for_go`].
    pub(crate) fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub(crate) fn cpu(&self) -> Duration {
        cpu_of(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reports numbers to the process that started this one.
pub(crate) fn print(numbers: &[f64]) {
    println!("{}", numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
}

/// Waits for [`Process::go`].
pub(crate) fn wait_for_go() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Runs a child with the default runtime, on one of its workers.
pub(crate) fn run(child: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async { tokio::spawn(child).await.unwrap() });
}

/// Allows this process, and those that it starts, as many open files as it may have.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// Time on a processor that this process has used so far, to the nanosecond.
pub(crate) fn own_cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.try_into().unwrap(), used.tv_nsec.try_into().unwrap())
}

/// The same of another process, whose threads must not end meanwhile.
fn cpu_of(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let nanos = threads.filter_map(|thread| {
        let used = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        used.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// Memory of this process, in bytes.
pub(crate) fn resident() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

/// A server as its operator sees it.
pub(crate) struct Admin {
    connection: redis::Connection,
    process: u32,
}

impl Admin {
    pub(crate) fn of(url: &str) -> Self {
        let connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let mut this = Self { connection, process: 0 };
        this.process = this.info("server", "process_id").unwrap() as u32;
        this
    }

    /// Returns the value of a field of `INFO`, up to a comma.
    fn info(&mut self, section: &str, field: &str) -> Option<f64> {
        let text: String = redis::cmd("INFO").arg(section).query(&mut self.connection).unwrap();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix([':', '=']))
            .map(str::to_owned)?;
        value.split(',').next()?.parse().ok()
    }

    pub(crate) fn cpu(&self) -> Duration {
        cpu_of(self.process)
    }

    /// Returns the bytes that the server has allocated.
    pub(crate) fn memory(&mut self) -> f64 {
        self.info("memory", "used_memory").unwrap()
    }

    /// Returns the number of script calls so far, and the time that they took in µs.
    pub(crate) fn scripts(&mut self) -> (f64, f64) {
        let calls = self.info("commandstats", "cmdstat_evalsha:calls").unwrap_or(0.0);
        let text: String = redis::cmd("INFO").arg("commandstats").query(&mut self.connection).unwrap();
        let line = text.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap_or_default();
        let micros = line.split(',').find_map(|field| field.strip_prefix("usec="));
        (calls, micros.map_or(0.0, |micros| micros.parse().unwrap()))
    }

    /// Returns the number of keys other than the counter of fencing tokens.
    pub(crate) fn keys(&mut self) -> f64 {
        let keys: f64 = redis::cmd("DBSIZE").query(&mut self.connection).unwrap();
        let counters: Vec<String> = redis::cmd("KEYS").arg("*~1:fence").query(&mut self.connection).unwrap();
        keys - counters.len() as f64
    }

    /// Returns the number of waiters in the queue of the lock `name` under the default prefix.
    pub(crate) fn queue(&mut self, name: &str) -> f64 {
        redis::cmd("LLEN").arg(format!("{}queue", beside(name))).query(&mut self.connection).unwrap()
    }

    /// Returns the bytes of that queue and its places.
    pub(crate) fn queue_memory(&mut self, name: &str) -> f64 {
        let mut of = |part: &str| {
            let mut usage = redis::cmd("MEMORY");
            usage.arg("USAGE").arg(format!("{}{part}", beside(name))).arg("SAMPLES").arg(0);
            usage.query::<f64>(&mut self.connection).unwrap()
        };
        of("queue") + of("places")
    }

    pub(crate) fn allow_clients(&mut self, count: u64) {
        let () =
            redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(count).query(&mut self.connection).unwrap();
    }
}

/// The beginning of the keys of the queue of the lock `name` under the default prefix.
fn beside(name: &str) -> String {
    format!("lock:{{lock:{name}}}:~1:")
}
