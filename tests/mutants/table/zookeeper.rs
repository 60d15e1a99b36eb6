//! Mistakes in the locks on ZooKeeper.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "heartbeats_that_the_leader_answers_alone",
        edits: &[Rust {
            file: "backend/stores/zookeeper/heartbeat.rs",
            from: "    session.write_barrier().await.map(|()| Probe::Write)",
            to: "    if mutant!() { session.client.sync(\"/\").await? } else { session.write_barrier().await? }
    Ok(Probe::Write)",
        }],
        caught_by: &[
            "servers zookeeper_ensemble::the_holder_at_a_leader_that_was_replaced_is_told_before_the_next_one_holds",
        ],
    },
    Mutant {
        name: "heartbeats_that_any_server_answers",
        edits: &[Rust {
            file: "backend/stores/zookeeper/heartbeat.rs",
            from: "async fn probe(session: Arc<Session>) -> Result<Probe, zk::Error> {",
            to: "async fn probe(session: Arc<Session>) -> Result<Probe, zk::Error> {
    if mutant!() { return session.client.check_stat(\"/\").await.map(|_| Probe::Write); }",
        }],
        caught_by: &[
            "servers zookeeper_ensemble::the_holder_at_a_follower_that_is_cut_off_is_told_before_the_next_one_holds",
        ],
    },
    Mutant {
        name: "a_mute_server_is_left_late",
        edits: &[Rust {
            file: "backend/stores/zookeeper/config.rs",
            from: "        let enough = Duration::from_secs(2).min(self.session_timeout / 3);",
            to: "        let enough = if mutant!() { Duration::MAX } else { Duration::from_secs(2) }.min(self.session_timeout / 3);",
        }],
        caught_by: &["servers zookeeper::outages::a_mute_server_for_three_eighths_of_a_session_costs_no_lock"],
    },
    Mutant {
        name: "a_sign_of_life_counts_from_its_sending",
        edits: &[Rust {
            file: "backend/stores/zookeeper/validity.rs",
            from: "        earlier.answered + self.timeout / 4 <= sent",
            to: "        (if mutant!() { earlier.sent } else { earlier.answered }) + self.timeout / 4 <= sent",
        }],
        caught_by: &[
            "unit backend::stores::zookeeper::validity::tests::a_sign_of_life_that_was_late_on_its_way_counts_from_when_it_had_surely_arrived",
        ],
    },
    Mutant {
        name: "a_loss_that_the_servers_tell",
        edits: &[Rust {
            file: "backend/stores/zookeeper/validity.rs",
            from: "        Some(valid_until(reported.sent, self.timeout))",
            to: "        Some(valid_until(reported.sent, if mutant!() { self.timeout * 9 } else { self.timeout }))",
        }],
        // On a cut connection the driver's own limit comes in time.
        caught_by: &[
            "servers zookeeper_ensemble::a_leader_that_nobody_follows_keeps_no_hold_alive",
            "servers zookeeper_ensemble::the_holder_at_a_follower_that_is_cut_off_is_told_before_the_next_one_holds",
        ],
    },
    Mutant {
        name: "tokens_are_the_numbers_of_the_queue",
        edits: &[Rust {
            file: "backend/stores/zookeeper/attempt.rs",
            from: "self.contender.made().map_or(0, |made| made.czxid);",
            to: "self.contender.made().map_or(0, |made| if mutant!() {
                made.name.rsplit_once('-').map_or(0, |(_, number)| number.parse::<i64>().unwrap_or(0) + 1)
            } else { made.czxid });",
        }],
        caught_by: &["servers zookeeper::tokens_rise_when_a_lock_s_node_is_deleted_and_made_again"],
    },
    Mutant {
        name: "everybody_watches_the_holder",
        edits: &[Rust {
            file: "backend/stores/zookeeper/queue.rs",
            from: "        .max();",
            to: "        .reduce(|one, other| if mutant!() { one.min(other) } else { one.max(other) });",
        }],
        caught_by: &["servers zookeeper::a_hand_over_wakes_exactly_one_of_two_hundred_waiters"],
    },
    Mutant {
        name: "a_node_whose_answer_was_lost_is_not_looked_for",
        edits: &[Rust {
            file: "backend/stores/zookeeper/hold.rs",
            from: "        let ours = stat.filter(|stat| stat.ephemeral_owner == client.session_id().0);",
            to: "        let ours = stat.filter(|stat| stat.ephemeral_owner == client.session_id().0 && !mutant!());",
        }],
        caught_by: &[
            "zookeeper::reconnect::an_answer_lost_at_any_call_leaves_nothing_and_grants_nothing_twice",
        ],
    },
    Mutant {
        name: "more_watches_than_the_driver_can_send_again",
        edits: &[Rust {
            file: "backend/stores/zookeeper/watches.rs",
            from: "        Arc::clone(of).try_acquire_many_owned(bytes).ok()",
            to: "        Arc::clone(of).try_acquire_many_owned(if mutant!() { 0 } else { bytes }).ok()",
        }],
        caught_by: &["servers zookeeper::outages::a_broken_connection_costs_none_of_thousands_of_locks"],
    },
    Mutant {
        name: "heartbeats_that_end_with_a_panic_of_the_log",
        edits: &[Rust {
            file: "backend/stores/zookeeper/heartbeat.rs",
            from: "        if thread::panicking() && self.session",
            to: "        if !mutant!() && thread::panicking() && self.session",
        }],
        caught_by: &[
            "unit backend::stores::zookeeper::connect::tests::a_panic_of_the_log_s_subscriber_does_not_end_the_heartbeats",
        ],
    },
    Mutant {
        name: "a_watch_that_panics_without_the_driver",
        edits: &[Rust {
            file: "backend/stores/zookeeper/watches.rs",
            from: "        match catch_unwind(AssertUnwindSafe(|| event.as_mut().poll(context))) {",
            to: "        let polled = if mutant!() {
            Ok(event.as_mut().poll(context))
        } else {
            catch_unwind(AssertUnwindSafe(|| event.as_mut().poll(context)))
        };
        match polled {",
        }],
        caught_by: &[
            "unit backend::stores::zookeeper::connect::tests::a_watch_whose_driver_is_gone_does_not_panic",
        ],
    },
];
