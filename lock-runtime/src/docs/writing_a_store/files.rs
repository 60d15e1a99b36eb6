//! Locks in the files of a directory, shared by the processes of one Linux machine.
//!
//! Each lock has a file with one line: the boot id of the machine, the owner token, the number of the last grant, the
//! end of the lease, and the name of the lock for a human reader. The line is read and changed while the operating
//! system's lock on the file (`flock`) is held. Waiters poll, so they are served in no particular order.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use lock_runtime::{
    FencingToken, LockError, LockErrorKind, LockKey, OwnerToken,
    backend::{
        Acquire, Acquired, Backend, BoxFuture, Capabilities, Grant, HandOver, Held, Instant, Lease, LeaseId,
        Mode, Releasable, Released, Renew, Renewal, valid_until,
    },
};

/// The longest pause of a waiter between two checks of the lock.
pub const POLL: Duration = Duration::from_millis(20);

/// The longest time to wait for another process that has the file locked.
const PATIENCE: Duration = Duration::from_secs(1);

/// A directory of locks, on a local file system.
#[derive(Clone, Debug)]
pub struct Files {
    folder: Arc<Path>,
}

impl Files {
    /// Creates a handle to the store in `folder`. The directory is created when it is first needed.
    ///
    /// # Errors
    /// If the path is empty, or if it is relative and the current directory no longer exists.
    pub fn at(folder: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { folder: std::path::absolute(folder)?.into() })
    }

    /// Changes the record of a lock while no other process can change it. This call blocks the thread.
    fn change<T>(&self, key: &LockKey, change: impl FnOnce(&mut Record) -> T) -> Result<T, LockError> {
        self.try_change(key, change).map_err(|error| self.failed(error).with_key(key))
    }

    fn failed(&self, error: io::Error) -> LockError {
        let message = format!("cannot keep locks in {}", self.folder.display());
        LockError::new(LockErrorKind::Backend, message).with_source(error)
    }

    fn try_change<T>(&self, key: &LockKey, change: impl FnOnce(&mut Record) -> T) -> io::Result<T> {
        // The clock is read before the file is locked, so that the file stays locked for as short a time as possible:
        // while a process has the file locked, no other process can use this lock. Reading the clock early is safe. It
        // can only make another holder's lease look longer. And this holder's deadline is computed from an even earlier
        // moment, `sent` (`lasts` allows for the rounding of the clock).
        let (now, boot) = (uptime()?, fs::read_to_string("/proc/sys/kernel/random/boot_id")?);
        let mut file = self.locked(key)?;
        let mut line = String::new();
        file.read_to_string(&mut line)?;
        let mut record = Record::parse(&line)?;
        record.now = now;
        if record.boot != boot.trim() {
            // Written before the last reboot: its holder cannot be alive any more.
            (record.boot, record.owner) = (boot.trim().into(), 0);
        }
        let changed = change(&mut record);
        // Each line has the same length and is written in one call, so a process that is killed leaves either the old
        // line or the new one.
        file.rewind()?;
        file.write_all(record.line(key).as_bytes())?;
        Ok(changed)
    }

    fn locked(&self, key: &LockKey) -> io::Result<File> {
        // The name is written in hexadecimal, because it may contain characters such as `/`. It is split into nested
        // folders, because it may be longer than a file name can be.
        let mut path = self.folder.to_path_buf();
        for part in key.stored().as_bytes().chunks(100) {
            let name = part.iter().fold(String::new(), |name, byte| format!("{name}{byte:02x}"));
            path.push(name);
        }
        fs::create_dir_all(&path)?;
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path.join("lock"))?;
        let end = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if !end.has_passed() => thread::sleep(Duration::from_millis(1)),
                Err(TryLockError::WouldBlock) => {
                    return Err(io::Error::other(
                        "another process has had the lock's file locked for too long",
                    ));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

/// The content of a lock's file. The lock is free if the owner is 0, or if the lease has ended. Times are in
/// microseconds since the machine was booted, on a clock that cannot be set.
#[derive(Default)]
struct Record {
    boot: String,
    owner: u128,
    grant: u64,
    ends: u64,
    now: u64,
}

impl Record {
    fn parse(line: &str) -> io::Result<Self> {
        if line.is_empty() {
            return Ok(Self::default());
        }
        let mut words = line.split(' ');
        let mut read = || {
            let (boot, owner) = (words.next()?.to_owned(), u128::from_str_radix(words.next()?, 16).ok()?);
            Some(Self {
                boot,
                owner,
                grant: words.next()?.parse().ok()?,
                ends: words.next()?.parse().ok()?,
                now: 0,
            })
        };
        read()
            .ok_or_else(|| io::Error::other("the lock's file contains a line that this store did not write"))
    }

    fn line(&self, key: &LockKey) -> String {
        let Self { boot, owner, grant, ends, .. } = self;
        format!("{boot} {owner:032x} {grant:020} {ends:020} {}\n", key.stored())
    }

    /// Returns how much time another holder's lease has left, or `None` if no other owner than `owner` holds the lock.
    fn held_by_another(&self, owner: u128) -> Option<Duration> {
        let left = Duration::from_micros(self.ends.saturating_sub(self.now));
        (self.owner != 0 && self.owner != owner && !left.is_zero()).then_some(left)
    }

    fn is_held_by(&self, owner: OwnerToken) -> bool {
        self.owner == owner.expose() && self.ends > self.now
    }

    fn lasts(&mut self, ttl: Duration) {
        // `now` may be up to 10 ms behind the actual time (see `uptime`), and no lease may end early.
        self.ends = self.now + micros(ttl) + 10_000;
    }
}

/// Returns the time since the machine was booted, in microseconds, rounded down to a multiple of 10 ms.
pub fn uptime() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/uptime")?;
    let seconds = text.split(' ').next().and_then(|word| word.parse().ok());
    Ok(micros(Duration::from_secs_f64(seconds.ok_or(io::ErrorKind::InvalidData)?)))
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// Runs blocking work on a thread of tokio's blocking pool, so that it blocks no worker thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LockError> + Send + 'static,
) -> Result<T, LockError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(LockError::new(LockErrorKind::Backend, "the runtime shut down").with_source(error))
    })
}

impl Backend for Files {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new().named("files").shared_between_processes()
    }

    fn names(&self) -> Vec<String> {
        vec![format!("files:{}", self.folder.display())]
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), LockError>> {
        let files = self.clone();
        Box::pin(blocking(move || fs::create_dir_all(&files.folder).map_err(|error| files.failed(error))))
    }

    fn acquire(&self, request: Acquire) -> BoxFuture<'static, Result<Acquired, LockError>> {
        let files = self.clone();
        Box::pin(async move {
            let Mode::Exclusive = request.mode else {
                return Err(LockError::new(LockErrorKind::Unsupported, "`Files` has exclusive locks only"));
            };
            // A new token for each acquisition, chosen before the first request.
            let owner = OwnerToken::random();
            loop {
                let sent = Instant::now();
                let answer = files.attempt(&request, owner).await?;
                let left = match answer {
                    Answer::Granted(token) => {
                        let id = request.lease_id(owner, token);
                        let lease = Arc::new(FileLease { files, id, is_abandoned: AtomicBool::new(false) });
                        let held = Held::lease(lease, valid_until(sent, request.ttl));
                        return Ok(Acquired::Granted(Grant::new(token, held)));
                    }
                    Answer::Held(left) => left,
                };
                if request.wait.end().has_passed() {
                    return Ok(Acquired::busy(Some(left)));
                }
                request.progress.contended();
                let next = Instant::now() + POLL.min(left);
                request.progress.sleep_until(next.min(request.wait.end())).await;
            }
        })
    }

    fn renewal(&self) -> Option<&dyn Renew> {
        Some(self)
    }
}

enum Answer {
    Granted(FencingToken),
    /// Another client holds the lock; the lease has this much time left.
    Held(Duration),
}

impl Files {
    /// Makes one attempt to take the lock, which succeeds if the lock is free.
    async fn attempt(&self, request: &Acquire, owner: OwnerToken) -> Result<Answer, LockError> {
        let id = request.lease_id(owner, FencingToken::from_micros(0));
        let lease = Arc::new(FileLease { files: self.clone(), id, is_abandoned: AtomicBool::new(false) });
        let mut undo = Undo { request, lease: Arc::clone(&lease), is_needed: true };
        let answer = blocking(move || {
            lease.files.change(&lease.id.key, |record| {
                // This check runs while the file is locked, and `Undo` sets the flag before it requests a release.
                // Either this code sees the flag and changes nothing, or the release runs later and undoes the change.
                if lease.is_abandoned.load(Ordering::SeqCst) {
                    return Answer::Held(Duration::ZERO);
                }
                if let Some(left) = record.held_by_another(owner.expose()) {
                    return Answer::Held(left);
                }
                // One more than the last number, or the current wall-clock time in microseconds if that is larger. The
                // last number alone is not enough: if the machine crashes, the most recent write to the file may be
                // lost, and the number with it.
                record.grant =
                    micros(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()).max(record.grant + 1);
                record.owner = owner.expose();
                record.lasts(lease.id.ttl);
                Answer::Granted(FencingToken::from_micros(record.grant))
            })
        })
        .await?;
        undo.is_needed = false;
        Ok(answer)
    }
}

/// Undoes an attempt whose future was dropped or whose outcome is unknown. The attempt's blocking work may still be
/// running on another thread.
struct Undo<'a> {
    request: &'a Acquire,
    lease: Arc<FileLease>,
    is_needed: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.is_needed {
            self.lease.is_abandoned.store(true, Ordering::SeqCst);
            let until = Instant::now() + PATIENCE + self.request.ttl;
            self.request.cleanup.release_later(Arc::clone(&self.lease) as _, until);
        }
    }
}

#[derive(Debug)]
struct FileLease {
    files: Files,
    id: LeaseId,
    is_abandoned: AtomicBool,
}

impl Releasable for FileLease {
    fn key(&self) -> &LockKey {
        &self.id.key
    }

    fn release(&self) -> BoxFuture<'_, Result<Released, LockError>> {
        let (files, id) = (self.files.clone(), self.id.clone());
        Box::pin(blocking(move || {
            files.change(&id.key, |record| {
                if !record.is_held_by(id.owner) {
                    return Released::NotHeld;
                }
                record.owner = 0;
                Released::Released
            })
        }))
    }
}

impl Lease for FileLease {
    fn id(&self) -> &LeaseId {
        &self.id
    }

    /// Assumes that another process waits: it may be polling for the lock at any time without leaving a trace in the
    /// file. During the pause, such a process has time to check the lock and find it free.
    fn may_hand_over(&self) -> HandOver {
        HandOver::contended().keep_off(2 * POLL)
    }
}

impl Renew for Files {
    fn renew<'a>(&'a self, due: &'a [LeaseId]) -> BoxFuture<'a, Vec<Renewal>> {
        let (files, ids) = (self.clone(), due.to_vec());
        Box::pin(async move {
            let renewed = blocking(move || Ok(ids.iter().map(|id| files.renew_one(id)).collect()));
            renewed
                .await
                .unwrap_or_else(|error| due.iter().map(|_| Renewal::Unknown(error.clone())).collect())
        })
    }
}

impl Files {
    fn renew_one(&self, id: &LeaseId) -> Renewal {
        let sent = Instant::now();
        let renewed = self.change(&id.key, |record| {
            let is_held = record.is_held_by(id.owner);
            if is_held {
                record.lasts(id.ttl);
            }
            is_held
        });
        match renewed {
            Ok(true) => Renewal::Renewed(valid_until(sent, id.ttl)),
            Ok(false) => Renewal::NotHeld,
            Err(error) => Renewal::Unknown(error),
        }
    }
}
