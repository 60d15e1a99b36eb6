//! The runtime of the subcommands that end by themselves.

use std::future::Future;

use crate::exit::{Exit, Failure};

/// Runs a future on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Internal, format!("no runtime: {error}")))?;
    let result = runtime.block_on(future);
    runtime.shutdown_background();
    result
}
