//! The children of this process, among them the processes that it has adopted: those whose parents have ended, because this
//! process is a subreaper. A process that has left the command's group is found here once its parent is gone.

use rustix::process::{Pid, Signal, kill_process};

/// Sends KILL to all children; returns how many there are. Children that have ended count until they are waited for. On
/// systems that do not list them, there are none.
///
/// No other process can have the id of a child before this process has waited for the child.
pub(crate) fn kill() -> usize {
    let children = all();
    for child in &children {
        let _ = kill_process(*child, Signal::KILL);
    }
    children.len()
}

#[cfg(target_os = "linux")]
fn all() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    // The list of each thread has the children that the thread has started or adopted.
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let ids =
        |list: String| list.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect();
    lists.flat_map(|list| -> Vec<_> { ids(list) }).collect()
}

#[cfg(not(target_os = "linux"))]
fn all() -> Vec<Pid> {
    Vec::new()
}
