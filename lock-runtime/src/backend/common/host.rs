//! What this machine is called, for the operator who looks at a stuck lock.

/// The name, without anything that could mean something in a store.
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
