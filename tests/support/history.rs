//! A history of holds of one lock, and its judge: were they disjoint, and did their tokens rise?
//!
//! The tokens are the order that the lock itself claims, so no order has to be searched for: sorting is enough, and
//! millions of holds are judged in milliseconds. All times are nanoseconds on the monotonic clock that all processes
//! of a machine share, so holds of different processes are comparable.

use std::{fmt, str::FromStr};

/// One hold, as its holder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub token: u64,
    /// Before the request for the lock.
    pub asked: u64,
    /// After the grant.
    pub from: u64,
    /// The last moment before which the holder was assured that it holds the lock.
    pub until: u64,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.token, self.asked, self.from, self.until)
    }
}

impl FromStr for Hold {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let numbers: Vec<u64> = line.split(' ').flat_map(str::parse).collect();
        match numbers[..] {
            [token, asked, from, until] => Ok(Self { token, asked, from, until }),
            _ => Err(format!("not a hold: {line:?}")),
        }
    }
}

/// The findings; a lock that works has nothing but `holds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub holds: usize,
    /// Holds that began before an earlier one ended.
    pub overlaps: usize,
    /// Holds with the token of another one.
    pub duplicates: usize,
    /// Holds that had ended before another one with a smaller token was requested.
    pub inversions: usize,
}

impl Verdict {
    pub fn is_clean(&self) -> bool {
        self.overlaps == 0 && self.duplicates == 0 && self.inversions == 0
    }
}

/// Each hold that began before an earlier one ended, behind the one of these that ended last.
pub fn overlaps(history: &mut [Hold]) -> Vec<(Hold, Hold)> {
    history.sort_by_key(|hold| hold.from);
    let mut pairs = Vec::new();
    let mut last: Option<Hold> = None;
    for hold in history {
        if let Some(earlier) = last
            && hold.from < earlier.until
        {
            pairs.push((earlier, *hold));
        }
        last = last.filter(|earlier| earlier.until >= hold.until).or(Some(*hold));
    }
    pairs
}

pub fn judge(mut history: Vec<Hold>) -> Verdict {
    let overlaps = overlaps(&mut history).len();
    let mut verdict = Verdict { holds: history.len(), overlaps, ..Verdict::default() };
    history.sort_by_key(|hold| hold.token);
    verdict.duplicates = history.windows(2).filter(|pair| pair[0].token == pair[1].token).count();
    let mut last_asked = 0;
    for hold in &history {
        verdict.inversions += usize::from(hold.until < last_asked);
        last_asked = last_asked.max(hold.asked);
    }
    verdict
}
