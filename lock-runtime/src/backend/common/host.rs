//! The name of this machine, for the operator who inspects a stuck lock.

/// Returns at most 64 characters of the name: only letters, digits, `.` and `-`, which have no special meaning in any
/// store.
pub(crate) fn name() -> String {
    host().chars().filter(|c| c.is_ascii_alphanumeric() || ".-".contains(*c)).take(64).collect()
}

#[cfg(target_os = "linux")]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(target_os = "linux"))]
fn host() -> String {
    std::env::var("HOSTNAME").unwrap_or_default()
}
