//! The examination of a store: what its servers report of themselves, and what would bite its users.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::Instant;
use crate::finding::{Finding, FindingCode};

/// Number of round trips that an examination measures for each server.
const ROUND_TRIPS: usize = 10;
/// Difference of two clocks from which it is a finding: machines that synchronise their clocks differ by far less.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);

/// The question of an examination.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Examination {
    /// The prefix of the manager.
    pub prefix: Arc<str>,
    /// The `ttl` of the locks that are going to be used.
    pub ttl: Duration,
}

impl Examination {
    pub(crate) const fn new(prefix: Arc<str>, ttl: Duration) -> Self {
        Self { prefix, ttl }
    }
}

/// What an examination has found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Examined {
    /// The servers, in the order of the URL as far as possible.
    pub servers: Vec<ServerReport>,
    /// What would bite, in no particular order.
    pub findings: Vec<Finding>,
}

/// What a server reports of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerReport {
    /// The address.
    pub server: String,
    /// The name and version of the server's program; `None` if the server does not show it.
    pub version: Option<String>,
    /// What the server is to others, such as a primary; `None` if the server does not show it.
    pub role: Option<String>,
    /// Settings and figures that are worth to be shown, with their names.
    pub facts: Vec<(String, String)>,
    /// How long the server takes to answer.
    pub round_trips: Option<RoundTrips>,
    /// The server's clock, compared with the clock of this machine.
    pub clock: Option<ClockOffset>,
}

impl ServerReport {
    /// Describes the server at an address, of which nothing is known yet.
    #[must_use]
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            version: None,
            role: None,
            facts: Vec::new(),
            round_trips: None,
            clock: None,
        }
    }

    /// Sets the name and version of the server's program.
    #[must_use]
    pub fn with_version(mut self, version: Option<String>) -> Self {
        self.version = version;
        self
    }

    /// Sets the role.
    #[must_use]
    pub fn with_role(mut self, role: Option<String>) -> Self {
        self.role = role;
        self
    }

    /// Adds a setting or a figure, if it is known.
    #[must_use]
    pub fn with_fact(mut self, name: &str, value: Option<impl Into<String>>) -> Self {
        self.facts.extend(value.map(|value| (name.to_owned(), value.into())));
        self
    }

    /// Sets the measured round trips; none if the list is empty.
    #[must_use]
    pub fn with_round_trips(mut self, measured: &[Duration]) -> Self {
        self.round_trips = RoundTrips::of(measured);
        self
    }

    /// Sets the offset of the clock.
    #[must_use]
    pub const fn with_clock(mut self, clock: Option<ClockOffset>) -> Self {
        self.clock = clock;
        self
    }
}

/// How long a server takes to answer, over several calls in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoundTrips {
    /// The shortest round trip.
    pub min: Duration,
    /// The median.
    pub median: Duration,
    /// The longest round trip.
    pub max: Duration,
}

impl RoundTrips {
    /// Summarises measured round trips; `None` if there are none.
    #[must_use]
    pub fn of(measured: &[Duration]) -> Option<Self> {
        let mut sorted = measured.to_vec();
        sorted.sort_unstable();
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self { min, median: sorted[sorted.len() / 2], max })
    }
}

/// Measures how long several calls in a row take.
///
/// # Cancel safety
/// As for the calls.
#[allow(dead_code, reason = "a build may have no store with a server")]
pub(crate) async fn measure<T, E, F>(mut call: impl FnMut() -> F) -> Result<Vec<Duration>, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut measured = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let sent = Instant::now();
        call().await?;
        measured.push(Instant::now().saturating_duration_since(sent));
    }
    Ok(measured)
}

/// How far the clock of a server is from the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockOffset {
    /// The least difference that explains the server's answer: the time between question and answer explains the rest.
    pub at_least: Duration,
    /// Whether the server's clock is ahead of the clock of this machine.
    pub is_ahead: bool,
}

impl ClockOffset {
    /// Compares a moment on the server's clock, which lies between two moments on the clock of this machine.
    #[must_use]
    pub fn between(sent: SystemTime, server: SystemTime, received: SystemTime) -> Self {
        if let Ok(ahead) = server.duration_since(received)
            && !ahead.is_zero()
        {
            return Self { at_least: ahead, is_ahead: true };
        }
        Self { at_least: sent.duration_since(server).unwrap_or_default(), is_ahead: false }
    }
}

impl Examined {
    /// Adds the findings that are the same for every store. Locks last for `ttl` without a renewal, which is the setting of
    /// the name `limit`.
    pub(crate) fn judge(&mut self, limit: &str, ttl: Duration) {
        let Self { servers, findings } = self;
        for report in servers {
            let of_trips = |trips| of_trips(trips, limit, ttl);
            let found = [report.clock.and_then(of_clock), report.round_trips.and_then(of_trips)];
            findings.extend(found.into_iter().flatten().map(|finding| finding.at(&report.server)));
        }
    }
}

fn of_clock(clock: ClockOffset) -> Option<Finding> {
    (clock.at_least >= MAX_CLOCK_DIFFERENCE).then(|| {
        let message = format!(
            "the clock of the server is {:.1} s {} the clock of this machine; when one of the two is set right, leases may \
             end early or late, and fencing tokens may be late or far ahead",
            clock.at_least.as_secs_f64(),
            if clock.is_ahead { "ahead of" } else { "behind" }
        );
        Finding::warning(FindingCode::Clock, message, "synchronise the clocks of both, for example with chronyd")
    })
}

/// A lease is renewed after a third of its `ttl`, and the library gives up the first call for that after a third of the
/// rest. A lease of which the first renewals fail is lost when the server is away for a moment as well.
fn of_trips(trips: RoundTrips, name: &str, ttl: Duration) -> Option<Finding> {
    let limit = ttl * 2 / 9;
    let measured = format!(
        "a round trip took up to {:.1} ms (median {:.1} ms)",
        trips.max.as_secs_f64() * 1e3,
        trips.median.as_secs_f64() * 1e3
    );
    let remedy = || {
        format!("use a `{name}` of at least {:?}, or a server that is nearer or less busy", least(trips.max))
    };
    if trips.max >= limit {
        let message =
            format!("{measured}, and with a `{name}` of {ttl:?}, renewals are given up after {limit:?}");
        return Some(Finding::danger(FindingCode::RoundTrips, message, remedy()));
    }
    (trips.max >= limit / 2).then(|| {
        let message =
            format!("{measured}, which is more than half the time for a renewal with a `{name}` of {ttl:?}");
        Finding::warning(FindingCode::RoundTrips, message, remedy())
    })
}

/// Returns the least `ttl`, in whole seconds, with which this round trip is no finding.
fn least(trip: Duration) -> Duration {
    Duration::from_secs((trip * 9).as_secs() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(9);

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    fn found(report: ServerReport) -> Vec<FindingCode> {
        let mut examined = Examined { servers: vec![report], findings: Vec::new() };
        examined.judge("ttl", TTL);
        examined.findings.iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn only_what_the_round_trip_does_not_explain_is_an_offset() {
        let offset = |sent, server, received| ClockOffset::between(at(sent), at(server), at(received));
        assert_eq!(offset(1_000, 1_500, 4_000).at_least, Duration::ZERO);
        assert_eq!(
            offset(1_000, 44_000, 4_000),
            ClockOffset { at_least: Duration::from_secs(40), is_ahead: true }
        );
        assert_eq!(
            offset(50_000, 10_000, 53_000),
            ClockOffset { at_least: Duration::from_secs(40), is_ahead: false }
        );
    }

    #[test]
    fn clocks_that_differ_by_a_second_are_found_in_either_direction() {
        for (server, is_found) in [(9_001, false), (9_000, true), (12_999, false), (13_000, true)] {
            let clock = ClockOffset::between(at(10_000), at(server), at(12_000));
            let found = found(ServerReport::new("h:1").with_clock(Some(clock)));
            assert_eq!(found == [FindingCode::Clock], is_found, "{server}");
        }
    }

    #[test]
    fn round_trips_that_a_renewal_does_not_have_time_for_are_found() {
        for (longest, severity) in
            [(999, None), (1_000, Some("warning")), (1_999, Some("warning")), (2_000, Some("danger"))]
        {
            let measured = [1, longest, 3].map(Duration::from_millis);
            let report = ServerReport::new("h:1").with_round_trips(&measured);
            assert_eq!(report.round_trips.expect("measured").median, Duration::from_millis(3));
            let mut examined = Examined { servers: vec![report], findings: Vec::new() };
            examined.judge("ttl", TTL);
            let found = examined.findings.first().map(|finding| finding.severity.name());
            assert_eq!(found, severity, "{longest}");
        }
        assert_eq!(found(ServerReport::new("h:1").with_round_trips(&[])), []);
        let trip = Duration::from_millis(2_500);
        assert!(of_trips(RoundTrips::of(&[trip]).expect("one"), "ttl", least(trip)).is_none());
    }
}
