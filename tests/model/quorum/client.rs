//! A client's part in a step: its decisions on answers, and its deadline.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    redlock::Redlock,
    state::{Client, Extending, Phase, Request, State},
    variant::{Break, Form, Variant},
};

/// The conclusion from a majority of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Granted(u8),
    WriteBack(u8),
}

impl Redlock {
    /// Number of nodes that make a quorum, if `answered` nodes can be reached.
    pub(crate) fn quorum(&self, answered: usize) -> usize {
        let reachable = self.variant.breaks(Break::QuorumOfReachable);
        Variant::majority(if reachable { answered } else { self.variant.nodes })
    }

    /// The decision on these answers; `None` if they are no quorum.
    pub(crate) fn decision(&self, answers: &[u8]) -> Option<Decision> {
        let quorum = self.quorum(answers.len());
        if answers.len() < quorum {
            return None;
        }
        let largest = *answers.iter().max()?;
        let answered = |token| move |answer: &&u8| **answer == token;
        let agreed =
            answers.iter().copied().find(|token| answers.iter().filter(answered(*token)).count() >= quorum);
        let one_round = self.variant.form == Form::OneRound || self.variant.breaks(Break::EqualReadsCount);
        Some(match agreed {
            _ if self.variant.breaks(Break::NoWriteBack) => Decision::Granted(largest),
            Some(_) if one_round && self.variant.breaks(Break::LargestAtOnce) => Decision::Granted(largest),
            Some(token) if one_round => Decision::Granted(token),
            _ => Decision::WriteBack(largest),
        })
    }

    pub(crate) fn ask(&self, s: &mut State, id: u8, proposal: u8) {
        let floor = s.newest_but(id);
        let executions = self.variant.executions;
        s.links_mut(id).for_each(|link| link.acquisitions = executions);
        let client = s.client_mut(id);
        (client.phase, client.proposal, client.floor, client.fresh) = (Phase::Asking, proposal, floor, true);
    }

    pub(crate) fn decide(&self, s: &mut State, id: u8, nodes: u8) {
        let among = |node: usize| nodes >> node & 1 == 1;
        let answers: Vec<u8> =
            s.links(id).enumerate().filter(|(n, _)| among(*n)).map(|(_, link)| link.answer).collect();
        match self.decision(&answers).expect("offered for a quorum") {
            Decision::Granted(token) => {
                self.tally.at_once.fetch_add(1, Relaxed);
                self.grant(s, id, token);
            }
            Decision::WriteBack(token) => {
                let client = s.client_mut(id);
                (client.phase, client.token) = (Phase::Writing, token);
                let to_all = self.variant.breaks(Break::WriteBackToAll);
                for (node, link) in s.links_mut(id).enumerate() {
                    if to_all || among(node) {
                        link.write_back = Request::Sent;
                    }
                }
            }
        }
    }

    /// The grant, once a quorum of write-backs has succeeded. An answer that arrives later only delays it.
    pub(crate) fn count_write_backs(&self, s: &mut State, id: u8) {
        let counted = |request: Request| s.links(id).filter(|link| link.write_back == request).count();
        let done = counted(Request::Done);
        if s.client(id).phase == Phase::Writing && done >= self.quorum(done + counted(Request::Sent)) {
            self.tally.written_back.fetch_add(1, Relaxed);
            let token = s.client(id).token;
            self.grant(s, id, token);
        }
    }

    fn grant(&self, s: &mut State, id: u8, token: u8) {
        let Client { fresh, floor, age, .. } = *s.client(id);
        let twin = |other: &Client| other.known && other.token == token;
        // After a loss that voids promises, an extension may make a token known again while another is minted.
        s.violations.twin |= !self.variant.healing && s.clients.iter().any(twin);
        s.violations.fell |= fresh && token <= floor;
        let valid =
            if self.variant.breaks(Break::ValidityFromReply) { self.lease() } else { self.lease() - age };
        let extensions = self.variant.extensions;
        let client = s.client_mut(id);
        (client.phase, client.token, client.granted, client.known) = (Phase::Holding, token, true, fresh);
        (client.valid, client.extensions_left) = (valid, extensions);
        self.tally.most_grants.fetch_max(s.clients.iter().filter(|client| client.granted).count(), Relaxed);
    }

    pub(crate) fn send_extension(s: &mut State, id: u8) {
        let (newest, revoked) = (s.newest_but(id), s.client(id).revoked);
        s.links_mut(id).for_each(|link| link.extension = Request::Sent);
        let client = s.client_mut(id);
        client.extending = Some(Extending { age: 0, newest, revoked });
        client.extensions_left -= 1;
        client.fresh = true;
    }

    /// The end of an extension, once a majority has confirmed it.
    pub(crate) fn count_extensions(&self, s: &mut State, id: u8) {
        let done = s.links(id).filter(|link| link.extension == Request::Done).count();
        let lease = self.lease();
        let Some(extending) = s.client(id).extending else { return };
        if done < Variant::majority(self.variant.nodes) {
            return;
        }
        self.tally.extended.fetch_add(1, Relaxed);
        let Client { fresh, token, .. } = *s.client(id);
        s.violations.outlived |= fresh && extending.newest > token;
        s.violations.revived |= extending.revoked;
        let client = s.client_mut(id);
        client.valid = client.valid.max(lease - extending.age);
        client.known |= fresh;
        client.extending = None;
    }

    /// The success of a revocation, once a majority has marked the hold.
    pub(crate) fn count_marks(&self, s: &mut State, id: u8) {
        let needed =
            if self.variant.breaks(Break::RevokedByOne) { 1 } else { Variant::majority(self.variant.nodes) };
        if s.links(id).filter(|link| link.mark == Request::Done).count() >= needed {
            let client = s.client_mut(id);
            client.revoked = true;
            self.tally.revoked.fetch_add(usize::from(client.phase == Phase::Holding), Relaxed);
        }
    }

    /// Length of a lease; 0 where none is counted.
    pub(crate) fn lease(&self) -> u8 {
        self.variant.lease.unwrap_or(0)
    }

    /// A tick of a client's clock. A validity that has ended does not come back.
    pub(crate) fn tick_of_client(&self, s: &mut State, id: u8) {
        let (lease, revives) = (self.lease(), self.variant.breaks(Break::LateExtensionRevives));
        if s.client(id).phase != Phase::Idle {
            s.client_mut(id).age = lease.min(s.client(id).age + 1);
            if self.variant.limited && s.client(id).age == lease {
                s.links_mut(id).for_each(|link| link.acquisitions = 0);
            }
        }
        let client = s.client_mut(id);
        if let Some(extending) = &mut client.extending {
            extending.age += 1;
            if extending.age == lease {
                client.extending = None;
            }
        }
        match client.phase {
            Phase::Asking | Phase::Writing => {
                if client.age == lease && !self.variant.breaks(Break::ValidityFromReply) {
                    client.phase = Phase::Ended;
                }
            }
            Phase::Holding => {
                client.valid = client.valid.saturating_sub(1);
                if client.valid == 0 && !revives {
                    client.phase = Phase::Ended;
                }
            }
            Phase::Idle | Phase::Ended => {}
        }
    }
}
