//! The link between clients and server: loopback, or a network simulated by a relay in a process of its own.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

use super::{Round, Server, cpu_of, plot, results};

/// Delay that the relay adds in each direction.
const ONE_WAY: Duration = Duration::from_micros(250);
/// Part of a delay that is spun: a sleeping thread of a virtual machine wakes up to this much late.
const SPIN: Duration = Duration::from_micros(30);
const ECHOES: usize = 1_000;

/// One way to reach a server.
pub(crate) struct Link {
    url: String,
    relay: Option<Relay>,
}

impl Link {
    /// Returns the network, then loopback; only one of them if the command line names it.
    pub(crate) fn chosen(server: &Server) -> Vec<Self> {
        let named = |name| env::args().any(|argument| argument == name);
        let mut links = Vec::new();
        if named("network") || !named("loopback") {
            let relay = Relay::start(server.port);
            links.push(Self { url: format!("redis://127.0.0.1:{}", relay.port), relay: Some(relay) });
        }
        if named("loopback") || !named("network") {
            links.push(Self { url: server.url(), relay: None });
        }
        links
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn is_network(&self) -> bool {
        self.relay.is_some()
    }

    pub(crate) fn situation(&self) -> &'static str {
        if self.is_network() { "network (0.5 ms)" } else { "loopback" }
    }

    /// Writes the charts of this link: `<name>.svg` for loopback, `<name>_network.svg` for the network.
    pub(crate) fn draw(&self, name: &str, charts: &[plot::Chart]) {
        let suffix = if self.is_network() { "_network" } else { "" };
        plot::write(&results().join(format!("{name}{suffix}.svg")), charts);
    }

    /// CPU time that the relay has used so far; zero on loopback.
    pub(crate) fn cpu(&self) -> Duration {
        self.relay.as_ref().map_or(Duration::ZERO, |relay| cpu_of(&relay.child.id().to_string()))
    }

    /// Measures echoes by the server over this link, one after the other.
    pub(crate) fn echo(&self) -> Round {
        let mut connection = redis::Client::open(self.url()).unwrap().get_connection().unwrap();
        let start = Instant::now();
        let latencies = (0..ECHOES).map(|_| {
            let before = Instant::now();
            let _: String = redis::cmd("ECHO").arg("echo").query(&mut connection).unwrap();
            before.elapsed()
        });
        Round { latencies: latencies.collect(), cycles: ECHOES, took: start.elapsed(), ..Round::default() }
    }
}

/// The relay's process; stopped when dropped.
struct Relay {
    child: Child,
    port: u16,
}

impl Relay {
    /// Starts this program anew as a relay to a port of this host.
    fn start(to: u16) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--relay", &to.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { child, port: port.trim().parse().unwrap() }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves as the relay if this process was started as one, until its parent ends; returns whether it was.
pub(crate) fn relayed() -> bool {
    let mut arguments = env::args().skip_while(|argument| argument != "--relay").skip(1);
    let Some(to) = arguments.next() else { return false };
    let to: u16 = to.parse().unwrap();
    // The kernel otherwise ends each sleep up to 50 µs late. The threads of the relay inherit it.
    rustix::thread::set_current_timer_slack(1.try_into().ok()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for client in listener.incoming() {
            connect(client.unwrap(), to).unwrap();
        }
    });
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    true
}

fn connect(client: TcpStream, to: u16) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    forward(client.try_clone()?, server.try_clone()?);
    forward(server, client);
    Ok(())
}

/// Reads and writes in two threads, so that chunks are delayed side by side and not one after the other.
fn forward(from: TcpStream, to: TcpStream) {
    let (sender, chunks) = mpsc::channel();
    thread::spawn(move || read(from, &sender));
    thread::spawn(move || write(&chunks, to));
}

fn read(mut from: TcpStream, chunks: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if chunks.send((Instant::now() + ONE_WAY, buffer[..length].to_vec())).is_err() {
            break;
        }
    }
}

/// Writes each chunk when it is due.
fn write(chunks: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    for (due, chunk) in chunks {
        sleep_until(due);
        if to.write_all(&chunk).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn sleep_until(due: Instant) {
    let early = due.saturating_duration_since(Instant::now()).saturating_sub(SPIN);
    if !early.is_zero() {
        thread::sleep(early);
    }
    while Instant::now() < due {
        std::hint::spin_loop();
    }
}
