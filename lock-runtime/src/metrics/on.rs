//! What is recorded, with the feature `metrics`. The file `off.rs` has the same interface.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use ::metrics::{
    Counter, Gauge, Histogram, Key, Label, Level, Metadata, NoopRecorder, Recorder, Unit, with_recorder,
};

use super::{
    HandedOver, HoldEnd, Outcome, Renewed,
    names::{
        ACQUIRE, CONNECTION_UP, HANDOVERS, HELD, HOLD, IN_DOUBT, Kind, LATE, Metric, RENEWALS, VALIDITY_LEFT,
        WAITERS,
    },
};
use crate::{LockErrorKind, hash::HashMap, time::clock::Instant};

/// The metrics of the locks of one store.
#[derive(Debug)]
pub(crate) struct Metrics {
    store: &'static str,
    /// By class and mode. Only the program's code names classes, so there are not many.
    meters: RwLock<HashMap<(&'static str, &'static str), Meter>>,
}

/// The metrics of the locks of one class and mode.
#[derive(Clone, Debug)]
pub(crate) struct Meter(Arc<Instruments>);

#[derive(Debug)]
struct Instruments {
    /// The address of the recorder that made the instruments.
    recorder: usize,
    acquired: [Histogram; 7],
    held_for: [Histogram; 4],
    waiters: Gauge,
    held: Gauge,
    handed_over: [Counter; 2],
    renewed: [Counter; 5],
    validity_left: Histogram,
    late: Histogram,
}

impl Metrics {
    pub(crate) fn of(store: &'static str) -> Self {
        Self { store, meters: RwLock::default() }
    }

    /// Returns the metrics of this class and mode.
    ///
    /// A program may install its recorder after the first lock. The instruments are therefore made anew when the
    /// recorder is another one than before.
    pub(crate) fn meter(&self, class: &'static str, mode: &'static str) -> Meter {
        with_recorder(|recorder| {
            let address = std::ptr::from_ref(recorder).addr();
            let meters = self.meters.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(meter) = meters.get(&(class, mode)).filter(|meter| meter.0.recorder == address) {
                return meter.clone();
            }
            drop(meters);
            let made_by =
                |recorder| Registry { recorder, store: self.store, class, mode }.instruments(address);
            let instruments = guarded(|| made_by(recorder)).unwrap_or_else(|| made_by(&NoopRecorder));
            let meter = Meter(Arc::new(instruments));
            let mut meters = self.meters.write().unwrap_or_else(PoisonError::into_inner);
            meters.insert((class, mode), meter.clone());
            meter
        })
    }

    /// Counts a release in doubt of a lock of this class until the result is dropped.
    pub(crate) fn in_doubt(&self, class: &'static str) -> Counted {
        let gauge = |recorder: &dyn Recorder| {
            Registry { recorder, store: self.store, class, mode: "" }.gauge(&IN_DOUBT)
        };
        Counted::of(guarded(|| with_recorder(gauge)).unwrap_or(Gauge::noop()))
    }
}

/// Calls the program's recorder. If the recorder panics, what it was to record is missing, and no lock is harmed: the
/// callers are in the middle of a grant, a renewal or a release, some of them in a destructor.
fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// Records whether a server of this kind of store can be reached; none for a server that no longer belongs to the store.
pub(crate) fn connection(store: &'static str, server: &str, is_up: Option<bool>) {
    let record = |recorder: &dyn Recorder| {
        describe(recorder, &CONNECTION_UP);
        let labels = [Label::from_static_parts("store", store), Label::new("server", server.to_owned())];
        let key = Key::from_parts(CONNECTION_UP.name, labels.to_vec());
        let value = is_up.map_or(f64::NAN, |is_up| if is_up { 1.0 } else { 0.0 });
        recorder.register_gauge(&key, &METADATA).set(value);
    };
    guarded(|| with_recorder(record));
}

fn describe(recorder: &dyn Recorder, metric: &Metric) {
    let Metric { name, kind, help, .. } = *metric;
    match kind {
        Kind::Counter => recorder.describe_counter(name.into(), Some(Unit::Count), help.into()),
        Kind::Gauge => recorder.describe_gauge(name.into(), Some(Unit::Count), help.into()),
        Kind::Histogram => recorder.describe_histogram(name.into(), Some(Unit::Seconds), help.into()),
    }
}

struct Registry<'a> {
    recorder: &'a dyn Recorder,
    store: &'static str,
    class: &'static str,
    mode: &'static str,
}

impl Registry<'_> {
    fn instruments(&self, recorder: usize) -> Instruments {
        Instruments {
            recorder,
            acquired: Outcome::ALL.map(|outcome| self.histogram(&ACQUIRE, outcome.name())),
            held_for: ["released", "dropped", "lost", "max_hold"].map(|end| self.histogram(&HOLD, end)),
            waiters: self.gauge(&WAITERS),
            held: self.gauge(&HELD),
            handed_over: ["process", "store"].map(|place| self.counter(&HANDOVERS, place)),
            renewed: ["renewed", "lost", "revoked", "failed", "unanswered"]
                .map(|outcome| self.counter(&RENEWALS, outcome)),
            validity_left: self.histogram(&VALIDITY_LEFT, ""),
            late: self.histogram(&LATE, ""),
        }
    }

    /// Returns the key of a metric; `last` is the value of its label that is none of `store`, `class` and `mode`.
    fn key(&self, metric: &Metric, last: &'static str) -> Key {
        describe(self.recorder, metric);
        let value = |label| match label {
            "store" => self.store,
            "class" => self.class,
            "mode" => self.mode,
            _ => last,
        };
        let labels: Vec<_> =
            metric.labels.iter().map(|label| Label::from_static_parts(label, value(label))).collect();
        Key::from_parts(metric.name, labels)
    }

    fn histogram(&self, metric: &Metric, last: &'static str) -> Histogram {
        self.recorder.register_histogram(&self.key(metric, last), &METADATA)
    }

    fn gauge(&self, metric: &Metric) -> Gauge {
        self.recorder.register_gauge(&self.key(metric, ""), &METADATA)
    }

    fn counter(&self, metric: &Metric, last: &'static str) -> Counter {
        self.recorder.register_counter(&self.key(metric, last), &METADATA)
    }
}

static METADATA: Metadata<'_> = Metadata::new("lock_runtime", Level::INFO, Some(module_path!()));

impl Meter {
    /// Starts the time of an acquisition.
    pub(crate) fn begin(self) -> Acquisition {
        Acquisition { meter: Some(self), began: Instant::now() }
    }

    pub(crate) fn handed_over(&self, place: HandedOver) {
        guarded(|| self.0.handed_over[place as usize].increment(1));
    }

    /// Records a renewal, and the validity that the lease had left when the answer came.
    pub(crate) fn renewed(&self, renewed: Renewed, left: Duration) {
        guarded(|| {
            self.0.renewed[renewed as usize].increment(1);
            if renewed == Renewed::Yes {
                self.0.validity_left.record(left);
            }
        });
    }
}

/// An acquisition that has begun. If this value is dropped before the acquisition has ended, the acquisition counts as
/// cancelled.
#[derive(Debug)]
pub(crate) struct Acquisition {
    /// `None` once the acquisition has ended.
    meter: Option<Meter>,
    began: Instant,
}

impl Acquisition {
    /// Counts the acquisition as waiting until the result is dropped.
    pub(crate) fn waits(&self) -> Option<Counted> {
        self.meter.as_ref().map(|meter| Counted::of(meter.0.waiters.clone()))
    }

    fn ends(&mut self, outcome: Outcome, now: Instant) -> Option<Meter> {
        let meter = self.meter.take()?;
        guarded(|| meter.0.acquired[outcome as usize].record(now.saturating_duration_since(self.began)));
        Some(meter)
    }

    /// Records that the lock was acquired, and that `holding` is to be recorded unless the lock was re-entered.
    pub(crate) fn acquired(mut self, holding: &mut Holding) {
        let Some(since) = holding.since else {
            self.ends(Outcome::Acquired, Instant::now());
            return;
        };
        holding.meter = self.ends(Outcome::Acquired, since);
        if let Some(meter) = &holding.meter {
            guarded(|| meter.0.held.increment(1));
        }
    }

    pub(crate) fn failed(mut self, why: LockErrorKind) {
        self.ends(Outcome::of(why), Instant::now());
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if self.meter.is_some() {
            self.ends(Outcome::Cancelled, Instant::now());
        }
    }
}

/// A holder's use of a lock.
#[derive(Debug)]
pub(crate) struct Holding {
    /// `None` for a guard by which a lock is re-entered.
    since: Option<Instant>,
    /// `None` unless an end is to be recorded.
    meter: Option<Meter>,
}

impl Holding {
    pub(crate) const fn since(begin: Instant) -> Self {
        Self { since: Some(begin), meter: None }
    }

    /// Returns the value of a guard by which a lock is re-entered.
    pub(crate) const fn again() -> Self {
        Self { since: None, meter: None }
    }

    /// Records the end, if none was recorded yet. `late` is how long the lock's deadline has passed, if it has.
    pub(crate) fn ends(&mut self, end: HoldEnd, now: Instant, late: Option<Duration>) {
        let (Some(Meter(meter)), Some(since)) = (self.meter.take(), self.since) else { return };
        guarded(|| {
            meter.held.decrement(1);
            meter.held_for[end as usize].record(now.saturating_duration_since(since));
            if let Some(late) = late {
                meter.late.record(late);
            }
        });
    }

    /// Returns whether an end is to be recorded.
    pub(crate) fn is_open(&self) -> bool {
        self.meter.is_some()
    }
}

/// Counts one in a gauge until dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    fn of(gauge: Gauge) -> Self {
        guarded(|| gauge.increment(1));
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        guarded(|| self.0.decrement(1));
    }
}
