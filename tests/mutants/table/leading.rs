//! Mistakes about leading: who leads, for how long, and what ends it.

use super::{Edit::Rust, Mutant};

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_leader_that_leads_on_after_its_loss",
        edits: &[
            Rust { file: "lock/lead.rs", from: "match guard.run(async {", to: "match run(guard, async {" },
            Rust {
                file: "lock/lead.rs",
                from: "/// Logs an error after which",
                to: "async fn run<B: Future>(guard: crate::LockGuard, body: B) -> Result<B::Output, LockError> {
    if mutant!() {
        let _held = guard;
        return Ok(body.await);
    }
    guard.run(body).await
}

/// Logs an error after which",
            },
        ],
        caught_by: &[
            "unit lock::lead::tests::a_body_that_lost_its_lock_is_dropped_and_runs_again_under_a_later_token",
            "memory::leader::a_leader_that_lost_its_lock_leads_again",
        ],
    },
    Mutant {
        name: "a_loss_that_ends_a_candidacy",
        edits: &[Rust {
            file: "lock/lead.rs",
            from: "                        Err(loss) => tracing",
            to: "                        Err(loss) if mutant!() => return Err(loss),
                        Err(loss) => tracing",
        }],
        caught_by: &[
            "unit lock::lead::tests::a_body_that_lost_its_lock_is_dropped_and_runs_again_under_a_later_token",
            "redis::leader::down::an_outage_ends_a_term_and_no_candidacy",
            "redis::leader_torture::one_of_three_processes_leads_at_a_time_and_is_succeeded_in_time",
        ],
    },
    Mutant {
        name: "an_outage_that_ends_a_candidacy",
        edits: &[
            Rust {
                file: "lock/lead.rs",
                from: "let lock = self.clone().wait_forever()",
                to: "let lock = if mutant!() {
            self.clone().wait(Duration::from_millis(200))
        } else {
            self.clone().wait_forever()
        }
        ",
            },
            Rust {
                file: "lock/lead.rs",
                from: "|| !error.is_retryable()",
                to: "|| !error.is_retryable() || mutant!()",
            },
        ],
        caught_by: &[
            "unit lock::lead::tests::an_outage_and_a_limit_delay_the_body_and_end_nothing",
            "redis::leader::black_hole::an_outage_ends_a_term_and_no_candidacy",
        ],
    },
    Mutant {
        name: "a_candidate_that_does_not_pause",
        edits: &[Rust {
            file: "lock/lead.rs",
            from: "backoff(failures)",
            to: "if mutant!() { Duration::ZERO } else { backoff(failures) }",
        }],
        caught_by: &["unit lock::lead::tests::locks_that_are_lost_at_once_are_not_asked_for_again_at_once"],
    },
    Mutant {
        name: "a_candidate_that_pauses_longer_after_each_term",
        edits: &[Rust {
            file: "lock/lead.rs",
            from: "if Instant::now() >= began + LONGEST_PAUSE {",
            to: "if !mutant!() && Instant::now() >= began + LONGEST_PAUSE {",
        }],
        caught_by: &["unit lock::lead::tests::a_pause_after_a_long_term_is_short"],
    },
    Mutant {
        name: "a_shutdown_that_ends_a_term",
        edits: &[Rust {
            file: "lock/lead.rs",
            from: "body(held).await })",
            to: "
                        let body = body(held);
                        if !mutant!() {
                            return body.await;
                        }
                        tokio::select! {
                            biased;
                            _ = self.engine.closed() => std::panic::resume_unwind(Box::new(\"shut down\")),
                            output = body => output,
                        }
                    })",
        }],
        caught_by: &[
            "unit lock::lead::tests::a_shutdown_ends_no_term",
            "memory::leader::a_shutdown_ends_a_candidacy_and_no_term",
        ],
    },
    Mutant {
        name: "a_shutdown_that_ends_no_pause",
        edits: &[Rust {
            file: "lock/lead.rs",
            from: "error = self.engine.closed() =>",
            to: "error = self.engine.closed(), if !mutant!() =>",
        }],
        caught_by: &[
            "unit lock::lead::tests::a_shutdown_ends_the_wait_for_the_lock_and_the_pause_after_a_loss",
        ],
    },
    Mutant {
        name: "a_term_that_ends_after_max_hold",
        edits: &[Rust {
            file: "lock/lead.rs",
            from: ".max_hold(Duration::MAX)",
            to: ".max_hold(if mutant!() { self.options.max_hold } else { Duration::MAX })",
        }],
        caught_by: &["unit lock::lead::tests::neither_the_wait_nor_a_term_has_a_limit"],
    },
    Mutant {
        name: "a_leader_whose_lease_is_not_renewed",
        edits: &[Rust {
            file: "lock/lead.rs",
            from: "if !self.options.auto_renew {",
            to: "if !mutant!() && !self.options.auto_renew {",
        }],
        caught_by: &["unit lock::lead::tests::a_lock_that_is_not_renewed_is_refused_before_anything_is_sent"],
    },
    Mutant {
        name: "a_section_without_its_lock_that_wants_to_lead_forever",
        edits: &[Rust {
            file: "lock/lead.rs",
            from: "if error.kind() == LockErrorKind::Lost ",
            to: "if (!mutant!() && error.kind() == LockErrorKind::Lost) ",
        }],
        caught_by: &["unit lock::lead::tests::a_section_that_has_lost_its_lock_does_not_lead_under_it_again"],
    },
    Mutant {
        name: "a_watch_without_pace",
        edits: &[Rust {
            file: "manager/leader.rs",
            from: "            self.next_question = at + between(PACE);",
            to: "            if !mutant!() {
                self.next_question = at + between(PACE);
            }",
        }],
        caught_by: &["unit manager::leader::tests::an_error_is_returned_and_the_watch_goes_on_at_its_pace"],
    },
    Mutant {
        name: "a_watch_that_asks_again_when_it_was_dropped",
        edits: &[Rust {
            file: "manager/leader.rs",
            from: "clock::sleep_until(self.next_question).await;",
            to: "clock::sleep_until(if mutant!() && self.seen.is_none() { Instant::now() } else { self.next_question }).await;",
        }],
        caught_by: &["unit manager::leader::tests::dropped_calls_do_not_ask_more_often"],
    },
    Mutant {
        name: "a_watch_that_takes_a_renewal_for_a_succession",
        edits: &[Rust {
            file: "manager/leader.rs",
            from: "    grant(one) == grant(other)",
            to: "    if mutant!() { one == other } else { grant(one) == grant(other) }",
        }],
        caught_by: &[
            "unit manager::leader::tests::each_leader_is_seen_once_and_a_renewal_is_no_change",
            "memory::leader::a_watch_sees_who_leads",
        ],
    },
];
