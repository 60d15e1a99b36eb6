//! A client's part in a step: the requests it sends, and its reaction to answers, pushes and time.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    handover::Handover,
    state::{Call, Message, Mode, NEVER, Owner, Phase, Proof, Reply, Request, State, Violation},
    variant::{Break, Manner},
};

/// Upper bound on the owner tokens of one client in the system.
pub(crate) const OWNERS: u8 = 8;

impl Handover {
    pub(crate) fn loose(&self) -> bool {
        self.variant.manner == Manner::Loose
    }

    pub(crate) fn is_foreign(&self, client: u8) -> bool {
        self.variant.role(client).foreign
    }

    /// `time::deadline::valid_until`: the validity of a lease of `length`, `age` after the request was sent.
    pub(crate) fn validity(&self, length: u8, age: u8) -> u8 {
        length.saturating_sub(age + self.variant.times.margin)
    }

    pub(crate) fn has_room(&self, s: &State, client: u8) -> bool {
        let counts = |message: &&Message| {
            !matches!(message, Message::Push { .. } | Message::Free { .. })
                && !is_revocation(**message)
                && message.owner().client == client
        };
        s.network.iter().filter(counts).count() < self.variant.role(client).in_flight
    }

    /// Sends a request of the present attempt; the built client then ignores the answers to all others.
    pub(crate) fn send(&self, s: &mut State, client: u8, call: Call) {
        if !self.loose() {
            Self::stop_listening(s, client);
        }
        let request = Request { awaited: true, ..self.request(s.owner(client), call) };
        s.network.push(Message::Request(request));
    }

    /// A request that is sent now; its answer is not awaited.
    pub(crate) fn request(&self, owner: Owner, call: Call) -> Request {
        let left = if matches!(call, Call::Acquire(_)) { self.variant.times.limit } else { NEVER };
        Request { owner, call, age: 0, awaited: false, left }
    }

    /// Drops the answers to all pending requests of the client.
    fn stop_listening(s: &mut State, client: u8) {
        s.network.retain(|m| m.owner().client != client || !matches!(m, Message::Answer { .. }));
        for message in s.network.iter_mut().filter(|m| m.owner().client == client) {
            if let Message::Request(request) = message {
                (request.awaited, request.age) = (false, 0);
            }
        }
    }

    /// Begins an attempt, with an owner token that is no longer in use. False if the model has too few of them.
    pub(crate) fn start(&self, s: &mut State, client: u8, mode: Mode) -> bool {
        let is_fresh = |attempt: &u8| s.mentioned().all(|owner| owner != Owner { client, attempt: *attempt });
        let Some(attempt) = (0..OWNERS).find(is_fresh) else { return false };
        let this = s.client_mut(client);
        this.attempt = attempt;
        this.phase = Phase::Asking { mode, age: 0 };
        self.send(s, client, if self.is_foreign(client) { Call::SetNx } else { Call::Acquire(mode) });
        true
    }

    /// Ends the attempt; a release by owner is its last request.
    pub(crate) fn end(&self, s: &mut State, client: u8) {
        let owner = s.owner(client);
        let holds = matches!(s.client(client).phase, Phase::Holding { .. });
        let call = if self.is_foreign(client) || (holds && self.variant.breaks(Break::ReleaseBlind)) {
            Call::CompareAndDelete
        } else if !holds && self.variant.breaks(Break::LeaveWithoutRelease) {
            Call::Leave
        } else {
            Call::Release
        };
        s.network.push(Message::Request(self.request(owner, call)));
        s.client_mut(client).phase = Phase::Idle;
    }

    /// [`Break::EntersAfterEviction`]: the leave is sent, and the client may still enter.
    pub(crate) fn evict(&self, s: &mut State, client: u8) {
        s.network.push(Message::Request(self.request(s.owner(client), Call::Release)));
    }

    /// Ends a hold for which no client is known to wait, in a group with the releases of other locks.
    pub(crate) fn end_in_group(&self, s: &mut State, client: u8) {
        let Phase::Holding { fence, .. } = s.client(client).phase else { return };
        let (owner, call) = (s.owner(client), Call::ReleaseInGroup(fence));
        s.network.push(Message::Request(self.request(owner, call)));
        s.client_mut(client).phase = Phase::Idle;
    }

    /// Sends a poll. An unanswered earlier request has timed out.
    pub(crate) fn poll(&self, s: &mut State, client: u8) {
        self.send(s, client, Call::Acquire(Mode::Poll));
        if self.variant.breaks(Break::DatedByLastPoll)
            && let Phase::Waiting { age, .. } = &mut s.client_mut(client).phase
        {
            *age = 0;
        }
    }

    /// Hands the lease over to another task of the client.
    pub(crate) fn pass(&self, s: &mut State, client: u8) {
        let Phase::Holding { valid, fence, seq } = s.client(client).phase else { return };
        let lingers = self.variant.breaks(Break::PassBeforeEnd);
        let this = s.client_mut(client);
        this.lingers = lingers;
        this.followers_left -= 1;
        this.phase = Phase::Holding { valid, fence, seq: seq + 1 };
        self.believe(s, fence, seq + 1);
    }

    /// The fencing token: fence and sequence, unless a broken protocol adds them up.
    pub(crate) fn token(&self, fence: u8, seq: u8) -> (u8, u8) {
        if self.variant.breaks(Break::PassUnreserved) { (fence + seq, 0) } else { (fence, seq) }
    }

    fn believe(&self, s: &mut State, fence: u8, seq: u8) {
        let token = self.token(fence, seq);
        if token <= s.top {
            s.violate(Violation::TokenFell);
        }
        s.top = s.top.max(token);
    }

    /// The client holds the lock, or gives it back when too little is left of the lease.
    fn enter(&self, s: &mut State, client: u8, fence: u8, valid: u8) {
        if valid == 0 {
            return self.end(s, client);
        }
        if !self.is_foreign(client) {
            self.believe(s, fence, 0);
        }
        s.client_mut(client).phase = Phase::Holding { valid, fence, seq: 0 };
    }

    pub(crate) fn receive(&self, s: &mut State, message: Message) {
        if !s.is_present(message.owner()) {
            return;
        }
        match message {
            Message::Answer { owner, reply, age } => self.hear(s, owner, reply, age),
            Message::Push { owner, fence, px } => {
                self.judge(s, owner, Proof { fence, px }, Some(Proof { fence, px }));
            }
            Message::Free { owner } if self.variant.breaks(Break::FreeIsAGrant) => {
                let Phase::Waiting { seen, .. } = s.client(owner.client).phase else { return };
                self.enter(s, owner.client, seen + 1, self.validity(self.variant.times.ttl, 0));
            }
            // The client polls a little later, and a poll may come at any time.
            Message::Free { .. } => {}
            Message::Request(_) => unreachable!("requests go to the server"),
        }
    }

    fn hear(&self, s: &mut State, owner: Owner, reply: Reply, age: u8) {
        let client = owner.client;
        let ttl = self.variant.times.ttl;
        let phase = s.client(client).phase;
        let next = match (phase, reply) {
            (Phase::Asking { .. } | Phase::Waiting { .. }, Reply::Granted(fence)) => {
                if matches!(phase, Phase::Asking { mode: Mode::Group, .. }) {
                    self.tally.in_groups.fetch_add(1, Relaxed);
                }
                return self.enter(s, client, fence, self.validity(ttl, age));
            }
            (Phase::Asking { .. }, Reply::Waiting(seen)) => Phase::Waiting { age: self.proof(age), seen },
            (Phase::Waiting { age: proven, .. }, Reply::Waiting(seen)) => {
                if self.variant.breaks(Break::DatedByLastPoll) {
                    Phase::Waiting { age: proven, seen }
                } else if self.proof(age) <= proven {
                    Phase::Waiting { age: self.proof(age), seen }
                } else {
                    // Sent before the proof: nothing new.
                    phase
                }
            }
            (Phase::Waiting { .. }, Reply::Gone) if !self.loose() => {
                self.tally.lost_turns.fetch_add(1, Relaxed);
                Phase::Idle
            }
            (Phase::Waiting { .. }, Reply::Gone) | (Phase::Holding { .. }, Reply::NotYours)
                if self.loose() =>
            {
                return self.end(s, client);
            }
            (Phase::Asking { mode: Mode::Group, age }, Reply::Held | Reply::Late) => {
                s.client_mut(client).phase = Phase::Asking { mode: Mode::Join, age };
                return self.send(s, client, Call::Acquire(Mode::Join));
            }
            // Not executed. The real client repeats it once, this one as often as it is refused.
            (Phase::Asking { mode, .. }, Reply::Late) => {
                self.tally.repeated.fetch_add(1, Relaxed);
                return self.send(s, client, Call::Acquire(mode));
            }
            (Phase::Asking { .. }, Reply::Held | Reply::NotYours) => Phase::Idle,
            (Phase::Holding { valid, fence, seq }, Reply::Renewed) if valid > 0 || self.loose() => {
                Phase::Holding { valid: valid.max(self.validity(ttl, age)), fence, seq }
            }
            (Phase::Holding { valid, fence, seq }, Reply::Granted(again)) if self.loose() => {
                if fence != again {
                    return self.end(s, client);
                }
                Phase::Holding { valid: valid.max(self.validity(ttl, age)), fence, seq }
            }
            // Lost; the release follows when the guard is dropped.
            (Phase::Holding { fence, seq, .. }, Reply::NotYours) => Phase::Holding { valid: 0, fence, seq },
            _ => phase,
        };
        s.client_mut(client).phase = next;
    }

    /// The age of a proof whose answer arrives now.
    fn proof(&self, age: u8) -> u8 {
        if self.variant.breaks(Break::DatedByAnswer) { 0 } else { age }
    }

    /// `place::judge`, and its use in `attempt.rs`: a grant message of these terms, with the proof that it carries.
    /// One that fails a check does nothing here, because the poll to which it leads may come at any time.
    pub(crate) fn judge(&self, s: &mut State, owner: Owner, terms: Proof, proof: Option<Proof>) {
        let Proof { fence, px } = terms;
        let is_proven = if self.variant.breaks(Break::ProofWithoutTerms) {
            proof.is_some()
        } else {
            proof == Some(terms) || self.variant.breaks(Break::PushWithoutProof)
        };
        if !is_proven || px > self.variant.times.ttl {
            return;
        }
        let basis = match s.client(owner.client).phase {
            Phase::Waiting { seen, .. } if fence <= seen && !self.variant.breaks(Break::StalePushCounts) => {
                return;
            }
            Phase::Waiting { .. } if self.variant.breaks(Break::DatedByArrival) => 0,
            Phase::Waiting { age, .. } => age,
            Phase::Asking { age, .. } if self.loose() => age,
            _ => return,
        };
        let valid = self.validity(px, basis);
        if valid == 0 {
            // Ours, but not for long enough: the poll that claims it may follow at any time.
            return;
        }
        if !self.loose() {
            // Pushes are read while no poll is awaited: it has timed out.
            Self::stop_listening(s, owner.client);
        }
        self.tally.by_push.fetch_add(1, Relaxed);
        self.enter(s, owner.client, fence, valid);
    }

    /// A tick of the server's clock, which the clock of at most one client misses.
    pub(crate) fn tick(&self, s: &mut State, missed_by: Option<u8>) {
        if let Some(holder) = s.holder.as_mut().filter(|holder| holder.px != NEVER) {
            holder.px -= 1;
            if holder.px == 0 {
                s.holder = None;
            }
        }
        s.open = s.open.saturating_sub(1);
        for place in &mut s.queue {
            place.age = (place.age + 1).min(self.variant.times.stale);
        }
        let loose = self.loose();
        let ttl = self.variant.times.ttl;
        for (id, client) in (0..).zip(&mut s.clients) {
            if missed_by == Some(id) {
                client.slack_left -= 1;
                continue;
            }
            match &mut client.phase {
                Phase::Waiting { age, .. } => *age = (*age + 1).min(ttl),
                Phase::Asking { age, .. } if loose => *age = (*age + 1).min(ttl),
                Phase::Holding { valid, .. } => *valid = valid.saturating_sub(1),
                Phase::Asking { .. } | Phase::Idle | Phase::Dead => {}
            }
        }
        for message in &mut s.network {
            match message {
                Message::Request(request) => {
                    if request.left != NEVER {
                        request.left = request.left.saturating_sub(1);
                    }
                    if request.awaited && missed_by != Some(request.owner.client) {
                        request.age = (request.age + 1).min(ttl);
                    }
                }
                Message::Answer { owner, age, .. } if missed_by != Some(owner.client) => {
                    *age = (*age + 1).min(ttl);
                }
                _ => {}
            }
        }
    }
}

/// Whether this is a request of an operator, and not of the client that it names.
pub(crate) fn is_revocation(message: Message) -> bool {
    matches!(message, Message::Request(Request { call: Call::Revoke(_), .. }))
}
