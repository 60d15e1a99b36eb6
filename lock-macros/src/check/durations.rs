//! The options whose values are durations.

use std::{ops::RangeInclusive, time::Duration};

use syn::{Error, Expr, LitStr, Result};

use crate::{args::Setting, duration};

/// The bounds of `ttl`. The manager has the same ones, and checks a `ttl` that is computed at run time.
const TTL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);

/// The bounds of `once_per`. The lock has the same ones, and checks a period that is computed at run time.
const PERIOD: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(31 * 24 * 60 * 60);

pub(crate) enum Length {
    Fixed {
        /// [`Duration::MAX`] means no limit.
        length: Duration,
        text: LitStr,
    },
    Code(Expr),
}

pub(crate) enum Wait {
    AtMost(Length),
    Forever,
}

impl Length {
    /// The expression that is evaluated at run time, if there is one.
    pub(crate) fn code(&self) -> Option<&Expr> {
        match self {
            Self::Fixed { .. } => None,
            Self::Code(code) => Some(code),
        }
    }

    fn read(setting: Setting) -> Result<Self> {
        Ok(match setting {
            Setting::Code(code) => Self::Code(code),
            Setting::Text(text) => {
                let length =
                    duration::parse(&text.value()).map_err(|error| Error::new(text.span(), error))?;
                Self::Fixed { length, text }
            }
        })
    }
}

impl Wait {
    /// The expression that is evaluated at run time, if there is one.
    pub(crate) fn code(&self) -> Option<&Expr> {
        match self {
            Self::AtMost(length) => length.code(),
            Self::Forever => None,
        }
    }
}

/// Returns the text if it is `forever`.
fn forever(setting: &Setting) -> Option<&LitStr> {
    match setting {
        Setting::Text(text) if text.value() == "forever" => Some(text),
        _ => None,
    }
}

fn or_forever(error: &Error) -> Error {
    Error::new(error.span(), format!("{error}; or \"forever\""))
}

pub(super) fn ttl(setting: Setting) -> Result<Length> {
    if let Some(text) = forever(&setting) {
        return Err(Error::new(
            text.span(),
            "a lease cannot last forever, or a crash would keep the lock: leave `ttl` out; the lease is renewed while \
             the body runs",
        ));
    }
    let ttl = Length::read(setting)?;
    match &ttl {
        Length::Fixed { length, text } if !TTL.contains(length) => Err(Error::new(
            text.span(),
            format!("`ttl` is at least \"100ms\" and at most \"24h\", not {:?}", text.value()),
        )),
        _ => Ok(ttl),
    }
}

pub(super) fn wait(setting: Setting) -> Result<Wait> {
    if forever(&setting).is_some() {
        return Ok(Wait::Forever);
    }
    Length::read(setting).map(Wait::AtMost).map_err(|error| or_forever(&error))
}

pub(super) fn max_hold(setting: Setting) -> Result<Length> {
    if let Some(text) = forever(&setting) {
        return Ok(Length::Fixed { length: Duration::MAX, text: text.clone() });
    }
    not_zero(
        Length::read(setting).map_err(|error| or_forever(&error))?,
        "the lock would be lost at once: write how long it may be held, or \"forever\"",
    )
}

pub(super) fn hold_at_least(setting: Setting) -> Result<Length> {
    if let Some(text) = forever(&setting) {
        return Err(Error::new(
            text.span(),
            "a lock that is never released is useless: write the shortest time to hold it",
        ));
    }
    not_zero(Length::read(setting)?, "a minimum of zero has no effect: leave `hold_at_least` out")
}

pub(super) fn once_per(setting: Setting) -> Result<Length> {
    let period = Length::read(setting)?;
    match &period {
        Length::Fixed { length, text } if !PERIOD.contains(length) => Err(Error::new(
            text.span(),
            format!("`once_per` is at least \"1s\" and at most 31 days (\"744h\"), not {:?}", text.value()),
        )),
        _ => Ok(period),
    }
}

fn not_zero(length: Length, message: &str) -> Result<Length> {
    match &length {
        Length::Fixed { length: Duration::ZERO, text } => Err(Error::new(text.span(), message)),
        _ => Ok(length),
    }
}
