//! The children of this process, among them the processes that it has adopted: those whose parents have ended, because this
//! process is a subreaper. A process that has left the command's group is found here once its parent is gone.

use rustix::process::{Pid, Signal, kill_process};

/// Sends KILL to all children but those that are spared; returns how many there are. Children that have ended count until
/// they are waited for.
///
/// No other process can have the id of a child before this process has waited for the child.
pub(crate) fn kill(spared: &[Pid]) -> usize {
    let children = all();
    let others = children.iter().filter(|child| !spared.contains(child));
    others.map(|child| _ = kill_process(*child, Signal::KILL)).count()
}

/// Returns the children. On systems that do not list them, there are none.
#[cfg(target_os = "linux")]
pub(crate) fn all() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    // The list of each thread has the children that the thread has started or adopted.
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let ids =
        |list: String| list.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect();
    lists.flat_map(|list| -> Vec<_> { ids(list) }).collect()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn all() -> Vec<Pid> {
    Vec::new()
}
