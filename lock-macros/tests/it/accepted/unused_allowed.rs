//! `allow(unused_variables)` on a parameter that some builds do not use.
#![deny(warnings)]
use lock_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "job:<of>")]
#[allow(unused_variables)]
async fn by_the_function(verbose: bool, of: u64) -> Result<(), LockError> {
    #[cfg(any())]
    log(verbose);
    Ok(())
}

#[distributed_lock(key = "job:<of>")]
#[cfg_attr(not(any()), allow(unused))]
async fn under_a_condition(verbose: bool, of: u64) -> Result<(), LockError> {
    #[cfg(any())]
    log(verbose);
    Ok(())
}

#[distributed_lock(key = "job:<of>")]
async fn by_the_parameter(#[allow(unused_variables)] verbose: bool, of: u64) -> Result<(), LockError> {
    #[cfg(any())]
    log(verbose);
    let _ = of;
    Ok(())
}

#[distributed_lock(key = "job:<of>")]
async fn by_the_body(verbose: bool, of: u64) -> Result<(), LockError> {
    #![allow(unused_variables)]
    let verbose = false;
    Ok(())
}

pub(crate) fn main() {
    drop((by_the_function(true, 1), under_a_condition(true, 1)));
    drop((by_the_parameter(true, 1), by_the_body(true, 1)));
}
