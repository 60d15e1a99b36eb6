//! The clients: many keep-alive connections that send requests as fast as they are answered.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, StatusCode,
    body::Bytes,
    client::conn::http1::{SendRequest, handshake},
    header::HOST,
};
use hyper_util::rt::TokioIo;
use indicatif::ProgressBar;
use tokio::{net::TcpStream, task::JoinSet};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The requests of one phase.
#[derive(Debug)]
pub(crate) struct Load {
    /// Prefix of the routes: `locked` or `unlocked`.
    pub(crate) route: &'static str,
    pub(crate) accounts: Vec<u64>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) requests: usize,
    pub(crate) connections: usize,
}

/// The outcome of the requests of one phase.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Latencies of the requests that were answered with 200.
    pub(crate) latencies: Vec<Duration>,
    /// Number of those requests that each server answered.
    pub(crate) by_server: Vec<usize>,
    /// The first failure.
    pub(crate) trouble: Option<String>,
    pub(crate) took: Duration,
}

impl Load {
    /// Sends all requests. Dropped, it closes all connections.
    pub(crate) async fn send(self, progress: &ProgressBar) -> Answers {
        let mut answers = Answers { by_server: vec![0; self.servers.len()], ..Answers::default() };
        let started = Instant::now();
        let load = Arc::new(self);
        let turn = Arc::new(AtomicUsize::new(0));
        let mut clients = JoinSet::new();
        for number in 0..load.connections {
            let server = number % load.servers.len();
            let (load, turn, progress) = (Arc::clone(&load), Arc::clone(&turn), progress.clone());
            clients.spawn(async move { (server, client(&load, server, &turn, &progress).await) });
        }
        while let Some(client) = clients.join_next().await {
            let (server, (latencies, outcome)) = client.expect("a client does not panic");
            answers.by_server[server] += latencies.len();
            answers.latencies.extend(latencies);
            if let Err(error) = outcome {
                answers.trouble.get_or_insert(error.to_string());
            }
        }
        answers.took = started.elapsed();
        answers
    }
}

/// One client on one keep-alive connection.
async fn client(
    load: &Load,
    server: usize,
    turn: &AtomicUsize,
    progress: &ProgressBar,
) -> (Vec<Duration>, Result<()>) {
    let mut latencies = Vec::new();
    let outcome = async {
        let stream = TcpStream::connect(load.servers[server]).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // The connection ends when the sender is dropped; if it breaks, the request reports why.
        let requests = requests(load, server, sender, turn, progress, &mut latencies);
        let (outcome, _) = tokio::join!(requests, connection);
        outcome
    };
    let outcome = outcome.await;
    (latencies, outcome)
}

/// Sends the next unsent request, until none is left or one fails: during an outage of the store every further one
/// would wait in vain.
async fn requests(
    load: &Load,
    server: usize,
    mut sender: SendRequest<Empty<Bytes>>,
    turn: &AtomicUsize,
    progress: &ProgressBar,
    latencies: &mut Vec<Duration>,
) -> Result<()> {
    loop {
        let number = turn.fetch_add(1, Ordering::Relaxed);
        if number >= load.requests {
            return Ok(());
        }
        let request = Request::post(load.path(number))
            .header(HOST, load.servers[server].to_string())
            .body(Empty::new())?;
        let started = Instant::now();
        sender.ready().await?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if status != StatusCode::OK {
            let (text, after) = (String::from_utf8_lossy(&body), started.elapsed());
            return Err(format!("{status} after {:.1} s: {text}", after.as_secs_f64()).into());
        }
        latencies.push(started.elapsed());
        progress.inc(1);
    }
}

impl Load {
    /// Deposits and withdrawals take turns on each account.
    fn path(&self, number: usize) -> String {
        let (round, account) = (number / self.accounts.len(), number % self.accounts.len());
        let action = if round.is_multiple_of(2) { "deposit" } else { "withdraw" };
        format!("/{}/{}/{action}", self.route, self.accounts[account])
    }
}
