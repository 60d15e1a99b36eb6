//! `distlock doctor`: it finds each fault that is seeded on a real server, and nothing on a good one.

mod redis;
mod redis_sets;
mod redlock;
mod trial;

use crate::command::{Ended, Named, distlock, end_of};

pub const TESTS: &[&[Named]] = &[redis::TESTS, redis_sets::TESTS, redlock::TESTS, trial::TESTS];

/// What the doctor says of a store.
pub struct Diagnosis {
    pub code: i32,
    /// The findings, as lines of JSON.
    pub findings: Vec<String>,
    /// The servers, as lines of JSON.
    pub servers: Vec<String>,
    pub err: String,
}

/// Returns what the doctor says of the store at `url`, with these further arguments.
pub fn diagnosis(url: &str, arguments: &str) -> Diagnosis {
    let Ended { code, out, err } = doctor(url, &format!("--json {arguments}"));
    let (findings, servers) =
        out.lines().map(str::to_owned).partition(|line| line.starts_with("{\"finding\":"));
    Diagnosis { code, findings, servers, err }
}

/// The same, for people.
pub fn doctor(url: &str, arguments: &str) -> Ended {
    end_of(&mut distlock(url, format!("doctor {arguments}").trim_end()))
}

impl Diagnosis {
    /// The codes of the findings with their severities, as in `warning clock`, without repetitions.
    pub fn found(&self) -> Vec<String> {
        let word = |line: &str, name: &str| {
            let (_, rest) = line.split_once(&format!("\"{name}\":\"")).expect("each finding has it");
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        let found = self.findings.iter();
        let mut found: Vec<_> =
            found.map(|line| format!("{} {}", word(line, "severity"), word(line, "finding"))).collect();
        found.sort();
        found.dedup();
        found
    }

    /// Checks the findings, and the exit status that follows from them.
    #[track_caller]
    pub fn expect(&self, expected: &[&str]) -> &Self {
        assert_eq!(self.found(), expected, "{:#?}\n{}", self.findings, self.err);
        let has_danger = expected.iter().any(|found| found.starts_with("danger "));
        assert_eq!(self.code, if has_danger { 116 } else { 0 }, "{:#?}\n{}", self.findings, self.err);
        self
    }

    /// Checks that a finding has these words in its message or remedy.
    #[track_caller]
    pub fn say(&self, words: &str) -> &Self {
        assert!(self.findings.iter().any(|line| line.contains(words)), "{words}: {:#?}", self.findings);
        self
    }
}
