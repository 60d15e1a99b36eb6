//! Redis behind TLS: accepted and refused clients, and the errors of the refused ones.

use std::{env, fs, path::Path, process::Command, time::Duration};

use lock_runtime::{
    LockError, LockErrorKind, LockManager,
    backend::{Backend, Redis},
};

use crate::{
    authority::{Authority, Signed, text},
    support::{
        proxy::{Proxy, Upstream},
        redis_cluster::{self, RedisCluster},
        redis_sentinel::{RedisSet, Setup},
        redis_server::RedisServer,
        resp::Value,
        stopwatch::{Moment, most_within},
        until,
        zookeeper_server::free_port,
    },
};

const LONG: Duration = Duration::from_secs(30);
/// Time limit for immediate errors, on a busy machine.
const SOON: Duration = Duration::from_secs(8);
const PASSWORD: &str = "canary-7c50";
/// The URL that a child process is to connect to.
const CHILD_S_URL: &str = "LOCK_TEST_CHILD_S_URL";

/// A server with a port for TLS next to its socket.
struct Secure {
    server: RedisServer,
    port: u16,
}

impl Secure {
    fn start(authority: &Authority, identity: &Signed, clients: &str) -> Self {
        let port = free_port();
        let server = RedisServer::start(&[
            "--bind",
            "127.0.0.1",
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            text(&identity.cert),
            "--tls-key-file",
            text(&identity.key),
            "--tls-ca-cert-file",
            text(&authority.ca()),
            "--tls-auth-clients",
            clients,
            "--user",
            "us",
            "on",
            &format!(">{PASSWORD}"),
            "~*",
            "&*",
            "+@all",
        ]);
        Self { server, port }
    }

    /// Starts a server that requests no client certificate.
    fn for_all(authority: &Authority, identity: &Signed) -> Self {
        Self::start(authority, identity, "no")
    }

    fn url(&self, host: &str, settings: &str) -> String {
        self.url_of("rediss", host, settings)
    }

    fn url_of(&self, scheme: &str, host: &str, settings: &str) -> String {
        format!("{scheme}://us:{PASSWORD}@{host}:{}?{settings}", self.port)
    }

    fn socket(&self) -> String {
        self.socket_of("redis+unix")
    }

    fn socket_of(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.server.socket().display())
    }

    fn set(&self, settings: &[&str]) {
        let answer = self.server.command(&[&["CONFIG", "SET"], settings].concat());
        assert_eq!(answer, Value::Text("OK".into()));
    }
}

fn trusts(ca: &Path) -> String {
    format!("tls_ca={}", text(ca))
}

fn shows(signed: &Signed) -> String {
    format!("&tls_cert={}&tls_key={}", text(&signed.cert), text(&signed.key))
}

async fn refused(url: &str) -> LockError {
    let began = Moment::now();
    let error = LockManager::connect(url).await.map(drop).expect_err(url);
    println!("{error}");
    assert!(began.within(SOON), "{error} after {:?}", began.took());
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_behind_tls_are_renewed_waited_for_and_handed_over_by_a_push() {
    renewed_and_waited_for("rediss", "redis+unix").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_s_locks_behind_tls_are_renewed_and_waited_for() {
    renewed_and_waited_for("redisson+tls", "redisson+unix").await;
}

async fn renewed_and_waited_for(scheme_of_tls: &str, scheme_of_unix: &str) {
    let authority = Authority::new();
    let secure = Secure::for_all(&authority, &authority.signs(&["localhost"]));
    let url = secure.url_of(scheme_of_tls, "localhost", &trusts(&authority.ca()));
    let (ours, theirs) =
        (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap());
    let plain = LockManager::connect(&secure.socket_of(scheme_of_unix)).await.unwrap();
    let guard = ours.lock("k").ttl(Duration::from_millis(1500)).acquire().await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(guard.is_valid(), "it was renewed");
    for stranger in [&theirs, &plain] {
        assert!(stranger.lock("k").try_acquire().await.unwrap().is_none());
    }
    guard.release().await.unwrap();

    // A waiter that is not notified polls once a second, and on a lock of Redisson every 200 to 350 ms.
    let mut took = Vec::new();
    for _ in 0..7 {
        let guard = ours.lock("k").acquire().await.unwrap();
        let lock = theirs.lock("k").wait(LONG);
        let waiter = tokio::spawn(async move { (lock.acquire().await.unwrap(), Moment::now()) });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiter.is_finished());
        let (token, released) = (guard.fencing_token(), Moment::now());
        guard.release().await.unwrap();
        let (guard, entered) = waiter.await.unwrap();
        assert!(guard.fencing_token() > token);
        took.push(entered.since(released));
        guard.release().await.unwrap();
    }
    assert!(most_within(&took, Duration::from_millis(100)), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_one_store_however_it_is_reached() {
    let authority = Authority::new();
    let secure = Secure::for_all(&authority, &authority.signs(&["127.0.0.1"]));
    let ours = Redis::connect(&secure.url("127.0.0.1", &trusts(&authority.ca()))).await.unwrap();
    let plain = Redis::connect(&secure.socket()).await.unwrap();
    assert!(ours.names().iter().any(|name| plain.names().contains(name)), "{:?}", ours.names());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_cannot_be_are_refused_at_once_with_what_to_change() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let ours = authority.signs(&["localhost"]);
    let secure = Secure::for_all(&authority, &ours);
    let plain = Proxy::start(Upstream::Unix(secure.server.socket().to_owned()));
    let (ca, port, plain) = (authority.ca(), secure.port, plain.address().port());
    let cut = ca.with_file_name("cut.pem");
    fs::write(&cut, fs::read_to_string(&ca).unwrap() + "-----BEGIN X509 CRL-----\nAAAA\n").unwrap();
    let identity =
        |cert: &Path, key: &Path| format!("{}&tls_cert={}&tls_key={}", trusts(&ca), text(cert), text(key));
    for (url, word, permanent) in [
        (secure.url("localhost", &trusts(&stranger.ca())), "no CA in `tls_ca` has signed", true),
        (secure.url("127.0.0.1", &trusts(&ca)), "for other names", true),
        (secure.url("localhost", &trusts(&authority.ca_that_revokes(&ours))), "was revoked", true),
        (format!("rediss://us:{PASSWORD}@localhost:{plain}?{}", trusts(&ca)), "does not speak TLS", true),
        (format!("redis://us:{PASSWORD}@localhost:{port}"), "wants TLS; write `rediss://`", true),
        (format!("redisson://us:{PASSWORD}@localhost:{port}"), "wants TLS; write `redisson+tls://`", true),
        (
            format!("redisson+tls://us:{PASSWORD}@localhost:{plain}?{}", trusts(&ca)),
            "does not speak TLS; name its port for TLS, or write `redisson://`",
            true,
        ),
        (format!("rediss://us:{PASSWORD}@localhost:1?{}", trusts(&ca)), "nothing listens there", false),
        // Files may be in the middle of being replaced.
        (secure.url("localhost", &trusts(&ca.with_file_name("missing.pem"))), "cannot read", false),
        (secure.url("localhost", &trusts(&ours.key)), "no certificate", false),
        (secure.url("localhost", &trusts(&cut)), "an incomplete section", false),
        (secure.url("localhost", &identity(&ours.cert, &ca)), "no private key", false),
        (secure.url("localhost", &identity(&ours.key, &ours.key)), "no certificate", false),
        (secure.url("localhost", &identity(&ca, &ours.key)), "cannot be used", false),
    ] {
        let error = refused(&url).await;
        assert_eq!(error.kind(), LockErrorKind::Backend);
        assert_eq!(error.is_permanent(), permanent, "{error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    // The system's CAs, whatever they are.
    let error = refused(&secure.url("localhost", &trusts(Path::new("/etc/ssl")))).await;
    assert!(error.to_string().contains("cannot read `/etc/ssl`"), "{error}");
    LockManager::connect(&secure.url("localhost", &trusts(&ca))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_out_of_its_time_is_refused() {
    let authority = Authority::new();
    for (identity, word) in [
        (authority.signed_until_2020(&["localhost"]), "has expired"),
        (authority.signed_from_2090_on(&["localhost"]), "is not valid yet"),
    ] {
        let secure = Secure::for_all(&authority, &identity);
        let error = refused(&secure.url("localhost", &trusts(&authority.ca()))).await;
        assert!(error.is_permanent() && error.to_string().contains(word), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_our_certificate_gets_it() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    for protocol in ["TLSv1.2", "TLSv1.3"] {
        let secure = Secure::start(&authority, &authority.signs(&["localhost"]), "yes");
        secure.set(&["tls-protocols", protocol]);
        let url = |identity: &str| secure.url("localhost", &format!("{}{identity}", trusts(&authority.ca())));
        let locks = LockManager::connect(&url(&shows(&authority.signs(&["worker"])))).await.unwrap();
        locks.lock("k").acquire().await.unwrap().release().await.unwrap();
        let error = refused(&url("")).await;
        assert!(error.to_string().contains("requires a client certificate"), "{protocol}: {error}");
        assert!(error.is_permanent());
        let error = refused(&url(&shows(&stranger.signs(&["worker"])))).await;
        assert!(error.to_string().contains("does not accept the certificate"), "{protocol}: {error}");
        assert!(error.is_permanent());
        let error = refused(&url(&shows(&authority.signed_until_2020(&["worker"])))).await;
        assert!(error.to_string().contains("does not accept the certificate"), "{protocol}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_certificates_are_used_by_the_next_connection() {
    let (before, after) = (Authority::new(), Authority::new());
    let secure = Secure::start(&before, &before.signs(&["localhost"]), "yes");
    let (ours, theirs) = (before.signs(&["worker"]), after.signs(&["localhost"]));
    let url = secure.url("localhost", &format!("{}{}", trusts(&before.ca()), shows(&ours)));
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.lock("kept").acquire().await.unwrap();

    secure.set(&[
        "tls-cert-file",
        text(&theirs.cert),
        "tls-key-file",
        text(&theirs.key),
        "tls-ca-cert-file",
        text(&after.ca()),
    ]);
    secure.server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    secure.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    // The settings were right, so the failure counts as an outage, and is waited out.
    let error = locks.lock("k").wait(Duration::from_secs(1)).acquire().await.unwrap_err();
    assert!(error.to_string().contains("no CA in `tls_ca` has signed"), "{error}");
    assert!(error.is_retryable() && !error.is_permanent());
    let lock = locks.lock("waited for").wait(LONG);
    let waiter = tokio::spawn(async move { lock.acquire().await });

    let renewed = after.signs(&["worker"]);
    for (new, old) in
        [(after.ca(), before.ca()), (renewed.cert.clone(), ours.cert), (renewed.key.clone(), ours.key)]
    {
        fs::copy(new, old).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

/// The child process of this test is the same test again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cas_of_the_system_are_trusted_where_the_url_names_none() {
    if let Ok(url) = env::var(CHILD_S_URL) {
        let outcome = match LockManager::connect(&url).await {
            Ok(locks) => {
                locks.lock("k").acquire().await.unwrap().release().await.unwrap();
                "granted".to_owned()
            }
            Err(error) => error.to_string(),
        };
        println!("outcome: {outcome}");
        return;
    }
    let (authority, stranger) = (Authority::new(), Authority::new());
    let secure = Secure::for_all(&authority, &authority.signs(&["localhost", "127.0.0.1"]));
    let system = |ca: &Path, url: &str| {
        let name = "redis_secure::the_cas_of_the_system_are_trusted_where_the_url_names_none";
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env("SSL_CERT_FILE", ca)
            .env_remove("SSL_CERT_DIR")
            .env(CHILD_S_URL, url)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    for (ca, url, word) in [
        (authority.ca(), secure.url("localhost", ""), "outcome: granted"),
        (authority.ca(), secure.url("127.0.0.1", ""), "outcome: granted"),
        (stranger.ca(), secure.url("localhost", ""), "no CA of this system has signed"),
        (stranger.ca().with_file_name("missing"), secure.url("localhost", ""), "this system has no CA"),
        // Only the CAs that the URL names, and then the system need not have any.
        (authority.ca(), secure.url("localhost", &trusts(&stranger.ca())), "no CA in `tls_ca` has signed"),
        (
            stranger.ca().with_file_name("missing"),
            secure.url("localhost", &trusts(&authority.ca())),
            "outcome: granted",
        ),
    ] {
        let said = system(&ca, &url);
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_given_client_keeps_the_certificates_that_it_has() {
    use redis::{Client, ClientTlsConfig, TlsCertificates};

    let (authority, stranger) = (Authority::new(), Authority::new());
    let secure = Secure::start(&authority, &authority.signs(&["localhost"]), "yes");
    let client = |ca: &Path, identity: Option<&Signed>| {
        let read = |path: &Path| fs::read(path).unwrap();
        let certificates = TlsCertificates {
            client_tls: identity.map(|signed| ClientTlsConfig {
                client_cert: read(&signed.cert),
                client_key: read(&signed.key),
            }),
            root_cert: Some(read(ca)),
        };
        Client::build_with_tls(secure.url("localhost", "").as_str(), certificates).unwrap()
    };
    let worker = authority.signs(&["worker"]);
    let store = Redis::from_client(&client(&authority.ca(), Some(&worker))).await.unwrap();
    let locks = LockManager::new(store);
    locks.lock("k").acquire().await.unwrap().release().await.unwrap();
    for (client, word) in [
        (client(&stranger.ca(), Some(&worker)), "no CA of the given client has signed"),
        (client(&authority.ca(), None), "does not accept the certificate of the given client"),
    ] {
        let error = Redis::from_client(&client).await.map(drop).unwrap_err();
        println!("{error}");
        assert!(error.is_permanent() && error.to_string().contains(word), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}

/// The settings of servers that show this certificate to clients and to each other.
fn files<'a>(identity: &'a Signed, ca: &'a Path) -> Vec<&'a str> {
    [
        ["--tls-cert-file", text(&identity.cert)],
        ["--tls-key-file", text(&identity.key)],
        ["--tls-ca-cert-file", text(ca)],
        ["--tls-auth-clients", "no"],
        ["--tls-replication", "yes"],
    ]
    .concat()
}

/// The certificates of servers and Sentinels are valid for the address that the Sentinels name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_behind_tls_is_found_and_followed() {
    let authority = Authority::new();
    let identity = authority.signs(&["127.0.0.1"]);
    let ca = authority.ca();
    let files = files(&identity, &ca);
    let setup = Setup { replicas: 1, servers: &files, sentinels: &files, with_tls: true, ..Setup::default() };
    let set = RedisSet::start(setup);
    let plain = set.url("", "");
    let error = refused(&plain).await;
    assert!(!error.is_retryable() && error.to_string().contains("`redis-sentinel+tls://`"), "{error}");
    let url = plain.replace("redis-sentinel:", "redis-sentinel+tls:");
    let stranger = Authority::new();
    let error = refused(&format!("{url}?{}", trusts(&stranger.ca()))).await;
    assert!(!error.is_retryable() && error.to_string().contains("`tls_ca`"), "{error}");

    let locks = LockManager::connect(&format!("{url}?{}", trusts(&ca))).await.unwrap();
    let guard = locks.lock("k").ttl(Duration::from_secs(6)).acquire().await.unwrap();
    until("the replica has the lock", || match set.servers[1].server.command(&["EXISTS", "lock:k"]).int() {
        1 => Ok(()),
        other => Err(other),
    })
    .await;
    tokio::task::block_in_place(|| set.fail_over());
    // What was taken on the old primary in between is lost.
    let other = locks.lock("other").wait(LONG);
    while other.acquire().await.unwrap().release().await.is_err() {}
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(guard.is_valid(), "it was not renewed on the new primary");
    guard.release().await.unwrap();
}

/// The certificates are valid for the addresses that the servers announce.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_behind_tls_is_found_and_followed() {
    let authority = Authority::new();
    let identity = authority.signs(&["127.0.0.1"]);
    let ca = authority.ca();
    let settings = files(&identity, &ca);
    let setup = redis_cluster::Setup { settings: &settings, with_tls: true, ..Default::default() };
    let cluster = RedisCluster::start(setup);
    let url = cluster.url("", "");
    let error = refused(&url.replace("redis-cluster+tls:", "redis-cluster:")).await;
    assert!(!error.is_retryable() && error.to_string().contains("`redis-cluster+tls://`"), "{error}");
    let error = refused(&format!("{url}?{}", trusts(&Authority::new().ca()))).await;
    assert!(!error.is_retryable() && error.to_string().contains("`tls_ca`"), "{error}");

    let locks = LockManager::connect(&format!("{url}?{}", trusts(&ca))).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..9 {
        guards.push(locks.lock(format!("k{number}")).ttl(Duration::from_secs(2)).acquire().await.unwrap());
    }
    let slot = cluster.slot("lock:k0");
    let moving = cluster.begin_move(slot, cluster.another(slot));
    moving.carry("lock:k0");
    tokio::time::sleep(Duration::from_secs(3)).await;
    moving.end();
    tokio::time::sleep(Duration::from_secs(3)).await;
    for guard in guards {
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
}
