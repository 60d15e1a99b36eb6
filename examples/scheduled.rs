//! A job that each of several processes starts on its schedule, and that runs once in each period: with `once_per`, under
//! three schedulers. `cargo run --example scheduled --features schedulers`. It takes seven seconds.
//!
//! Here, three tasks stand for the processes, each with its own manager. With the URL of a store that processes share in
//! `LOCK_URL`, several copies of this program run the job once in a period together.

use std::{
    env,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use apalis::prelude::{Data, WorkerBuilder};
use apalis_cron::{CronScheduler, Tick};
use lock_runtime::{LockError, LockManager, distributed_lock};
use tokio_cron_scheduler::{Job, JobScheduler};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Every other second. The period is as long as the pause between two starts.
const SCHEDULE: &str = "*/2 * * * * *";
const PERIOD: Duration = Duration::from_secs(2);

/// The periods that were run, and by which scheduler.
type Ran = Arc<Mutex<Vec<(SystemTime, &'static str)>>>;

/// One of the processes.
#[derive(Clone)]
struct Process {
    locks: LockManager,
    scheduler: &'static str,
    ran: Ran,
}

impl Process {
    /// The job. A start that finds its period run, or the run before still at work, does nothing and returns `Ok`.
    #[distributed_lock(
        key = "example:report",
        manager = self.locks,
        once_per = PERIOD,
        wait = "0s",
        on_contention = skip,
        guard = held
    )]
    async fn report(&self) -> Result<(), LockError> {
        // The period names what is to be done, also if the job was started early or late.
        let period = held.period().expect("set by `once_per`");
        println!("{} reports on the period that began at {period:?}", self.scheduler);
        self.ran.lock().unwrap_or_else(PoisonError::into_inner).push((period, self.scheduler));
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = env::var("LOCK_URL").unwrap_or_else(|_| "memory:scheduled".into());
    let ran = Ran::default();
    let process = async |scheduler| {
        let locks = LockManager::connect(&url).await?;
        Ok::<_, LockError>(Process { locks, scheduler, ran: Arc::clone(&ran) })
    };
    let schedulers = [
        tokio::spawn(by_interval(process("a tokio interval").await?)),
        tokio::spawn(by_tokio_cron_scheduler(process("tokio-cron-scheduler").await?)),
        tokio::spawn(by_apalis(process("apalis").await?)),
    ];
    tokio::time::sleep(PERIOD * 7 / 2).await;
    for scheduler in schedulers {
        if scheduler.is_finished() {
            scheduler.await??;
            return Err("a scheduler has ended".into());
        }
        scheduler.abort();
    }
    let mut periods = ran.lock().unwrap_or_else(PoisonError::into_inner).clone();
    periods.sort_unstable();
    println!("{} periods were run", periods.len());
    assert!(periods.windows(2).all(|pair| pair[0].0 != pair[1].0), "a period was run twice");
    Ok(())
}

/// A plain interval: the processes start at different moments of the period.
async fn by_interval(process: Process) -> Result<(), Error> {
    let mut interval = tokio::time::interval(PERIOD);
    loop {
        interval.tick().await;
        if let Err(error) = process.report().await {
            eprintln!("{error}");
        }
    }
}

async fn by_tokio_cron_scheduler(process: Process) -> Result<(), Error> {
    let scheduler = JobScheduler::new().await?;
    let job = Job::new_async(SCHEDULE, move |_, _| {
        let process = process.clone();
        Box::pin(async move {
            if let Err(error) = process.report().await {
                eprintln!("{error}");
            }
        })
    })?;
    scheduler.add(job).await?;
    scheduler.start().await?;
    std::future::pending().await
}

async fn by_apalis(process: Process) -> Result<(), Error> {
    // An error is reported to apalis, whose layers may retry.
    async fn report(_: Tick, process: Data<Process>) -> Result<(), LockError> {
        process.report().await
    }
    let schedule: cron::Schedule = SCHEDULE.parse()?;
    let worker =
        WorkerBuilder::new("report").backend(CronScheduler::new(schedule)).data(process).build(report);
    worker.run().await?;
    Ok(())
}
