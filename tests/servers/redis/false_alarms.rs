//! False alarms: a blocked runtime, a closed idle connection and forgotten scripts fail no call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use lock_runtime::{LockManager, backend::redis::GroupCommit};
use tokio::runtime::{Builder, Runtime};

use super::{LONG, connected, url};
use crate::support::{
    PATIENCE,
    proxy::{Flow, Proxy, Upstream, Way},
    redis_server::RedisServer,
    resp::Value,
};

fn runtimes() -> [Runtime; 2] {
    [Builder::new_current_thread(), Builder::new_multi_thread()]
        .map(|mut builder| builder.worker_threads(1).enable_all().build().unwrap())
}

#[test]
fn an_idle_connection_that_was_closed_while_the_runtime_did_not_run_fails_no_attempt() {
    let server = Arc::new(RedisServer::start(&[]));
    // With several threads, one would notice by itself that a connection was closed.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let locks = runtime.block_on(LockManager::connect(&url(&server, ""))).unwrap();
    for round in 0..10 {
        let (locks, server) = (locks.clone(), Arc::clone(&server));
        let tried = async move {
            // Blocks the runtime, so that it does not poll the socket.
            thread::sleep(Duration::from_millis(150));
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
            server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            // The server closes them a little later; then only this admin connection is left.
            let end = Instant::now() + PATIENCE;
            let alone =
                |answer| matches!(answer, Value::Text(info) if info.contains("connected_clients:1\r"));
            while !alone(server.command(&["INFO", "clients"])) {
                assert!(Instant::now() < end, "its connections stay open");
            }
            let tried = locks.lock("user:42").try_acquire().await?;
            tried.expect("it is not held").release().await
        };
        // As the runtime's first task, and as one of several.
        let tried = if round % 2 == 0 {
            runtime.block_on(tried)
        } else {
            let task = runtime.spawn(tried);
            runtime.block_on(task).unwrap()
        };
        assert_eq!(tried.map_err(|error| error.to_string()), Ok(()), "round {round}");
    }
}

#[test]
fn an_answer_that_lies_there_is_read_although_the_runtime_was_blocked_past_the_limit() {
    let server = RedisServer::start(&[]);
    let proxy = Proxy::start(Upstream::Unix(server.socket().into()));
    for runtime in runtimes() {
        let url = format!("redis://{}?response_timeout=300ms", proxy.address());
        let locks = runtime.block_on(LockManager::connect(&url)).unwrap();
        let tried = async {
            locks.lock("user:42").acquire().await.unwrap().release().await.unwrap();
            proxy.set(Way::ToClient, Flow::Delay(Duration::from_millis(20)));
            let lock = locks.lock("user:42");
            let block = async {
                // The request has been sent by then.
                tokio::task::yield_now().await;
                thread::sleep(Duration::from_millis(500));
            };
            let (tried, ()) = tokio::join!(lock.try_acquire(), block);
            proxy.heal();
            tried.map(|guard| guard.is_some())
        };
        let tried = runtime.block_on(tried);
        assert_eq!(tried.map_err(|error| error.to_string()), Ok(true));
        runtime.block_on(locks.shutdown());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_its_scripts_again_and_again_fails_no_call() {
    let server = Arc::new(RedisServer::start(&[]));
    let stop = Arc::new(AtomicBool::new(false));
    let forgetting = {
        let (server, stop) = (Arc::clone(&server), Arc::clone(&stop));
        thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                server.command(&["SCRIPT", "FLUSH"]);
            }
        })
    };
    for grouped in [GroupCommit::Auto, GroupCommit::Always] {
        let locks = connected(&url(&server, ""), grouped).await;
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let locks = locks.clone();
                tokio::spawn(async move {
                    let end = Instant::now() + Duration::from_secs(1);
                    let mut entries = 0;
                    while Instant::now() < end {
                        let guard = locks.lock(format!("k{}", task % 12)).wait(LONG).acquire().await?;
                        guard.release().await?;
                        entries += 1;
                    }
                    Ok::<_, lock_runtime::LockError>(entries)
                })
            })
            .collect();
        let mut entries = 0;
        for task in tasks {
            entries += task.await.unwrap().unwrap();
        }
        println!("{entries} entries");
        assert!(entries > 0);
    }
    stop.store(true, Ordering::Relaxed);
    forgetting.join().unwrap();
}
