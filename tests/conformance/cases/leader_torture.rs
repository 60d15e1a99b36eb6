//! Leading, from a seed: three processes that are killed and paused at random, and a judge of their terms.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use lock_runtime::HeldLock;
use tokio::sync::mpsc;

use super::{
    LONG,
    leader::{DEAD_CANDIDATE, SUCCESSION, held_after_a_crash},
    ms, torture,
};
use crate::{
    case::{Case, Need, case},
    client_process::store_of,
    fixture::Fixture,
    store::Store,
    support::{
        Random,
        child::Child,
        history::{Hold, judge},
        monotonic,
        stopwatch::Moment,
    },
};

pub fn cases() -> Vec<Case> {
    vec![
        case!(one_of_three_processes_leads_at_a_time_and_is_succeeded_in_time)
            .needs(Need::Can(|can| can.is_shared_between_processes()))
            .limit(torture::limit()),
    ]
}

/// How long a dead candidate may stand in the queue of a store before its place is stale, and more.
const STALE: Duration = Duration::from_secs(10);
/// How much later a candidate leads, however many dead ones stand before it: until their places are stale.
const DEAD_CANDIDATES: Duration = ms(8100);

async fn one_of_three_processes_leads_at_a_time_and_is_succeeded_in_time(fixture: Fixture) {
    let (seed, length) = (Random::seed(), torture::length(&fixture));
    let mut random = Random::from_seed(seed);
    let mut candidates = Candidates::start(fixture, seed).await;
    candidates.one_leads().await;
    let end = Instant::now() + length;
    let mut successions = 0;
    while Instant::now() < end {
        tokio::time::sleep(ms(random.below(400))).await;
        for _ in 0..=random.below(2) {
            candidates.hurt_one(&mut random).await;
            tokio::time::sleep(ms(random.below(3) * random.below(150))).await;
        }
        candidates.one_leads().await;
        successions += 1;
        candidates.heal(&mut random).await;
    }
    let (fixture, history) = candidates.end().await;
    let verdict = judge(history.clone());
    println!("seed {seed}: {successions} successions, {verdict:?}");
    assert!(verdict.is_clean(), "{verdict:?}; again with LOCK_TEST_SEED={seed}: {history:?}");
    assert!(verdict.holds >= 2, "{verdict:?} shows nothing; seed {seed}");
    let key = fixture.key("k");
    let guard = fixture.client().await.lock(&key).wait(LONG).acquire().await.unwrap();
    assert!(history.iter().all(|hold| hold.token < guard.fencing_token().get()));
    guard.release().await.unwrap();
}

/// The processes, and the terms that they have reported.
struct Candidates {
    fixture: Fixture,
    seed: u64,
    started: u64,
    ttl: Duration,
    processes: Vec<Process>,
    /// The terms of the processes that were killed.
    history: Vec<Hold>,
    /// When a process was killed or paused that was no leader.
    dead: Vec<Instant>,
    /// When a process was last killed or paused.
    disturbed: (Moment, u64),
}

struct Process {
    child: Child,
    is_paused: bool,
    terms: Vec<Term>,
}

/// One term of a process. Times are nanoseconds on the clock that all processes share.
struct Term {
    token: u64,
    asked: u64,
    from: u64,
    /// When the lock was last seen to be valid, and its deadline as of then, or a moment before.
    seen: u64,
    deadline: u64,
    /// When the body was dropped, or had completed.
    over: Option<u64>,
}

impl Candidates {
    async fn start(fixture: Fixture, seed: u64) -> Self {
        let ttl = fixture.lease(ms(800));
        let mut candidates = Self {
            fixture,
            seed,
            started: 0,
            ttl,
            processes: Vec::new(),
            history: Vec::new(),
            dead: Vec::new(),
            disturbed: (Moment::now(), monotonic()),
        };
        for _ in 0..3 {
            candidates.start_one().await;
        }
        candidates.disturbed = (Moment::now(), monotonic());
        candidates
    }

    async fn start_one(&mut self) {
        let mut child = Child::start("candidate");
        self.started += 1;
        let seed = self.seed.wrapping_add(self.started);
        let (key, ttl) = (self.fixture.key("k"), self.ttl.as_millis());
        let task = format!("{key} {seed} {ttl} {} {}", self.fixture.store().name(), self.fixture.url());
        assert_eq!(child.ask(&task).await, "begun");
        self.processes.push(Process { child, is_paused: false, terms: Vec::new() });
    }

    /// Kills or pauses a process, the leader every other time. One process is always left alone.
    async fn hurt_one(&mut self, random: &mut Random) {
        self.collect();
        let awake: Vec<_> = (0..self.processes.len()).filter(|at| !self.processes[*at].is_paused).collect();
        if awake.len() < 2 {
            return;
        }
        let leader = awake.iter().find(|at| self.processes[**at].leads()).filter(|_| random.below(2) == 0);
        let at = *leader.unwrap_or(&awake[usize::try_from(random.below(awake.len() as u64)).unwrap()]);
        let hurt = monotonic();
        let was_leader = if random.below(2) == 0 {
            let mut process = self.processes.swap_remove(at);
            process.child.kill();
            while let Some(line) = process.child.answer().await {
                process.read(&line);
            }
            let was_leader = process.leads();
            self.history.extend(process.terms.iter().map(|term| term.hold(hurt)));
            was_leader
        } else {
            let process = &mut self.processes[at];
            process.child.pause();
            process.is_paused = true;
            // Until the last lines have arrived.
            tokio::time::sleep(ms(30)).await;
            process.collect();
            process.leads()
        };
        if !was_leader {
            self.dead.push(Instant::now());
        }
        self.disturbed = (Moment::now(), monotonic());
    }

    /// Starts as many processes as were killed, and resumes paused ones, though not always.
    async fn heal(&mut self, random: &mut Random) {
        while self.processes.len() < 3 {
            self.start_one().await;
        }
        for process in self.processes.iter_mut().filter(|process| process.is_paused) {
            if random.below(3) != 0 {
                process.child.resume();
                process.is_paused = false;
            }
        }
        self.collect();
    }

    /// Waits until a process leads that is not paused.
    ///
    /// # Panics
    /// If that takes longer than a crash, a succession, and each candidate that is dead.
    async fn one_leads(&mut self) {
        self.dead.retain(|died| died.elapsed() < STALE);
        let dead = u32::try_from(self.dead.len()).unwrap();
        let limit = held_after_a_crash(&self.fixture, self.ttl)
            + SUCCESSION
            + (DEAD_CANDIDATE * dead).min(DEAD_CANDIDATES);
        let (disturbed, since) = self.disturbed;
        loop {
            // Read first: what arrives later may have been reported in time.
            let took = disturbed.took();
            self.collect();
            let leads = |process: &Process| {
                !process.is_paused
                    && process.leads()
                    && process.terms.last().is_some_and(|term| term.seen > since)
            };
            if self.processes.iter().any(leads) {
                println!("a leader after {took:?}, {dead} dead candidates");
                return;
            }
            assert!(
                took.within(limit),
                "no leader after {took:?}, with {dead} dead candidates; again with LOCK_TEST_SEED={}",
                self.seed
            );
            tokio::time::sleep(ms(2)).await;
        }
    }

    fn collect(&mut self) {
        self.processes.iter_mut().for_each(Process::collect);
    }

    /// Kills all processes; returns all terms.
    async fn end(mut self) -> (Fixture, Vec<Hold>) {
        for mut process in self.processes.drain(..) {
            let killed = monotonic();
            process.child.kill();
            while let Some(line) = process.child.answer().await {
                process.read(&line);
            }
            self.history.extend(process.terms.iter().map(|term| term.hold(killed)));
        }
        (self.fixture, self.history)
    }
}

impl Process {
    fn collect(&mut self) {
        for line in self.child.arrived() {
            self.read(&line);
        }
    }

    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers: Vec<u64> = words[1..].iter().flat_map(|word| word.parse()).collect();
        match (words[0], &numbers[..]) {
            ("term", &[token, asked, from, deadline, _]) => {
                self.terms.push(Term { token, asked, from, seen: from, deadline, over: None });
            }
            ("valid", &[token, seen, not_before, not_after]) => {
                let term = self.terms.last_mut().filter(|term| term.token == token).expect("it leads");
                // A deadline is never moved back.
                assert!(not_after >= term.deadline, "{line} after {}", term.deadline);
                (term.seen, term.deadline) = (seen, term.deadline.max(not_before));
            }
            ("over", &[token, over]) => {
                let term = self.terms.last_mut().filter(|term| term.token == token).expect("it leads");
                term.over = Some(over);
            }
            // The last line of a process that was killed may not be whole.
            _ => {}
        }
    }

    /// Whether it is in a term, as far as the lines tell that have arrived.
    fn leads(&self) -> bool {
        self.terms.last().is_some_and(|term| term.over.is_none())
    }
}

impl Term {
    /// Returns the time in which the process was inside its deadline. `killed` is when it was killed, if the term was not
    /// over by then.
    fn hold(&self, killed: u64) -> Hold {
        let end = self.over.unwrap_or(killed.max(self.seen));
        Hold { token: self.token, asked: self.asked, from: self.from, until: end.min(self.deadline) }
    }
}

/// The main function of a candidate: it gets a key, seed, ttl, store and URL, and reports its terms.
pub async fn candidate(stores: &[&'static dyn Store], mut lines: mpsc::UnboundedReceiver<String>) {
    let line = lines.recv().await.expect("a line with the task");
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    let [key, seed, ttl, store] = words[..] else { panic!("not understood: {line}") };
    let (store, url) = store_of(stores, store);
    let locks = store.connect(url).await.expect("the store can be reached");
    let lock = locks.lock(key).ttl(ms(ttl.parse().unwrap()));
    let mut random = Random::from_seed(seed.parse().unwrap());
    let asked = Arc::new(AtomicU64::new(monotonic()));
    println!("begun");
    let leading = async {
        loop {
            let led = lock.lead(|held| {
                // Some terms end by themselves.
                let length = if random.below(3) == 0 { ms(random.below(500)) } else { LONG };
                lead(held, Arc::clone(&asked), length)
            });
            led.await.expect("only an error that no retry can fix ends it");
        }
    };
    tokio::select! {
        () = leading => {}
        // The test has ended.
        _ = lines.recv() => {}
    }
}

/// Reports the end of a term.
struct Over {
    token: u64,
    asked: Arc<AtomicU64>,
}

impl Drop for Over {
    fn drop(&mut self) {
        let now = monotonic();
        self.asked.store(now, SeqCst);
        println!("over {} {now}", self.token);
    }
}

/// The body of a term.
async fn lead(held: HeldLock, asked: Arc<AtomicU64>, length: Duration) {
    let end = Instant::now() + length;
    let token = held.fencing_token().get();
    // The clock is read before the check: a lock valid after this moment was valid at it. It is read after the check as well,
    // because the process may have had no processor in between: the deadline lies between the two sums.
    let deadline = || {
        let now = monotonic();
        let left = u64::try_from(held.remaining().as_nanos()).unwrap();
        (left > 0, format!("{now} {} {}", now + left, monotonic() + left))
    };
    println!("term {token} {} {}", asked.load(SeqCst), deadline().1);
    let _over = Over { token, asked };
    while Instant::now() < end {
        tokio::time::sleep(ms(5)).await;
        let (is_valid, deadline) = deadline();
        if is_valid {
            println!("valid {token} {deadline}");
        }
    }
}
