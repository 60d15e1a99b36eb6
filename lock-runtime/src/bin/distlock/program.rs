//! This program, and the environment of the command.

use std::{env, io, path::PathBuf};

/// Has the URL of the store. The command does not get it.
pub(crate) const URL: &str = "LOCK_URL";
/// Has the name of the lock, for the command.
pub(crate) const KEY: &str = "LOCK_KEY";
/// Has the fencing token, for the command.
pub(crate) const TOKEN: &str = "LOCK_FENCING_TOKEN";

/// Has the beginning of the period that the command runs, for the command.
pub(crate) const PERIOD: &str = "LOCK_PERIOD";

/// Returns the path by which this program can be started again, even if its file was replaced meanwhile.
pub(crate) fn path() -> io::Result<PathBuf> {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() { Ok(link) } else { env::current_exe() }
}
