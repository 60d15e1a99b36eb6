//! One form for all states that differ only in ways that can never be observed.

use super::{
    redlock::Redlock,
    state::{Phase, Request, State},
    variant::Break,
};

impl Redlock {
    pub(crate) fn canonical(&self, mut s: State) -> State {
        for id in 0..self.variant.clients {
            self.drop_what_does_nothing(&mut s, id);
        }
        // The nodes are alike. A counter-example is easier to read when they keep their places.
        if self.sorts_nodes {
            s.nodes.sort_unstable();
        }
        s
    }

    fn drop_what_does_nothing(&self, s: &mut State, id: u8) {
        let phase = s.client(id).phase;
        let (asks, writes, extends) =
            (phase == Phase::Asking, phase == Phase::Writing, s.client(id).extending.is_some());
        let may_extend = s.client(id).extensions_left > 0 && phase == Phase::Holding;
        let compares = !self.variant.breaks(Break::WriteBackUncompared);
        let marks_owner = !self.variant.breaks(Break::MarkUncompared);
        let is_revoked = s.client(id).revoked;
        let will_extend = may_extend || (asks || writes) && self.variant.extensions > 0;
        for node in &mut s.nodes {
            let (holds, is_marked) = (node.holder == Some(id), node.marked);
            let link = node.link_mut(id);
            if !asks {
                link.answer = 0;
            }
            if !extends && link.extension == Request::Done {
                link.extension = Request::Sent;
            }
            if !writes && link.write_back == Request::Done {
                link.write_back = Request::Sent;
            }
            // The owner can never be on the node again.
            let comes = link.acquisitions > 0 || may_extend || link.extension != Request::Unsent;
            if compares && link.write_back == Request::Sent && !holds && !comes {
                link.write_back = Request::Unsent;
            }
            link.mark = match link.mark {
                Request::Sent if marks_owner && !holds && !comes && !will_extend => Request::Unsent,
                Request::Done if !(holds && is_marked) && (is_revoked || !will_extend) => Request::Unsent,
                mark => mark,
            };
        }
        let late = s.links(id).any(|link| link.acquisitions > 0);
        let sends_token =
            s.links(id).any(|link| (link.write_back, link.extension, link.mark) != <_>::default());
        let client = s.client_mut(id);
        if !late {
            client.proposal = 0;
        }
        if matches!(phase, Phase::Holding | Phase::Ended) {
            client.floor = 0;
            if !(late && self.variant.limited) {
                client.age = 0;
            }
        }
        client.revoked &= will_extend;
        if phase == Phase::Ended {
            (client.valid, client.extensions_left, client.extending) = (0, 0, None);
            if !client.granted && !sends_token {
                client.token = 0;
            }
        }
    }
}
