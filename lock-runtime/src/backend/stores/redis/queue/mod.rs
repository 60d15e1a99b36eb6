//! Waiting on one server: the queue of each lock, and the notifications about it.

mod answer;
mod calls;
mod inbox;
mod line;
mod operation;
pub(super) mod place;
pub(super) mod scripts;

pub(super) use self::{
    answer::{Answer, Waiting},
    calls::{Need, add_domain, add_lock, ask, exists, leave, of_wrong_type},
    inbox::{Notice, Notices},
    line::{Address, Line, Participant},
    operation::MustFollow,
};
