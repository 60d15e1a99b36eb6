//! The server: two ways to put a handler under a lock, and the same handlers without.

use std::{fs, io, path::Path as FilePath, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use lock_runtime::{LockError, LockManager};
use tokio::{net::TcpListener, time::sleep};

/// How long a lease lasts without renewal: what a crash of a holder costs the others at most.
const TTL: Duration = Duration::from_secs(10);
/// How long a request queues for its account.
const WAIT: Duration = Duration::from_secs(30);

/// What every handler gets; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Bank {
    pub(crate) locks: LockManager,
    pub(crate) folder: Arc<FilePath>,
}

/// Puts money in. Not locked: two of these at the same time read the same balance.
async fn unlocked_deposit(State(bank): State<Bank>, Path(id): Path<u64>) -> Result<String, BankError> {
    bank.book(id, 1).await
}

/// Puts money in, one at a time for each account.
// STAND-IN for the attribute.
async fn deposit(State(bank): State<Bank>, Path(id): Path<u64>) -> Result<String, BankError> {
    let lock = bank.locks.lock(format!("account:{id}")).ttl(TTL).wait(WAIT);
    lock.acquire().await?.run(bank.book(id, 1)).await?
}

/// Takes money out. It knows nothing of locks; its route does.
async fn withdraw(State(bank): State<Bank>, Path(id): Path<u64>) -> Result<String, BankError> {
    bank.book(id, -1).await
}

// STAND-IN for the layer.
async fn locked_withdraw(State(bank): State<Bank>, Path(id): Path<u64>) -> Result<String, BankError> {
    let lock = bank.locks.lock(format!("account:{id}")).ttl(TTL).wait(WAIT);
    lock.acquire().await?.run(bank.book(id, -1)).await?
}

fn router(bank: Bank) -> Router {
    Router::new()
        .route("/unlocked/{id}/deposit", post(unlocked_deposit))
        .route("/unlocked/{id}/withdraw", post(withdraw))
        .route("/locked/{id}/deposit", post(deposit))
        .route("/locked/{id}/withdraw", post(locked_withdraw))
        .with_state(bank)
}

/// Serves until `stop` is ready and what was under way is answered.
pub(crate) async fn serve(
    listener: TcpListener,
    bank: Bank,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(bank)).with_graceful_shutdown(stop).await
}

impl Bank {
    /// Books `amount` on an account: reads, adds and writes, as a program does that asks a database for the balance
    /// and tells it the new one. Nothing here makes the three one step.
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

/// What the file of an account says. The bookings are counted to tell afterwards how many got lost.
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
