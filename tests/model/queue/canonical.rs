//! One form for all states that differ only in ways that can never be observed.

use super::{
    client::OWNERS,
    handover::Handover,
    state::{Call, Message, Mode, Owner, Phase, Reply, Request, State},
    variant::Break,
};

impl Handover {
    pub(crate) fn canonical(&self, mut s: State) -> State {
        self.drop_what_does_nothing(&mut s);
        self.keep_two_pushes(&mut s);
        // Fences keep their values where a token adds fence and sequence, and where a counter-example is read.
        if self.variant.broken.is_empty() || self.loose() {
            rank_fences(&mut s);
        }
        let mut best: Option<State> = None;
        for renaming in &self.renamings {
            let renamed = rename(&s, renaming);
            if best.as_ref().is_none_or(|best| renamed < *best) {
                best = Some(renamed);
            }
        }
        best.expect("the identity is among the renamings")
    }

    fn drop_what_does_nothing(&self, s: &mut State) {
        let mut network = std::mem::take(&mut s.network);
        for message in &mut network {
            if let Message::Request(request) = message
                && (!s.is_present(request.owner)
                    || matches!(
                        request.call,
                        Call::Release
                            | Call::ReleaseInGroup(_)
                            | Call::CompareAndDelete
                            | Call::Revoke(_)
                            | Call::Leave
                    ))
            {
                (request.awaited, request.age) = (false, 0);
            }
        }
        // A refusal for which no client waits.
        if !self.variant.breaks(Break::LateGranted) {
            network.retain(
                |message| !matches!(message, Message::Request(request) if request.is_late() && !request.awaited),
            );
        }
        // A request of an ended attempt does nothing if its owner can never be on the server again. Broken scripts
        // are not so harmless.
        let harmful = [
            Break::RenewUncompared,
            Break::ReleaseUncompared,
            Break::GroupReleasesUncompared,
            Break::PollQueuesAgain,
            Break::MintBesideSet,
            Break::RevokesUncompared,
        ];
        if !harmful.iter().any(|rule| self.variant.breaks(*rule)) {
            let coming: Vec<Owner> = network.iter().copied().filter_map(makes_owner).collect();
            network.retain(|message| match message {
                Message::Request(Request { owner, .. }) => {
                    s.is_present(*owner) || coming.contains(owner) || s.is_on_server(*owner)
                }
                _ => true,
            });
        }
        network.retain(|message| self.may_matter(s, *message));
        s.network = network;
        let mut cleared = std::mem::take(&mut s.cleared);
        cleared.retain(|owner| s.is_on_server(*owner) || s.acquisitions_of(*owner).next().is_some());
        cleared.sort_unstable();
        cleared.dedup();
        let mut leaked = std::mem::take(&mut s.leaked);
        leaked.retain(|owner| s.is_present(*owner));
        leaked.sort_unstable();
        leaked.dedup();
        (s.cleared, s.leaked) = (cleared, leaked);
    }

    /// Whether an answer or a push can still change what its client does.
    fn may_matter(&self, s: &State, message: Message) -> bool {
        let owner = message.owner();
        let phase = s.client(owner.client).phase;
        match message {
            Message::Request(_) => true,
            _ if !s.is_present(owner) => false,
            Message::Answer { reply, age, .. } => match (phase, reply) {
                (Phase::Holding { valid: 0, .. }, _) if !self.loose() => false,
                (Phase::Holding { .. }, Reply::Renewed) => self.validity(self.variant.times.ttl, age) > 0,
                (Phase::Holding { fence, .. }, Reply::Granted(again)) => {
                    self.loose() && (fence != again || self.validity(self.variant.times.ttl, age) > 0)
                }
                (Phase::Holding { .. }, reply) => reply == Reply::NotYours,
                _ => true,
            },
            // The poll that it causes may come at any time.
            Message::Free { .. } => self.variant.breaks(Break::FreeIsAGrant),
            Message::Push { fence, .. } => match phase {
                Phase::Holding { .. } => false,
                Phase::Waiting { seen, .. } => {
                    fence > seen
                        || self.variant.breaks(Break::StalePushCounts)
                        || self.variant.breaks(Break::ProofWithoutTerms)
                }
                _ => true,
            },
        }
    }

    /// Pushes may be lost: of each client only the oldest and the newest are kept, or there is no end of them.
    fn keep_two_pushes(&self, s: &mut State) {
        if !self.loose() && !self.variant.breaks(Break::PollQueuesAgain) {
            return; // one grant for each owner
        }
        for client in (0..).take(s.clients.len()) {
            let fence_of = |message: &Message| match message {
                Message::Push { owner, fence, .. } if owner.client == client => Some(*fence),
                _ => None,
            };
            let fences = || s.network.iter().filter_map(fence_of);
            if let (Some(oldest), Some(newest)) = (fences().min(), fences().max()) {
                s.network.retain(|m| fence_of(m).is_none_or(|fence| fence == oldest || fence == newest));
            }
        }
    }
}

/// The owner that a request can bring onto the server.
fn makes_owner(message: Message) -> Option<Owner> {
    match message {
        Message::Request(Request {
            owner,
            call: Call::Acquire(Mode::Join | Mode::Try | Mode::Group) | Call::SetNx,
            ..
        }) => Some(owner),
        _ => None,
    }
}

/// Fences are only compared, so their ranks are enough.
fn rank_fences(s: &mut State) {
    let mut all = vec![0];
    each_fence(s, |fence| all.push(*fence));
    all.sort_unstable();
    all.dedup();
    each_fence(s, |fence| {
        let rank = all.partition_point(|other| other < fence);
        *fence = u8::try_from(rank).expect("few fences are alive");
    });
}

fn each_fence(s: &mut State, mut with: impl FnMut(&mut u8)) {
    with(&mut s.fence);
    with(&mut s.top.0);
    if let Some(holder) = &mut s.holder {
        with(&mut holder.fence);
    }
    for client in &mut s.clients {
        match &mut client.phase {
            Phase::Waiting { seen, .. } => with(seen),
            Phase::Holding { fence, .. } => with(fence),
            _ => {}
        }
    }
    for message in &mut s.network {
        match message {
            Message::Request(Request {
                call: Call::Renew(fence) | Call::ReleaseInGroup(fence) | Call::Revoke(fence),
                ..
            })
            | Message::Answer { reply: Reply::Granted(fence) | Reply::Waiting(fence), .. }
            | Message::Push { fence, .. } => with(fence),
            _ => {}
        }
    }
}

/// Gives each client its new number, and its attempts new names: 0 for the present one, the others as they occur.
fn rename(s: &State, new_number: &[u8]) -> State {
    const UNNAMED: u8 = u8::MAX;
    let mut names = [[UNNAMED; OWNERS as usize]; 4];
    let mut next = [1_u8; 4];
    let mut renamed = s.clone();
    for (old, client) in s.clients.iter().enumerate() {
        if !matches!(client.phase, Phase::Idle | Phase::Dead) {
            names[old][usize::from(client.attempt)] = 0;
        }
        let new = renamed.client_mut(new_number[old]);
        *new = client.clone();
        new.attempt = 0;
    }
    let mut name = |owner: &mut Owner| {
        let client = usize::from(owner.client);
        let slot = &mut names[client][usize::from(owner.attempt)];
        if *slot == UNNAMED {
            *slot = next[client];
            next[client] += 1;
        }
        *owner = Owner { client: new_number[client], attempt: *slot };
    };
    if let Some(holder) = &mut renamed.holder {
        name(&mut holder.owner);
    }
    for place in &mut renamed.queue {
        name(&mut place.owner);
    }
    for message in &mut renamed.network {
        name(message.owner_mut());
    }
    renamed.network.sort_unstable();
    for owners in [&mut renamed.cleared, &mut renamed.leaked] {
        owners.iter_mut().for_each(&mut name);
        owners.sort_unstable();
    }
    renamed
}
