//! The server processes: this one, and copies of it that it starts.

use std::{env, io, net::SocketAddr, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

use crate::server::{Bank, serve};

/// How long each step of the end may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// All servers of a run, on loopback ports of their own.
pub(crate) struct Servers {
    pub(crate) addresses: Vec<SocketAddr>,
    /// The server in this process: what stops it, and its end.
    own: (oneshot::Sender<()>, JoinHandle<io::Result<()>>),
    children: Vec<Child>,
    bank: Bank,
}

impl Servers {
    /// Starts a server in this process and `processes - 1` more that share `bank`'s folder and store.
    pub(crate) async fn start(bank: Bank, processes: usize) -> io::Result<Self> {
        let (listener, address) = listen().await?;
        let (stop, stopped) = oneshot::channel();
        let own = tokio::spawn(serve(listener, bank.clone(), async {
            // Dropped is as good as sent.
            stopped.await.ok();
        }));
        let mut servers = Self { addresses: vec![address], own: (stop, own), children: Vec::new(), bank };
        for number in 2..=processes {
            let (child, address) = start_copy(&servers.bank.folder).await.map_err(|error| {
                io::Error::other(format!("server process {number} did not start: {error}"))
            })?;
            servers.children.push(child);
            servers.addresses.push(address);
        }
        Ok(servers)
    }

    /// Stops all servers: what runs is answered, what is held is released, and nobody is waited for too long.
    /// True when that was done in time; what is still held then ends with its `ttl`.
    pub(crate) async fn stop(self) -> bool {
        let (stop, server) = self.own;
        drop(stop);
        // All of them at the same time.
        let children: Vec<_> =
            self.children.into_iter().map(|child| tokio::spawn(stop_copy(child))).collect();
        let mut in_time = finish(server, &self.bank).await;
        for child in children {
            in_time &= child.await.unwrap_or(false);
        }
        in_time
    }
}

/// What a copy does: serves until its parent closes the pipe to it, on purpose or by its own end.
pub(crate) async fn serve_as_copy(bank: Bank) -> io::Result<bool> {
    // Ctrl-C in a terminal reaches the copies too; when to stop is the parent's decision.
    tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });

    let (listener, address) = listen().await?;
    println!("{address}");
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, bank.clone(), async {
        stopped.await.ok();
    }));
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    drop(stop);
    Ok(finish(server, &bank).await)
}

/// Waits for the last answers, then for the last releases; true when both came in time.
async fn finish(server: JoinHandle<io::Result<()>>, bank: &Bank) -> bool {
    let answered = timeout(PATIENCE, server).await.is_ok();
    let released = timeout(PATIENCE, bank.locks.shutdown()).await.is_ok();
    answered && released
}

async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Starts this program once more; the first line that it prints is its address.
async fn start_copy(folder: &Path) -> io::Result<(Child, SocketAddr)> {
    let mut child = Command::new(env::current_exe()?)
        .arg("--serve")
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().expect("piped above");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).await?;
    let address = line.trim().parse().map_err(|_| io::Error::other("it said no address"))?;
    Ok((child, address))
}

/// Closes the pipe to a copy, which ends it; one that does not end is killed, by its process id.
async fn stop_copy(mut child: Child) -> bool {
    drop(child.stdin.take());
    if let Ok(status) = timeout(3 * PATIENCE, child.wait()).await {
        return status.is_ok_and(|status| status.success());
    }
    child.kill().await.ok();
    false
}
