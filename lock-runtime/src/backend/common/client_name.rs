//! The name of this library's connections, for the operator who inspects a server.

use std::{env, process, sync::LazyLock};

use super::host;

/// Upper bound on the length of a name in bytes: PostgreSQL cuts a longer `application_name` (`NAMEDATALEN`).
const MAX_LENGTH: usize = 63;
/// Number of bytes that are left of a long program name if program and host together are too long.
const MIN_PROGRAM_LENGTH: usize = 16;

/// Returns `<program>:<pid>@<host>`, at most 63 visible ASCII characters without spaces, which Redis refuses in a name.
///
/// The process id is asked for each time, so that a forked child does not use the name of its parent.
pub(crate) fn of_this_process() -> String {
    static PROGRAM: LazyLock<String> = LazyLock::new(program);
    of(&PROGRAM, process::id(), &host::name())
}

/// Returns the file name of this program, or an empty text where the system does not tell the file.
fn program() -> String {
    let path = env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Linux marks the path of a program whose file was replaced (proc(5), `/proc/pid/exe`).
    name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned()
}

/// Composes a name; `host` is as [`host::name`] returns it.
///
/// If the name is too long, the program is cut before the host. In Kubernetes, the host is the pod, whose name mostly
/// begins with the program's and ends with the part that no other pod has.
fn of(program: &str, pid: u32, host: &str) -> String {
    let visible = |character: char| if character.is_ascii_graphic() { character } else { '_' };
    let mut name: String = match program {
        "" => "lock-runtime".into(),
        program => program.chars().map(visible).collect(),
    };
    let rest = if host.is_empty() { format!(":{pid}") } else { format!(":{pid}@{host}") };
    name.truncate(MAX_LENGTH.saturating_sub(rest.len()).max(MIN_PROGRAM_LENGTH));
    name.push_str(&rest);
    name.truncate(MAX_LENGTH);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_program_process_and_host() {
        assert_eq!(of("withdrawals", 4711, "worker-3.example"), "withdrawals:4711@worker-3.example");
        assert_eq!(of("withdrawals", 4711, ""), "withdrawals:4711");
        assert_eq!(of("", 4711, "worker-3"), "lock-runtime:4711@worker-3");
        let ours = of_this_process();
        assert!(ours.contains(&format!(":{}", process::id())), "{ours}");
        let program = program();
        assert!(ours.starts_with(&program[..program.len().min(MIN_PROGRAM_LENGTH)]), "{ours}");
    }

    #[test]
    fn odd_programs_and_hosts_leave_a_name_that_every_server_takes() {
        let long = "x".repeat(300);
        for program in ["", "my program", "\u{7f}\t\n\0", "Überweisung 🔒", "a\"b'c", &long] {
            for host in ["", "h", &long[..64]] {
                for pid in [1, u32::MAX] {
                    let name = of(program, pid, host);
                    assert!(!name.is_empty() && name.len() <= MAX_LENGTH, "{name}");
                    assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
                    assert!(name.contains(&format!(":{pid}")), "{name}");
                }
            }
        }
        assert_eq!(of("my Überweisung", 1, "h"), "my__berweisung:1@h");
    }

    #[test]
    fn a_long_program_is_cut_before_a_long_host() {
        let pod = "withdrawals-of-the-bank-7d9f8b6c5d-x2x4z";
        assert_eq!(of("withdrawals-of-the-bank", 1, pod), format!("withdrawals-of-the-b:1@{pod}"));
        let [program, host] = ["p".repeat(40), "h".repeat(64)];
        assert_eq!(of(&program, 1, &host), format!("{}:1@{}", &program[..16], &host[..44]));
    }
}
