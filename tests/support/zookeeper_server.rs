//! A ZooKeeper server that belongs to one test.

#![allow(dead_code, reason = "each program that tests uses a part of it")]

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    processes::{self, Process},
    zookeeper_protocol::Bytes,
};

/// Its path on Debian.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// The classes named in its manifest are not enough for TLS.
const CLASSES: &str =
    "/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";
/// The file in a server's folder that names the users for SASL.
const USERS: &str = "users.conf";
/// The servers' unit of time.
pub const TICK: Duration = Duration::from_millis(250);
/// A session timeout that they grant.
pub const SESSION: Duration = Duration::from_secs(4);
/// A virtual machine starts slowly when many start at once.
pub const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub struct ZooKeeperServer {
    process: Process,
    folder: PathBuf,
    port: u16,
}

impl ZooKeeperServer {
    /// Starts a single server, with these lines in its configuration in addition to the usual ones.
    pub fn start(settings: &str) -> Self {
        Self::start_with_users(settings, "")
    }

    /// Like [`start`](Self::start), with the contents of the file that names the users for SASL; empty for none.
    pub fn start_with_users(settings: &str, users: &str) -> Self {
        // Servers that start at the same time would starve each other, and the running tests, of CPU.
        static STARTING: Mutex<()> = Mutex::new(());
        let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let server = Self::launch(None, settings, users);
        server.is_up("standalone");
        server
    }

    /// Starts the member `number` of an ensemble, and does not wait until it serves.
    pub fn member(number: usize, settings: &str) -> Self {
        Self::launch(Some(number), settings, "")
    }

    fn launch(member: Option<usize>, settings: &str, users: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let folder =
            processes::folder_of_data().join(format!("zookeeper-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(folder.join("data")).expect("a temporary folder can be made");
        let port = free_port();
        let usual = format!(
            "tickTime={}\ninitLimit=20\nsyncLimit=8\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             admin.enableServer=false\nmaxSessionTimeout=60000\n4lw.commands.whitelist=*\nmaxClientCnxns=0\nextendedTypesEnabled=true\n",
            TICK.as_millis(),
            folder.join("data").display(),
        );
        fs::write(folder.join("zoo.cfg"), usual + settings).expect("the folder takes files");
        if let Some(number) = member {
            fs::write(folder.join("data/myid"), number.to_string()).expect("the folder takes files");
        }
        fs::write(folder.join(USERS), users).expect("the folder takes files");
        Self { process: run(&folder), folder, port }
    }

    /// Names other users, from the next start on.
    pub fn set_users(&self, users: &str) {
        fs::write(self.folder.join(USERS), users).expect("the folder takes files");
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Returns the server's answer to one of its four-letter words.
    pub fn ask(&self, word: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(word.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Returns one of the numbers of `mntr`.
    pub fn number(&self, name: &str) -> u64 {
        let answer = self.ask("mntr").expect("the server answers");
        let line = answer.lines().find_map(|line| line.strip_prefix(name)).expect("mntr has it");
        line.trim().parse().expect("it is a number")
    }

    pub fn is_leader(&self) -> bool {
        self.ask("srvr").is_ok_and(|answer| answer.contains("Mode: leader"))
    }

    pub fn is_follower(&self) -> bool {
        self.ask("srvr").is_ok_and(|answer| answer.contains("Mode: follower"))
    }

    /// Waits until it serves clients.
    pub fn is_up(&self, mode: &str) {
        let end = Instant::now() + PATIENCE;
        let wanted = format!("Mode: {mode}");
        while !self.ask("srvr").is_ok_and(|answer| answer.contains(&wanted)) {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "ZooKeeper does not serve after {PATIENCE:?}: {}", log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn pause(&self) {
        self.process.pause();
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.process.resume();
    }

    pub fn lives(&mut self) -> bool {
        self.process.lives()
    }

    /// Ends a pause, or starts it again after it was killed, with its data on disk.
    pub fn bring_back(&mut self) {
        if self.process.lives() {
            self.process.resume();
        } else {
            self.start_again();
            self.is_up("");
        }
    }

    /// Starts it again after it was killed, with its data on disk; does not wait until it serves.
    pub fn start_again(&mut self) {
        self.process = run(&self.folder);
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again with a container `path` whose children have used the counter up to this number, by a log such
    /// as it would have written. Only before any client has written anything.
    pub fn with_used(&mut self, path: &str, numbers: i32) {
        const CREATE: i32 = 1;
        const DELETE: i32 = 2;
        const CREATE_CONTAINER: i32 = 19;
        let anyone = |bytes: Bytes| bytes.int(1).int(31).buffer(b"world").buffer(b"anyone");
        let child = format!("{path}/made");
        let node = |path: &str| anyone(Bytes::default().buffer(path.as_bytes()).buffer(b""));
        let mut made = node(&child);
        made.0.push(0);
        let transactions = [
            (CREATE_CONTAINER, node(path).int(1)),
            (CREATE, made.int(numbers)),
            (DELETE, Bytes::default().buffer(child.as_bytes())),
        ];
        let mut log = Bytes::default().int(i32::from_be_bytes(*b"ZKLG")).int(2).long(0);
        for (zxid, (kind, transaction)) in (1..).zip(transactions) {
            let mut bytes = Bytes::default().long(0).int(0).long(zxid).long(0).int(kind);
            bytes.0.extend(transaction.0);
            log = log.long(i64::from(adler32(&bytes.0))).buffer(&bytes.0);
            log.0.push(b'B');
        }
        self.process.kill();
        fs::write(self.folder.join("data/version-2/log.1"), log.0).expect("the folder takes files");
        self.bring_back();
    }
}

fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65_521;
        (low, (high + low) % 65_521)
    });
    high << 16 | low
}

impl Drop for ZooKeeperServer {
    fn drop(&mut self) {
        self.process.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A port without a listener, below the system's range of ephemeral ports: it stays free until the server begins,
/// and while it is stopped.
pub fn free_port() -> u16 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(97).wrapping_add(NUMBER.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(10_000 + number % 20_000).expect("below 30,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The file is not named when there are no users: without the server's section in it, the server would not start.
fn users_of(folder: &Path) -> Option<String> {
    let users = folder.join(USERS);
    let has_some = fs::metadata(&users).is_ok_and(|file| file.len() > 0);
    has_some.then(|| format!("-Djava.security.auth.login.config={}", users.display()))
}

/// The line in a server's configuration with which the server also serves reads while it sees no majority. ZooKeeper itself
/// takes this setting from the command line only.
pub const READ_ONLY_MODE: &str = "readonlymode.enabled=true\n";

fn reads_of(folder: &Path) -> Option<String> {
    let config = fs::read_to_string(folder.join("zoo.cfg")).expect("written before");
    config.contains(READ_ONLY_MODE.trim()).then(|| format!("-D{}", READ_ONLY_MODE.trim()))
}

fn run(folder: &Path) -> Process {
    let log = fs::File::create(folder.join("log")).expect("the folder takes files");
    let mut command = Command::new("java");
    command
        .args(["-Xmx128m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
        .args(["-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"])
        .arg("-Dzookeeper.skipACL=no")
        .args(users_of(folder))
        .args(reads_of(folder))
        .args(["-Dzookeeper.extendedTypesEnabled=true", "-Dznode.container.checkIntervalMs=1000"])
        .args(["-cp", CLASSES, "org.apache.zookeeper.server.quorum.QuorumPeerMain"])
        .arg(folder.join("zoo.cfg"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    Process::start(&mut command).expect("java can be run")
}
