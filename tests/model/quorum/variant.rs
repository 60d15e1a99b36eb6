//! A variant: its nodes and clients, its durations, its faults, and the rule that it breaks.

/// One search: the protocol as designed, or with a rule broken, and the size of the model.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) nodes: usize,
    /// Each makes one attempt. At most [`CLIENTS`](super::state::CLIENTS).
    pub(crate) clients: u8,
    pub(crate) form: Form,
    /// The counters at the beginning, one start for each row; 0 for the nodes without an entry.
    pub(crate) counters: &'static [&'static [u8]],
    /// The tokens that a client may propose. With a time floor: the ticks by which a proposal is ahead of the time.
    pub(crate) proposals: &'static [u8],
    /// Number of times an acquisition may be executed on each node.
    pub(crate) executions: u8,
    /// Whether no acquisition is executed a lease after it was sent, or later.
    pub(crate) limited: bool,
    /// Number of extensions of each hold.
    pub(crate) extensions: u8,
    /// Number of holds that an operator may revoke.
    pub(crate) revocations: u8,
    /// Length of a lease in ticks; without one a holder may vanish at any moment.
    pub(crate) lease: Option<u8>,
    /// A node mints no token below its time.
    pub(crate) floor: Option<Floor>,
    pub(crate) faults: u8,
    pub(crate) fault: Fault,
    /// Ticks for which a node does not vote after a loss of its data.
    pub(crate) wait: u8,
    /// A loss of data voids the promise for a token until an extension has confirmed it anew.
    pub(crate) healing: bool,
    /// Only the mutants break rules.
    pub(crate) broken: &'static [Break],
}

impl Variant {
    pub(crate) fn new(name: &'static str, form: Form, nodes: usize, clients: u8) -> Self {
        Self {
            name,
            nodes,
            clients,
            form,
            counters: &[&[]],
            proposals: &[0],
            executions: 1,
            limited: false,
            extensions: 0,
            revocations: 0,
            lease: None,
            floor: None,
            faults: 0,
            fault: Fault::Loss,
            wait: 0,
            healing: false,
            broken: &[],
        }
    }

    pub(crate) fn nodes(self, nodes: usize) -> Self {
        Self { nodes, ..self }
    }

    pub(crate) fn clients(self, clients: u8) -> Self {
        Self { clients, ..self }
    }

    pub(crate) fn counters(self, counters: &'static [&'static [u8]]) -> Self {
        Self { counters, ..self }
    }

    pub(crate) fn proposals(self, proposals: &'static [u8]) -> Self {
        Self { proposals, ..self }
    }

    pub(crate) fn executions(self, executions: u8) -> Self {
        Self { executions, ..self }
    }

    pub(crate) fn limited(self) -> Self {
        Self { limited: true, ..self }
    }

    pub(crate) fn extensions(self, extensions: u8) -> Self {
        Self { extensions, ..self }
    }

    pub(crate) fn revocations(self, revocations: u8) -> Self {
        Self { revocations, ..self }
    }

    pub(crate) fn lease(self, ticks: u8) -> Self {
        Self { lease: Some(ticks), ..self }
    }

    pub(crate) fn floor(self, floor: Floor) -> Self {
        Self { floor: Some(floor), ..self }
    }

    /// A node loses its data, and votes again after `wait` ticks.
    pub(crate) fn loss(self, wait: u8) -> Self {
        self.losses(1, wait)
    }

    /// This number of losses, of one node or of several.
    pub(crate) fn losses(self, faults: u8, wait: u8) -> Self {
        Self { faults, fault: Fault::Loss, wait, ..self }
    }

    /// The clock of one node jumps once.
    pub(crate) fn jump(self) -> Self {
        Self { faults: 1, fault: Fault::Jump, ..self }
    }

    /// A node loses a mark, and nothing else; it votes again after `wait` ticks.
    pub(crate) fn older_data(self, wait: u8) -> Self {
        Self { faults: 1, fault: Fault::OlderData, wait, ..self }
    }

    pub(crate) fn healing(self) -> Self {
        Self { healing: true, ..self }
    }

    pub(crate) fn breaking(self, broken: &'static [Break]) -> Self {
        Self { broken, ..self }
    }

    pub(crate) fn breaks(&self, rule: Break) -> bool {
        self.broken.contains(&rule)
    }

    /// A majority of `nodes`.
    pub(crate) fn majority(nodes: usize) -> usize {
        nodes / 2 + 1
    }
}

/// The forms of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An acquisition raises the counter. Equal answers of a majority are a grant; otherwise a write-back follows.
    OneRound,
    /// An acquisition reads the counter. A write-back always follows.
    TwoRounds,
}

/// The time of the nodes, as a lower bound on tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floor {
    /// Length of the search in ticks.
    pub(crate) ticks: u8,
    /// Upper bound on the ticks by which a node lets a proposal be ahead of its time.
    pub(crate) slack: u8,
    /// Ticks by which the clock of one node is ahead of the others.
    pub(crate) ahead: u8,
}

/// The faults of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A restart without data.
    Loss,
    /// The clock jumps forward, and the lease ends.
    Jump,
    /// A restart with data from before a mark.
    OlderData,
}

/// A broken rule: the behaviour of a plausible wrong protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// The largest answer is the token at once.
    NoWriteBack,
    /// A write-back is executed whichever owner holds the lock.
    WriteBackUncompared,
    /// A write-back compares the owner, and not the token of its tenure.
    WriteBackByOwner,
    /// A write-back is sent to nodes too that did not answer.
    WriteBackToAll,
    /// Equal answers of a majority are a grant of the largest answer of all.
    LargestAtOnce,
    /// Equal answers are a grant although an acquisition does not raise the counter.
    EqualReadsCount,
    /// An acquisition takes any proposal, however far ahead of the node's time.
    AnyProposal,
    /// An extension does not raise the counter.
    RejoinWithoutRaise,
    /// An extension compares the owner where a holder is, and does not raise the counter there.
    ExtensionOnlyCompares,
    /// An extension compares the owner where a holder is, and not the token of its tenure.
    ExtensionByOwner,
    /// An extension re-joins whatever token was granted last.
    RejoinWithoutCheck,
    /// An extension re-joins a node that does not vote yet after a loss.
    RejoinWhileWaiting,
    /// An extension is answered after the hold's end, and the client believes again.
    LateExtensionRevives,
    /// The validity counts from the reply.
    ValidityFromReply,
    /// The quorum is a majority of the nodes that answered.
    QuorumOfReachable,
    /// An extension does not look at the mark.
    ExtensionOfMarked,
    /// A mark reaches any holder.
    MarkUncompared,
    /// A mark is kept beside the holder's key, and outlives it.
    MarkOutlivesHold,
    /// A mark frees the node, although the holder may still believe that it holds the lock.
    MarkFrees,
    /// A node that marks a hold does not raise its counter.
    MarkWithoutRaise,
    /// A hold counts as revoked once one node has marked it.
    RevokedByOne,
}
