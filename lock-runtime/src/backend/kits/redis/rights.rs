//! The errors about rights that the user lacks, with what its ACL has to be extended by.

use super::error;
use crate::{LockError, backend::FindingCode};

/// Returns the rights that the server has refused, as `ACL SETUSER` takes them, if its words name them.
pub(crate) fn missing_right(error: &LockError, prefix: &str) -> Option<String> {
    let detail = error::no_permission(error)?;
    if detail.contains("channel") {
        return Some(format!("&{prefix}*"));
    }
    if detail.contains("keys used as arguments") || detail.contains("to access") {
        return Some(format!("~{prefix}*"));
    }
    // Redis 7 writes "run the 'get' command", and earlier versions "run the 'get' command or its subcommand".
    detail.split('\'').nth(1).map(|command| format!("+{}", command.to_lowercase()))
}

/// Returns the error for commands that the user may not run under a prefix.
pub(crate) fn no_rights(refused: &[String], prefix: &str) -> LockError {
    let add: Vec<_> = refused.iter().map(|command| format!("+{}", command.to_lowercase())).collect();
    lacking(&refused.join(", "), &add.join(" "), prefix)
}

/// Returns the error for channels that the user may not use, whose names begin so.
pub(crate) fn no_channels(beginning: &str, prefix: &str) -> LockError {
    lacking("the channels", &format!("&{beginning}*"), prefix)
}

/// Returns the error for a subscription that the server has refused.
pub(crate) fn no_subscription(error: LockError, prefix: &str) -> LockError {
    let add = missing_right(&error, prefix).unwrap_or_else(|| format!("&{prefix}*"));
    let to = if add.starts_with('&') { "the channels" } else { "SUBSCRIBE" };
    lacking(to, &add, prefix).with_source(error)
}

/// `add` is what `ACL SETUSER` has to add.
fn lacking(to: &str, add: &str, prefix: &str) -> LockError {
    LockError::backend(format!(
            "the Redis user may not use {to} under the prefix `{prefix}`; extend its ACL (`{add}`) as shown in the \
             documentation of the store",
        ),
    )
    .into_permanent()
    .with_fault(FindingCode::Rights)
}
