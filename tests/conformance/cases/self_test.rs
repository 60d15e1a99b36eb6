//! Tests of the suite's own tools: a judge that sees nothing and a proxy that hurts nothing would pass every lock.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Trial;

use super::ms;
use crate::{
    admission::{Admission, Demand},
    support::{
        PATIENCE,
        history::{Hold, Verdict, judge},
        monotonic,
        proxy::{Flow, Proxy, Upstream, Way},
    },
};

pub fn trials() -> Vec<Trial> {
    macro_rules! trials {
        ($($claim:ident,)*) => {
            vec![$(Trial::test(concat!("self_test::", stringify!($claim)), || {
                $claim();
                Ok(())
            }),)*]
        };
    }
    trials![
        a_case_that_waits_for_a_server_keeps_no_other_waiting,
        a_case_that_waits_for_a_server_is_not_overtaken_when_there_is_one,
        one_busy_case_runs_at_a_time,
        idle_processors_admit_one_more_case_until_one_ends,
        the_judge_passes_holds_that_follow_each_other,
        the_judge_sees_an_overlap,
        the_judge_sees_a_token_given_twice,
        the_judge_sees_tokens_that_fall,
        the_judge_catches_a_lock_that_does_not_lock,
        the_judge_catches_a_lease_that_its_holder_does_not_mind,
        the_proxy_passes_counts_and_delays,
        the_proxy_holds_back_and_delivers_later,
        the_proxy_loses_an_answer_that_was_carried_out,
        the_proxy_cuts_after_a_number_of_bytes,
        the_proxy_refuses_cuts_and_resets,
        the_proxy_leaves_connections_of_a_black_hole_mute_for_ever,
        the_proxy_throttles,
    ]
}

const ANY: Demand = Demand { own_server: None, is_busy: false };
const WITH_THE_ONLY_SERVER: Demand = Demand { own_server: Some(("store", 1)), is_busy: false };

fn a_case_that_waits_for_a_server_keeps_no_other_waiting() {
    let admission = Admission::new(2, 0);
    let _first = admission.admit(WITH_THE_ONLY_SERVER);
    let second = admission.request(WITH_THE_ONLY_SERVER);
    assert!(second.try_recv().is_err());
    let of_another_store = Demand { own_server: Some(("another", 1)), is_busy: false };
    for demand in [ANY, of_another_store] {
        let third = admission.request(demand).try_recv().expect("there is room");
        assert!(admission.request(ANY).try_recv().is_err(), "there is no more");
        drop(third);
        assert!(second.try_recv().is_err());
    }
}

fn a_case_that_waits_for_a_server_is_not_overtaken_when_there_is_one() {
    let admission = Admission::new(1, 0);
    let first = admission.admit(WITH_THE_ONLY_SERVER);
    let requests = [WITH_THE_ONLY_SERVER, ANY].map(|demand| admission.request(demand));
    drop(first);
    let second = requests[0].try_recv().expect("it came first");
    assert!(requests[1].try_recv().is_err());
    drop(second);
    assert!(requests[1].try_recv().is_ok());
}

fn one_busy_case_runs_at_a_time() {
    let busy = Demand { own_server: None, is_busy: true };
    let admission = Admission::new(3, 0);
    let first = admission.admit(busy);
    let second = admission.request(busy);
    drop(admission.admit(ANY));
    assert!(second.try_recv().is_err());
    drop(first);
    assert!(second.try_recv().is_ok());
}

fn idle_processors_admit_one_more_case_until_one_ends() {
    let admission = Admission::new(1, 1);
    let first = admission.admit(ANY);
    let [second, third] = [ANY, ANY].map(|demand| admission.request(demand));
    admission.lend();
    admission.lend();
    let second = second.try_recv().expect("the processors are idle");
    assert!(third.try_recv().is_err(), "no more than were lent");
    drop(first);
    assert!(third.try_recv().is_err(), "it was lent until the first had ended");
    drop(second);
    drop(third.try_recv().expect("there is room"));
    drop(admission.request(ANY).try_recv().expect("there is room again"));
}

fn hold(token: u64, asked: u64, from: u64, until: u64) -> Hold {
    Hold { token, asked, from, until }
}

fn the_judge_passes_holds_that_follow_each_other() {
    let history = vec![hold(3, 0, 30, 40), hold(1, 0, 10, 20), hold(2, 0, 20, 30)];
    assert_eq!(judge(history.clone()), Verdict { holds: 3, ..Verdict::default() });
    let read: Vec<Hold> = history.iter().map(|hold| hold.to_string().parse().unwrap()).collect();
    assert_eq!(read, history);
}

fn the_judge_sees_an_overlap() {
    let verdict = judge(vec![hold(1, 0, 10, 21), hold(2, 0, 20, 30)]);
    assert_eq!(verdict, Verdict { holds: 2, overlaps: 1, ..Verdict::default() });
    // Also when one holds it throughout, and when the tokens hide it.
    assert_eq!(judge(vec![hold(9, 0, 0, 100), hold(1, 0, 10, 20), hold(2, 0, 30, 40)]).overlaps, 2);
}

fn the_judge_sees_a_token_given_twice() {
    assert_eq!(judge(vec![hold(1, 0, 10, 20), hold(1, 0, 20, 30)]).duplicates, 1);
}

fn the_judge_sees_tokens_that_fall() {
    // The second was requested after the first had ended.
    assert_eq!(judge(vec![hold(2, 0, 10, 20), hold(1, 25, 30, 40)]).inversions, 1);
    assert_eq!(judge(vec![hold(9, 0, 10, 20), hold(1, 25, 30, 40), hold(2, 45, 50, 60)]).inversions, 1);
    // Requested while the first held: the order of grants is that of the holds, so this is an inversion as well.
    assert!(judge(vec![hold(2, 0, 10, 20), hold(1, 15, 30, 40)]).inversions <= 1);
}

/// The history of a broken lock, in the rhythm of the torture: sections of 100 µs.
fn history_of(tasks: u64, section: impl Fn(u64) -> Hold + Sync) -> Vec<Hold> {
    let history = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for task in 0..tasks {
            let (history, section) = (&history, &section);
            scope.spawn(move || {
                let holds: Vec<Hold> = (0..50).map(|_| section(task)).collect();
                history.lock().unwrap().extend(holds);
            });
        }
    });
    history.into_inner().unwrap()
}

fn the_judge_catches_a_lock_that_does_not_lock() {
    let tokens = AtomicU64::new(1);
    let history = history_of(4, |_| {
        let asked = monotonic();
        let token = tokens.fetch_add(1, Ordering::SeqCst);
        let from = monotonic();
        thread::sleep(Duration::from_micros(100));
        hold(token, asked, from, monotonic())
    });
    let verdict = judge(history);
    assert!(verdict.overlaps > 0, "{verdict:?}");
    assert_eq!(verdict.duplicates, 0, "{verdict:?}");
}

fn the_judge_catches_a_lease_that_its_holder_does_not_mind() {
    // A real lock with a lease of 1 ms, whose holders stay for up to 2 ms.
    let lock = Mutex::new((0_u64, Instant::now()));
    let history = history_of(3, |task| {
        let asked = monotonic();
        let token = loop {
            let mut lock = lock.lock().unwrap();
            if lock.1 <= Instant::now() {
                *lock = (lock.0 + 1, Instant::now() + ms(1));
                break lock.0;
            }
            drop(lock);
            thread::yield_now();
        };
        let from = monotonic();
        thread::sleep(ms(task));
        hold(token, asked, from, monotonic())
    });
    let verdict = judge(history);
    assert!(verdict.overlaps > 0, "{verdict:?}");
    assert_eq!((verdict.duplicates, verdict.inversions), (0, 0), "{verdict:?}");
}

/// Answers each line with the same line, and counts them.
fn echo() -> (Proxy, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, counted) = (stream.unwrap(), Arc::clone(&counted));
            thread::spawn(move || {
                let mut buffer = [0; 256];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    counted.fetch_add(1, Ordering::SeqCst);
                    if stream.write_all(&buffer[..length]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (Proxy::start(Upstream::Tcp(address)), count)
}

fn client(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, text: &str) -> io::Result<String> {
    stream.write_all(text.as_bytes())?;
    answer(stream, text.len())
}

fn answer(stream: &mut TcpStream, length: usize) -> io::Result<String> {
    let mut buffer = vec![0; length];
    stream.read_exact(&mut buffer)?;
    Ok(String::from_utf8(buffer).unwrap())
}

fn ended_at_its_timeout(result: &io::Result<String>) -> bool {
    result.as_ref().is_err_and(|e| matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
}

/// Whether the question has no answer.
fn is_mute(stream: &mut TcpStream, text: &str) -> bool {
    stream.set_read_timeout(Some(ms(300))).unwrap();
    let result = ask(stream, text);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    ended_at_its_timeout(&result)
}

fn is_cut(result: &io::Result<String>) -> bool {
    result.is_err() && !ended_at_its_timeout(result)
}

fn the_proxy_passes_counts_and_delays() {
    let (proxy, _) = echo();
    let mut stream = client(&proxy);
    assert_eq!(ask(&mut stream, "hello").unwrap(), "hello");
    assert_eq!(proxy.accepted(), 1);
    assert_eq!((proxy.bytes(Way::ToServer), proxy.bytes(Way::ToClient)), (5, 5));
    for way in [Way::ToServer, Way::ToClient] {
        proxy.set(way, Flow::Delay(ms(100)));
        let began = Instant::now();
        assert_eq!(ask(&mut stream, "late").unwrap(), "late");
        assert!(began.elapsed() >= ms(100));
        proxy.heal();
    }
}

fn the_proxy_holds_back_and_delivers_later() {
    let (proxy, count) = echo();
    let mut stream = client(&proxy);
    proxy.set(Way::ToClient, Flow::Hold);
    assert!(is_mute(&mut stream, "one"));
    assert_eq!(count.load(Ordering::SeqCst), 1, "the request arrived");
    proxy.heal();
    assert_eq!(answer(&mut stream, 3).unwrap(), "one");
    proxy.set(Way::ToServer, Flow::Hold);
    assert!(is_mute(&mut stream, "two"));
    assert_eq!(count.load(Ordering::SeqCst), 1, "the request is kept back");
    proxy.heal();
    assert_eq!(answer(&mut stream, 3).unwrap(), "two");
}

fn the_proxy_loses_an_answer_that_was_carried_out() {
    let (proxy, count) = echo();
    let mut stream = client(&proxy);
    proxy.lose_answer(2);
    assert_eq!(ask(&mut stream, "one").unwrap(), "one");
    assert!(is_cut(&ask(&mut stream, "two")));
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert!(!proxy.keep_answers(), "it was lost");
    assert_eq!(ask(&mut client(&proxy), "three").unwrap(), "three");
}

fn the_proxy_cuts_after_a_number_of_bytes() {
    let (proxy, _) = echo();
    let mut stream = client(&proxy);
    proxy.cut_after(Way::ToClient, 6);
    assert_eq!(ask(&mut stream, "four").unwrap(), "four");
    stream.write_all(b"more").unwrap();
    assert_eq!(answer(&mut stream, 2).unwrap(), "mo");
    assert!(is_cut(&answer(&mut stream, 1)));
    assert_eq!(ask(&mut client(&proxy), "again").unwrap(), "again");
}

fn the_proxy_refuses_cuts_and_resets() {
    let (proxy, _) = echo();
    for change in [Proxy::cut, Proxy::reset] {
        let mut stream = client(&proxy);
        assert_eq!(ask(&mut stream, "one").unwrap(), "one");
        change(&proxy);
        assert!(is_cut(&answer(&mut stream, 1)));
        assert_eq!(ask(&mut client(&proxy), "two").unwrap(), "two");
    }
    proxy.refuse();
    assert!(is_cut(&ask(&mut client(&proxy), "three")));
    proxy.heal();
    assert_eq!(ask(&mut client(&proxy), "four").unwrap(), "four");
}

fn the_proxy_leaves_connections_of_a_black_hole_mute_for_ever() {
    let (proxy, count) = echo();
    let mut before = client(&proxy);
    assert_eq!(ask(&mut before, "one").unwrap(), "one");
    proxy.black_hole();
    assert!(is_mute(&mut before, "two"));
    let mut during = client(&proxy);
    assert!(is_mute(&mut during, "three"));
    proxy.heal();
    assert!(is_mute(&mut before, "four"));
    assert!(is_mute(&mut during, "five"));
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(ask(&mut client(&proxy), "six").unwrap(), "six");
}

fn the_proxy_throttles() {
    let (proxy, _) = echo();
    let mut stream = client(&proxy);
    proxy.set(Way::ToServer, Flow::Throttle(1000));
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(ask(&mut stream, &"x".repeat(100)).unwrap().len(), 100);
    }
    assert!(began.elapsed() >= ms(180), "{:?}", began.elapsed());
}
