//! Options of one attribute that contradict each other. The manager's defaults are not known here.

use proc_macro2::Span;
use syn::{Error, LitStr, Result};

use super::{Keys, Length, Plan, Wait};
use crate::args::OnContention;

/// Refuses contradictions; `contention` is the location of the value of `on_contention`.
pub(super) fn check(plan: &Plan, contention: Option<Span>) -> Result<()> {
    let renewed = plan.auto_renew.as_ref().is_none_or(|on| on.value);
    if let Some((least, most)) = longer(plan.hold_at_least.as_ref(), plan.max_hold.as_ref()) {
        return refuse(
            least,
            format!("`hold_at_least` is longer than `max_hold`, which is {most:?}: no lock can meet both"),
        );
    }
    if let Some((ttl, most)) = longer(plan.ttl.as_ref(), plan.max_hold.as_ref()) {
        return refuse(
            ttl,
            format!(
                "`ttl` is longer than `max_hold`, which is {most:?}: after a crash the lock would stay held for longer \
                 than any section may hold it; make `ttl` shorter or `max_hold` longer"
            ),
        );
    }
    if !renewed && let Some((least, ttl)) = longer(plan.hold_at_least.as_ref(), plan.ttl.as_ref()) {
        return refuse(
            least,
            format!(
                "`hold_at_least` is longer than `ttl`, which is {ttl:?}, and `auto_renew = false` ends the lock after \
                 `ttl`: make `ttl` longer, or let the lease be renewed"
            ),
        );
    }
    if !renewed && let Some((most, ttl)) = longer(plan.max_hold.as_ref(), plan.ttl.as_ref()) {
        return refuse(
            most,
            format!(
                "`max_hold` is longer than `ttl`, which is {ttl:?}, and `auto_renew = false` ends the lock after \
                 `ttl`: leave `max_hold` out"
            ),
        );
    }
    if let (Keys::Several(keys), Some(_)) = (&plan.keys, &plan.once_per) {
        let place = keys.first().map_or_else(Span::call_site, |key| key.span);
        return Err(Error::new(
            place,
            "`once_per` needs a single lock, whose periods are counted: write `key = …`, or call `LockManager::all` in the \
             body for further locks",
        ));
    }
    // A period that has been run is skipped at once.
    if let (OnContention::Skip, Some(span), Some(Wait::Forever), None) =
        (plan.on_contention, contention, &plan.wait, &plan.once_per)
    {
        return Err(Error::new(
            span,
            "nothing is ever skipped under `wait = \"forever\"`: write how long to wait, such as `wait = \"0s\"`",
        ));
    }
    Ok(())
}

/// Returns the texts of both lengths if `first` is longer than `second` and both are literals.
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
