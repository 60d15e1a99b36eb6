//! Options that contradict each other, as far as they are written down; the manager knows the others.

use proc_macro2::Span;
use syn::{Error, LitStr, Result};

use super::{Length, Plan, Wait};
use crate::args::OnContention;

/// `contention` is where `on_contention` says what it says.
pub(super) fn check(plan: &Plan, contention: Option<Span>) -> Result<()> {
    let renewed = plan.auto_renew.as_ref().is_none_or(|on| on.value);
    if let Some((least, most)) = longer(plan.hold_at_least.as_ref(), plan.max_hold.as_ref()) {
        return refuse(
            least,
            format!("`hold_at_least` is longer than `max_hold`, which is {most:?}: no lock can be both"),
        );
    }
    if !renewed && let Some((least, ttl)) = longer(plan.hold_at_least.as_ref(), plan.ttl.as_ref()) {
        return refuse(
            least,
            format!(
                "`hold_at_least` is longer than `ttl`, which is {ttl:?}, and the lock ends with it under \
                 `auto_renew = false`: make `ttl` longer, or let it be renewed"
            ),
        );
    }
    if !renewed && let Some((most, ttl)) = longer(plan.max_hold.as_ref(), plan.ttl.as_ref()) {
        return refuse(
            most,
            format!(
                "`max_hold` is longer than `ttl`, which is {ttl:?}, and the lock ends with that under \
                 `auto_renew = false`: leave `max_hold` out"
            ),
        );
    }
    if let (OnContention::Skip, Some(span), Some(Wait::Forever)) =
        (plan.on_contention, contention, &plan.wait)
    {
        return Err(Error::new(
            span,
            "nothing is ever skipped under `wait = \"forever\"`: write how long to wait, such as `wait = \"0s\"`",
        ));
    }
    Ok(())
}

/// The texts of two lengths of which the first is the longer one.
fn longer<'a>(first: Option<&'a Length>, second: Option<&'a Length>) -> Option<(&'a LitStr, String)> {
    match (first?, second?) {
        (Length::Fixed { length: first, text }, Length::Fixed { length: second, text: limit })
            if first > second =>
        {
            Some((text, limit.value()))
        }
        _ => None,
    }
}

fn refuse(place: &LitStr, message: String) -> Result<()> {
    Err(Error::new(place.span(), message))
}
