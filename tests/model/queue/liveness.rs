//! Checks that all live waiters are served in the end, and measures the longest time that takes.

use super::{
    handover::Handover,
    state::{Call, Message, Mode, NEVER, Owner, Phase, State},
};

/// Longer than any wait that ends.
const FOR_EVER: u8 = 200;

/// Whether pushes arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushes {
    Arrive,
    Lost,
}

impl Handover {
    /// Upper bound of a wait when all other clients are gone: the rest of a lease, or the dead places before it, which
    /// go stale or are granted in vain, all at the same time; and the poll that finds it out.
    pub(crate) fn wait_bound(&self) -> u8 {
        let times = self.variant.times;
        times.ttl.max(times.stale + times.window) + times.refresh
    }

    /// Ticks until every live waiter has held the lock, when all messages in flight are lost and all clients that do
    /// not wait are dead; `None` if a waiter is forgotten. A waiter that enters releases at once.
    pub(crate) fn longest_wait(&self, s: &State) -> Option<u8> {
        let waits = |phase| matches!(phase, Phase::Asking { .. } | Phase::Waiting { .. });
        let own = self.variant.own();
        if !s.clients[..own].iter().any(|client| waits(client.phase)) {
            return Some(0);
        }
        let mut s = s.clone();
        s.network.clear();
        for (id, client) in s.clients.iter_mut().enumerate() {
            if id >= own || !waits(client.phase) {
                client.phase = Phase::Dead;
            }
        }
        self.serve(s, self.variant.times.refresh, Pushes::Arrive)
    }

    /// Like [`longest_wait`](Self::longest_wait), from a state in which only waiters live, whose first poll is after
    /// `first_look`. Does not rely on messages that the lock is open and when to poll.
    pub(crate) fn serve(&self, mut s: State, first_look: u8, pushes: Pushes) -> Option<u8> {
        let mut due = vec![first_look; self.variant.own()];
        self.settle(&mut s, pushes);
        for now in 0..FOR_EVER {
            // The last client first: the one before may have been handed the lock by then.
            for id in (0..).take(due.len()).collect::<Vec<u8>>().into_iter().rev() {
                if s.client(id).phase == Phase::Dead || due[usize::from(id)] > 0 {
                    continue;
                }
                self.look(&mut s, id, pushes)?;
                due[usize::from(id)] = self.next_poll(&s, id);
            }
            if s.clients.iter().all(|client| client.phase == Phase::Dead) {
                return Some(now);
            }
            self.tick(&mut s, None);
            for due in &mut due {
                *due = due.saturating_sub(1);
            }
        }
        None
    }

    /// The action of a waiter when its time has come, with all its immediate effects.
    fn look(&self, s: &mut State, id: u8, pushes: Pushes) -> Option<()> {
        match s.client(id).phase {
            Phase::Waiting { .. } => self.send(s, id, Call::Acquire(Mode::Poll)),
            Phase::Asking { .. } if self.loose() => self.send(s, id, Call::Acquire(Mode::Join)),
            phase => {
                if matches!(phase, Phase::Asking { .. }) {
                    self.end(s, id); // timed out
                }
                if !self.start(s, id, Mode::Join) {
                    return None;
                }
            }
        }
        self.settle(s, pushes);
        Some(())
    }

    /// Delivers all messages in flight. A client that enters leaves at once, and is served.
    fn settle(&self, s: &mut State, pushes: Pushes) {
        while let Some(message) = s.network.pop() {
            match message {
                Message::Request(request) => self.execute(s, request),
                Message::Push { .. } | Message::Free { .. } if pushes == Pushes::Lost => {}
                Message::Push { .. } | Message::Free { .. } | Message::Answer { .. } => {
                    self.receive(s, message);
                }
            }
            for id in (0..).take(self.variant.own()) {
                if let Phase::Holding { valid: 1.., .. } = s.client(id).phase {
                    self.end(s, id);
                    s.client_mut(id).phase = Phase::Dead;
                }
            }
        }
    }

    /// `place::next_poll`: the first in the queue polls when the holder's lease runs out.
    fn next_poll(&self, s: &State, id: u8) -> u8 {
        let refresh = self.variant.times.refresh;
        if s.client(id).phase == Phase::Idle {
            return 0; // the attempt ended; the next begins at once
        }
        let first: Option<Owner> = s.queue.first().map(|place| place.owner);
        match &s.holder {
            Some(holder) if holder.px != NEVER && first == Some(s.owner(id)) => refresh.min(holder.px),
            None if s.open > 0 && first == Some(s.owner(id)) => refresh.min(s.open),
            _ => refresh,
        }
    }
}
