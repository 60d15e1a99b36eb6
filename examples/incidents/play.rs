//! The two incidents. Each returns its lines.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use lock_runtime::{LockError, LockManager, backend::Memory};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::sleep;

use super::log;

type Lines = Result<Vec<String>, Box<dyn Error>>;

/// Time between two scrapes of the metrics; a tenth of a usual one.
const SCRAPE: Duration = Duration::from_secs(1);

pub(crate) async fn all(recorder: &PrometheusHandle) -> Lines {
    let mut lines = slow_sections(recorder).await?;
    lines.push(String::new());
    lines.extend(holder_that_stands_still(recorder).await?);
    Ok(lines)
}

/// Eight workers in two processes write invoices under one lock, and the writing becomes slow.
async fn slow_sections(recorder: &PrometheusHandle) -> Lines {
    const CLASS: &str = "invoice:<month>";
    let store = Memory::new();
    let [ours, theirs] = [(); 2].map(|()| LockManager::new(store.clone()).class(CLASS));
    let section = Arc::new(AtomicU64::new(2));
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let lock = if number < 6 { &ours } else { &theirs }
                .lock("invoice:2026-11")
                .label("write invoice")
                .wait_forever();
            let (section, stop) = (Arc::clone(&section), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let guard = lock.acquire().await?;
                    sleep(Duration::from_millis(section.load(Ordering::Relaxed))).await;
                    guard.release().await?;
                    // The rest of the work.
                    sleep(Duration::from_millis(50)).await;
                }
                Ok::<_, LockError>(())
            })
        })
        .collect();

    let mut lines = vec!["# A class whose sections become slow".into()];
    let before = Waits::of(recorder, CLASS);
    sleep(SCRAPE).await;
    let usual = Waits::of(recorder, CLASS);
    section.store(400, Ordering::Relaxed);
    sleep(SCRAPE).await;
    let slow = Waits::of(recorder, CLASS);

    lines.push("log:".into());
    lines.push("(nothing)".into());
    lines.extend(log::take());
    lines.push("metrics, a usual scrape:".into());
    lines.extend(usual.lines(&before));
    lines.push("metrics, the next scrape:".into());
    lines.extend(slow.lines(&usual));
    lines.push("status:".into());
    lines.push(status(&ours));
    lines.push("inspect:".into());
    lines.push(inspect(&ours, "invoice:2026-11").await?);
    stop.store(true, Ordering::Relaxed);
    section.store(0, Ordering::Relaxed);
    for worker in workers {
        worker.await??;
    }
    ours.shutdown().await;
    theirs.shutdown().await;
    Ok(lines)
}

/// A report blocks its thread while the store does not answer; a second process takes over, and the first one wakes.
async fn holder_that_stands_still(recorder: &PrometheusHandle) -> Lines {
    const CLASS: &str = "report:<day>";
    let store = Memory::new();
    let manager = || LockManager::new(store.clone()).class(CLASS).ttl(Duration::from_secs(1));
    let (first, second) = (manager(), manager());
    let mut lines = vec!["# A holder that stands still while its store is away".into()];

    let (wake, sleeps) = mpsc::channel::<()>();
    let (tell, began) = tokio::sync::oneshot::channel();
    let lock = first.lock("report:friday").label("report");
    let holder = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let guard = runtime.block_on(lock.acquire())?;
        let _ = tell.send(());
        // Neither an `.await` nor a look at the guard: the section does not notice that its lock is lost.
        let _ = sleeps.recv();
        Ok::<_, Box<dyn Error + Send + Sync>>(runtime.block_on(guard.release()))
    });
    began.await?;
    let upload = first.lock("report:upload").ttl(Duration::from_secs(30)).acquire().await?;
    let lock = second.lock("report:friday").label("report (standby)").wait_forever();
    let standby = tokio::spawn(async move { lock.acquire().await });
    sleep(SCRAPE / 2).await;

    store.set_failing(true);
    // The upload ends while the store is away, so its release is not confirmed.
    drop(upload);
    lines.push("log, while the store is away:".into());
    let mut logged = Vec::new();
    until(|| {
        logged.extend(log::take());
        !logged.is_empty() && first.status().in_doubt == 1
    })
    .await?;
    lines.extend(logged);
    lines.push("metrics:".into());
    lines.extend(series(recorder, CLASS, &["lock_held", "lock_waiters", "lock_in_doubt"]));
    lines.push("status:".into());
    lines.push(status(&first));
    lines.push("inspect:".into());
    lines.push(inspect(&second, "report:friday").await.unwrap_or_else(|error| error.to_string()));

    store.set_failing(false);
    let guard = standby.await??;
    wake.send(())?;
    let released =
        holder.join().map_err(|_| "the holder's thread panicked")?.map_err(|error| error.to_string())?;
    lines.push("the store is back; what the first holder gets when it wakes:".into());
    lines.push(released.err().map_or_else(|| "released".into(), |error| error.to_string()));
    until(|| first.status().in_doubt == 0).await?;
    lines.push("metrics:".into());
    lines.extend(series(
        recorder,
        CLASS,
        &["lock_held", "lock_waiters", "lock_in_doubt", "lock_late_seconds_count"],
    ));
    lines.push("inspect:".into());
    lines.push(inspect(&second, "report:friday").await?);
    guard.release().await?;
    first.shutdown().await;
    second.shutdown().await;
    Ok(lines)
}

async fn until(mut condition: impl FnMut() -> bool) -> Result<(), &'static str> {
    for _ in 0..1_000 {
        if condition() {
            return Ok(());
        }
        sleep(Duration::from_millis(10)).await;
    }
    Err("this took longer than 10 s")
}

/// What one scrape says of the acquisitions of a class.
struct Waits {
    count: f64,
    seconds: f64,
    waiters: String,
}

impl Waits {
    fn of(recorder: &PrometheusHandle, class: &str) -> Self {
        let sum = |name: &str| -> f64 {
            let lines = series(recorder, class, &[name]);
            lines.iter().filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
        };
        Self {
            count: sum("lock_acquire_duration_seconds_count"),
            seconds: sum("lock_acquire_duration_seconds_sum"),
            waiters: series(recorder, class, &["lock_waiters"]).concat(),
        }
    }

    /// Returns the lines about the time since an earlier scrape.
    fn lines(&self, earlier: &Self) -> [String; 2] {
        let count = self.count - earlier.count;
        let mean = (self.seconds - earlier.seconds) / count.max(1.0) * 1000.0;
        [self.waiters.clone(), format!("{count} acquisitions, which took {mean:.0} ms on average")]
    }
}

/// Returns the lines of these metrics for a class.
fn series(recorder: &PrometheusHandle, class: &str, names: &[&str]) -> Vec<String> {
    let (text, class) = (recorder.render(), format!("class=\"{class}\""));
    let is_of = |line: &str, name: &str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')) && line.contains(&class)
    };
    let lines = names.iter().flat_map(|name| text.lines().filter(move |line| is_of(line, name)));
    lines.map(ToOwned::to_owned).collect()
}

fn status(locks: &LockManager) -> String {
    let status = locks.status();
    format!("{} held, {} waiting, {} in doubt", status.held, status.waiting, status.in_doubt)
}

async fn inspect(locks: &LockManager, key: &str) -> Result<String, LockError> {
    let state = locks.inspect(key).await?;
    let Some(holder) = state.holders.first() else { return Ok(format!("{key} is free")) };
    Ok(format!(
        "{key}: held for {:.1} s by {}, label `{}`, token {}, {:.1} s of its lease left; {} in the store's queue",
        holder.since().and_then(|since| since.elapsed().ok()).unwrap_or_default().as_secs_f64(),
        holder.client().unwrap_or("unknown"),
        holder.label().unwrap_or("none"),
        holder.token().map_or(0, lock_runtime::FencingToken::get),
        holder.remaining().unwrap_or_default().as_secs_f64(),
        state.waiters.len(),
    ))
}
