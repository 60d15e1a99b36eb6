//! Makes a session with the ensemble, or finds out why none can be made.

use std::{net::IpAddr, sync::Arc, time::Duration};

use ::zookeeper_client as zk;

use super::{config::Config, diagnosis, error::Failure, heartbeat, session::Session, tls::Certificates};
use crate::{
    LockError,
    backend::common::{outage::Outage, threads},
    time::clock::Instant,
};

/// Pause after the first failed round of all servers; it grows with each round, up to eightfold.
const PAUSE: Duration = Duration::from_millis(5);

/// Makes a session. Call this function on the library's own runtime, on which the driver's tasks then run.
pub(super) async fn open(config: &Config, outage: &Arc<Outage>) -> Result<Arc<Session>, LockError> {
    let sent = Instant::now();
    Ok(begin(connect(config).await?, sent, config, Arc::clone(outage)))
}

/// Starts the session of `client`, which was requested at `sent`, and its heartbeats.
fn begin(client: zk::Client, sent: Instant, config: &Config, outage: Arc<Outage>) -> Arc<Session> {
    let states = client.state_watcher();
    let session = Arc::new(Session::new(client, sent, config, outage));
    tokio::spawn(heartbeat::keep(Arc::downgrade(&session), states));
    session
}

/// Makes the driver's client within the connect timeout, or finds out why none can be made.
async fn connect(config: &Config) -> Result<zk::Client, LockError> {
    let limit = config.connect_timeout;
    let end = Instant::now() + limit;
    let late = |_| {
        LockError::backend(format!(
            "ZooKeeper at {} did not answer within {limit:?}; check addresses, ports and firewall",
            config.servers
        ))
    };
    // The driver's look-up of a name panics if no thread can be started.
    if config.hosts().iter().any(|(host, _)| host.parse::<IpAddr>().is_err()) {
        threads::run(|| ()).await.map_err(|error| {
            let message = format!("cannot connect to ZooKeeper at {}: {error}", config.servers);
            LockError::backend(message)
        })?;
    }
    let certificates = match &config.tls {
        Some(tls) => {
            Some(Arc::new(tokio::time::timeout(limit, Certificates::read(tls)).await.map_err(late)??))
        }
        None => None,
    };
    let connecting = async {
        let mut attempt = 1;
        let client = loop {
            let connector = config.connector();
            let connected = match &certificates {
                Some(certificates) => certificates.connect(connector, &config.servers).await,
                None => connector.connect(&config.servers).await,
            };
            match connected {
                Err(zk::Error::NoHosts) if attempt < config.attempts() => {
                    tokio::time::sleep(PAUSE * attempt.min(8)).await;
                    attempt += 1;
                }
                connected => break connected?,
            }
        };
        match &config.chroot {
            None => Ok(client),
            Some(chroot) => enter(client, chroot, config).await,
        }
    };
    let error = match tokio::time::timeout(end.remaining(), connecting).await.map_err(late)? {
        Ok(client) => return Ok(client),
        Err(error) => error,
    };
    let reason = match error {
        zk::Error::NoHosts => diagnosis::reason(config, certificates.as_ref()).await,
        _ => None,
    };
    let error = Failure::of(error).into_error();
    let (text, lasts) = match &reason {
        Some(reason) => (&*reason.text, reason.lasts),
        None => (error.message(), !error.is_retryable()),
    };
    let message = format!("cannot connect to ZooKeeper at {}: {text}", config.servers);
    let fault = error.fault();
    let explained = LockError::new(error.kind(), message).with_source(error).with_fault(fault);
    Err(if lasts { explained.into_permanent() } else { explained })
}

/// Enters `chroot`, and creates it first if it is missing.
async fn enter(client: zk::Client, chroot: &str, config: &Config) -> Result<zk::Client, zk::Error> {
    let options = zk::CreateMode::Persistent.with_acls(config.acls());
    if client.check_stat(chroot).await?.is_none() {
        client.mkdir(chroot, &options).await?;
    }
    Ok(client.chroot(chroot).expect("the path was checked with the URL"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::{
        super::{session::State, watches},
        *,
    };

    /// Starts a server that grants one session, answers this many requests without an error and then falls silent.
    fn server(requests: usize) -> std::net::SocketAddr {
        use std::io::{Read as _, Write as _, copy, sink};

        // The version, the timeout in ms, number and password of the session, and whether it is read-only.
        const SESSION: [u8; 37] = {
            let mut answer = [0; 37];
            (answer[6], answer[7], answer[15], answer[19]) = (1, 44, 1, 16);
            answer
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            let (mut peer, _) = listener.accept()?;
            for answered in 0..=requests {
                let mut length = [0; 4];
                peer.read_exact(&mut length)?;
                let mut request = vec![0; u32::from_be_bytes(length).try_into().expect("short")];
                peer.read_exact(&mut request)?;
                // The number of the request, that of the last change, the error code, empty data and the node's state.
                let answer =
                    if answered == 0 { SESSION.to_vec() } else { [&request[..4], &[0; 84]].concat() };
                let length = u32::try_from(answer.len()).expect("short").to_be_bytes();
                peer.write_all(&[&length[..], &answer].concat())?;
            }
            copy(&mut peer, &mut sink())
        });
        address
    }

    /// A subscriber that panics at the library's first event.
    struct PanicsOnce(AtomicBool);

    impl tracing::Subscriber for PanicsOnce {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target().starts_with("lock_runtime")
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let is_task = event.metadata().target().contains("zookeeper") && tokio::task::try_id().is_some();
            assert!(!is_task || self.0.swap(true, Ordering::SeqCst), "the first event of the heartbeats");
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn a_panic_of_the_log_s_subscriber_does_not_end_the_heartbeats() {
        let config = Config::from_url(&format!("zookeeper://{}", server(1))).expect("a URL");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let panics = Arc::new(PanicsOnce(AtomicBool::new(false)));
        tracing::subscriber::with_default(Arc::clone(&panics), || {
            runtime.block_on(async {
                let session = open(&config, &Arc::new(Outage::of("", "", config.servers.clone(), ""))).await;
                let mut states = session.as_ref().expect("a session").states();
                let ended = states.wait_for(|state| *state == State::Ended);
                tokio::time::timeout(Duration::from_secs(5), ended)
                    .await
                    .expect("it ends")
                    .expect("and says so");
            });
        });
        assert!(panics.0.load(Ordering::SeqCst), "the test shows nothing");
    }

    #[test]
    fn a_watch_whose_driver_is_gone_does_not_panic() {
        let config = Config::from_url(&format!("zookeeper://{}", server(usize::MAX))).expect("a URL");
        let [drivers, ours] = [(); 2].map(|()| tokio::runtime::Runtime::new().expect("a runtime"));
        let client = drivers.block_on(connect(&config)).expect("a session");
        let (_, _, watcher) = drivers.block_on(client.get_and_watch_data("/node")).expect("a watch");
        // The driver's tasks end, as after a panic.
        drivers.shutdown_background();
        let event = ours.block_on(async {
            tokio::time::timeout(Duration::from_secs(5), watches::changed(watcher)).await
        });
        assert!(event.expect("the wait ends").is_none());
    }

    #[test]
    fn a_session_whose_driver_is_gone_ends() {
        let config = Config::from_url(&format!("zookeeper://{}", server(1))).expect("a URL");
        let [drivers, ours] = [(); 2].map(|()| tokio::runtime::Runtime::new().expect("a runtime"));
        let sent = Instant::now();
        let client = drivers.block_on(connect(&config)).expect("a session");
        // The driver's tasks end, as after a panic.
        drivers.shutdown_background();
        ours.block_on(async {
            let session =
                begin(client, sent, &config, Arc::new(Outage::of("", "", config.servers.clone(), "")));
            assert_eq!(session.timeout(), Duration::from_millis(300));
            let mut states = session.states();
            let ended = states.wait_for(|state| *state == State::Ended);
            tokio::time::timeout(Duration::from_secs(5), ended).await.expect("it ends").expect("and says so");
        });
    }
}
