#![expect(clippy::float_cmp, reason = "whole numbers")]

use std::{
    cell::RefCell,
    collections::BTreeSet,
    future::Future,
    sync::{Arc, LazyLock},
    task::{Context, Waker},
    time::Duration,
};

use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, SharedString, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::{
    names::{ACQUIRE, HANDOVERS, HOLD, RENEWALS},
    *,
};
use crate::{
    LockErrorKind, LockManager,
    backend::{Memory, Mode},
    mock::{Mock, Reply, until},
};

const MS: Duration = Duration::from_millis(1);

/// The recorder of this test program. The library's own thread, too, records in it.
static RECORDER: LazyLock<PrometheusHandle> = LazyLock::new(|| {
    let builder = PrometheusBuilder::new().set_buckets(&BUCKETS).expect("there are buckets");
    builder.install_recorder().expect("no other recorder")
});

/// Returns the value of the line that begins with the name of the metric and contains all of `labels`. Each test has a
/// class of its own.
fn value(name: &str, labels: &[&str]) -> Option<f64> {
    let text = RECORDER.render();
    let has = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with('{')) && labels.iter().all(|label| line.contains(label))
    };
    let mut lines = text.lines().filter(has);
    let line = lines.next()?;
    assert_eq!(lines.next(), None, "{name} {labels:?} is ambiguous");
    line.rsplit_once(' ')?.1.parse().ok()
}

fn outcomes(class: &str) -> Vec<(&'static str, f64)> {
    let outcomes = ["acquired", "contended", "timeout", "failed", "refused", "cancelled"];
    let count = |outcome: &str| {
        let labels = [&*format!("class=\"{class}\""), &*format!("outcome=\"{outcome}\"")];
        value("lock_acquire_duration_seconds_count", &labels)
    };
    outcomes.into_iter().filter_map(|outcome| Some((outcome, count(outcome).filter(|n| *n > 0.0)?))).collect()
}

fn of(name: &str, class: &str) -> f64 {
    value(name, &[&*format!("class=\"{class}\"")]).unwrap_or_default()
}

#[tokio::test]
async fn each_acquisition_has_one_outcome() {
    LazyLock::force(&RECORDER);
    let store = Mock::new();
    let locks = store.manager().class("outcomes").wait(20 * MS);
    let guard = locks.lock("canary").label("canary").acquire().await.expect("granted");
    assert_eq!(of("lock_held", "outcomes"), 1.0);
    assert_eq!(outcomes("outcomes"), [("acquired", 1.0)]);
    assert!(locks.lock("canary").try_acquire().await.expect("an answer").is_none());
    assert_eq!(outcomes("outcomes"), [("acquired", 1.0), ("contended", 1.0)]);
    locks.lock("canary").acquire().await.expect_err("held");
    assert_eq!(outcomes("outcomes"), [("acquired", 1.0), ("contended", 1.0), ("timeout", 1.0)]);
    store.acquires().once([Reply::Fails]);
    locks.lock("failing").wait(Duration::ZERO).acquire().await.expect_err("no store");
    locks.lock("canary").ttl(Duration::ZERO).acquire().await.expect_err("no ttl");
    let waiting = tokio::spawn({
        let lock = locks.lock("canary").wait_forever();
        async move { lock.acquire().await.map(drop) }
    });
    until("it waits", || of("lock_waiters", "outcomes") == 1.0).await;
    waiting.abort();
    until("it has ended", || of("lock_waiters", "outcomes") == 0.0).await;
    let all = ["acquired", "contended", "timeout", "failed", "refused", "cancelled"];
    assert_eq!(outcomes("outcomes"), all.map(|outcome| (outcome, 1.0)));
    guard.release().await.expect("held");
    assert_eq!(of("lock_held", "outcomes"), 0.0);
    assert!(!RECORDER.render().contains("canary"), "a name or a label of a lock is shown");
}

#[tokio::test]
async fn several_locks_are_counted_one_by_one() {
    LazyLock::force(&RECORDER);
    let locks = Mock::new().manager();
    let guard = locks.all(["a", "b", "c"]).class("several").acquire().await.expect("granted");
    assert_eq!((outcomes("several"), of("lock_held", "several")), (vec![("acquired", 3.0)], 3.0));
    let later = locks.all(["a", "d"]).class("later").wait(20 * MS);
    later.acquire().await.expect_err("one is held");
    assert_eq!(outcomes("later"), [("timeout", 1.0)]);
    guard.release().await.expect("held");
    assert_eq!(of("lock_held", "several"), 0.0);
}

fn ends(class: &str) -> Vec<(&'static str, f64)> {
    let count = |end: &str| {
        let labels = [&*format!("class=\"{class}\""), &*format!("end=\"{end}\"")];
        value("lock_hold_duration_seconds_count", &labels)
    };
    ["released", "dropped", "lost", "max_hold"]
        .into_iter()
        .filter_map(|end| Some((end, count(end).filter(|n| *n > 0.0)?)))
        .collect()
}

#[tokio::test]
async fn each_hold_has_one_end() {
    LazyLock::force(&RECORDER);
    let store = Mock::new();
    let locks = store.manager().class("ends");
    locks.lock("a").acquire().await.expect("granted").release().await.expect("held");
    drop(locks.lock("b").acquire().await.expect("granted"));
    assert_eq!(ends("ends"), [("released", 1.0), ("dropped", 1.0)]);
    assert_eq!(of("lock_late_seconds_count", "ends"), 0.0);
    let guard = locks.lock("c").max_hold(50 * MS).acquire().await.expect("granted");
    guard.lost().await;
    drop(guard);
    assert_eq!(of("lock_late_seconds_count", "ends"), 0.0, "the lease was still valid");
    let guard = locks.lock("d").ttl(100 * MS).auto_renew(false).acquire().await.expect("granted");
    guard.lost().await;
    guard.release().await.expect_err("lost");
    store.releases().set_about("e", Reply::No);
    locks.lock("e").acquire().await.expect("granted").release().await.expect_err("the store has lost it");
    assert_eq!(ends("ends"), [("released", 1.0), ("dropped", 1.0), ("lost", 2.0), ("max_hold", 1.0)]);
    assert_eq!(of("lock_late_seconds_count", "ends"), 1.0);
    assert_eq!(of("lock_held", "ends"), 0.0);
}

#[tokio::test]
async fn a_reentered_lock_is_held_once() {
    LazyLock::force(&RECORDER);
    let locks = Mock::new().manager().class("reentered");
    let guard = locks.lock("a").acquire().await.expect("granted");
    let inner = locks.lock("a").reentrant(true);
    guard
        .run(async { inner.acquire().await.expect("entered").release().await })
        .await
        .expect("held")
        .expect("held");
    assert_eq!(outcomes("reentered"), [("acquired", 2.0)]);
    assert_eq!(ends("reentered"), [("released", 1.0)]);
    assert_eq!(of("lock_held", "reentered"), 0.0);
}

#[tokio::test]
async fn a_hand_over_is_counted_where_it_happens() {
    LazyLock::force(&RECORDER);
    let store = Mock::new();
    let locks = store.manager().class("handed");
    let from = |place: &str| {
        value("lock_handovers_total", &["class=\"handed\"", &*format!("where=\"{place}\"")])
            .unwrap_or_default()
    };
    let guard = locks.lock("a").acquire().await.expect("granted");
    let next = locks.lock("a");
    let next = tokio::spawn(async move { next.acquire().await });
    until("it waits", || of("lock_waiters", "handed") == 1.0).await;
    guard.release().await.expect("held");
    let guard = next.await.expect("no panic").expect("handed over");
    assert_eq!((from("process"), from("store")), (1.0, 0.0));
    guard.release().await.expect("held");
    assert_eq!(of("lock_waiters", "handed"), 0.0);
}

#[tokio::test]
async fn what_the_store_and_an_operator_do_is_counted() {
    LazyLock::force(&RECORDER);
    let store = Memory::new();
    let [ours, theirs] = [(); 2].map(|()| LockManager::new(store.clone()).class("by others"));
    let count = |name: &str, label: &str| value(name, &["class=\"by others\"", label]).unwrap_or_default();
    let guard = ours.lock("a").acquire().await.expect("granted");
    let next = theirs.lock("a");
    let next = tokio::spawn(async move { next.acquire().await });
    while ours.inspect("a").await.expect("shown").waiters.is_empty() {
        tokio::time::sleep(MS).await;
    }
    guard.release().await.expect("held");
    let guard = next.await.expect("no panic").expect("handed over");
    let handed_over =
        ["where=\"process\"", "where=\"store\""].map(|place| count("lock_handovers_total", place));
    assert_eq!(handed_over, [0.0, 1.0]);
    assert!(ours.revoke("a", guard.fencing_token()).await.expect("an answer"));
    guard.lost().await;
    let renewals = ["revoked", "lost", "failed"]
        .map(|outcome| count("lock_renewals_total", &format!("outcome=\"{outcome}\"")));
    assert_eq!(renewals, [1.0, 0.0, 0.0]);
}

#[test]
fn a_connection_is_up_or_down_until_its_server_leaves() {
    LazyLock::force(&RECORDER);
    let up = || value("lock_connection_up", &["store=\"test\"", "server=\"host:1\""]).expect("recorded");
    for (is_up, shown) in [(true, 1.0), (false, 0.0), (true, 1.0)] {
        connection("test", "host:1", Some(is_up));
        assert_eq!(up(), shown);
    }
    connection("test", "host:1", None);
    assert!(up().is_nan());
}

#[tokio::test]
async fn renewals_and_releases_in_doubt_are_counted() {
    LazyLock::force(&RECORDER);
    let store = Mock::new();
    let locks = store.manager().class("kept").ttl(300 * MS);
    let renewals = |outcome: &str| {
        value("lock_renewals_total", &["class=\"kept\"", &*format!("outcome=\"{outcome}\"")])
            .unwrap_or_default()
    };
    let guard = locks.lock("a").acquire().await.expect("granted");
    until("it is renewed", || renewals("renewed") >= 1.0).await;
    store.renewals().once([Reply::Fails]);
    until("a renewal fails", || renewals("failed") == 1.0).await;
    let renewed = renewals("renewed");
    let recorded = of("lock_validity_left_seconds_count", "kept");
    assert!((renewed - 1.0..=renewed).contains(&recorded), "only what was renewed has validity left");
    let left = of("lock_validity_left_seconds_sum", "kept") / of("lock_validity_left_seconds_count", "kept");
    assert!((0.01..0.3).contains(&left), "{left} s");
    store.renewals().once([Reply::No]);
    guard.lost().await;
    until("it is lost", || renewals("lost") == 1.0).await;
    drop(guard);
    let guard = locks.lock("b").ttl(Duration::from_secs(30)).acquire().await.expect("granted");
    store.releases().set(Reply::Fails);
    drop(guard);
    until("the release is in doubt", || of("lock_in_doubt", "kept") == 1.0).await;
    store.releases().set(Reply::Yes);
    until("it is released", || of("lock_in_doubt", "kept") == 0.0).await;
    // A lock that is released during its renewal is not lost.
    store.renewals().set(Reply::Silent);
    let [lost, unanswered] = ["lost", "unanswered"].map(renewals);
    let guard = locks.lock("c").acquire().await.expect("granted");
    until("the renewal is sent", || store.renewals().count("c") == 1).await;
    guard.release().await.expect("held");
    tokio::time::sleep(300 * MS).await;
    assert_eq!([lost, unanswered], ["lost", "unanswered"].map(renewals));
}

#[test]
fn locks_of_one_class_share_their_instruments_until_the_recorder_changes() {
    let metrics = Metrics::of("test");
    let first = PrometheusBuilder::new().build_recorder();
    let second = PrometheusBuilder::new().build_recorder();
    metrics.meter("shared", "exclusive").begin().failed(LockErrorKind::Timeout);
    for recorder in [&first, &second, &first] {
        ::metrics::with_local_recorder(recorder, || {
            metrics.meter("shared", "exclusive").begin().failed(LockErrorKind::Timeout);
        });
    }
    for (recorder, count) in [(first, 2), (second, 1)] {
        let text = recorder.handle().render();
        let line = format!(
            "lock_acquire_duration_seconds_count{{store=\"test\",class=\"shared\",mode=\"exclusive\",outcome=\"timeout\"}} {count}"
        );
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn the_page_has_every_metric_as_it_is() {
    let page = include_str!("../docs/operation.md");
    for Metric { name, kind, labels, help } in ALL {
        let (kind, unit) = match kind {
            Kind::Counter => ("counter", "1"),
            Kind::Gauge => ("gauge", "1"),
            Kind::Histogram => ("histogram", "s"),
        };
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let row = format!("| `{name}` | {kind} | {unit} | {labels} | {help} |");
        assert!(page.contains(&row), "the page has no row\n{row}");
    }
    assert_eq!(page.matches("\n| `lock_").count(), ALL.len());
    let buckets = BUCKETS.map(|bucket| bucket.to_string()).join(", ");
    assert!(
        page.split_whitespace().collect::<Vec<_>>().join(" ").contains(&buckets),
        "other buckets than {buckets}"
    );
}

/// A recorder that keeps the labels of all instruments: the name of the metric, of the label, and the value.
#[derive(Default)]
struct Labels(RefCell<BTreeSet<(String, String, String)>>);

impl Labels {
    fn keep(&self, key: &Key) {
        let name = key.name();
        let labels =
            key.labels().map(|label| (name.to_owned(), label.key().to_owned(), label.value().to_owned()));
        self.0.borrow_mut().extend(labels);
    }
}

impl ::metrics::Recorder for Labels {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.keep(key);
        Counter::noop()
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.keep(key);
        Gauge::noop()
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.keep(key);
        Histogram::noop()
    }
}

#[test]
fn the_page_has_every_value_of_a_label_with_fixed_values() {
    let kept = Labels::default();
    ::metrics::with_local_recorder(&kept, || {
        Metrics::of("test").meter("labels", Mode::Exclusive.name());
    });
    let labels = kept.0.into_inner();
    let page = include_str!("../docs/operation.md");
    for (beginning, name, label) in [
        ("`mode`", ACQUIRE.name, "mode"),
        ("`mode`", HOLD.name, "mode"),
        ("`outcome` of an acquisition", ACQUIRE.name, "outcome"),
        ("`end` of a hold", HOLD.name, "end"),
        ("`where` of a hand-over", HANDOVERS.name, "where"),
        ("`outcome` of a renewal", RENEWALS.name, "outcome"),
    ] {
        let row = page.lines().find_map(|line| line.strip_prefix(&format!("| {beginning} |")));
        let stated: BTreeSet<_> = row.expect(beginning).split('`').skip(1).step_by(2).collect();
        let of = |of: &&(String, String, String)| of.0 == name && of.1 == label;
        let recorded: BTreeSet<_> = labels.iter().filter(of).map(|label| label.2.as_str()).collect();
        assert_eq!(stated, recorded, "{name}: {label}");
    }
}

#[test]
fn the_page_has_the_alerts_of_the_example() {
    let page = include_str!("../docs/operation.md");
    let alerts = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/observed/alerts.yml");
    let alerts = std::fs::read_to_string(alerts).expect(alerts);
    let queries: Vec<_> = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert_eq!(queries.len(), 3);
    for query in queries {
        assert!(page.contains(&format!("`{query}`")), "the page lacks {query}");
    }
}

/// Each word `lock_…` of the example's alerts and of its dashboard is a metric, and each label is one of the metric's.
#[test]
fn the_queries_of_the_example_name_metrics_and_labels_that_exist() {
    for file in ["alerts.yml", "dashboard.json"] {
        let path = format!("{}/../examples/observed/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect(&path);
        let queries: Vec<_> = text.lines().filter_map(|line| line.trim().split_once("expr")).collect();
        assert!(queries.len() >= 3, "{path}: no queries");
        for (_, query) in queries {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let mut words = query.split(|c| !is_word(c)).filter(|word| word.starts_with("lock_"));
            let name = words.next().unwrap_or_else(|| panic!("{path}: {query} names no metric"));
            assert_eq!(words.next(), None, "{path}: {query}");
            let of_histogram = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
            let known = ALL.iter().find(|metric| match metric.kind {
                Kind::Histogram => of_histogram == Some(metric.name),
                Kind::Counter | Kind::Gauge => name == metric.name,
            });
            let metric = known.unwrap_or_else(|| panic!("{path}: no metric is named {name}"));
            let labels =
                query.split_once("by (").and_then(|(_, rest)| rest.split_once(')')).expect("labels").0;
            for label in labels.split(", ") {
                assert!(
                    label == "le" || metric.labels.contains(&label),
                    "{path}: {name} has no label {label}"
                );
            }
        }
    }
}

/// A recorder that panics: as it makes an instrument, or as it records.
struct Panics {
    early: bool,
}

struct PanickingInstrument;

impl ::metrics::CounterFn for PanickingInstrument {
    fn increment(&self, _: u64) {
        panic!("a bug in the recorder");
    }
    fn absolute(&self, _: u64) {}
}

impl ::metrics::GaugeFn for PanickingInstrument {
    fn increment(&self, _: f64) {
        panic!("a bug in the recorder");
    }
    fn decrement(&self, _: f64) {
        panic!("a bug in the recorder");
    }
    fn set(&self, _: f64) {
        panic!("a bug in the recorder");
    }
}

impl ::metrics::HistogramFn for PanickingInstrument {
    fn record(&self, _: f64) {
        panic!("a bug in the recorder");
    }
}

impl Panics {
    fn instrument(&self) -> Arc<PanickingInstrument> {
        assert!(!self.early, "a bug in the recorder");
        Arc::new(PanickingInstrument)
    }
}

impl ::metrics::Recorder for Panics {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.instrument().into()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.instrument().into()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.instrument().into()
    }
}

#[tokio::test]
async fn a_recorder_that_panics_harms_no_lock() {
    for early in [true, false] {
        let recorder = Panics { early };
        let _recording = ::metrics::set_default_local_recorder(&recorder);
        let store = Mock::new();
        let locks = store.manager();
        let guard = locks.lock("k").acquire().await.expect("granted");
        let next = locks.lock("k").wait_forever();
        let mut next = Box::pin(next.acquire());
        assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        guard.release().await.expect("held");
        drop(next.await.expect("handed over"));
        until("released", || store.releases().count("k") == 1).await;
        let metrics = Metrics::of("other");
        drop(metrics.in_doubt("other"));
        metrics.meter("other", "exclusive").renewed(Renewed::Yes, MS);
        connection("other", "server", Some(true));
    }
}
