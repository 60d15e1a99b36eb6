//! The properties: what must hold in each state.

use std::sync::atomic::Ordering::Relaxed;

use stateright::Property;

use super::{
    handover::Handover,
    state::{Client, Phase, State, Violation},
};

/// At most one client believes that it holds.
pub(crate) const S1: &str = "S1: one believer";
/// The believed tokens rise strictly, in the order in which they are believed; no client believes in an older token
/// than the last.
pub(crate) const S2: &str = "S2: tokens rise";
/// Claim, renewal and release touch nothing but their own owner's hold.
pub(crate) const S3: &str = "S3: only the own hold is touched";
/// After a leave or a release was executed nothing of its owner is left on the server.
pub(crate) const R1: &str = "R1: a release leaves nothing behind";
/// An owner is on the server once: as the holder or in one place.
pub(crate) const R2: &str = "R2: an owner is there once";
/// After a release no live waiter stands before a free key, unless it was left open and the first was notified.
pub(crate) const P: &str = "P: a release wakes a waiter";
/// A release that is executed after the limits of all acquisitions of its owner leaves nothing behind, ever after.
pub(crate) const R3: &str = "R3: nothing comes back after its limit";
/// From an open release to the end of its window no call of ours takes the lock or hands it over.
pub(crate) const W: &str = "W: an open window is kept";
/// A hold that an operator has revoked is never made longer.
pub(crate) const V: &str = "V: a revoked hold ends";
/// From every state, whatever is lost and whichever client dies, all live waiters are served within a bound.
pub(crate) const L: &str = "L: every waiter is served";

pub(crate) fn all() -> Vec<Property<Handover>> {
    vec![
        Property::always(S1, |_, s: &State| s.believers() <= 1),
        Property::always(S2, |model: &Handover, s: &State| {
            let current = |client: &Client| match client.phase {
                Phase::Holding { valid: 1.., fence, seq } => model.token(fence, seq) == s.top,
                _ => true,
            };
            s.violation != Some(Violation::TokenFell) && s.clients[..model.variant.own()].iter().all(current)
        }),
        Property::always(S3, |_, s: &State| s.violation != Some(Violation::TouchedAnother)),
        Property::always(R1, |_, s: &State| s.violation != Some(Violation::LeftBehind)),
        Property::always(R2, |_, s: &State| {
            let mut owners: Vec<_> = s.queue.iter().map(|place| place.owner).collect();
            owners.extend(s.holder.as_ref().map(|holder| holder.owner));
            owners.sort_unstable();
            owners.windows(2).all(|pair| pair[0] != pair[1])
        }),
        Property::always(R3, |_, s: &State| s.cleared.iter().all(|owner| !s.is_on_server(*owner))),
        Property::always(W, |_, s: &State| s.violation != Some(Violation::WindowTaken)),
        Property::always(V, |_, s: &State| s.violation != Some(Violation::RevokedExtended)),
        Property::always(P, |_, s: &State| s.violation != Some(Violation::WakeUpLost)),
        Property::always(L, |model: &Handover, s: &State| {
            model.longest_wait(s).is_some_and(|wait| {
                model.tally.longest_wait.fetch_max(wait, Relaxed);
                wait <= model.wait_bound()
            })
        }),
    ]
}
