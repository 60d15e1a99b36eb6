//! The errors of nodes, as one error of the store.

use super::{super::redis::error::Failure, node::Node, quorum::majority};
use crate::{LockError, LockErrorKind};

/// Returns the error for a question that failed on so many nodes that the others are no majority.
pub(super) fn out_of_reach(nodes: &[Node], failures: Vec<(usize, Failure)>) -> LockError {
    let errors: Vec<(usize, LockError)> =
        failures.into_iter().map(|(node, failure)| (node, failure.into_error())).collect();
    // An error that concerns the request or the configuration is the same on all nodes, and names the remedy.
    if let Some(position) = errors.iter().position(|(_, error)| !error.is_retryable()) {
        return errors.into_iter().nth(position).expect("just found").1;
    }
    let (all, needed) = (nodes.len(), majority(nodes.len()));
    let causes: Vec<_> = errors
        .iter()
        .map(|(node, error)| format!("{}: {}", nodes[*node].address(), error.message()))
        .collect();
    let message =
        format!("{} of {all} nodes failed, and {needed} must agree ({})", errors.len(), causes.join("; "));
    LockError::new(LockErrorKind::Backend, message)
}
