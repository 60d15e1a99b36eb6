//! The transition system: which steps are possible in each state, and what they do.

use std::{
    fmt::{self, Display},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use stateright::{Model, Property};

use super::state::{Call, Message, Phase, Place, State, name};
use crate::search::Searched;

/// At most one client believes that it holds, or has a transaction that is protected.
pub(crate) const X: &str = "X: one believer";
/// A token is larger than all tokens of earlier grants.
pub(crate) const T: &str = "T: tokens rise";

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
}

#[derive(Debug)]
pub(crate) struct Row {
    /// Whether the third client waits, too, instead of making single attempts.
    all_wait: bool,
    broken: Option<Break>,
    expanded: AtomicUsize,
    /// Grants that were believed by a notification.
    notified: AtomicUsize,
    /// Those that the server had not made.
    forged: AtomicUsize,
    /// Renewals of those.
    found_out: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Ask(u8),
    Renew(u8),
    CheckIn(u8),
    EndTransaction,
    Release(u8, Call),
    Execute(Message),
    /// The same, and the answer is lost.
    ExecuteUnanswered(Message),
    Arrive(Message),
    /// The notification arrives at this client.
    Notify {
        client: u8,
        secret: u8,
        version: u8,
    },
    Forge {
        client: u8,
        secret: u8,
        version: u8,
    },
    Tick,
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask(client) => write!(f, "{} asks", name(client)),
            Self::Renew(client) => write!(f, "{} renews", name(client)),
            Self::CheckIn(client) => write!(f, "a transaction checks in with {}", name(client)),
            Self::EndTransaction => f.write_str("the transaction ends"),
            Self::Release(client, call) => write!(f, "{} ends its hold or attempt: {call:?}", name(client)),
            Self::Execute(message) => write!(f, "the server executes {message:?}"),
            Self::ExecuteUnanswered(message) => write!(f, "the server executes {message:?} unanswered"),
            Self::Arrive(message) => write!(f, "{message:?} arrives"),
            Self::Notify { client, secret, version } => {
                write!(f, "{} is notified of version {version} by {}", name(client), name(secret))
            }
            Self::Forge { client, secret, version } => {
                write!(f, "the reader notifies {} of version {version} by {}", name(client), name(secret))
            }
            Self::Tick => f.write_str("a tick passes"),
        }
    }
}

impl Row {
    pub(crate) fn new(all_wait: bool, broken: Option<Break>) -> Self {
        let count = AtomicUsize::default;
        Self { all_wait, broken, expanded: count(), notified: count(), forged: count(), found_out: count() }
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
        client < 2 || self.all_wait
    }

    fn execute(&self, s: &mut State, client: u8, call: Call, age: u8, is_answered: bool) {
        let is_held = s.holder.is_some() && s.expires > 0;
        let is_ours = s.holder == Some(client);
        match call {
            Call::Acquire if s.open.is_none() && (!is_held || is_ours) => {
                if !(is_held && is_ours) {
                    Self::mint(s);
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
            // The lease has ended, and the row is locked.
            Call::Acquire if !is_held => {}
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
                let is_renewed = is_held && is_ours;
                if is_renewed {
                    s.expires = TTL;
                }
                if let Phase::Holding { version, valid: 1.. } = s.client(client).phase {
                    if !is_renewed {
                        self.found_out.fetch_add(1, Relaxed);
                    }
                    let valid = if is_renewed { TTL - age } else { 0 };
                    s.client(client).phase = Phase::Holding { version, valid };
                }
            }
            Call::Free if is_ours => s.holder = None,
            Call::Free => {}
            Call::HandOver { shows_secret } if is_ours => match s.next.take() {
                Some((next, 1..)) if s.expires > 0 => {
                    Self::mint(s);
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

    fn mint(s: &mut State) {
        s.clock += 1;
        s.version = s.clock.max(s.version + 1);
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
            let count = if s.holder == Some(client) { &self.notified } else { &self.forged };
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
            Message::Statement { .. } | Message::Granted { .. } => true,
        });
        s.network.sort_unstable();
        s.network.dedup();
    }
}

impl Model for Row {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(TTL)]
    }

    fn actions(&self, s: &State, steps: &mut Vec<Step>) {
        self.expanded.fetch_add(1, Relaxed);
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
                Message::Granted { .. } => {}
            }
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
                        self.execute(&mut s, client, call, age, is_answered);
                    }
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
        ]
    }
}

impl Searched for Row {
    fn expanded(&self) -> usize {
        self.expanded.load(Relaxed)
    }

    fn figures(&self) -> String {
        let [notified, forged, found_out] =
            [&self.notified, &self.forged, &self.found_out].map(|count| count.load(Relaxed));
        format!("grants by a notification: {notified}, and {forged} that were forged; {found_out} found out")
    }

    fn must_occur(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("grant by a notification", self.notified.load(Relaxed)),
            ("forged grant that is believed", self.forged.load(Relaxed)),
            ("forged grant that its renewal finds out", self.found_out.load(Relaxed)),
        ]
    }
}
