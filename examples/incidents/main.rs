//! Two incidents, in the order in which a person on call sees them: `cargo run --example incidents --features metrics`.
//!
//! The page "operation" of lock-runtime shows and explains what this program prints.

mod log;
mod play;

use lock_runtime::metrics::BUCKETS;
use metrics_exporter_prometheus::PrometheusBuilder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    log::install();
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS)?.install_recorder()?;
    for line in play::all(&recorder).await? {
        println!("{line}");
    }
    Ok(())
}
