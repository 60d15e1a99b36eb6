//! The server: two ways to put a handler under a lock, and the same handlers without.

use std::{error::Error, fs, io, net::SocketAddr, path::Path as FilePath, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use lock_runtime::{LockError, LockManager, distributed_lock};
use lock_tower::LockLayer;
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

/// The state that every handler gets; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Bank {
    pub(crate) locks: LockManager,
    pub(crate) folder: Arc<FilePath>,
}

/// Puts money in. Not locked: two of these at the same time read the same balance.
async fn unlocked_deposit(State(bank): State<Bank>, Path(id): Path<u64>) -> Result<String, BankError> {
    bank.book(id, 1).await
}

/// Puts money in, one request at a time for each account. The key is made of the arguments, the lease is renewed
/// while the body runs, and the lock is free before the answer leaves. The wait is longer than the lease, so that a
/// crash of another server is waited out.
#[distributed_lock(key = "account:<id>", manager = bank.locks, ttl = "10s", wait = "15s")]
async fn deposit(State(bank): State<Bank>, Path(id): Path<u64>) -> Result<String, BankError> {
    bank.book(id, 1).await
}

/// Takes money out. The handler knows nothing of locks; its route does.
async fn withdraw(State(bank): State<Bank>, Path(id): Path<u64>) -> Result<String, BankError> {
    bank.book(id, -1).await
}

/// The routes, each action without and with a lock. Both locks of an account have one name, so that a deposit and a
/// withdrawal exclude each other.
fn router(bank: Bank) -> Result<Router, LockError> {
    let lock = LockLayer::new(bank.locks.clone(), "account:<id:u64>")?
        .ttl(Duration::from_secs(10))
        .wait(Duration::from_secs(15));
    Ok(Router::new()
        .route("/unlocked/{id}/deposit", post(unlocked_deposit))
        .route("/unlocked/{id}/withdraw", post(withdraw))
        .route("/locked/{id}/deposit", post(deposit))
        .route("/locked/{id}/withdraw", post(withdraw).route_layer(lock))
        .with_state(bank))
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    bank: Bank,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Server {
    /// Starts serving `bank` on a free port.
    pub(crate) async fn start(bank: Bank) -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let server = axum::serve(listener, router(bank.clone())?).with_graceful_shutdown(async {
            stopped.await.ok();
        });
        Ok(Self { address, bank, stop, task: tokio::spawn(server.into_future()) })
    }

    /// Waits for the last answers, then for the last releases; false if either takes longer than `patience`. A lock
    /// that is still held then ends with its `ttl`.
    pub(crate) async fn stop(self, patience: Duration) -> bool {
        drop(self.stop);
        let answered = timeout(patience, self.task).await;
        let released = timeout(patience, self.bank.locks.shutdown()).await;
        matches!(answered, Ok(Ok(Ok(())))) && released.is_ok()
    }
}

impl Bank {
    /// Books `amount` on an account: reads, adds and writes, like a program that reads the balance from a database
    /// and writes the new one back. Nothing here makes these steps atomic.
    // The files are tiny, so no thread is spent on them.
    async fn book(&self, id: u64, amount: i64) -> Result<String, BankError> {
        let file = self.folder.join(id.to_string());
        let mut account = Account::read(&file)?;
        sleep(Duration::from_millis(1)).await;
        account.balance += amount;
        account.bookings += 1;
        account.write(&file)?;
        Ok(account.balance.to_string())
    }
}

/// The contents of an account's file. The bookings are counted to show afterwards how many were lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) balance: i64,
    pub(crate) bookings: usize,
}

impl Account {
    pub(crate) fn read(file: &FilePath) -> io::Result<Self> {
        let text = fs::read_to_string(file)?;
        let mut numbers = text.split_whitespace();
        let account = (|| {
            Some(Self { balance: numbers.next()?.parse().ok()?, bookings: numbers.next()?.parse().ok()? })
        })();
        account.ok_or_else(|| io::Error::other(format!("the account's file is damaged: {text:?}")))
    }

    /// Overwrites the file in place, always with the same length: a reader sees the old or the new numbers.
    pub(crate) fn write(self, file: &FilePath) -> io::Result<()> {
        let text = format!("{:>20} {:>20}\n", self.balance, self.bookings);
        let mut file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(file)?;
        io::Write::write_all(&mut file, text.as_bytes())
    }
}

/// Why a booking failed.
#[derive(Debug)]
enum BankError {
    Lock(LockError),
    File(io::Error),
}

impl From<LockError> for BankError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<io::Error> for BankError {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl IntoResponse for BankError {
    fn into_response(self) -> Response {
        match self {
            Self::Lock(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
            Self::File(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}
