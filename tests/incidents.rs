//! The page "operation" shows what the example `incidents` prints.

#[path = "../examples/incidents/log.rs"]
mod log;
#[path = "../examples/incidents/play.rs"]
mod play;

use lock_runtime::metrics::BUCKETS;
use metrics_exporter_prometheus::PrometheusBuilder;

const PAGE: &str = include_str!("../lock-runtime/src/docs/operation.md");

/// Replaces what differs from run to run: numbers, and the process and its host.
fn stable(line: &str) -> String {
    let mut stable = String::new();
    for word in line.split_inclusive(' ') {
        if let Some((_, rest)) = word.split_once('@').and_then(|(_, host)| host.split_once(',')) {
            stable.push_str("CLIENT,");
            stable.push_str(rest);
            continue;
        }
        let mut was_number = false;
        for c in word.chars() {
            let is_number = c.is_ascii_digit() || (was_number && c == '.');
            if !is_number {
                stable.push(c);
            } else if !was_number {
                stable.push('#');
            }
            was_number = is_number;
        }
    }
    stable
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_the_program_prints() {
    log::install();
    let builder = PrometheusBuilder::new().set_buckets(&BUCKETS).expect("buckets");
    let recorder = builder.install_recorder().expect("the only recorder");
    let printed = play::all(&recorder).await.expect("played");
    for line in &printed {
        println!("{line}");
    }
    let page: Vec<_> = PAGE.lines().map(stable).collect();
    let mut rest = page.iter();
    for line in printed.iter().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let line = stable(line);
        assert!(rest.any(|of_page| *of_page == line), "the page lacks, or has at another place: {line}");
    }

    // The waits of the first incident show in the scrape after its beginning.
    let number = |line: &str| line.rsplit_once(' ').and_then(|(_, number)| number.parse::<f64>().ok());
    let waiters: Vec<_> = printed
        .iter()
        .filter(|line| line.contains("class=\"invoice"))
        .filter_map(|line| number(line))
        .collect();
    assert!(waiters[1] >= 5.0, "{waiters:?}");
    let took = |line: &&String| line.contains("on average");
    let millis = |line: &String| line.split(' ').nth(4)?.parse::<f64>().ok();
    let means: Vec<_> = printed.iter().filter(took).filter_map(millis).collect();
    assert!(means[1] > 5.0 * means[0].max(1.0), "{means:?}");
    // The holder that was still there after its deadline.
    let late = printed.iter().find(|line| line.starts_with("lock_late_seconds_count"));
    assert_eq!(late.and_then(|line| number(line)), Some(1.0), "{late:?}");
}
