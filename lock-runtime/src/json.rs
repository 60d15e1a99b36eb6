//! A lock as operators see it, as JSON: for the page of lock-tower, and for other programs that show locks.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use crate::{LockHolder, LockWaiter, backend::LockState};

/// Returns a JSON object about a lock:
///
/// ```json
/// {"key":"user:42","mode":"exclusive",
///  "holders":[{"client":"shop:71@web-2","label":"/pay/{id}","since":"2026-11-28T09:54:04.120Z","remaining_seconds":28.4,
///              "never_expires":false,"token":"118","foreign":false,"revoked":false}],
///  "waiters":[{"client":"shop:80@web-3","label":null}]}
/// ```
///
/// What is not known is `null`: also the waiters, if none is shown and `knows_waiters` is false. The token is a text, because
/// its 64 bits do not fit into a number of JavaScript.
#[must_use]
pub fn lock(state: &LockState, knows_waiters: bool) -> String {
    let mut json = String::from(r#"{"key":"#);
    text(&mut json, Some(state.key.as_str()));
    json.push_str(r#","mode":"#);
    text(&mut json, state.mode.map(crate::backend::Mode::name));
    json.push_str(r#","holders":"#);
    list(&mut json, &state.holders, holder);
    json.push_str(r#","waiters":"#);
    if knows_waiters || !state.waiters.is_empty() {
        list(&mut json, &state.waiters, waiter);
    } else {
        json.push_str("null");
    }
    json.push('}');
    json
}

fn holder(json: &mut String, holder: &LockHolder) {
    json.push_str(r#"{"client":"#);
    text(json, holder.client());
    json.push_str(r#","label":"#);
    text(json, holder.label());
    json.push_str(r#","since":"#);
    text(json, holder.since().map(timestamp).as_deref());
    let lasts = holder.remaining() == Some(Duration::MAX);
    match holder.remaining().filter(|_| !lasts) {
        Some(left) => _ = write!(json, r#","remaining_seconds":{:.3}"#, left.as_secs_f64()),
        None => json.push_str(r#","remaining_seconds":null"#),
    }
    let _ = write!(json, r#","never_expires":{lasts},"token":"#);
    text(json, holder.token().map(|token| token.get().to_string()).as_deref());
    let _ = write!(json, r#","foreign":{},"revoked":{}}}"#, holder.is_foreign(), holder.is_revoked());
}

fn waiter(json: &mut String, waiter: &LockWaiter) {
    json.push_str(r#"{"client":"#);
    text(json, waiter.client());
    json.push_str(r#","label":"#);
    text(json, waiter.label());
    json.push('}');
}

fn list<T>(json: &mut String, items: &[T], each: impl Fn(&mut String, &T)) {
    json.push('[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            json.push(',');
        }
        each(json, item);
    }
    json.push(']');
}

/// Appends a text, or `null`.
pub fn text(json: &mut String, text: Option<&str>) {
    match text {
        None => json.push_str("null"),
        Some(text) => {
            json.push('"');
            escape(json, text);
            json.push('"');
        }
    }
}

/// Appends `text` as the inside of a JSON string (RFC 8259 §7).
pub(crate) fn escape(json: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
}

/// Returns a moment in UTC, as in RFC 3339. A moment before 1970 is shown as the beginning of 1970.
#[must_use]
pub fn timestamp(moment: SystemTime) -> String {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Howard Hinnant's `civil_from_days`, in years that begin in March.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FencingToken, LockKey};

    #[test]
    fn a_lock_has_every_field_and_stays_inside_its_strings() {
        let holder = LockHolder::new()
            .with_client("shop:1@web\"2\\")
            .with_label("a\nb</script>")
            .with_since(Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_859_644_120)))
            .with_remaining(Some(Duration::from_micros(28_400_400)))
            .with_token(FencingToken::from_number(u64::MAX >> 1))
            .revoked();
        let foreign = LockHolder::new().with_remaining(Some(Duration::MAX)).foreign();
        let key = LockKey::new("user:4\"2").expect("valid");
        let mut state = LockState::held(key, holder)
            .with_waiters(vec![LockWaiter::new(), LockWaiter::new().with_label("w").with_client("c")]);
        state.holders.push(foreign);
        assert_eq!(
            lock(&state, false),
            concat!(
                r#"{"key":"user:4\"2","mode":"exclusive","holders":["#,
                r#"{"client":"shop:1@web\"2\\","label":"a\u000ab</script>","since":"2026-11-28T09:54:04.120Z","#,
                r#""remaining_seconds":28.400,"never_expires":false,"token":"9223372036854775807","#,
                r#""foreign":false,"revoked":true},"#,
                r#"{"client":null,"label":null,"since":null,"remaining_seconds":null,"never_expires":true,"#,
                r#""token":null,"foreign":true,"revoked":false}],"#,
                r#""waiters":[{"client":null,"label":null},{"client":"c","label":"w"}]}"#,
            )
        );
        let free = LockState::free(LockKey::new("k").expect("valid"));
        assert_eq!(lock(&free, true), r#"{"key":"k","mode":null,"holders":[],"waiters":[]}"#);
        assert_eq!(lock(&free, false), r#"{"key":"k","mode":null,"holders":[],"waiters":null}"#);
    }

    #[test]
    fn text_stays_inside_its_string() {
        let mut json = String::new();
        escape(&mut json, "a\"b\\c\nd\u{1f}é\u{7f}");
        assert_eq!(json, "a\\\"b\\\\c\\u000ad\\u001fé\u{7f}");
    }

    #[test]
    fn moments_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_704_067_199, "2023-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }
}
