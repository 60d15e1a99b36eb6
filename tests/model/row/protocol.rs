//! The transition system: which steps are possible in each state, and what they do.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use stateright::{Model, Property};

use super::{
    state::{Call, Message, Phase, Place, State},
    step::Step,
};
use crate::search::Searched;

/// At most one client believes that it holds, or has a transaction that is protected.
pub(crate) const X: &str = "X: one believer";
/// A token is larger than all tokens of earlier grants.
pub(crate) const T: &str = "T: tokens rise";
/// Until its holder's release or the end of its lease, no statement makes a revoked hold longer, or grants the lock to
/// another client.
pub(crate) const V: &str = "V: a revoked hold ends";
/// No hold is revoked but the hold that the operator has named.
pub(crate) const N: &str = "N: only the named hold is revoked";

/// Lengths in ticks: of a lease that was asked for, of one that a release grants, of a place, and of the time in which an
/// acquisition is executed.
const TTL: u8 = 3;
const LEASE: u8 = 3;
const PLACE: u8 = 2;
const LIMIT: u8 = 1;

/// A rule that a mutant breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// The row shows the secret of its holder.
    SecretInTheRow,
    /// A version is believed although the clock is behind it.
    AnyVersion,
    /// A grant is believed beyond the end of the holder's lease.
    BeyondTheLease,
    /// A grant is believed beyond the end of the place.
    BeyondThePlace,
    /// A grant is dated by the answer to the request that proved the place.
    DatedByAnswer,
    /// A release that grants the lock to no client shows the secret.
    SecretInFree,
    /// The release that follows it does so while it may still be executed.
    SecretBesideFree,
    /// The release of a holder with an open transaction shows the secret.
    SecretOfCheckedIn,
    /// A waiter believes a version that a waiter before it may have believed.
    SeenWithoutTheClock,
    /// A renewal does not look whether the hold is revoked.
    RenewsRevoked,
    /// A request of the holder does not look whether the hold is revoked.
    GrantsRevoked,
    /// A revocation frees the lock, although its holder may still believe that it holds the lock.
    RevocationFrees,
    /// A revocation reaches any hold.
    RevokesUncompared,
    /// A mark counts for the next hold, too.
    MarkStays,
}

/// What the third client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Third {
    /// The third client makes single attempts.
    Tries,
    /// The third client waits.
    Waits,
    /// There is no third client.
    IsAbsent,
}

#[derive(Debug)]
pub(crate) struct Row {
    third: Third,
    /// Whether an operator may revoke a hold.
    revokes: bool,
    broken: Option<Break>,
    tally: Tally,
}

/// What has occurred so far.
#[derive(Debug, Default)]
struct Tally {
    expanded: AtomicUsize,
    /// Grants that were believed by a notification.
    notified: AtomicUsize,
    /// Those that the server had not made.
    forged: AtomicUsize,
    /// Renewals of those.
    found_out: AtomicUsize,
    /// Renewals that were refused because the hold is revoked.
    refused: AtomicUsize,
    /// Requests that were refused although the client itself has the lock, because its hold is revoked.
    asked_again: AtomicUsize,
    /// Releases of revoked holds that grant the lock to the next holder.
    handed_over: AtomicUsize,
    /// Revocations that find a later hold.
    missed: AtomicUsize,
}

impl Row {
    pub(crate) fn new(third: Third, broken: Option<Break>) -> Self {
        Self { third, revokes: false, broken, tally: Tally::default() }
    }

    /// Adds an operator, who revokes one hold.
    pub(crate) fn beside_operator(self) -> Self {
        Self { revokes: true, ..self }
    }

    fn breaks(&self, rule: Break) -> bool {
        self.broken == Some(rule)
    }

    fn steps_of(&self, s: &State, id: u8, steps: &mut Vec<Step>) {
        let client = &s.clients[usize::from(id)];
        let hand_over = |s: &State| {
            let beside_free =
                s.has_sent(id, |call| call == Call::Free) && !self.breaks(Break::SecretBesideFree);
            let checked_in = client.has_checked_in && !self.breaks(Break::SecretOfCheckedIn);
            Call::HandOver { shows_secret: !beside_free && !checked_in }
        };
        match client.phase {
            Phase::Idle if client.asks_left == 0 => {}
            Phase::Idle => steps.push(Step::Ask(id)),
            Phase::Asking(place) => {
                if client.asks_left > 0 && !s.has_sent(id, |call| call == Call::Acquire) {
                    steps.push(Step::Ask(id));
                }
                if self.waits(id) {
                    steps.push(Step::Release(id, hand_over(s)));
                }
                if let Some(Place { holder, seen, .. }) = place {
                    let beyond = if self.breaks(Break::AnyVersion) { 8 } else { 0 };
                    for version in seen + 1..=(seen + 1).max(s.clock + beyond) {
                        if s.knows(holder) {
                            steps.push(Step::Forge { client: id, secret: holder, version });
                        }
                        if s.network.contains(&Message::Granted { secret: holder, version }) {
                            steps.push(Step::Notify { client: id, secret: holder, version });
                        }
                    }
                }
            }
            // The third client only has to be there.
            Phase::Holding { .. } if !self.waits(id) => {}
            Phase::Holding { version, valid } => {
                if valid > 0 && !client.has_renewed {
                    steps.push(Step::Renew(id));
                }
                let is_ours = s.holder == Some(id) && s.version == version;
                if valid > 0 && is_ours && !client.has_checked_in {
                    steps.push(Step::CheckIn(id));
                }
                steps.extend([Step::Release(id, Call::Free), Step::Release(id, hand_over(s))]);
            }
            Phase::Ended if client.releases_left > 0 && s.has_sent(id, |call| call != Call::Acquire) => {
                steps.push(Step::Release(id, hand_over(s)));
            }
            Phase::Ended => {}
        }
    }

    /// Whether the client waits, or has waited, for the lock.
    fn waits(&self, client: u8) -> bool {
        client < 2 || self.third == Third::Waits
    }

    fn execute(&self, s: &mut State, client: u8, call: Call, age: u8, is_answered: bool) {
        let is_held = s.holder.is_some() && s.expires > 0;
        let is_ours = s.holder == Some(client);
        let is_revoked = is_held && is_ours && s.is_revoked;
        let refuses = |unless| is_revoked && !self.breaks(unless);
        match call {
            Call::Acquire if s.open.is_none() && (!is_held || is_ours && !refuses(Break::GrantsRevoked)) => {
                if !(is_held && is_ours) {
                    self.mint(s);
                }
                (s.holder, s.expires) = (Some(client), TTL);
                if s.next.is_some_and(|(next, _)| next == client) {
                    s.next = None;
                }
                if is_answered && matches!(s.client(client).phase, Phase::Asking(_)) {
                    let version = s.version;
                    Self::believe(s, client, version, TTL.saturating_sub(age));
                }
            }
            // The row is locked, or the client is itself its holder.
            Call::Acquire if !is_held || is_ours => {
                self.tally.asked_again.fetch_add(usize::from(is_revoked), Relaxed);
            }
            Call::Acquire => {
                if !self.waits(client) || s.next.is_some_and(|(next, until)| next != client && until > 0) {
                    return;
                }
                s.next = Some((client, PLACE));
                let mut sure = LEASE;
                if !self.breaks(Break::BeyondThePlace) {
                    sure = sure.min(PLACE);
                }
                if !self.breaks(Break::BeyondTheLease) {
                    sure = sure.min(s.expires);
                }
                let holder = s.holder.expect("it is held");
                // A grant that a waiter before this one believed has a version up to the clock.
                let seen =
                    if self.breaks(Break::SeenWithoutTheClock) { s.version } else { s.version.max(s.clock) };
                s.send(Message::Placed { client, place: Place { holder, seen, sure }, age });
            }
            Call::Renew => {
                let is_renewed = is_held && is_ours && !refuses(Break::RenewsRevoked);
                if is_renewed {
                    s.expires = TTL;
                }
                if let Phase::Holding { version, valid: 1.. } = s.client(client).phase {
                    if !is_renewed {
                        let count = if is_revoked { &self.tally.refused } else { &self.tally.found_out };
                        count.fetch_add(1, Relaxed);
                    }
                    let valid = if is_renewed { TTL - age } else { 0 };
                    s.client(client).phase = Phase::Holding { version, valid };
                }
            }
            Call::Free if is_ours => s.holder = None,
            Call::Free => {}
            Call::HandOver { shows_secret } if is_ours => match s.next.take() {
                Some((next, 1..)) if s.expires > 0 => {
                    self.tally.handed_over.fetch_add(usize::from(s.is_revoked), Relaxed);
                    self.mint(s);
                    (s.holder, s.expires) = (Some(next), LEASE);
                    if shows_secret {
                        s.send(Message::Granted { secret: client, version: s.version });
                    }
                }
                _ => s.holder = None,
            },
            Call::HandOver { .. } => {
                if s.next.is_some_and(|(next, _)| next == client) {
                    s.next = None;
                }
            }
        }
        if let Some(holder) = s.holder
            && self.breaks(Break::SecretInTheRow)
        {
            s.known |= 1 << holder;
        }
    }

    fn mint(&self, s: &mut State) {
        s.clock += 1;
        s.version = s.clock.max(s.version + 1);
        // The mark is the version of an earlier grant.
        s.is_revoked &= self.breaks(Break::MarkStays);
    }

    /// Executes a revocation. A transaction that has checked in does not lock the row against a revocation.
    fn revoke(&self, s: &mut State, version: u8) {
        let Some((_, held, _)) = s.hold() else { return };
        self.tally.missed.fetch_add(usize::from(held != version), Relaxed);
        if held == version || self.breaks(Break::RevokesUncompared) {
            s.is_revoked = true;
            if self.breaks(Break::RevocationFrees) {
                s.holder = None;
            }
        }
    }

    fn is_placed(&self, s: &mut State, client: u8, place: Place, age: u8) {
        if let Phase::Asking(_) = s.client(client).phase {
            let age = if self.breaks(Break::DatedByAnswer) { 0 } else { age };
            let place = Place { sure: place.sure.saturating_sub(age), ..place };
            s.client(client).phase = Phase::Asking(Some(place));
        }
    }

    fn believe(s: &mut State, client: u8, version: u8, valid: u8) {
        if valid == 0 {
            // It asks again.
            return;
        }
        s.client(client).phase = Phase::Holding { version, valid };
        s.fell |= version <= s.top;
        s.top = s.top.max(version);
        // Time passes before the next grant.
        s.clock += 1;
    }

    fn is_notified(&self, s: &mut State, client: u8, version: u8) {
        let Phase::Asking(Some(place)) = s.client(client).phase else { unreachable!("it waits") };
        if place.sure > 0 {
            let count = if s.holder == Some(client) { &self.tally.notified } else { &self.tally.forged };
            count.fetch_add(1, Relaxed);
            Self::believe(s, client, version, place.sure);
        }
    }

    fn tick(s: &mut State) {
        s.expires = s.expires.saturating_sub(1);
        if let Some((_, until)) = &mut s.next {
            *until = until.saturating_sub(1);
        }
        for client in &mut s.clients {
            match &mut client.phase {
                Phase::Asking(Some(Place { sure: left, .. })) | Phase::Holding { valid: left, .. } => {
                    *left = left.saturating_sub(1);
                }
                Phase::Idle | Phase::Asking(None) | Phase::Ended => {}
            }
        }
        s.network.retain_mut(|message| match message {
            Message::Statement { call: Call::Acquire, age, .. } => {
                *age += 1;
                *age <= LIMIT
            }
            // Their age makes no difference any more when it exceeds that of all leases.
            Message::Statement { call: Call::Renew, age, .. } | Message::Placed { age, .. } => {
                *age = (*age + 1).min(TTL);
                true
            }
            Message::Statement { .. } | Message::Granted { .. } | Message::Revoke { .. } => true,
        });
        s.network.sort_unstable();
        s.network.dedup();
    }
}

impl Model for Row {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(TTL, self.third != Third::IsAbsent)]
    }

    fn actions(&self, s: &State, steps: &mut Vec<Step>) {
        self.tally.expanded.fetch_add(1, Relaxed);
        for id in 0..3 {
            self.steps_of(s, id, steps);
        }
        for message in &s.network {
            match message {
                // A row that is locked is left as it is, and the statement is sent again.
                Message::Statement { call: Call::Free | Call::HandOver { .. }, .. } if s.open.is_some() => {}
                Message::Statement { call, .. } => {
                    steps.push(Step::Execute(*message));
                    if *call == Call::Acquire {
                        steps.push(Step::ExecuteUnanswered(*message));
                    }
                }
                Message::Placed { .. } => steps.push(Step::Arrive(*message)),
                Message::Revoke { .. } => steps.push(Step::Execute(*message)),
                Message::Granted { .. } => {}
            }
        }
        if let Some((_, version, _)) = s.hold()
            && self.revokes
            && s.named.is_none()
        {
            steps.push(Step::Revoke(version));
        }
        if s.open.is_some() {
            steps.push(Step::EndTransaction);
        }
        steps.push(Step::Tick);
    }

    fn next_state(&self, s: &State, step: Step) -> Option<State> {
        let mut s = s.clone();
        match step {
            Step::Ask(client) => {
                if s.client(client).phase == Phase::Idle {
                    s.client(client).phase = Phase::Asking(None);
                }
                s.client(client).asks_left -= 1;
                s.send(Message::Statement { client, call: Call::Acquire, age: 0 });
            }
            Step::Renew(client) => {
                s.client(client).has_renewed = true;
                s.send(Message::Statement { client, call: Call::Renew, age: 0 });
            }
            Step::CheckIn(client) => {
                s.client(client).has_checked_in = true;
                s.open = Some(client);
            }
            Step::Revoke(version) => {
                s.named = Some(version);
                s.send(Message::Revoke { version });
            }
            Step::EndTransaction => s.open = None,
            Step::Release(client, call) => {
                s.client(client).phase = Phase::Ended;
                s.client(client).releases_left -= 1;
                let shows = match call {
                    Call::Free => self.breaks(Break::SecretInFree),
                    Call::HandOver { shows_secret } => shows_secret,
                    Call::Acquire | Call::Renew => unreachable!("no release"),
                };
                s.known |= u8::from(shows) << client;
                s.send(Message::Statement { client, call, age: 0 });
            }
            Step::Execute(message) | Step::ExecuteUnanswered(message) | Step::Arrive(message) => {
                s.network.retain(|other| *other != message);
                let is_answered = matches!(step, Step::Execute(_));
                match message {
                    Message::Statement { client, call, age } => {
                        // Only the release of the holder may change a revoked hold.
                        let is_release = matches!(call, Call::Free | Call::HandOver { .. });
                        let must_stay = s.is_revoked && !(is_release && s.holder == Some(client));
                        let before = s.hold();
                        self.execute(&mut s, client, call, age, is_answered);
                        s.touched |= must_stay && before.is_some() && s.hold() != before;
                    }
                    Message::Revoke { version } => self.revoke(&mut s, version),
                    Message::Placed { client, place, age } => self.is_placed(&mut s, client, place, age),
                    Message::Granted { .. } => unreachable!("see `Step::Notify`"),
                }
            }
            Step::Notify { client, secret, version } => {
                s.network.retain(|other| *other != Message::Granted { secret, version });
                self.is_notified(&mut s, client, version);
            }
            Step::Forge { client, version, .. } => self.is_notified(&mut s, client, version),
            Step::Tick => Self::tick(&mut s),
        }
        s.drop_what_does_nothing();
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(X, |_, s: &State| s.believers() <= 1),
            Property::always(T, |_, s: &State| !s.fell),
            Property::always(V, |_, s: &State| !s.touched),
            Property::always(N, |_, s: &State| !s.is_revoked || s.named == Some(s.version)),
        ]
    }
}

impl Searched for Row {
    fn expanded(&self) -> usize {
        self.tally.expanded.load(Relaxed)
    }

    fn figures(&self) -> String {
        let Tally { notified, forged, found_out, refused, asked_again, .. } = &self.tally;
        let [notified, forged, found_out, refused, asked_again] =
            [notified, forged, found_out, refused, asked_again].map(|count| count.load(Relaxed));
        format!(
            "grants by a notification: {notified}, and {forged} that were forged; {found_out} found out; \
             {refused} renewals and {asked_again} requests for a revoked hold"
        )
    }

    fn must_occur(&self) -> Vec<(&'static str, usize)> {
        let Tally { notified, forged, found_out, refused, asked_again, handed_over, missed, .. } =
            &self.tally;
        [
            (true, "grant by a notification", notified),
            (true, "forged grant that is believed", forged),
            (true, "forged grant that its renewal finds out", found_out),
            (self.revokes, "refused renewal of a revoked hold", refused),
            (self.revokes, "request of a client whose own hold is revoked", asked_again),
            (self.revokes, "release of a revoked hold that grants the lock", handed_over),
            (self.revokes, "revocation that finds a later hold", missed),
        ]
        .into_iter()
        .filter(|(must, _, _)| *must)
        .map(|(_, what, count)| (what, count.load(Relaxed)))
        .collect()
    }
}
