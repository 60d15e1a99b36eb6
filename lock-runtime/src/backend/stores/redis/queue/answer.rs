//! The scripts' answers to a request for a lock.

use std::str::FromStr;

use redis::{FromRedisValue, ParsingError, Value};

use super::{
    super::shown::Shown,
    place::{Rank, Standing},
};
use crate::{backend::common::server_clock::ServerClock, time::clock::Instant};

/// An answer of the acquire script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted {
        fence: u64,
        others_wait: bool,
    },
    /// The answer to a poll also states the holder, if there is one.
    Waiting(Waiting, Option<Shown>),
    Held {
        pttl_ms: i64,
        holder: Option<Shown>,
    },
    /// The owner has the lock, but its grant was revoked.
    Revoked,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) seen: u64,
    pub(crate) rank: Rank,
    pub(crate) standing: Standing,
    pub(crate) pttl_ms: i64,
}

/// An answer, `None` if the request came too late, with the server's time if the server gave it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TimedAnswer {
    answer: Option<Answer>,
    time: Option<u64>,
}

impl TimedAnswer {
    /// Returns the answer, which has just come to a request sent at `sent`; `clock` learns the server's time from the
    /// answer.
    pub(crate) fn learn(self, sent: Instant, clock: &ServerClock) -> Option<Answer> {
        match (self.time, &self.answer) {
            (Some(time), Some(_)) => clock.learn(sent, Instant::now(), time),
            (Some(time), None) => clock.replace(Instant::now(), time),
            (None, _) => {}
        }
        self.answer
    }
}

impl FromRedisValue for TimedAnswer {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let Value::BulkString(text) = &value else { return Err("not a text".into()) };
        Self::of(str::from_utf8(text).map_err(|_| "not a text")?)
    }
}

impl TimedAnswer {
    pub(super) fn of(text: &str) -> Result<Self, ParsingError> {
        let mut words = text.split(' ');
        let first = words.next().unwrap_or_default();
        // Only what `shown.lua` writes contains a colon or is this word; the other words are numbers.
        let holder = || {
            let last = text.rsplit(' ').next().unwrap_or_default();
            Shown::of(last).filter(|_| last.contains(':') || last == "foreign")
        };
        if let Ok(fence) = first.parse() {
            let answer = Answer::Granted { fence, others_wait: false };
            return Ok(Self { answer: Some(answer), time: Some(fence) });
        }
        let mut next = || words.next().ok_or("too short");
        let answer = match first {
            "granted" => Some(Answer::Granted { fence: number(next()?)?, others_wait: next()? == "1" }),
            "waiting" => {
                let (seen, rank, state) = (number(next()?)?, next()?, next()?);
                let (pttl_ms, hold) = (number(next()?)?, number(next()?)?);
                let standing = match state {
                    "0" => Standing::Held,
                    "1" => Standing::HeldByForeign { hold },
                    "2" => Standing::Open,
                    _ => return Err("an unknown standing".into()),
                };
                let rank = match rank {
                    "0" => Rank::Near,
                    "1" => Rank::First,
                    "2" => Rank::Far,
                    _ => return Err("an unknown rank".into()),
                };
                Some(Answer::Waiting(Waiting { seen, rank, standing, pttl_ms }, holder()))
            }
            "held" => Some(Answer::Held { pttl_ms: number(next()?)?, holder: holder() }),
            "revoked" => Some(Answer::Revoked),
            "gone" => return Ok(Self { answer: Some(Answer::Gone), time: None }),
            "late" => None,
            _ => return Err("an unknown word".into()),
        };
        Ok(Self { answer, time: Some(number(next()?)?) })
    }
}

fn number<T: FromStr>(word: &str) -> Result<T, ParsingError> {
    word.parse().map_err(|_| "not a number".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TimedAnswer, ParsingError> {
        TimedAnswer::from_redis_value(Value::BulkString(text.into()))
    }

    #[test]
    fn answers_are_read_and_others_refused() {
        let granted = |fence, others_wait| Some(Answer::Granted { fence, others_wait });
        let waiting = Waiting {
            seen: 8,
            rank: Rank::First,
            standing: Standing::HeldByForeign { hold: 5 },
            pttl_ms: -1,
        };
        for (text, answer, time) in [
            ("1700000000000000", granted(1_700_000_000_000_000, false), Some(1_700_000_000_000_000)),
            ("granted 8 1 7", granted(8, true), Some(7)),
            ("waiting 8 1 1 -1 5 7", Some(Answer::Waiting(waiting, None)), Some(7)),
            ("waiting 8 1 1 -1 5 7 foreign", Some(Answer::Waiting(waiting, Shown::of("foreign"))), Some(7)),
            ("held 30000 7", Some(Answer::Held { pttl_ms: 30_000, holder: None }), Some(7)),
            (
                "held 30000 7 x:a,1@b:8!",
                Some(Answer::Held { pttl_ms: 30_000, holder: Shown::of("x:a,1@b:8!") }),
                Some(7),
            ),
            ("revoked 7", Some(Answer::Revoked), Some(7)),
            ("gone", Some(Answer::Gone), None),
            ("late 7", None, Some(7)),
        ] {
            assert_eq!(read(text).expect("an answer"), TimedAnswer { answer, time }, "{text}");
        }
        for other in [
            "",
            "granted",
            "granted 8 1",
            "waiting 8 1 3 -1 0 7",
            "waiting 8 3 0 -1 0 7",
            "waiting 8 1 0 -1 -5 7",
            "held x 7",
            "hello 7",
        ] {
            assert!(read(other).is_err(), "{other}");
        }
        assert!(TimedAnswer::from_redis_value(Value::Nil).is_err());
    }
}
