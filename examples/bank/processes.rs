//! The server processes: this one, and copies of it that it starts.

use std::{env, error::Error, io, net::SocketAddr, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::server::{Bank, Server};

/// Time limit for each step of the shutdown.
const PATIENCE: Duration = Duration::from_secs(2);

/// All servers of a run, on loopback ports of their own.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) addresses: Vec<SocketAddr>,
    own: Server,
    copies: Vec<Child>,
}

impl Servers {
    /// Starts a server in this process and `processes - 1` more that share `bank`'s folder and store.
    pub(crate) async fn start(bank: Bank, processes: usize) -> Result<Self, Box<dyn Error>> {
        let folder = bank.folder.clone();
        let own = Server::start(bank).await?;
        let mut servers = Self { addresses: vec![own.address], own, copies: Vec::new() };
        for number in 2..=processes {
            let (copy, address) = start_copy(&folder)
                .await
                .map_err(|error| format!("server process {number} did not start: {error}"))?;
            servers.copies.push(copy);
            servers.addresses.push(address);
        }
        Ok(servers)
    }

    /// Stops all servers at the same time; false when one of them could not release everything in time.
    pub(crate) async fn stop(self) -> bool {
        let copies: Vec<_> = self.copies.into_iter().map(|copy| tokio::spawn(stop_copy(copy))).collect();
        let mut released = self.own.stop(PATIENCE).await;
        for copy in copies {
            released &= copy.await.unwrap_or(false);
        }
        released
    }
}

/// Serves as a copy until its parent closes the pipe to it, on purpose or by ending.
pub(crate) async fn serve_as_copy(bank: Bank) -> Result<bool, Box<dyn Error>> {
    // Ctrl-C in a terminal reaches the copies too; the parent decides when to stop.
    tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });

    let server = Server::start(bank).await?;
    println!("{}", server.address);
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(server.stop(PATIENCE).await)
}

/// Starts a copy of this program; the first line that it prints is its address.
async fn start_copy(folder: &Path) -> io::Result<(Child, SocketAddr)> {
    let mut copy = Command::new(env::current_exe()?)
        .arg("--serve")
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = copy.stdout.take().expect("piped above");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).await?;
    let address = line.trim().parse().map_err(|_| io::Error::other("it printed no address"))?;
    Ok((copy, address))
}

/// Ends a copy by closing the pipe to it; a copy that does not end is killed, by its process id.
async fn stop_copy(mut copy: Child) -> bool {
    drop(copy.stdin.take());
    if let Ok(status) = timeout(3 * PATIENCE, copy.wait()).await {
        return status.is_ok_and(|status| status.success());
    }
    copy.kill().await.ok();
    false
}
