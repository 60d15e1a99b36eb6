//! The properties: what must hold in each state.

use stateright::Property;

use super::{
    redlock::Redlock,
    state::{Node, State},
};

/// At most one client believes that it holds.
pub(crate) const X: &str = "X: one believer";
/// No two grants have one token.
pub(crate) const T1: &str = "T1: tokens are distinct";
/// A token is larger than every token that was granted before it was asked for.
pub(crate) const T2: &str = "T2: tokens rise";
/// An extension that was sent after a newer grant fails.
pub(crate) const E: &str = "E: a newer grant ends a hold";
/// An extension that was sent after a majority had marked its hold fails.
pub(crate) const V: &str = "V: a revoked hold ends";
/// A mark is on the hold for which it was meant, and on no other.
pub(crate) const M: &str = "M: only a revoked hold is marked";

pub(crate) fn all() -> Vec<Property<Redlock>> {
    vec![
        Property::always(X, |_, s: &State| s.believers() <= 1),
        Property::always(T1, |_, s: &State| !s.violations.twin),
        Property::always(T2, |_, s: &State| !s.violations.fell),
        Property::always(E, |_, s: &State| !s.violations.outlived),
        Property::always(V, |_, s: &State| !s.violations.revived),
        Property::always(M, |_, s: &State| !s.nodes.iter().any(Node::is_marked_by_mistake)),
    ]
}
