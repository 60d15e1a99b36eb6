//! ZooKeeper behind TLS, with users: accepted and refused clients, and the errors of the refused ones.

use std::{
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use lock_runtime::{LockError, LockErrorKind, LockManager, backend::zookeeper::fence};

use crate::{
    authority::{Authority, Signed, text},
    support::{
        proxy::{Proxy, Upstream},
        stopwatch::Moment,
        traces, until,
        zookeeper_protocol::{self as zk, Client},
        zookeeper_server::{SESSION, ZooKeeperServer, free_port},
    },
};

const LONG: Duration = Duration::from_secs(30);
/// Time limit for immediate errors, on a busy machine.
const SOON: Duration = Duration::from_secs(8);
/// Upper bound on the time for which the servers may be too busy with other tests to finish a handshake.
const OVERLOAD: Duration = Duration::from_mins(1);
const PASSWORD: &str = "canary-41d9";
/// The users of a server, with their passwords there.
const USERS: &str = r#"Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required user_us="canary-41d9" user_them="other";
};"#;
const SASL: &str = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n";

/// A server with a port for TLS next to the plain one.
struct Secure {
    server: ZooKeeperServer,
    port: u16,
}

impl Secure {
    fn start(identity: &Signed, settings: &str) -> Self {
        let port = free_port();
        let settings = format!(
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\nsecureClientPort={port}\n\
             secureClientPortAddress=127.0.0.1\nssl.keyStore.location={}\nssl.keyStore.type=PEM\n{SASL}{settings}\n",
            text(&identity.both),
        );
        Self { server: ZooKeeperServer::start_with_users(&settings, USERS), port }
    }

    /// Starts a server that requests no client certificate.
    fn for_all(identity: &Signed) -> Self {
        Self::start(identity, "ssl.clientAuth=none")
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    fn admin(&self) -> Client {
        Client::connect(self.server.address()).unwrap()
    }
}

fn session_timeout(length: Duration) -> String {
    format!("session_timeout={}ms", length.as_millis())
}

fn url(host: &str, port: u16, ca: &Path, rest: &str) -> String {
    format!(
        "zookeeper+tls://us:{PASSWORD}@{host}:{port}/locks?{}&tls_ca={}{rest}",
        session_timeout(SESSION),
        text(ca)
    )
}

/// Returns the error by which `url` is refused, which contains `word`.
async fn refused(url: &str, word: &str) -> LockError {
    const NOTHING_FOUND: &str = "none of the ZooKeeper servers answers";
    let first = Moment::now();
    loop {
        let began = Moment::now();
        let error = LockManager::connect(url).await.map(drop).unwrap_err();
        assert!(began.within(SOON), "{error} after {:?}", began.took());
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        if error.to_string().contains(word) {
            return error;
        }
        // A server that needs over half a second for a handshake step, as when many start at once, proves nothing.
        assert!(error.to_string().contains(NOTHING_FOUND) && first.within(OVERLOAD), "{word}: {error}");
    }
}

/// Asserts that no other client has access to the locks of `us`.
fn is_ours(secure: &Secure, path: &str) {
    let mut admin = secure.admin();
    assert_eq!(admin.children(path).unwrap(), Err(zk::NO_AUTH), "seen");
    assert_eq!(admin.create(&format!("{path}/mine"), b"", zk::PERSISTENT).unwrap(), Err(zk::NO_AUTH), "made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_behind_tls_are_exclusive_and_nobody_else_gets_at_them() {
    let authority = Authority::new();
    let secure = Secure::for_all(&authority.signs(&["localhost"]));
    for (auth, lock) in [("&auth=digest", "digest"), ("&auth=sasl", "sasl")] {
        let url = url("localhost", secure.port, &authority.ca(), auth).replace("/locks", &format!("/{lock}"));
        let (ours, theirs) =
            (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap());
        let guard = ours.lock("k").acquire().await.unwrap();
        assert!(theirs.lock("k").try_acquire().await.unwrap().is_none());
        let waiting = theirs.lock("k").wait(LONG);
        let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
        tokio::time::sleep(SESSION / 2).await;
        assert!(!waiter.is_finished() && guard.is_valid());
        is_ours(&secure, &format!("/{lock}/lock:k"));
        let token = guard.fencing_token();
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap();
        assert!(guard.fencing_token() > token);
        guard.run(async {}).await.unwrap();

        // Clients with another user, and one without.
        let others = url.replace(&format!("us:{PASSWORD}"), "them:other");
        for stranger in [others, format!("zookeeper://{}/{lock}", secure.server.address())] {
            let stranger = LockManager::connect(&stranger).await.unwrap();
            let began = Moment::now();
            let error = stranger.lock("k").wait(LONG).acquire().await.unwrap_err();
            assert!(began.within(SOON), "it waited {:?}", began.took());
            assert!(error.to_string().contains("denied access"), "{error}");
            assert!(!error.is_retryable(), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_behind_tls_are_examined_as_others_are() {
    let authority = Authority::new();
    let secure = Secure::for_all(&authority.signs(&["localhost"]));
    let url = url("localhost", secure.port, &authority.ca(), "");
    let examined = LockManager::connect(&url).await.unwrap().examine(LONG).await.unwrap();
    assert!(examined.findings.is_empty(), "{:?}", examined.findings);
    let [server] = &examined.servers[..] else { panic!("{:?}", examined.servers) };
    assert_eq!(server.role.as_deref(), Some("standalone"));
    assert!(server.facts.iter().any(|(name, _)| name == "tickTime"), "{server:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_behind_tls_goes_on_after_an_outage_and_a_new_one_shows_who_we_are() {
    let authority = Authority::new();
    let secure = Arc::new(Secure::for_all(&authority.signs(&["127.0.0.1"])));
    let both = ["digest", "sasl"].map(|auth| {
        let ca = authority.ca();
        tokio::spawn(goes_on_after_an_outage(Arc::clone(&secure), ca, auth))
    });
    for one in both {
        one.await.unwrap();
    }
}

async fn goes_on_after_an_outage(secure: Arc<Secure>, ca: PathBuf, auth: &'static str) {
    let proxy = Proxy::start(Upstream::Tcp(secure.address()));
    let url =
        |port| url("127.0.0.1", port, &ca, &format!("&auth={auth}")).replace("/locks", &format!("/{auth}"));
    let cut_off = LockManager::connect(&url(proxy.address().port())).await.unwrap();
    let other = LockManager::connect(&url(secure.port)).await.unwrap();
    // Connecting to a busy server takes seconds, which must be a small part of the session.
    let patient = |url: String| url.replace(&session_timeout(SESSION), &session_timeout(SESSION * 3));
    let kept = LockManager::connect(&patient(url(proxy.address().port()))).await.unwrap();
    let guard = kept.lock("kept").acquire().await.unwrap();
    for _ in 0..3 {
        proxy.refuse();
        proxy.reset();
        tokio::time::sleep(SESSION / 8).await;
        proxy.heal();
        tokio::time::sleep(SESSION * 3 / 2).await;
        assert!(guard.is_valid());
    }
    guard.release().await.unwrap();
    let guard = cut_off.lock("k").acquire().await.unwrap();
    // On the renewed connection.
    cut_off.lock("second").acquire().await.unwrap().release().await.unwrap();
    proxy.black_hole();
    guard.lost().await;
    let next = other.lock("k").wait(LONG).acquire().await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.release().await.unwrap_err().kind(), LockErrorKind::Lost);
    proxy.heal();
    let waiting = cut_off.lock("k").wait(LONG);
    let waiter = tokio::spawn(async move { waiting.acquire().await.unwrap() });
    tokio::time::sleep(SESSION / 4).await;
    is_ours(&secure, &format!("/{auth}/lock:k"));
    next.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_cannot_be_are_refused_at_once_with_what_to_change() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let ours = authority.signs(&["localhost"]);
    let secure = Secure::for_all(&ours);
    let (port, plain) = (secure.port, secure.server.address().port());
    let (ca, foreign) = (authority.ca(), stranger.ca());
    let missing = ca.with_file_name("missing.pem");
    let identity = |cert: &Path, key: &Path| format!("&tls_cert={}&tls_key={}", text(cert), text(key));
    for (url, word) in [
        (url("localhost", port, &foreign, ""), "no CA in `tls_ca` has signed"),
        (url("127.0.0.1", port, &ca, ""), "for other names"),
        (url("localhost", plain, &ca, ""), "does not speak TLS"),
        (format!("zookeeper://us:{PASSWORD}@localhost:{port}"), "wants TLS"),
        (url("localhost", port, &missing, ""), "cannot read"),
        (url("localhost", port, &ours.key, ""), "no certificate"),
        (url("localhost", port, &ca, &identity(&ours.cert, &ca)), "no private key"),
        (url("localhost", port, &ca, &identity(&ours.key, &ours.key)), "no certificate"),
        (url("localhost", port, &ca, &identity(&ca, &ours.key)), "cannot be used"),
    ] {
        let error = refused(&url, word).await;
        assert_eq!(error.kind(), LockErrorKind::Backend);
        println!("{error}");
    }
}

/// As while the clients of an ensemble migrate to TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_for_both_without_a_majority_behind_it_is_waited_for() {
    let authority = Authority::new();
    let identity = authority.signs(&["localhost"]);
    let settings = format!(
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\nclient.portUnification=true\n\
         ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.clientAuth=none\n\
         server.0=127.0.0.1:{}:{}\nserver.1=127.0.0.1:{}:{}\n",
        text(&identity.both),
        free_port(),
        free_port(),
        free_port(),
        free_port(),
    );
    let alone = ZooKeeperServer::member(0, &settings);
    until("it listens", || {
        let answer = alone.ask("srvr").unwrap_or_default();
        if answer.contains("not currently serving") { Ok(()) } else { Err(answer) }
    })
    .await;
    for url in [
        format!("zookeeper://{}", alone.address()),
        url("localhost", alone.address().port(), &authority.ca(), ""),
    ] {
        let error = refused(&url, "").await;
        println!("{error}");
        assert!(error.is_retryable(), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_of_a_server_is_named() {
    let authority = Authority::new();
    let secure = Secure::for_all(&authority.signed_until_2020(&["localhost"]));
    let error = refused(&url("localhost", secure.port, &authority.ca(), ""), "has expired").await;
    assert!(!error.is_retryable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_our_certificate_gets_it() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let trusts = format!(
        "ssl.clientAuth=need\nssl.trustStore.location={}\nssl.trustStore.type=PEM",
        text(&authority.ca())
    );
    let secure = Secure::start(&authority.signs(&["localhost"]), &trusts);
    let with = |signed: &Signed| {
        let identity = format!("&tls_cert={}&tls_key={}", text(&signed.cert), text(&signed.key));
        url("localhost", secure.port, &authority.ca(), &identity)
    };
    let locks = LockManager::connect(&with(&authority.signs(&["worker"]))).await.unwrap();
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    let anonymous = url("localhost", secure.port, &authority.ca(), "");
    refused(&anonymous, "requires a client certificate").await;
    refused(&with(&stranger.signs(&["worker"])), "does not accept the certificate").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_are_told_at_once_and_by_no_trace() {
    crate::watch_traces();
    let authority = Authority::new();
    let identity = authority.signs(&["localhost"]);
    let secure = Secure::for_all(&identity);
    let (right, wrong) = (format!("us:{PASSWORD}@"), "us:canary-wrong@");
    let sasl = url("localhost", secure.port, &authority.ca(), "&auth=sasl");
    let error = refused(&sasl.replace(&right, wrong), "refused the credentials").await;
    assert!(!error.is_retryable());
    // Each connection has its own random part.
    for number in 0..40 {
        let locks = LockManager::connect(&sasl).await.unwrap();
        locks.lock(format!("{number}")).acquire().await.unwrap().release().await.unwrap();
    }
    let digest = sasl.replace("auth=sasl", "auth=digest").replace("/locks", "/digest");
    let locks = LockManager::connect(&digest).await.unwrap();
    let guard = locks.lock("k").acquire().await.unwrap();
    let others = LockManager::connect(&digest.replace(&right, wrong)).await.unwrap();
    let error = others.lock("k").wait(LONG).acquire().await.unwrap_err();
    assert!(error.to_string().contains("check user and password"), "{error}");
    guard.release().await.unwrap();

    // Servers without SASL let every client in, without a user.
    let ignorant = ZooKeeperServer::start("");
    let url = format!("zookeeper://us:{PASSWORD}@{}?auth=sasl", ignorant.address());
    let locks = LockManager::connect(&url).await.unwrap();
    let began = Moment::now();
    let error = locks.lock("k").wait(LONG).acquire().await.unwrap_err();
    assert!(began.within(SOON), "{:?}", began.took());
    assert!(error.to_string().contains("ignored the credentials"), "{error}");
    for shown in [format!("{error:?}"), format!("{locks:?}"), format!("{others:?}")] {
        assert!(!shown.contains("canary"), "{shown}");
    }
    let (read, leaks) = traces::found();
    let leaks: Vec<_> =
        leaks.into_iter().filter(|leak| leak.contains("canary") || leak.contains("99, 97, 110")).collect();
    assert!(read > 100, "only {read} traces were read");
    assert!(leaks.is_empty(), "{leaks:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_are_refused_later_end_the_session_and_say_so() {
    let authority = Authority::new();
    let mut secure = Secure::for_all(&authority.signs(&["localhost"]));
    // A session longer than a restart takes.
    let url = url("localhost", secure.port, &authority.ca(), "&auth=sasl")
        .replace(&format!("session_timeout={}ms", SESSION.as_millis()), "session_timeout=40s");
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("k").ttl(LONG * 2).acquire().await.unwrap();
    secure.server.kill();
    secure.server.set_users(&USERS.replace(PASSWORD, "changed"));
    secure.server.bring_back();
    // The deadline of the hold would pass later.
    tokio::time::timeout(LONG / 2, guard.lost()).await.expect("told");
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Lost);
    let error = locks.lock("k").ttl(LONG * 2).wait(LONG).acquire().await.unwrap_err();
    assert!(error.to_string().contains("refused the credentials"), "{error}");
    secure.server.kill();
    secure.server.set_users(USERS);
    secure.server.bring_back();
    // Not `k`, whose node stays until the servers end the abandoned session.
    let guard = locks.lock("other").ttl(LONG * 2).wait(LONG).acquire().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_others_with_our_credentials_contend_and_write_under_our_fence() {
    use zookeeper_client as driver;

    let authority = Authority::new();
    let secure = Secure::for_all(&authority.signs(&["localhost"]));
    let locks = LockManager::connect(&url("localhost", secure.port, &authority.ca(), "")).await.unwrap();
    let locks = locks.with_prefix("").unwrap();
    let guard = locks.lock("k").acquire().await.unwrap();
    let client = driver::Client::connector()
        .with_auth("digest", format!("us:{PASSWORD}").as_bytes())
        .connect(&secure.server.address().to_string())
        .await
        .unwrap();
    client
        .create("/balance", b"100", &driver::CreateMode::Persistent.with_acls(driver::Acls::creator_all()))
        .await
        .unwrap();
    let mut write = fence::begin(&client, &guard.held()).unwrap();
    write.add_set_data("/balance", b"70", None).unwrap();
    write.commit().await.unwrap();

    // Like Curator, whose nodes are open to all by default.
    let acls = driver::Acls::anyone_all();
    let begun = Instant::now();
    let theirs = {
        let client = client.clone();
        tokio::spawn(async move {
            let prefix = driver::LockPrefix::new_curator("/locks/k", "lock-").unwrap();
            let lock = client.lock(prefix, b"", driver::LockOptions::new(acls)).await.unwrap();
            (lock.lock_path().to_owned(), Instant::now())
        })
    };
    tokio::time::sleep(SESSION / 8).await;
    assert!(!theirs.is_finished());
    let released = Instant::now();
    guard.release().await.unwrap();
    let (path, entered) = theirs.await.unwrap();
    assert!(path.starts_with("/locks/k/") && entered > released && begun < released);
    let data = client.get_data("/balance").await.unwrap().0;
    assert_eq!(data, b"70");

    // Without our credentials the fence is closed.
    let guard = locks.lock("other").acquire().await.unwrap();
    let anonymous = driver::Client::connect(&secure.server.address().to_string()).await.unwrap();
    let mut write = fence::begin(&anonymous, &guard.held()).unwrap();
    write
        .add_create("/mine", b"", &driver::CreateMode::Persistent.with_acls(driver::Acls::anyone_all()))
        .unwrap();
    write.commit().await.unwrap_err();
    until("nothing was written", || {
        if secure.admin().data("/mine").unwrap() == Err(zk::NO_NODE) { Ok(()) } else { Err(()) }
    })
    .await;
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_at_its_limit_of_connections_is_waited_for() {
    let authority = Authority::new();
    let secure = Secure::start(&authority.signs(&["localhost"]), "ssl.clientAuth=none\nmaxClientCnxns=2");
    let plain = secure.server.address();
    // An earlier connection may still count when the first of these come, and they are closed.
    let mut taken = Vec::new();
    until("the limit is reached", || {
        taken.push(TcpStream::connect(plain).unwrap());
        let answer = secure.server.ask("srvr").unwrap_or_default();
        if answer.is_empty() { Ok(()) } else { Err(answer) }
    })
    .await;
    for url in [format!("zookeeper://{plain}"), url("localhost", plain.port(), &authority.ca(), "")] {
        let error = refused(&url, "").await;
        assert!(error.is_retryable(), "{error}");
    }
    drop(taken);
}
