//! What an examination of a store finds, and what the findings mean.

use std::fmt;

/// What a [`Finding`] is about. The texts are stable: scripts may rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FindingCode {
    /// Two clients had the lock at the same time, or the lock was lost before its deadline, or was not handed over or
    /// protected as promised.
    Exclusion,
    /// The store answered too slowly for the lock to be kept.
    Slow,
    /// A server did not answer.
    Unreachable,
    /// The user lacks a right that locks need.
    Rights,
    /// The server is too old.
    Version,
    /// The server takes no writes, because it is a replica or is set to be read-only.
    ReadOnly,
    /// The server may evict locks when its memory runs out.
    Eviction,
    /// The memory of the server is nearly full.
    Memory,
    /// The server forgets its locks and the last fencing tokens when it restarts.
    Persistence,
    /// The setting `durable` is on, and the server does not keep each write.
    Durable,
    /// A failover may lose locks, because a primary grants locks that no replica has.
    Replicas,
    /// The server belongs to a kind of setup that the URL does not name.
    Topology,
    /// Two addresses lead to the same server.
    SameServer,
    /// A node of a quorum has no vote for now.
    NoVote,
    /// The Sentinels are too few, do not agree, or replace a primary late.
    Sentinels,
    /// The cluster does not take calls for all locks, or cannot replace a primary.
    Cluster,
    /// The table of locks is missing, or is not as it should be.
    Table,
    /// Two tables have the name of the table of locks.
    Tables,
    /// No notifications arrive, because of a pooler or because the server refuses them, so that waiters poll.
    Polling,
    /// The server may lose committed transactions in a crash.
    Fsync,
    /// The server limits its sessions to other lengths than the one that is asked for, or its sessions are too short for
    /// its tick.
    Tick,
    /// A member of the ensemble is away or does not serve.
    Ensemble,
    /// The clock of the server differs from the clock of this machine.
    Clock,
    /// Some round trips take too long for the `ttl`.
    RoundTrips,
    /// The server limits the number or length of sessions or connections too much.
    SessionLimits,
    /// The user lacks a right that only this examination needs, so that something is not known.
    Unread,
}

/// How bad a [`Finding`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Locks work, but less well than they could, or a restart or a failover can let two clients have one lock, or something
    /// is not known.
    Warning,
    /// Locks do not work, or two clients can have one lock, or a lock can be lost while it is in use.
    Danger,
}

impl FindingCode {
    /// All codes, in the order of the documentation.
    pub const ALL: &[Self] = &[
        Self::Exclusion,
        Self::Slow,
        Self::Unreachable,
        Self::Rights,
        Self::Version,
        Self::ReadOnly,
        Self::Eviction,
        Self::Memory,
        Self::Persistence,
        Self::Durable,
        Self::Replicas,
        Self::Topology,
        Self::SameServer,
        Self::NoVote,
        Self::Sentinels,
        Self::Cluster,
        Self::Table,
        Self::Tables,
        Self::Polling,
        Self::Fsync,
        Self::Tick,
        Self::Ensemble,
        Self::Clock,
        Self::RoundTrips,
        Self::SessionLimits,
        Self::Unread,
    ];

    /// Returns the stable text of the code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exclusion => "exclusion",
            Self::Slow => "slow",
            Self::Unreachable => "unreachable",
            Self::Rights => "rights",
            Self::Version => "version",
            Self::ReadOnly => "read-only",
            Self::Eviction => "eviction",
            Self::Memory => "memory",
            Self::Persistence => "persistence",
            Self::Durable => "durable",
            Self::Replicas => "replicas",
            Self::Topology => "topology",
            Self::SameServer => "same-server",
            Self::NoVote => "no-vote",
            Self::Sentinels => "sentinels",
            Self::Cluster => "cluster",
            Self::Table => "table",
            Self::Tables => "tables",
            Self::Polling => "polling",
            Self::Fsync => "fsync",
            Self::Tick => "tick",
            Self::Ensemble => "ensemble",
            Self::Clock => "clock",
            Self::RoundTrips => "round-trips",
            Self::SessionLimits => "session-limits",
            Self::Unread => "unread",
        }
    }

    /// Returns the code with this text.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }
}

impl fmt::Display for FindingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Severity {
    /// Returns the name of the severity, as in the output of `distlock doctor`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Danger => "danger",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Something that would bite the users of a store, and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What the finding is about.
    pub code: FindingCode,
    /// How bad the finding is.
    pub severity: Severity,
    /// The address of the server, if the finding is about one.
    pub server: Option<String>,
    /// What is wrong, and what follows from it. It never contains a secret.
    pub message: String,
    /// What to do; empty if the message says it.
    pub remedy: String,
}

impl Finding {
    /// Describes a danger.
    #[must_use]
    pub fn danger(code: FindingCode, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(code, Severity::Danger, message.into(), remedy.into())
    }

    /// Describes what is to be warned of.
    #[must_use]
    pub fn warning(code: FindingCode, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(code, Severity::Warning, message.into(), remedy.into())
    }

    const fn new(code: FindingCode, severity: Severity, message: String, remedy: String) -> Self {
        Self { code, severity, server: None, message, remedy }
    }

    /// Sets the address of the server that the finding is about.
    #[must_use]
    pub fn at(mut self, server: impl Into<String>) -> Self {
        self.server = Some(server.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.severity, self.code)?;
        if let Some(server) = &self.server {
            write!(f, "{server}: ")?;
        }
        f.write_str(&self.message)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_code_has_a_name_of_its_own_and_is_read_back() {
        let names: BTreeSet<_> = FindingCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), FindingCode::ALL.len());
        for code in FindingCode::ALL {
            assert_eq!(FindingCode::from_name(code.name()), Some(*code));
            assert!(code.name().chars().all(|letter| letter.is_ascii_lowercase() || letter == '-'), "{code}");
        }
        assert_eq!(FindingCode::from_name("else"), None);
        // The order of the list is that of the variants, so that none is left out in the middle.
        assert!(FindingCode::ALL.is_sorted() && FindingCode::ALL.last() == Some(&FindingCode::Unread));
    }

    /// The table of `distlock doctor` has the words of this file.
    #[test]
    fn the_page_has_each_code_with_its_meaning() {
        let source = include_str!("finding.rs");
        let variants =
            source.split("pub enum FindingCode {").nth(1).and_then(|rest| rest.split("\n}").next());
        let mut meaning = String::new();
        let mut codes = FindingCode::ALL.iter();
        let page = include_str!("docs/distlock.md");
        for line in variants.expect("the codes").lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(text) = line.strip_prefix("///") {
                meaning = [meaning.as_str(), text.trim()].join(" ").trim().to_owned();
                continue;
            }
            let code = codes.next().expect("each code is in the list");
            let row = format!("| `{code}` | {} |", std::mem::take(&mut meaning));
            assert_eq!(page.matches(&row).count(), 1, "{row}");
        }
        assert_eq!(codes.next(), None);
    }

    #[test]
    fn a_finding_is_one_line_with_its_remedy() {
        let finding = Finding::danger(FindingCode::Eviction, "it evicts", "set it").at("h:1");
        assert_eq!(finding.to_string(), "danger eviction: h:1: it evicts; set it");
        let finding = Finding::warning(FindingCode::ReadOnly, "it is", "");
        assert_eq!(finding.to_string(), "warning read-only: it is");
    }
}
