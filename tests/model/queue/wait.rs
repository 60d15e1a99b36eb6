//! The longest delay of a live waiter by dead queue entries, with the store's own constants.

use libtest_mimic::{Failed, Trial};
use stateright::Model;

use super::{
    handover::Handover,
    liveness::Pushes,
    state::{Call, Holder, Mode, Owner, Phase, Place, State},
    variant::{Break, Role, Times, Variant},
};

/// `CLAIM_WINDOW`, `STALE`, `REFRESH` and the open window of `place.rs`, and the default ttl, in quarters of a second.
const STORE: Times = Times { ttl: 120, window: 8, stale: 20, refresh: 4, margin: 0, limit: 20, open: 1 };

pub(crate) fn all() -> Vec<Trial> {
    let fails = |result: Result<(), Failed>| match result {
        Ok(()) => Err("not caught".into()),
        Err(_) => Ok(()),
    };
    vec![
        Trial::test("queue::wait::one_dead_place_costs_a_claim_window_and_a_refresh", || one_dead_place(&[])),
        Trial::test("queue::wait::grants_that_grow_with_the_age_of_a_place_cost_more", move || {
            fails(one_dead_place(&[Break::GrantGrowsWithAge]))
        }),
        Trial::test("queue::wait::grants_for_a_whole_ttl_cost_a_ttl", move || {
            fails(one_dead_place(&[Break::GrantForTtl]))
        }),
        Trial::test("queue::wait::dead_places_cost_staleness_and_a_claim_window_together", dead_places),
        Trial::test("queue::wait::a_lost_push_costs_no_turn", || lost_turns(STORE)),
        Trial::test(
            "queue::wait::claim_window_that_is_not_longer_than_the_refresh_interval_costs_turns",
            move || fails(lost_turns(Times { window: STORE.refresh, ..STORE })),
        ),
        Trial::test(
            "queue::wait::a_client_that_does_not_queue_gets_in_where_a_lock_is_left_open_and_only_there",
            || match (round_of_a_foreign_client(8, &[]), round_of_a_foreign_client(u32::MAX, &[])) {
                (Some(8), None) => Ok(()),
                other => Err(format!("rounds until it gets in: {other:?}").into()),
            },
        ),
        Trial::test("queue::wait::a_client_that_does_not_queue_needs_the_whole_window", || {
            match round_of_a_foreign_client(8, &[Break::WindowIgnored]) {
                None => Ok(()),
                Some(round) => Err(format!("gets in after {round} rounds").into()),
            }
        }),
    ]
}

/// One live waiter behind places whose processes are dead or stopped.
#[derive(Clone, Copy, Debug)]
struct Behind<'a> {
    /// The age of each place when the lock is released.
    ages: &'a [u8],
    /// The time of the live waiter's first poll.
    look: u8,
    /// The lock is left open.
    open: bool,
    pushes: Pushes,
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug)]
struct Waited {
    /// Ticks until the live waiter held the lock.
    ticks: u8,
    /// Number of times it lost its turn and had to queue anew.
    lost_turns: usize,
}

fn one_dead_place(broken: &'static [Break]) -> Result<(), Failed> {
    let bound = STORE.window + STORE.refresh + 1;
    let ages: Vec<[u8; 1]> = (0..STORE.stale).map(|age| [age]).collect();
    within("one dead place of any age", bound, broken, ages.iter().map(|ages| &ages[..]))
}

/// Eight of them, of all ages, in the orders that differ most; and three in all orders.
fn dead_places() -> Result<(), Failed> {
    let bound = STORE.stale + STORE.window + STORE.refresh;
    assert!(bound <= 2 * STORE.stale + STORE.window, "the promised bound");
    let mut eight: Vec<Vec<u8>> = Vec::new();
    for oldest in 0..STORE.stale {
        for youngest in 0..=oldest {
            let rising: Vec<u8> = (0..8).map(|n| youngest + (oldest - youngest) * n / 7).collect();
            eight.push(rising.iter().rev().copied().collect());
            eight.push(rising.iter().flat_map(|age| [*age, oldest - (*age - youngest)]).take(8).collect());
            eight.push(rising);
        }
    }
    within("eight dead places", bound, &[], eight.iter().map(Vec::as_slice))?;
    let ages = || 0..STORE.stale;
    let three: Vec<[u8; 3]> =
        ages().flat_map(|a| ages().flat_map(move |b| ages().map(move |c| [a, b, c]))).collect();
    within("three dead places", bound, &[], three.iter().map(|ages| &ages[..]))
}

/// Checks the longest wait behind each of these places.
fn within<'a>(
    name: &str,
    bound: u8,
    broken: &'static [Break],
    cases: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Failed> {
    let mut longest: Option<(u8, Behind<'_>)> = None;
    for ages in cases {
        for case in all_of(ages) {
            let waited = wait_behind(case, STORE, broken).ok_or_else(|| format!("never served: {case:?}"))?;
            if longest.is_none_or(|(ticks, _)| waited.ticks > ticks) {
                longest = Some((waited.ticks, case));
            }
        }
    }
    let (ticks, case) = longest.expect("there are cases");
    println!(
        "model: wait behind {name}{}: at most {} s of {} s",
        if broken.is_empty() { String::new() } else { format!(", {broken:?}") },
        f32::from(ticks) / 4.0,
        f32::from(bound) / 4.0
    );
    if ticks <= bound { Ok(()) } else { Err(format!("longer than {bound} ticks: {ticks}, {case:?}").into()) }
}

fn all_of(ages: &[u8]) -> impl Iterator<Item = Behind<'_>> {
    [false, true].into_iter().flat_map(move |open| {
        [Pushes::Arrive, Pushes::Lost]
            .into_iter()
            .flat_map(move |pushes| (0..=STORE.refresh).map(move |look| Behind { ages, look, open, pushes }))
    })
}

/// A live waiter whose grant is not delivered finds it with its next poll.
fn lost_turns(times: Times) -> Result<(), Failed> {
    for ages in [&[][..], &[0], &[0, 0]] {
        for case in all_of(ages) {
            let waited = wait_behind(case, times, &[]).ok_or("never served")?;
            if waited.lost_turns > 0 {
                return Err(format!("{case:?}: {waited:?}").into());
            }
        }
    }
    Ok(())
}

/// The lock is released at once; the places before the live waiter belong to dead clients.
fn wait_behind(case: Behind<'_>, times: Times, broken: &'static [Break]) -> Option<Waited> {
    let clients = vec![Role::own(1, 1); case.ages.len() + 2];
    let model = Handover::new(Variant::new("wait", times, &clients).breaking(broken));
    let dead = u8::try_from(case.ages.len()).expect("a few");
    let owner = |client| Owner { client, attempt: 0 };
    let (live, holder) = (0, dead + 1);
    let mut s: State = model.init_states().pop()?;
    for client in 1..=holder {
        s.client_mut(client).phase = Phase::Dead;
    }
    let proven = times.refresh - case.look;
    s.client_mut(live).phase = Phase::Waiting { age: proven, seen: 1 };
    s.fence = 1;
    s.holder = Some(Holder { owner: owner(holder), fence: 1, px: times.ttl, tenure: 0, revoked: false });
    s.queue = (1..=dead)
        .zip(case.ages)
        .map(|(client, age)| Place { owner: owner(client), age: *age })
        .chain([Place { owner: owner(live), age: proven }])
        .collect();
    if case.open {
        model.release_openly(&mut s, owner(holder));
    } else {
        model.execute(&mut s, model.request(owner(holder), Call::Release));
    }
    let ticks = model.serve(s, case.look, case.pushes)?;
    Some(Waited { ticks, lost_turns: model.tally.lost_turns.into_inner() })
}

/// Returns the number of releases after which a client that knows only `SET NX`, and tries once after each of them,
/// holds the lock. Two others take turns at it without an end, and both ask before it does; each `open_every`-th
/// release leaves the lock open. `None` if it never does.
fn round_of_a_foreign_client(open_every: u32, broken: &'static [Break]) -> Option<u32> {
    let own = Role::own(Role::UNLIMITED, 1);
    let variant = Variant::new("foreign", STORE, &[own, own, Role::FOREIGN]).opens().breaking(broken);
    let model = Handover::new(variant);
    let owner = |client| Owner { client, attempt: 0 };
    let mut s: State = model.init_states().pop()?;
    let ask = |s: &mut State, client, call| model.execute(s, model.request(owner(client), call));
    ask(&mut s, 0, Call::Acquire(Mode::Join));
    ask(&mut s, 1, Call::Acquire(Mode::Join));
    for round in 1..=100 {
        let (holder, next) = if round % 2 == 1 { (0, 1) } else { (1, 0) };
        if round % open_every == 0 {
            model.release_openly(&mut s, owner(holder));
        } else {
            ask(&mut s, holder, Call::Release);
        }
        ask(&mut s, holder, Call::Acquire(Mode::Join));
        ask(&mut s, next, Call::Acquire(Mode::Poll));
        ask(&mut s, 2, Call::SetNx);
        if s.is_held_by(owner(2)) {
            return Some(round);
        }
        assert!(s.is_held_by(owner(next)), "the turn of the waiter");
    }
    None
}
