//! Libraries of some functions of C, preloaded into the processes that the tests start.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs,
    path::PathBuf,
    process::Command,
    sync::{Mutex, PoisonError},
};

use super::processes;

/// Preloads this source, which has a `name` of its own and is built once, into the process that the command starts.
pub fn preload(command: &mut Command, name: &'static str, source: &str) {
    const VARIABLE: &str = "LD_PRELOAD";
    static BUILT: Mutex<Option<HashMap<&str, PathBuf>>> = Mutex::new(None);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let library = built.get_or_insert_default().entry(name).or_insert_with(|| build(name, source));
    let before = command.get_envs().find(|(variable, _)| *variable == OsStr::new(VARIABLE));
    let mut all = before.and_then(|(_, libraries)| libraries).map_or_else(OsString::new, OsStr::to_owned);
    if !all.is_empty() {
        all.push(":");
    }
    all.push(library);
    command.env(VARIABLE, all);
}

fn build(name: &str, source: &str) -> PathBuf {
    let file = processes::folder().join(name).with_extension("c");
    let library = file.with_extension("so");
    fs::write(&file, source).expect("the temporary folder is writable");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &file])
        // A part of the C library since glibc 2.34.
        .arg("-ldl")
        .output()
        .expect("there is a C compiler, which linking Rust needs as well");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}
