//! The errors of nodes, as one error of the store.

use super::{node::Node, quorum::majority};
use crate::{LockError, LockErrorKind, backend::kits::redis::error::Failure};

/// Returns the error for a question that failed on so many nodes that the others are no majority.
pub(super) fn out_of_reach(nodes: &[Node], failures: Vec<(usize, Failure)>) -> LockError {
    let errors: Vec<(usize, LockError)> =
        failures.into_iter().map(|(node, failure)| (node, failure.into_error())).collect();
    // The error of the only node is the error of the store.
    if let ([_], [(_, error)]) = (nodes, &errors[..]) {
        return error.clone();
    }
    // An error that concerns the request or the configuration is the same on all nodes, and names the remedy.
    if let Some(position) = errors.iter().position(|(_, error)| !error.is_retryable()) {
        return errors.into_iter().nth(position).expect("just found").1;
    }
    let (all, needed) = (nodes.len(), majority(nodes.len()));
    if errors.is_empty() {
        let message = format!("of {all} nodes, fewer than the {needed} that must agree answered in time");
        return LockError::new(LockErrorKind::Backend, message);
    }
    let (mut causes, mut remedies) = (Vec::new(), Vec::new());
    for (node, error) in &errors {
        let (cause, remedy) = error.message().split_once(". ").unwrap_or((error.message(), ""));
        let address = nodes[*node].address();
        causes.push(if cause.contains(address) { cause.to_owned() } else { format!("{address}: {cause}") });
        // The remedy is usually the same for all nodes.
        if !remedy.is_empty() && !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    let (causes, count) = (causes.join("; "), errors.len());
    let message = format!("{count} of {all} nodes cannot be used, and {needed} must agree ({causes})");
    let message = [&[message.as_str()], &remedies[..]].concat().join(". ");
    let is_full = errors.iter().any(|(_, error)| error.kind() == LockErrorKind::Overloaded);
    LockError::new(if is_full { LockErrorKind::Overloaded } else { LockErrorKind::Backend }, message)
}
