//! The names of connections: in all stores on Redis.

use std::net::SocketAddr;

use lock_runtime::LockManager;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream},
};

use super::{LONG, permissions::published_user, url};
use crate::{
    client_name::is_ours,
    support::{
        proxy::{Proxy, Upstream},
        redis_server::RedisServer,
        until,
    },
};

/// The names of the connections to a server, without the connection that asks.
fn names(server: &RedisServer) -> Vec<String> {
    let clients = server.command(&["CLIENT", "LIST"]).text();
    let others = clients.lines().filter(|client| !client.contains(" cmd=client|list "));
    let name = |client: &str| {
        let name = client.split(' ').find_map(|field| field.strip_prefix("name="));
        name.expect("each client has the field").to_owned()
    };
    others.map(name).collect()
}

async fn use_once(locks: &LockManager) {
    locks.lock("user:42").wait(LONG).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn each_connection_has_program_process_and_host_in_its_name() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start_durable(&[])).collect();
    let proxies: Vec<_> =
        servers.iter().map(|server| Proxy::start(Upstream::Unix(server.socket().into()))).collect();
    let addresses: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let one = &addresses[0];
    let mut clients = Vec::new();
    for url in [
        format!("redis://{one}"),
        format!("redisson://{one}"),
        format!("redlock://{}?durable=true", addresses.join(",")),
    ] {
        let locks = LockManager::connect(&url).await.unwrap();
        use_once(&locks).await;
        clients.push(locks);
    }
    for (number, server) in servers.iter().enumerate() {
        let stores = if number == 0 { 3 } else { 1 };
        // A majority grants the lock, so the connections to the last node may still be made.
        until("all connections are named", || {
            let names = names(server);
            let are_named = names.len() >= 2 * stores && names.iter().all(|name| is_ours(name));
            if are_named { Ok(()) } else { Err(names) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_user_who_may_not_name_connections_has_named_ones_and_no_refusal_in_the_log() {
    let mut user = published_user();
    *user.iter_mut().find(|word| **word == "+@connection").expect("the user has it") = "+ping";
    let server = RedisServer::start(&[&["--user"], &user[..]].concat());
    let locks = LockManager::connect(&url(&server, "?user=locks&pass=password")).await.unwrap();
    use_once(&locks).await;
    let refused = server.command(&["ACL", "DRYRUN", "locks", "CLIENT", "SETNAME", "x"]);
    assert!(!format!("{refused:?}").contains("OK"), "the user may name its connections: {refused:?}");
    let names = names(&server);
    assert!(names.len() >= 2 && names.iter().all(|name| is_ours(name)), "{names:?}");
    let log = format!("{:?}", server.command(&["ACL", "LOG"]));
    assert!(!log.contains("setname") && !log.contains("hello"), "{log}");
}

/// Passes connections on to a server, and makes each name an option that the server refuses.
async fn nameless(server: &RedisServer) -> SocketAddr {
    const OPTION: &[u8] = b"SETNAME";
    let socket = server.socket().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let upstream = UnixStream::connect(&socket).await.unwrap();
            let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                (client.into_split(), upstream.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
                    let sent = &mut buffer[..count];
                    if let Some(start) = sent.windows(OPTION.len()).position(|part| part == OPTION) {
                        sent[start..start + OPTION.len()].copy_from_slice(b"NOTHING");
                    }
                    if to_server.write_all(sent).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_connection_whose_name_is_refused_is_used_without_one() {
    let server = RedisServer::start(&[]);
    let address = nameless(&server).await;
    let mut clients = Vec::new();
    for scheme in ["redis", "redisson"] {
        let locks = LockManager::connect(&format!("{scheme}://{address}")).await.unwrap();
        use_once(&locks).await;
        clients.push(locks);
    }
    let names = names(&server);
    assert!(names.len() >= 4 && names.iter().all(String::is_empty), "{names:?}");
}
