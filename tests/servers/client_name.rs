//! The name that the library gives its connections.

use std::{env, fs, process};

/// The length of the longest `application_name` that PostgreSQL keeps.
const MAX_LENGTH: usize = 63;

/// Returns whether `name` is the name of a connection of this process, whose program and host may be cut.
pub fn is_ours(name: &str) -> bool {
    let program = env::current_exe().unwrap();
    let program = program.file_name().unwrap().to_str().unwrap();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let Some((front, found_host)) = name.split_once('@') else { return false };
    let Some(found_program) = front.strip_suffix(&format!(":{}", process::id())) else { return false };
    let begins = |whole: &str, found: &str| !found.is_empty() && whole.starts_with(found);
    name.len() <= MAX_LENGTH && begins(program, found_program) && begins(&host, found_host)
}
