//! A TCP proxy that hurts its connections.
//!
//! It runs on its own thread and runtime, so a test that blocks its runtime does not stop the network too.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    runtime,
    sync::watch,
};

/// The address of the server.
#[derive(Clone, Debug)]
pub enum Upstream {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// The treatment of bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Pass,
    /// They arrive this much later.
    Delay(Duration),
    /// Limited to this many bytes a second.
    Throttle(u32),
    /// They are kept back, as is the connection's end, until the flow changes: a network that heals.
    Hold,
}

#[derive(Clone, Debug)]
struct Settings {
    upstream: Upstream,
    to_server: Flow,
    to_client: Flow,
    refuses: bool,
    black_hole: bool,
    /// Connections up to this number stay mute forever.
    mute_up_to: u64,
    /// Connections up to this number are closed, or reset.
    closed_up_to: u64,
    reset_up_to: u64,
}

impl Settings {
    /// Whether the bytes of this connection vanish.
    fn swallows(&self, number: u64) -> bool {
        self.black_hole || number <= self.mute_up_to
    }
}

#[derive(Debug)]
struct Inner {
    /// How long a connection waits for an absent server.
    patience: Duration,
    settings: watch::Sender<Settings>,
    accepted: AtomicU64,
    /// The answer, counted from now, that is swallowed, and its connection cut; 0 for none.
    lost_answer: AtomicI64,
    /// Number of further bytes in each direction before the connection is cut; negative for no limit.
    cut_after: [AtomicI64; 2],
    bytes: [AtomicU64; 2],
}

/// Dropped, it closes its port and all connections.
#[derive(Debug)]
pub struct Proxy {
    inner: Arc<Inner>,
    address: SocketAddr,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Proxy {
    /// Listens on a free port of this machine.
    pub fn start(upstream: Upstream) -> Self {
        Self::start_with_patience(upstream, Duration::ZERO)
    }

    /// The same, for clients that would ask again where they are refused: they are kept waiting for `patience`.
    pub fn start_with_patience(upstream: Upstream, patience: Duration) -> Self {
        let settings = Settings {
            upstream,
            to_server: Flow::Pass,
            to_client: Flow::Pass,
            refuses: false,
            black_hole: false,
            mute_up_to: 0,
            closed_up_to: 0,
            reset_up_to: 0,
        };
        let inner = Arc::new(Inner {
            patience,
            settings: watch::channel(settings).0,
            accepted: AtomicU64::new(0),
            lost_answer: AtomicI64::new(0),
            cut_after: [AtomicI64::new(-1), AtomicI64::new(-1)],
            bytes: [AtomicU64::new(0), AtomicU64::new(0)],
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("a socket can be made non-blocking");
        let address = listener.local_addr().expect("the socket is bound");
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let accepting = Arc::clone(&inner);
        thread::Builder::new()
            .name("proxy".into())
            .spawn(move || {
                let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let listener = TcpListener::from_std(listener).unwrap();
                    tokio::select! {
                        () = accept(&accepting, &listener) => {}
                        _ = stopped => {}
                    }
                });
            })
            .expect("a thread can be started");
        Self { inner, address, _stop: stop }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of connections accepted so far, including refused ones.
    pub fn accepted(&self) -> u64 {
        self.inner.accepted.load(SeqCst)
    }

    /// Number of bytes that went this way so far.
    pub fn bytes(&self, way: Way) -> u64 {
        self.inner.bytes[way as usize].load(SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Settings)) {
        self.inner.settings.send_modify(change);
    }

    pub fn set(&self, way: Way, flow: Flow) {
        self.change(|settings| match way {
            Way::ToServer => settings.to_server = flow,
            Way::ToClient => settings.to_client = flow,
        });
    }

    /// Leads new connections to another server; existing ones stay where they are: a name that moves.
    pub fn lead_to(&self, upstream: Upstream) {
        self.change(|settings| settings.upstream = upstream);
    }

    /// Resets new connections at once.
    pub fn refuse(&self) {
        self.change(|settings| settings.refuses = true);
    }

    /// Swallows every byte. Connections from before [`heal`](Self::heal) stay open and mute forever: half-open.
    pub fn black_hole(&self) {
        self.change(|settings| settings.black_hole = true);
    }

    /// Closes all present connections.
    pub fn cut(&self) {
        let accepted = self.accepted();
        self.change(|settings| settings.closed_up_to = accepted);
    }

    /// Resets all present connections (RST).
    pub fn reset(&self) {
        let accepted = self.accepted();
        self.change(|settings| settings.reset_up_to = accepted);
    }

    /// Swallows the `nth` answer from now (the first is 1) and cuts its connection; its request was carried out.
    pub fn lose_answer(&self, nth: u32) {
        self.inner.lost_answer.store(i64::from(nth), SeqCst);
    }

    /// Whether an answer is still to be swallowed; cancels that.
    pub fn keep_answers(&self) -> bool {
        self.inner.lost_answer.swap(0, SeqCst) > 0
    }

    /// Cuts the connection on which byte `count` from now would pass this way; the bytes before it arrive.
    pub fn cut_after(&self, way: Way, count: u32) {
        self.inner.cut_after[way as usize].store(i64::from(count), SeqCst);
    }

    /// Restores a network without faults.
    pub fn heal(&self) {
        let accepted = self.accepted();
        self.inner.lost_answer.store(0, SeqCst);
        for limit in &self.inner.cut_after {
            limit.store(-1, SeqCst);
        }
        self.change(|settings| {
            settings.to_server = Flow::Pass;
            settings.to_client = Flow::Pass;
            settings.refuses = false;
            if std::mem::replace(&mut settings.black_hole, false) {
                settings.mute_up_to = accepted;
            }
        });
    }
}

async fn accept(inner: &Arc<Inner>, listener: &TcpListener) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        let number = inner.accepted.fetch_add(1, SeqCst) + 1;
        if inner.settings.borrow().refuses {
            let _ = client.set_zero_linger();
            continue;
        }
        let inner = Arc::clone(inner);
        tokio::spawn(async move {
            let _ = connection(&inner, number, client).await;
        });
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

async fn connection(inner: &Inner, number: u64, mut client: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    let upstream = inner.settings.borrow().upstream.clone();
    let server: Box<dyn Stream> = match upstream {
        Upstream::Tcp(address) => {
            let end = tokio::time::Instant::now() + inner.patience;
            let stream = loop {
                match TcpStream::connect(address).await {
                    Ok(stream) => break stream,
                    Err(_) if tokio::time::Instant::now() < end => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Err(error) => return Err(error),
                }
            };
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        Upstream::Unix(path) => Box::new(UnixStream::connect(path).await?),
    };
    let (from_server, to_server) = tokio::io::split(server);
    let mut settings = inner.settings.subscribe();
    let reset = {
        let (from_client, to_client) = client.split();
        tokio::select! {
            _ = pump(inner, number, from_client, to_server, Way::ToServer) => false,
            _ = pump(inner, number, from_server, to_client, Way::ToClient) => false,
            Ok(now) = settings.wait_for(|now| now.closed_up_to.max(now.reset_up_to) >= number) => {
                now.reset_up_to >= number
            }
        }
    };
    if reset {
        client.set_zero_linger()?;
    }
    Ok(())
}

/// Carries bytes one way, until the connection ends or is to be cut.
async fn pump(
    inner: &Inner,
    number: u64,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: Way,
) -> io::Result<()> {
    let mut settings = inner.settings.subscribe();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // Zero: this side has closed or reset the connection.
        let mut count = from.read(&mut buffer).await.unwrap_or(0);
        let flow = loop {
            let now = settings.borrow_and_update().clone();
            if now.swallows(number) {
                break None;
            }
            match if way == Way::ToServer { now.to_server } else { now.to_client } {
                Flow::Hold => settings.changed().await.map_err(io::Error::other)?,
                flow => break Some(flow),
            }
        };
        match count {
            // The other side is notified when bytes would arrive.
            0 if flow.is_none() => std::future::pending().await,
            0 => return Ok(()),
            _ => {}
        }
        let Some(flow) = flow else { continue };
        if let Flow::Delay(length) = flow {
            tokio::time::sleep(length).await;
        }
        if way == Way::ToClient {
            // Counted down only while it is set: 1 is the chosen answer.
            let counted = inner.lost_answer.fetch_update(SeqCst, SeqCst, |n| (n > 0).then(|| n - 1));
            if counted == Ok(1) {
                return Ok(());
            }
        }
        let limit = &inner.cut_after[way as usize];
        let allowed = limit.load(SeqCst);
        let cut = usize::try_from(allowed).is_ok_and(|allowed| count > allowed);
        if cut {
            count = usize::try_from(allowed).unwrap_or(0);
            limit.store(-1, SeqCst);
        } else if allowed >= 0 {
            limit.fetch_sub(i64::try_from(count).unwrap_or(0), SeqCst);
        }
        inner.bytes[way as usize].fetch_add(count as u64, SeqCst);
        to.write_all(&buffer[..count]).await?;
        if cut {
            to.flush().await?;
            return Ok(());
        }
        if let Flow::Throttle(rate) = flow {
            tokio::time::sleep(Duration::from_secs(count as u64) / rate).await;
        }
    }
}
