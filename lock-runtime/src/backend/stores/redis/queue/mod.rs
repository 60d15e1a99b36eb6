//! Waiting on one server: the queue of each lock, and the notifications about it.

mod answer;
mod calls;
mod foreign;
mod inbox;
mod line;
mod operation;
pub(super) mod place;
mod scripts;

pub(super) use self::{
    answer::{Answer, Waiting},
    calls::{Look, Want, ask, leave, of_wrong_type},
    foreign::REMEMBERED,
    inbox::{Notice, Notices},
    line::{Address, Line, Participant},
    operation::Behind,
};
