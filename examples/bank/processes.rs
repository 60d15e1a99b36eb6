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

/// How long the end may take before it is forced.
const PATIENCE: Duration = Duration::from_secs(3);

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
    pub(crate) async fn stop(self) {
        let (stop, server) = self.own;
        drop(stop);
        let children = self.children.into_iter().map(|mut child| {
            tokio::spawn(async move {
                drop(child.stdin.take());
                if timeout(2 * PATIENCE, child.wait()).await.is_err() {
                    child.kill().await.ok();
                }
            })
        });
        let children: Vec<_> = children.collect();
        finish(server, &self.bank).await;
        for child in children {
            child.await.ok();
        }
    }
}

/// What a copy does: serves until its parent closes the pipe to it, on purpose or by its own end.
pub(crate) async fn serve_as_copy(bank: Bank) -> io::Result<()> {
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
    finish(server, &bank).await;
    Ok(())
}

/// Waits for the last answers, then for the last releases, both for a while only: what remains ends with its `ttl`.
async fn finish(server: JoinHandle<io::Result<()>>, bank: &Bank) {
    timeout(PATIENCE, server).await.ok();
    timeout(PATIENCE, bank.locks.shutdown()).await.ok();
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
