//! The scripts, each one atomic step. The names, the order and the answers are those of
//! `lock-runtime/src/backend/stores/redis/scripts/*.lua`; a change of one is a change of the other.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    handover::Handover,
    state::{Call, Holder, Message, Mode, NEVER, Owner, Place, Reply, Request, State, Violation},
    variant::Break,
};

impl Handover {
    /// A request reaches the server.
    pub(crate) fn execute(&self, s: &mut State, request: Request) {
        let Request { owner, call, age, awaited, .. } = request;
        let reply = match call {
            Call::Acquire(_) if request.is_late() && !self.variant.breaks(Break::LateGranted) => {
                Some(Reply::Late)
            }
            Call::Acquire(mode) => self.acquire(s, owner, mode, age, awaited),
            Call::Renew(fence) => Some(self.renew(s, owner, fence)),
            Call::SetNx => Some(self.set_nx(s, owner)),
            Call::Mint(tenure) => Some(Self::mint_late(s, tenure)),
            Call::Release => {
                self.release(s, owner);
                None
            }
            Call::ReleaseInGroup(fence) => {
                self.release_in_group(s, owner, fence);
                None
            }
            Call::CompareAndDelete => {
                if s.is_held_by(owner) {
                    s.holder = None;
                    self.look_for_lost_wake_up(s, owner);
                }
                None
            }
            Call::Revoke(fence) => {
                self.revoke(s, owner, fence);
                None
            }
            Call::Leave => {
                s.queue.retain(|place| place.owner != owner);
                self.look_for_leftovers(s, owner);
                None
            }
        };
        if let Some(reply) = reply.filter(|_| awaited) {
            s.network.push(Message::Answer { owner, reply, age });
        }
    }

    /// `acquire.lua`.
    fn acquire(&self, s: &mut State, owner: Owner, mode: Mode, age: u8, awaited: bool) -> Option<Reply> {
        let ttl = self.variant.times.ttl;
        if mode == Mode::Group {
            return Some(self.acquire_in_group(s, owner));
        }
        if mode != Mode::Poll && s.queue.is_empty() && s.holder.is_none() {
            if self.variant.breaks(Break::MintBesideSet) {
                self.hold(s, owner, 0, ttl);
                let call = Call::Mint(s.tenures);
                s.network.push(Message::Request(Request { age, awaited, ..self.request(owner, call) }));
                return None;
            }
            let fence = mint(s);
            self.hold(s, owner, fence, ttl);
            return Some(Reply::Granted(fence));
        }
        let joins_twice = mode == Mode::Join && self.variant.breaks(Break::JoinTwice);
        if let Some(holder) = s.holder.as_mut().filter(|holder| holder.owner == owner && !joins_twice) {
            if holder.revoked && !self.variant.breaks(Break::ClaimsRevoked) {
                return Some(Reply::Gone);
            }
            let reply = Reply::Granted(holder.fence);
            extend(s, ttl);
            return Some(reply);
        }
        let queued = mode != Mode::Try && s.place_of(owner).is_some();
        if mode == Mode::Poll && !queued && !self.variant.breaks(Break::PollQueuesAgain) {
            return Some(Reply::Gone);
        }
        let looks = mode != Mode::Poll || !self.variant.breaks(Break::PollLooksAway);
        if s.holder.is_none() && looks {
            let first = self.head(s, Some(owner));
            // Without waiters no window is kept.
            let is_open = first.is_some() && s.open > 0;
            if is_open && !self.variant.breaks(Break::WindowIgnored) {
                self.tally.found_open.fetch_add(1, Relaxed);
            } else {
                if is_open {
                    s.violate(Violation::WindowTaken);
                }
                if first.is_some_and(|first| first != owner) {
                    self.hand_over(s);
                } else {
                    if queued {
                        s.queue.retain(|place| place.owner != owner);
                    }
                    let fence = mint(s);
                    self.hold(s, owner, fence, ttl);
                    return Some(Reply::Granted(fence));
                }
            }
        }
        if mode == Mode::Try {
            return Some(Reply::Held);
        }
        match s.queue.iter_mut().find(|place| place.owner == owner) {
            Some(place) if !joins_twice => place.age = 0,
            _ => s.queue.push(Place { owner, age: 0 }),
        }
        // Every earlier grant has a fence that is not larger than the holder's, if the holder is one of ours.
        let ours = s.holder.as_ref().map(|holder| holder.fence).filter(|fence| *fence > 0);
        Some(Reply::Waiting(ours.unwrap_or(s.fence)))
    }

    /// `acquire_group.lua`, its effect on one lock. The fence is that of the whole group, minted also where only
    /// another lock is granted.
    fn acquire_in_group(&self, s: &mut State, owner: Owner) -> Reply {
        if s.fence == 0 || !self.variant.breaks(Break::GroupTakesLastFence) {
            mint(s);
        }
        let fence = s.fence;
        if s.queue.is_empty() && s.holder.is_none() {
            self.hold(s, owner, fence, self.variant.times.ttl);
            return Reply::Granted(fence);
        }
        Reply::Held
    }

    /// `queue.lua`: the first place that is live, or is `me`; removes stale ones before it.
    fn head(&self, s: &mut State, me: Option<Owner>) -> Option<Owner> {
        loop {
            let first = s.queue.first()?;
            if Some(first.owner) == me || first.age < self.variant.times.stale {
                return Some(first.owner);
            }
            s.queue.remove(0);
        }
    }

    /// `queue.lua`, `grant.lua`: makes the first live place the holder and notifies its process. The lock must be free.
    fn hand_over(&self, s: &mut State) {
        if self.head(s, None).is_none() {
            return;
        }
        let Place { owner, age } = s.queue.remove(0);
        let ttl = self.variant.times.ttl;
        let px = if self.variant.breaks(Break::GrantForEver) {
            NEVER
        } else if self.variant.breaks(Break::GrantForTtl) {
            ttl
        } else if self.variant.breaks(Break::GrantGrowsWithAge) {
            ttl.min(age + self.variant.times.window)
        } else {
            ttl.min(self.variant.times.window)
        };
        let fence = mint(s);
        self.hold(s, owner, fence, px);
        s.minted_tenure = s.tenures;
        s.network.push(Message::Push { owner, fence, px: px.min(ttl) });
        if self.variant.breaks(Break::SecretOnTheWire) {
            s.leaked.push(owner);
        }
    }

    fn hold(&self, s: &mut State, owner: Owner, fence: u8, px: u8) {
        if self.variant.breaks(Break::MintBesideSet) {
            s.tenures += 1;
        }
        s.holder = Some(Holder { owner, fence, px, tenure: s.tenures, revoked: false });
    }

    /// `release.lua`.
    fn release(&self, s: &mut State, owner: Owner) {
        let misses = |holder: &Holder| holder.revoked && self.variant.breaks(Break::ReleaseMissesRevoked);
        let ours = s.is_held_by(owner) && !s.holder.as_ref().is_some_and(misses);
        let deletes = ours || (s.holder.is_some() && self.variant.breaks(Break::ReleaseUncompared));
        if deletes && (ours || s.place_of(owner).is_none()) {
            if !ours {
                s.violate(Violation::TouchedAnother);
            }
            s.holder = None;
            self.hand_over(s);
            self.look_for_lost_wake_up(s, owner);
        } else {
            s.queue.retain(|place| place.owner != owner);
        }
        self.look_for_leftovers(s, owner);
    }

    /// `release.lua`, where it leaves the lock free: the first in the queue is notified and keeps its place.
    pub(crate) fn release_openly(&self, s: &mut State, owner: Owner) {
        s.holder = None;
        let first = self.head(s, None);
        if first.is_some() {
            s.open = self.variant.times.open;
        }
        if let Some(first) = first.filter(|_| !self.variant.breaks(Break::OpenInSilence)) {
            s.network.push(Message::Free { owner: first });
            if self.variant.breaks(Break::SecretInFree) {
                s.leaked.push(first);
            }
        } else {
            self.look_for_lost_wake_up(s, owner);
        }
        self.look_for_leftovers(s, owner);
    }

    /// `release_group.lua`, its effect on one hold; then `hold.rs`.
    fn release_in_group(&self, s: &mut State, owner: Owner, fence: u8) {
        let any = self.variant.breaks(Break::GroupReleasesUncompared);
        let ours = s.holder.as_ref().is_some_and(|holder| holder.owner == owner && holder.fence == fence);
        let nobody_waits = s.queue.is_empty() || self.variant.breaks(Break::GroupReleasesBlind);
        if (ours || (any && s.holder.is_some())) && nobody_waits {
            if !ours {
                s.violate(Violation::TouchedAnother);
            }
            s.holder = None;
            self.look_for_lost_wake_up(s, owner);
            self.look_for_leftovers(s, owner);
        } else {
            // The other path: a request, which may be lost, or executed at any time.
            s.network.push(Message::Request(self.request(owner, Call::Release)));
        }
    }

    /// `renew.lua`.
    fn renew(&self, s: &mut State, owner: Owner, fence: u8) -> Reply {
        let ttl = self.variant.times.ttl;
        let any_fence = self.variant.breaks(Break::RenewWithoutFence);
        let any_owner = self.variant.breaks(Break::RenewUncompared);
        let Some(holder) = s.holder.as_mut() else { return Reply::NotYours };
        let ours = holder.owner == owner && (holder.fence == fence || any_fence);
        if !ours && !any_owner {
            return Reply::NotYours;
        }
        // The real answer tells a revoked hold from one that is gone; its holder does the same in both cases.
        if holder.revoked && !self.variant.breaks(Break::RenewsRevoked) {
            return Reply::NotYours;
        }
        extend(s, ttl);
        if !ours {
            s.violate(Violation::TouchedAnother);
        }
        Reply::Renewed
    }

    /// `revoke.lua`, without force.
    fn revoke(&self, s: &mut State, owner: Owner, fence: u8) {
        let any = self.variant.breaks(Break::RevokesUncompared);
        let Some(holder) = s.holder.as_mut() else { return };
        let is_it = holder.owner == owner && holder.fence == fence;
        if !is_it && !any {
            return;
        }
        holder.revoked = true;
        if matches!(
            s.clients[usize::from(owner.client)].phase,
            super::state::Phase::Holding { valid: 1.., .. }
        ) {
            self.tally.revoked.fetch_add(1, Relaxed);
        }
        if !is_it {
            s.violate(Violation::TouchedAnother);
        }
        if self.variant.breaks(Break::RevocationFrees) {
            s.holder = None;
            self.hand_over(s);
        }
    }

    /// A client that does not know the queue and the fence.
    fn set_nx(&self, s: &mut State, owner: Owner) -> Reply {
        if s.holder.is_some() {
            return Reply::NotYours;
        }
        self.hold(s, owner, 0, self.variant.times.ttl);
        Reply::Granted(0)
    }

    /// [`Break::MintBesideSet`]: the `INCR` that was sent with the `SET NX` of `tenure`.
    fn mint_late(s: &mut State, tenure: u8) -> Reply {
        let fence = mint(s);
        if tenure < s.minted_tenure {
            // A later hold has a smaller token.
            s.violate(Violation::TokenFell);
        }
        s.minted_tenure = s.minted_tenure.max(tenure);
        if let Some(holder) = s.holder.as_mut().filter(|holder| holder.tenure == tenure) {
            holder.fence = fence;
        }
        Reply::Granted(fence)
    }

    fn look_for_lost_wake_up(&self, s: &mut State, owner: Owner) {
        let waits = |place: &Place| place.age < self.variant.times.stale && s.is_present(place.owner);
        if s.holder.is_none() && !self.variant.role(owner.client).foreign && s.queue.iter().any(waits) {
            s.violate(Violation::WakeUpLost);
        }
    }

    fn look_for_leftovers(&self, s: &mut State, owner: Owner) {
        if s.is_on_server(owner) {
            s.violate(Violation::LeftBehind);
        }
        let is_final = s.acquisitions_of(owner).all(|request| request.is_late());
        if is_final || self.variant.breaks(Break::FinalBeforeTheLimit) {
            s.cleared.push(owner);
        }
    }
}

/// Makes the lease of the present holder last for `ttl` from now.
fn extend(s: &mut State, ttl: u8) {
    if let Some(holder) = &mut s.holder {
        let is_revoked = holder.revoked;
        holder.px = ttl;
        if is_revoked {
            s.violate(Violation::RevokedExtended);
        }
    }
}

/// `fence.lua`: one more than the last; the server's clock, which the real fence follows, makes it larger still.
fn mint(s: &mut State) -> u8 {
    s.fence += 1;
    s.fence
}
