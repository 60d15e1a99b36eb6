//! The link between clients and server: loopback, or a network simulated by a relay in a process of its own.

use std::{
    collections::VecDeque,
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::{Round, Server, cpu_of, plot, results};

/// Delay that the relay of a network adds in each direction.
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
            let relay = Relay::start(server.port, ONE_WAY);
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
pub(crate) struct Relay {
    child: Child,
    pub(crate) port: u16,
}

impl Relay {
    /// Starts this program anew as a relay to a port of this host, with this delay in each direction.
    pub(crate) fn start(to: u16, one_way: Duration) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--relay", &to.to_string(), &one_way.as_micros().to_string()])
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
    let one_way = Duration::from_micros(arguments.next().unwrap().parse().unwrap());
    // The kernel otherwise ends each sleep up to 50 µs late. The threads of the relay inherit it.
    rustix::thread::set_current_timer_slack(1.try_into().ok()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        for client in listener.incoming() {
            connect(client.unwrap(), to, one_way).unwrap();
        }
    });
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    true
}

fn connect(client: TcpStream, to: u16, one_way: Duration) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || forward(from_client, to_server, one_way));
    thread::spawn(move || forward(server, client, one_way));
    Ok(())
}

/// Delays the chunks of one direction side by side, not one after the other. One thread reads and writes: a hand-over
/// to another would cost as much CPU time as both.
fn forward(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; 64 * 1024];
    let left = |due: Instant| due.saturating_duration_since(Instant::now());
    loop {
        if is_readable(&from, waiting.front().map(|(due, _)| left(*due).saturating_sub(SPIN))) {
            let Ok(length @ 1..) = from.read(&mut buffer) else { break };
            waiting.push_back((Instant::now() + one_way, buffer[..length].to_vec()));
        }
        while let Some((due, chunk)) = waiting.front()
            && left(*due) <= SPIN
        {
            while !left(*due).is_zero() {
                std::hint::spin_loop();
            }
            if to.write_all(chunk).is_err() {
                return;
            }
            waiting.pop_front();
        }
    }
    for (due, chunk) in waiting {
        thread::sleep(left(due));
        let _ = to.write_all(&chunk);
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Waits for data or the end of the stream, at most for `limit`.
fn is_readable(stream: &TcpStream, limit: Option<Duration>) -> bool {
    let limit = limit.map(|limit| limit.try_into().unwrap());
    poll(&mut [PollFd::new(stream, PollFlags::IN)], limit.as_ref()) == Ok(1)
}
