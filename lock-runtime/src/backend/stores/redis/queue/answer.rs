//! The scripts' answers to a request for a lock.

use redis::{FromRedisValue, ParsingError, Value};

use super::{super::net::server_clock::ServerClock, place::Standing};
use crate::time::clock::Instant;

/// An answer of the acquire script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted { fence: u64, others_wait: bool },
    Waiting(Waiting),
    Held { pttl_ms: i64 },
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) seen: u64,
    pub(crate) first: bool,
    pub(crate) standing: Standing,
    pub(crate) pttl_ms: i64,
}

/// An answer, `None` if the request came too late, with the server's time if the server gave it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Told {
    answer: Option<Answer>,
    time: Option<u64>,
}

impl Told {
    /// Returns the answer, which has just come to a request sent at `sent`; `clock` learns the server's time from it.
    pub(crate) fn learn(self, sent: Instant, clock: &ServerClock) -> Option<Answer> {
        match (self.time, &self.answer) {
            (Some(time), Some(_)) => clock.learn(sent, Instant::now(), time),
            (Some(time), None) => clock.replace(Instant::now(), time),
            (None, _) => {}
        }
        self.answer
    }
}

impl FromRedisValue for Told {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let Value::Array(parts) = value else {
            let fence = u64::from_redis_value(value)?;
            let answer = Answer::Granted { fence, others_wait: false };
            return Ok(Self { answer: Some(answer), time: Some(fence) });
        };
        let mut parts = parts.into_iter();
        let mut next = || parts.next().ok_or_else(|| ParsingError::from("too short"));
        let word = String::from_redis_value(next()?)?;
        let answer = match word.as_str() {
            "granted" => Some(Answer::Granted {
                fence: u64::from_redis_value(next()?)?,
                others_wait: u8::from_redis_value(next()?)? == 1,
            }),
            "waiting" => {
                let seen = u64::from_redis_value(next()?)?;
                let first = u8::from_redis_value(next()?)? == 1;
                let state = u8::from_redis_value(next()?)?;
                let pttl_ms = i64::from_redis_value(next()?)?;
                let hold = u32::from_redis_value(next()?)?;
                let standing = match state {
                    0 => Standing::Held,
                    1 => Standing::HeldByForeign { hold },
                    2 => Standing::Open,
                    _ => return Err("an unknown standing".into()),
                };
                Some(Answer::Waiting(Waiting { seen, first, standing, pttl_ms }))
            }
            "held" => Some(Answer::Held { pttl_ms: i64::from_redis_value(next()?)? }),
            "gone" => return Ok(Self { answer: Some(Answer::Gone), time: None }),
            "late" => None,
            _ => return Err("an unknown word".into()),
        };
        Ok(Self { answer, time: Some(u64::from_redis_value(next()?)?) })
    }
}
