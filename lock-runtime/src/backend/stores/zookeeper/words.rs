//! What a server says of itself, by ZooKeeper's commands of four letters.

use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    sync::Arc,
    time::Duration,
};

use super::tls::Certificates;
use crate::backend::common::{threads, tls::probe};

/// Upper bound on the length of an answer.
const MAX_ANSWER: u64 = 1 << 20;

/// The answer of a server to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Text(String),
    /// The server may not answer this command (`4lw.commands.whitelist`).
    Forbidden,
    /// The server runs, and does not serve clients: it does not see a majority.
    NotServing,
    Silence,
}

impl Answer {
    fn of(text: &str) -> Self {
        if text.contains("is not executed because it is not in the whitelist") {
            Self::Forbidden
        } else if text.contains("not currently serving requests") {
            Self::NotServing
        } else if text.is_empty() {
            Self::Silence
        } else {
            Self::Text(text.to_owned())
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// What a server says of itself.
#[derive(Clone, Debug)]
pub(super) struct Said {
    /// `srvr`: version and role.
    pub(super) state: Answer,
    /// `conf`: settings.
    pub(super) settings: Answer,
    /// `mntr`: figures.
    pub(super) figures: Answer,
}

impl Said {
    /// Returns a line of `srvr`, such as `Mode`.
    pub(super) fn state(&self, name: &str) -> Option<&str> {
        let mut lines = self.state.text()?.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// Returns the version without the number of its build.
    pub(super) fn version(&self) -> Option<&str> {
        let version = self.state("Zookeeper version")?;
        version.split(['-', ',', ' ']).next().filter(|version| !version.is_empty())
    }

    /// Returns a number among the settings.
    pub(super) fn setting(&self, name: &str) -> Option<u64> {
        let settings: HashMap<_, _> =
            self.settings.text()?.lines().filter_map(|line| line.split_once('=')).collect();
        settings.get(name)?.trim().parse().ok()
    }

    /// Returns a length of time among the settings, which is in milliseconds.
    pub(super) fn length(&self, name: &str) -> Option<Duration> {
        self.setting(name).map(Duration::from_millis)
    }

    /// Returns one of the figures.
    pub(super) fn figure(&self, name: &str) -> Option<u64> {
        let mut figures = self.figures.text()?.lines().filter_map(|line| line.split_once('\t'));
        let (_, number) = figures.find(|(found, _)| *found == name)?;
        // Some versions write all numbers with a point.
        number.trim().split('.').next()?.parse().ok()
    }
}

/// Asks a server.
///
/// # Cancel safety
/// Cancel safe.
pub(super) async fn ask(host: String, port: u16, certificates: Option<Arc<Certificates>>) -> Said {
    let said = threads::run(move || {
        let [state, settings, figures] =
            ["srvr", "conf", "mntr"].map(|word| ask_for(&host, port, certificates.as_deref(), word));
        Said { state, settings, figures }
    });
    let silence = |_| Said { state: Answer::Silence, settings: Answer::Silence, figures: Answer::Silence };
    said.await.unwrap_or_else(silence)
}

fn ask_for(host: &str, port: u16, certificates: Option<&Certificates>, word: &str) -> Answer {
    let Some(mut stream) = probe::dial(host, port) else { return Answer::Silence };
    let answer = if let Some(certificates) = certificates {
        certificates.ask(host, stream, word.as_bytes(), MAX_ANSWER)
    } else {
        let mut answer = Vec::new();
        if stream.write_all(word.as_bytes()).is_ok() {
            // The server may reset the connection after its answer.
            let _ = stream.take(MAX_ANSWER).read_to_end(&mut answer);
        }
        answer
    };
    Answer::of(&String::from_utf8_lossy(&answer))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What 3.8 says with these settings.
    pub(in super::super) fn said(mode: &str, settings: &str, figures: &str) -> Said {
        let state = format!(
            "Zookeeper version: 3.8.0-${{mvngit.commit.id}}, built on 2023-10-10 11:11 UTC\nLatency min/avg/max: 0/0.0/0\n\
             Connections: 1\nMode: {mode}\nNode count: 5\n"
        );
        Said {
            state: Answer::of(&state),
            settings: Answer::of(&format!("clientPort=2181\n{settings}\nmembership: \n")),
            figures: Answer::of(&format!("zk_version\t3.8.0\n{figures}\n")),
        }
    }

    #[test]
    fn what_a_server_says_is_read() {
        let said = said("follower", "tickTime=2000\nmaxSessionTimeout=40000", "zk_synced_followers\t2.0");
        assert_eq!((said.version(), said.state("Mode")), (Some("3.8.0"), Some("follower")));
        assert_eq!(said.length("tickTime"), Some(Duration::from_secs(2)));
        assert_eq!(said.setting("maxClientCnxns"), None);
        assert_eq!(said.figure("zk_synced_followers"), Some(2));
        let forbidden = "conf is not executed because it is not in the whitelist.\n";
        assert_eq!(Answer::of(forbidden), Answer::Forbidden);
        let away = "This ZooKeeper instance is not currently serving requests\n";
        assert_eq!(Answer::of(away), Answer::NotServing);
        assert_eq!(Answer::of(""), Answer::Silence);
    }
}
