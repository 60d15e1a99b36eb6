//! Mistakes of the command `distlock`: when a command is ended, and what it gets.

use super::{Edit::Rust, Mutant};

const KEEPER: &str = "bin/distlock/keeper/mod.rs";
const SUPERVISOR: &str = "bin/distlock/run/supervisor.rs";

pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a_command_that_outlives_distlock",
        edits: &[Rust {
            file: "bin/distlock/plan.rs",
            from: "    if group.is_orphaned ||",
            to: "    if (group.is_orphaned && !mutant!()) ||",
        }],
        caught_by: &[
            "distlock redis::a_killed_distlock_takes_its_command_along",
            "distlock postgres_advisory::a_killed_distlock_takes_its_command_along",
        ],
    },
    Mutant {
        name: "a_keeper_without_a_deadline",
        edits: &[Rust {
            file: KEEPER,
            from: "            Order::Until(until) => {",
            to: "            Order::Until(until) => {
                let until = if mutant!() { Until { term: u64::MAX, kill: u64::MAX } } else { until };",
        }],
        caught_by: &["distlock alone::a_stopped_distlock_does_not_keep_its_command_alive"],
    },
    Mutant {
        name: "a_distlock_that_relies_on_its_keeper",
        edits: &[
            Rust { file: SUPERVISOR, from: "if now >= strike &&", to: "if !mutant!() && now >= strike &&" },
            Rust {
                file: SUPERVISOR,
                from: "self.keeper.wake();",
                to: "if !mutant!() { self.keeper.wake(); }",
            },
        ],
        caught_by: &["distlock alone::a_stopped_keeper_does_not_keep_the_command_alive"],
    },
    Mutant {
        name: "a_loss_without_a_warning",
        edits: &[Rust {
            file: "bin/distlock/plan.rs",
            from: "(longest / 3).min(LONGEST_GRACE)",
            to: "if mutant!() { Duration::ZERO } else { (longest / 3).min(LONGEST_GRACE) }",
        }],
        caught_by: &["distlock alone::a_killed_server_ends_the_command_first_with_term"],
    },
    Mutant {
        name: "a_revocation_without_a_grace",
        edits: &[Rust {
            file: SUPERVISOR,
            from: "if is_revoked(&held.lock) {",
            to: "if is_revoked(&held.lock) && !mutant!() {",
        }],
        caught_by: &[
            "distlock redis::a_revoked_command_has_a_grace",
            "distlock zookeeper::a_revoked_command_has_a_grace",
        ],
    },
    Mutant {
        name: "a_grace_beside_the_next_holder",
        edits: &[Rust {
            file: SUPERVISOR,
            from: "plan::lost(now)",
            to: "if mutant!() { plan::revoked(now, held.deadline, held.longest) } else { plan::lost(now) }",
        }],
        caught_by: &[
            "distlock alone::a_lock_that_is_another_clients_ends_the_command_at_once",
            "distlock alone::a_lock_revoked_by_force_ends_the_command_at_once",
        ],
    },
    Mutant {
        name: "a_keeper_that_hears_of_no_renewal",
        edits: &[Rust {
            file: SUPERVISOR,
            from: "is_renewed.then_some(until)",
            to: "(is_renewed && !(mutant!() && held.until.kill > 0)).then_some(until)",
        }],
        caught_by: &["distlock alone::a_busy_distlock_goes_on_renewing"],
    },
    Mutant {
        name: "a_keeper_whose_end_is_not_seen",
        edits: &[Rust {
            file: SUPERVISOR,
            from: "        if self.keeper.is_closed() {",
            to: "        if self.keeper.is_closed() && !mutant!() {",
        }],
        caught_by: &["distlock alone::a_killed_keeper_ends_the_command"],
    },
    Mutant {
        name: "a_command_without_a_death_signal",
        edits: &[Rust {
            file: "bin/distlock/keeper/stage.rs",
            from: "set_parent_process_death_signal(Some(Signal::KILL))",
            to: "set_parent_process_death_signal(Some(Signal::KILL).filter(|_| !mutant!()))",
        }],
        caught_by: &["distlock alone::both_killed_at_once_end_the_command_itself"],
    },
    Mutant {
        name: "a_release_before_the_group_is_gone",
        edits: &[Rust {
            file: "bin/distlock/keeper/group.rs",
            from: "&& test_kill_process_group(self.id) == Err(Errno::SRCH)",
            to: "&& (mutant!() || test_kill_process_group(self.id) == Err(Errno::SRCH))",
        }],
        caught_by: &["distlock alone::what_the_command_leaves_behind_ends_before_the_release"],
    },
    Mutant {
        name: "a_command_that_knows_the_password",
        edits: &[
            Rust {
                file: "bin/distlock/keeper/stage.rs",
                from: ".env_remove(program::URL)",
                to: ".env_remove(if mutant!() { \"LOCK_NONE\" } else { program::URL })",
            },
            Rust {
                file: "bin/distlock/run/keeper_process.rs",
                from: ".env_remove(program::URL)",
                to: ".env_remove(if mutant!() { \"LOCK_NONE\" } else { program::URL })",
            },
        ],
        caught_by: &["distlock alone::the_url_is_neither_in_the_command_nor_in_its_keeper"],
    },
    Mutant {
        name: "a_signal_that_ends_distlock_before_its_command",
        edits: &[Rust {
            file: SUPERVISOR,
            from: "Stage::Running => self.keeper.send(Order::Signal(signal.as_raw())),",
            to: "Stage::Running if mutant!() => self.finish(),
            Stage::Running => self.keeper.send(Order::Signal(signal.as_raw())),",
        }],
        caught_by: &["distlock alone::signals_reach_the_command_and_not_distlock"],
    },
    Mutant {
        name: "a_wait_that_no_signal_ends",
        edits: &[Rust {
            file: SUPERVISOR,
            from: "Stage::Waiting if ENDING.contains(&signal) =>",
            to: "Stage::Waiting if ENDING.contains(&signal) && !mutant!() =>",
        }],
        caught_by: &["distlock alone::a_signal_ends_the_wait"],
    },
    Mutant {
        name: "an_ignored_signal_that_is_caught",
        edits: &[Rust {
            file: "bin/distlock/signals.rs",
            from: "all.filter(|signal| mask &",
            to: "all.filter(|signal| !mutant!() && mask &",
        }],
        caught_by: &["distlock alone::a_signal_that_is_ignored_stays_ignored"],
    },
    Mutant {
        name: "a_terminal_that_the_command_does_not_get",
        edits: &[Rust {
            file: "bin/distlock/terminal.rs",
            from: "is_ok_and(|now| now == from)",
            to: "is_ok_and(|now| now == from && !mutant!())",
        }],
        caught_by: &["distlock alone::the_command_has_the_terminal_and_gives_it_back"],
    },
    Mutant {
        name: "a_status_that_hides_a_signal",
        edits: &[Rust {
            file: "bin/distlock/exit.rs",
            from: "    u8::try_from(128 + signal)",
            to: "    u8::try_from(if mutant!() { 1 } else { 128 + signal })",
        }],
        caught_by: &["distlock alone::the_status_is_that_of_the_command"],
    },
    Mutant {
        name: "a_loss_that_spares_what_has_left_the_group",
        edits: &[
            Rust {
                file: "bin/distlock/keeper/group.rs",
                from: "self.takes_strays |= is_lost;",
                to: "self.takes_strays |= is_lost && !mutant!();",
            },
            Rust {
                file: "bin/distlock/keeper/group.rs",
                from: "self.takes_strays || self.is_ending",
                to: "self.takes_strays || self.is_ending && !mutant!()",
            },
        ],
        caught_by: &[
            "distlock alone::what_has_left_the_group_ends_with_the_command_when_the_lock_is_lost",
            "distlock alone::what_has_left_the_group_of_a_revoked_command_ends_with_it",
        ],
    },
    Mutant {
        name: "an_end_that_takes_daemons_along",
        edits: &[Rust {
            file: "bin/distlock/keeper/mod.rs",
            from: "group.is_gone() ||",
            to: "{ if mutant!() && group.state.left_at.is_some() { group.kill(true); } group.is_gone() } ||",
        }],
        caught_by: &["distlock alone::what_has_left_the_group_runs_on_after_the_command"],
    },
    Mutant {
        name: "a_wait_that_swallows_an_interrupt",
        edits: &[Rust {
            file: SUPERVISOR,
            from: "if std::process::id() != 1 {",
            to: "if std::process::id() != 1 && !mutant!() {",
        }],
        caught_by: &["distlock alone::a_signal_ends_the_wait"],
    },
];
