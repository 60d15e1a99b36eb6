//! The subcommand `doctor`: examines a store, and tries its locks.

mod report;
mod trial;

use std::time::Duration;

use lock_runtime::{
    LockError, LockManager,
    backend::{Examined, Finding},
};
use tokio::time::timeout;

use self::{
    report::{Report, has_danger},
    trial::Trial,
};
use crate::{
    arguments::{DoctorArguments, StoreArguments},
    exit::{Exit, Failure},
    pages::print,
    runtime::block_on,
    store,
    style::Style,
};

/// The `ttl` of locks, unless the arguments or the store say otherwise.
const USUAL_TTL: Duration = Duration::from_secs(30);
/// How long the end waits for the store.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn doctor(store: &StoreArguments, options: &DoctorArguments) -> Result<u8, Failure> {
    // Each manager has connections of its own, as another process would.
    let [ours, theirs] = [store::open(store)?, store::open(store)?];
    let longest = ours.capabilities().longest_ttl().unwrap_or(Duration::MAX);
    if let Some(ttl) = options.ttl.filter(|ttl| *ttl > longest) {
        let message = format!(
            "--ttl {ttl:?} is longer than the {longest:?} that the store allows; see its documentation"
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    let ttl = options.ttl.unwrap_or(USUAL_TTL.min(longest));
    let report = block_on(async {
        let report = examine(&ours, &theirs, ttl).await;
        let _ = timeout(PATIENCE, async { tokio::join!(ours.shutdown(), theirs.shutdown()) }).await;
        report
    })?;
    let report = report.without(&options.ignore);
    let code = if report.has_danger() { Exit::Danger.code() } else { 0 };
    let text = if options.json { report.in_json() } else { report.in_words(Style::of_stdout()) };
    print(text.as_bytes()).map(|_| code)
}

async fn examine(ours: &LockManager, theirs: &LockManager, ttl: Duration) -> Result<Report, Failure> {
    let examined = match ours.examine(ttl).await {
        Ok(examined) => examined,
        Err(error) => return refused(error),
    };
    // What locks need beyond what the examination asks for.
    if let Err(error) = ours.ping().await {
        let found = match refused(error) {
            Ok(report) => report.examined.findings,
            // The examination says why.
            Err(_) if has_danger(&examined) => Vec::new(),
            Err(failure) => return Err(failure),
        };
        return Ok(Report { examined: joined(examined, found), proofs: Vec::new() });
    }
    let Trial { proofs, finding } = trial::run(ours, theirs, ttl).await;
    Ok(Report { examined: joined(examined, finding.into_iter().collect()), proofs })
}

/// Adds what was found later, unless the examination has found it, too: a danger of the same kind.
fn joined(mut examined: Examined, found: Vec<Finding>) -> Examined {
    for finding in found {
        let is_same = |other: &Finding| other.code == finding.code && other.severity >= finding.severity;
        if !examined.findings.iter().any(is_same) {
            examined.findings.push(finding);
        }
    }
    examined
}

/// Returns a report with the fault of the configuration for which the store cannot be used, if it is a known one.
fn refused(error: LockError) -> Result<Report, Failure> {
    let Some(fault) = error.fault() else { return Err(error.into()) };
    let mut examined = Examined::default();
    examined.findings.push(Finding::danger(fault, error.to_string(), ""));
    Ok(Report { examined, proofs: Vec::new() })
}
