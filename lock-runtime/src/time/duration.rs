//! Durations as people write them: `250ms`, `30s`, `1m30s`, `2h`.
//!
//! The attribute reads them at compile time and the layer at run time; this file is compiled for both.

use std::{error::Error, fmt, time::Duration};

/// The units, from the largest to the smallest, with their lengths in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The reason why a text is not a duration, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurationError(String);

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for DurationError {}

/// Parses whole numbers with the units `h`, `m`, `s` and `ms`, each at most once and the largest first.
///
/// Zero is a duration like any other; a caller that cannot use it has to refuse it.
///
/// # Errors
///
/// If `text` is anything else, or its duration in milliseconds does not fit a `u64`.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let invalid = || {
        DurationError(format!(
            "{text:?} is not a duration: write whole numbers with the units `h`, `m`, `s` and `ms`, the largest \
             first, such as \"250ms\", \"30s\", \"1m30s\" or \"2h\""
        ))
    };
    let too_long = || DurationError(format!("{text:?} is longer than can be counted in milliseconds"));

    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DurationError(format!("{text:?} has no unit: write \"{text}s\" or \"{text}ms\"")));
    }
    let mut millis = 0_u64;
    let mut units = UNITS.iter();
    let mut rest = text;
    loop {
        let (number, after) = split(rest, |byte| byte.is_ascii_digit());
        let (unit, after) = split(after, |byte| byte.is_ascii_alphabetic());
        // The iterator continues after the unit that was found, so none comes twice or after a smaller one.
        let (_, factor) = units.find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        if number.is_empty() {
            return Err(invalid());
        }
        // There are only digits, so `parse` can fail only on the size.
        let number: u64 = number.parse().map_err(|_| too_long())?;
        millis =
            number.checked_mul(*factor).and_then(|part| millis.checked_add(part)).ok_or_else(too_long)?;
        rest = after;
        if rest.is_empty() {
            return Ok(Duration::from_millis(millis));
        }
    }
}

/// Splits `text` after its longest prefix of bytes for which `is_part` holds.
fn split(text: &str, is_part: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().position(|byte| !is_part(byte)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn every_unit_and_their_combinations_are_read() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("1h2m3s4ms", 3_723_004),
            ("90m", 5_400_000),
            ("007s", 7_000),
            ("0s", 0),
            ("0ms", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_examples() {
        for text in [
            "", " ", "s", "30x", "30S", "1.5s", "-1s", "+1s", " 30s", "30s ", "1m 30s", "30sec", "1d",
            "30s1m", "1s1s", "1ms1s", "1s1", "1h30", "٣s", "30µs", "1_000ms",
        ] {
            assert_eq!(
                refusal(text),
                format!(
                    "{text:?} is not a duration: write whole numbers with the units `h`, `m`, `s` and `ms`, the \
                     largest first, such as \"250ms\", \"30s\", \"1m30s\" or \"2h\""
                )
            );
        }
    }

    #[test]
    fn a_bare_number_is_told_about_units() {
        assert_eq!(refusal("30"), r#""30" has no unit: write "30s" or "30ms""#);
    }

    #[test]
    fn overflow_is_refused_wherever_it_happens() {
        for text in ["99999999999999999999ms", "18446744073709551615s", "18446744073709551615ms"] {
            let largest = text == "18446744073709551615ms";
            assert_eq!(parse(text).is_ok(), largest, "{text}");
        }
        let sum = "5124095576030h18446744073709551615ms";
        assert_eq!(refusal(sum), format!("{sum:?} is longer than can be counted in milliseconds"));
    }
}
