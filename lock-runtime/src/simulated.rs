//! The replacements that a [simulation](crate::simulation) has for the clock, the randomness, the library's own thread,
//! and the network. Only for unit tests; outside of a simulation, nothing changes.

#![cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only the servers of Redis are simulated"))]

use std::{
    cell::{Cell, RefCell},
    io,
    mem::ManuallyDrop,
    time::Duration,
};

use rand::{RngCore, SeedableRng, rngs::SmallRng};
use tokio::runtime::{self, Handle};
use turmoil::net::TcpStream;

thread_local! {
    /// The time at which processes are killed, while their destructors run.
    static KILLED_AT: Cell<Option<Duration>> = const { Cell::new(None) };
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// The part of the simulation that turmoil does not provide.
struct World {
    random: SmallRng,
    /// For each runtime of a simulated process, the runtime that stands for the library's own thread.
    backgrounds: Vec<(runtime::Id, Handle)>,
    traced: bool,
}

/// Runs a simulation on this thread.
pub(crate) fn run<T>(seed: u64, traced: bool, simulation: impl FnOnce() -> T) -> T {
    let world = World { random: SmallRng::seed_from_u64(seed), backgrounds: Vec::new(), traced };
    WORLD.set(Some(world));
    let output = simulation();
    WORLD.set(None);
    output
}

fn with<T>(what: impl FnOnce(&mut World) -> T) -> Option<T> {
    WORLD.with_borrow_mut(|world| world.as_mut().map(what))
}

/// Prints an event, if the simulation is traced.
pub(crate) fn trace(what: impl FnOnce() -> String) {
    if with(|world| world.traced) == Some(true) {
        println!("{:?} {}", elapsed().unwrap_or_default(), what());
    }
}

pub(crate) fn is_on() -> bool {
    with(|_| ()).is_some()
}

/// Returns the time since the simulation began; `None` outside of a simulation.
///
/// While the destructors of a killed process run, this is the time at which it was killed. Turmoil's time would be
/// wrong: some of the destructors run outside of the process's runtime, where turmoil would return the time of the
/// machine.
pub(crate) fn elapsed() -> Option<Duration> {
    KILLED_AT.get().or_else(turmoil::sim_elapsed)
}

/// Returns the present moment, in nanoseconds of the library's clock.
pub(crate) fn now() -> Option<u64> {
    // The simulation begins one day after zero, so that earlier moments can be computed.
    let now = elapsed()? + Duration::from_secs(24 * 60 * 60);
    u64::try_from(now.as_nanos()).ok()
}

/// Returns a random number for jitter, drawn from the seed.
pub(crate) fn random() -> Option<u32> {
    with(|world| world.random.next_u32())
}

/// Fills `bytes` from the seed, for use as a secret; returns false outside of a simulation.
pub(crate) fn fill(bytes: &mut [u8]) -> bool {
    with(|world| world.random.fill_bytes(bytes)).is_some()
}

/// Lets `background` stand for the library's own thread of the caller's runtime.
pub(crate) fn set_background(background: &Handle) {
    let caller = Handle::current().id();
    let pairs = [caller, background.id()].map(|runtime| (runtime, background.clone()));
    with(|world| world.backgrounds.extend(pairs));
}

/// Returns the runtime that stands for the library's own thread of the caller's runtime. Outside of a runtime, as in
/// some destructors, returns the runtime that was set last.
pub(crate) fn background() -> Option<Handle> {
    let here = Handle::try_current().ok().map(|here| here.id());
    with(|World { backgrounds, .. }| {
        let ours = backgrounds.iter().find(|(of, _)| Some(*of) == here);
        ours.or(backgrounds.last()).map(|(_, background)| background.clone())
    })?
}

/// Runs `end`, in which processes are killed at the time `at`. Their destructors start no tasks, because a killed
/// process has no threads.
pub(crate) fn kill<T>(at: Duration, end: impl FnOnce() -> T) -> T {
    KILLED_AT.set(Some(at));
    let output = end();
    KILLED_AT.set(None);
    output
}

/// Returns the task, unless its process is being killed. In that case, the task is never dropped, because its
/// destructor could start the same task again.
pub(crate) fn unless_killed<T>(task: T) -> Option<T> {
    if KILLED_AT.get().is_none() {
        return Some(task);
    }
    let _ = ManuallyDrop::new(task);
    None
}

pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect((host, port)).await
}
