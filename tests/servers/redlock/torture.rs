//! All operations at once, from a seed, while nodes fail one after the other, and forget.

use std::time::{Duration, Instant};

use lock_runtime::LockManager;

use super::{LONG, MS, Quorum};
use crate::support::{
    Random,
    proxy::{Flow, Way},
};

const LENGTH: Duration = Duration::from_secs(15);
/// How long a node that was started has no vote: `max_ttl` and two seconds, and one because it counts in seconds.
const WITHOUT_VOTE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_are_disjoint_and_in_order_while_nodes_fail_and_forget() {
    let seed = Random::seed();
    let mut quorum = Quorum::start(3);
    let url = format!("redlock://{}?max_ttl=1s&node_timeout=200ms", quorum.addresses());
    let clients = [(); 3].map(|()| LockManager::connect_lazy(&url).unwrap().ttl(1_000 * MS));
    for locks in &clients {
        locks.lock("k").wait(LONG).acquire().await.unwrap().release().await.unwrap();
    }
    let hurting = hurt(&mut quorum, Random::from_seed(seed));
    lock_conformance::survive(&clients, "k", LENGTH, seed, hurting).await.unwrap();
    quorum.free_everywhere().await;
}

/// One fault after the other, of one node each.
async fn hurt(quorum: &mut Quorum, mut random: Random) {
    let end = Instant::now() + LENGTH;
    let mut forgot = Instant::now();
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(20 + random.below(200))).await;
        let node = &mut quorum.nodes[usize::try_from(random.below(3)).unwrap()];
        match random.below(8) {
            0 => node.proxy.black_hole(),
            1 => {
                node.proxy.refuse();
                node.proxy.reset();
            }
            2 => node.proxy.cut(),
            3 => node.proxy.set(Way::ToClient, Flow::Delay(40 * MS)),
            4 => node.proxy.set(Way::ToServer, Flow::Hold),
            5 => node.server.pause(),
            // Two without a vote would be no majority.
            _ if forgot.elapsed() < WITHOUT_VOTE => {}
            with_data => {
                forgot = Instant::now();
                if with_data == 7 {
                    node.server.persist();
                }
                node.server.restart();
            }
        }
        tokio::time::sleep(Duration::from_millis(10 + random.below(500))).await;
        node.server.bring_back();
        node.proxy.heal();
    }
}
