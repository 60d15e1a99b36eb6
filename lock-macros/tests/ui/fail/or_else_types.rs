#![allow(dead_code, unused_imports)]
use lock_runtime::{LockError, distributed_lock};

struct Answer;

fn text(error: LockError) -> String {
    error.to_string()
}

#[distributed_lock(key = "user:<id>", or_else = text)]
async fn another_output(id: u64) -> Answer {
    drop(id);
    Answer
}

#[distributed_lock(key = "user:<id>", or_else = |error| error.to_string())]
async fn closure(id: u64) -> Answer {
    drop(id);
    Answer
}

fn of_text(_: String) -> Answer {
    Answer
}

#[distributed_lock(key = "user:<id>", or_else = of_text)]
async fn another_input(id: u64) -> Answer {
    drop(id);
    Answer
}

#[distributed_lock(key = "user:<id>", or_else = text)]
async fn hidden(id: u64) -> impl std::fmt::Display {
    id
}

#[distributed_lock(key = "user:<id>", or_else = text)]
async fn body(id: u64) -> String {
    id
}

fn main() {}
