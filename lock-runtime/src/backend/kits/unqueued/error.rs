//! The errors of nodes, as one error of the store.

use std::sync::Arc;

use super::{node::Node, quorum::majority};
use crate::{LockError, LockErrorKind, backend::kits::redis::error::Failure};

/// Returns the error for a question that failed on so many nodes that the others are no majority.
pub(super) fn out_of_reach(nodes: &[Arc<Node>], failures: Vec<(usize, Failure)>) -> LockError {
    let addresses: Vec<&str> = nodes.iter().map(|node| node.service().address()).collect();
    let errors = failures.into_iter().map(|(node, failure)| (addresses[node], failure.into_error()));
    joined(addresses.len(), &errors.collect::<Vec<_>>())
}

/// Joins the errors of nodes, each with the address of its node, out of `all` nodes.
fn joined(all: usize, errors: &[(&str, LockError)]) -> LockError {
    // The error of the only node is the error of the store.
    if let (1, [(_, error)]) = (all, errors) {
        return error.clone();
    }
    let needed = majority(all);
    // Permanent errors and errors of full nodes end the caller's wait only if the nodes with such errors leave no
    // majority of other nodes. Otherwise, the other errors may pass, and the wait goes on.
    let is_permanent = |error: &LockError| !error.is_retryable();
    let is_full = |error: &LockError| error.kind() == LockErrorKind::Overloaded;
    let too_many = |is_meant: &dyn Fn(&LockError) -> bool| {
        errors.iter().filter(|(_, error)| is_meant(error)).count() > all - needed
    };
    // A permanent error is usually the same on all nodes, and names the remedy.
    if too_many(&is_permanent)
        && let Some((_, error)) = errors.iter().find(|(_, error)| is_permanent(error))
    {
        return error.clone();
    }
    if errors.is_empty() {
        let message = format!("of {all} nodes, fewer than the {needed} that must agree answered in time");
        return LockError::backend(message);
    }
    let (mut causes, mut remedies) = (Vec::new(), Vec::new());
    for (address, error) in errors {
        let (cause, remedy) = error.message().split_once(". ").unwrap_or((error.message(), ""));
        causes.push(if cause.contains(address) { cause.to_owned() } else { format!("{address}: {cause}") });
        // The remedy is usually the same for all nodes.
        if !remedy.is_empty() && !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    let (causes, count) = (causes.join("; "), errors.len());
    let message = format!("{count} of {all} nodes cannot be used, and {needed} must agree ({causes})");
    let message = [&[message.as_str()], &remedies[..]].concat().join(". ");
    let ends_wait = too_many(&|error| is_permanent(error) || is_full(error));
    let joined =
        LockError::new(if ends_wait { LockErrorKind::Overloaded } else { LockErrorKind::Backend }, message);
    joined.with_fault(errors.iter().find_map(|(_, error)| error.fault()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_lasts_ends_a_wait_only_if_the_other_nodes_are_no_majority() {
        let passing = LockError::backend("it restarts");
        let permanent = LockError::backend("the password was changed").into_permanent();
        let full = LockError::new(LockErrorKind::Overloaded, "no descriptor is left");
        for (all, errors, kind, is_retryable) in [
            (3, &[&permanent, &passing][..], LockErrorKind::Backend, true),
            (3, &[&passing, &permanent, &permanent], LockErrorKind::Backend, false),
            (3, &[&full, &passing], LockErrorKind::Backend, true),
            (3, &[&full, &full], LockErrorKind::Overloaded, true),
            (3, &[&full, &permanent], LockErrorKind::Overloaded, true),
            (5, &[&permanent, &permanent, &passing], LockErrorKind::Backend, true),
            (5, &[&permanent, &permanent, &permanent], LockErrorKind::Backend, false),
            (1, &[&permanent], LockErrorKind::Backend, false),
        ] {
            let errors: Vec<_> = errors.iter().map(|error| ("host:1", (*error).clone())).collect();
            let joined = joined(all, &errors);
            assert_eq!((joined.kind(), joined.is_retryable()), (kind, is_retryable), "{all} {errors:?}");
        }
    }
}
