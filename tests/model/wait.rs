//! How long dead places hold up a live waiter, in seconds of the store's own constants.

use libtest_mimic::{Failed, Trial};
use stateright::Model;

use crate::{
    handover::Handover,
    liveness::Pushes,
    state::{Call, Holder, Mode, Owner, Phase, Place, State},
    variant::{Break, Role, Times, Variant},
};

/// `REFRESH`, `CLAIM_WINDOW` and `STALE` of `place.rs`, and the default ttl.
const STORE: Times = Times { ttl: 30, window: 2, stale: 5, refresh: 1, margin: 0 };

pub(crate) fn all() -> Vec<Trial> {
    vec![
        Trial::test("wait::dead_places_cost_staleness_and_claim_window_together", || {
            within_the_bound("as built", &[], Pushes::Arrive)
        }),
        Trial::test("wait::lost_pushes_cost_no_more", || within_the_bound("pushes lost", &[], Pushes::Lost)),
        Trial::test(
            "wait::a_client_that_does_not_queue_gets_in_where_a_lock_is_left_free_and_only_there",
            || match (rounds_of_a_foreign_client(8), rounds_of_a_foreign_client(u32::MAX)) {
                (Some(8), None) => Ok(()),
                other => Err(format!("gets in after so many rounds: {other:?}").into()),
            },
        ),
        Trial::test("wait::grants_for_a_whole_ttl_cost_a_ttl", || {
            match within_the_bound("grants for a ttl", &[Break::GrantForTtl], Pushes::Arrive) {
                Ok(()) => Err("not caught".into()),
                Err(_) => Ok(()),
            }
        }),
    ]
}

fn within_the_bound(name: &'static str, broken: &'static [Break], pushes: Pushes) -> Result<(), Failed> {
    let waits: Vec<_> = (0..8).map(|dead| wait_behind(dead, broken, pushes)).collect();
    println!("model: wait behind 0 to 7 dead places, {name}: {waits:?} s");
    let bound = STORE.stale + STORE.window + STORE.refresh;
    if waits.iter().all(|wait| wait.is_some_and(|wait| wait <= bound)) {
        Ok(())
    } else {
        Err(format!("longer than {bound} s").into())
    }
}

/// The lock is released at second 0; before the live waiter stand places whose processes have just died.
fn wait_behind(dead: u8, broken: &'static [Break], pushes: Pushes) -> Option<u8> {
    let clients = vec![Role::own(1, 1); usize::from(dead) + 2];
    let model = Handover::new(Variant::new("wait", STORE, &clients).breaking(broken));
    let owner = |client| Owner { client, attempt: 0 };
    let (live, holder) = (0, dead + 1);
    let mut s: State = model.init_states().pop()?;
    for client in 1..=holder {
        s.client_mut(client).phase = Phase::Dead;
    }
    s.client_mut(live).phase = Phase::Waiting { age: 0, seen: 1 };
    s.fence = 1;
    s.holder = Some(Holder { owner: owner(holder), fence: 1, px: STORE.ttl, tenure: 0 });
    s.queue = (1..=dead).chain([live]).map(|client| Place { owner: owner(client), age: 0 }).collect();
    model.execute(&mut s, owner(holder), Call::Release, 0, false);
    model.serve(s, pushes)
}

/// After how many releases a client that knows only `SET NX`, and tries after each of them, holds the lock, while two
/// others take turns at it without an end; each `open_every`-th release leaves it free. None if it never does.
fn rounds_of_a_foreign_client(open_every: u32) -> Option<u32> {
    let own = Role::own(Role::UNLIMITED, 1);
    let model = Handover::new(Variant::new("foreign", STORE, &[own, own, Role::FOREIGN]).opens());
    let owner = |client| Owner { client, attempt: 0 };
    let mut s: State = model.init_states().pop()?;
    let join = Call::Acquire(Mode::Join);
    model.execute(&mut s, owner(0), join, 0, false);
    for round in 1..=100 {
        let (holder, next) = if round % 2 == 1 { (owner(0), owner(1)) } else { (owner(1), owner(0)) };
        model.execute(&mut s, next, join, 0, false);
        if round % open_every == 0 {
            model.release_openly(&mut s, holder);
        } else {
            model.execute(&mut s, holder, Call::Release, 0, false);
        }
        model.execute(&mut s, owner(2), Call::SetNx, 0, false);
        if s.is_held_by(owner(2)) {
            return Some(round);
        }
        assert!(s.is_held_by(next), "the turn of the one who waits");
    }
    None
}
