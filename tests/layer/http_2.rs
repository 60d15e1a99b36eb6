//! The part of the load that speaks HTTP/2.

use std::{
    net::{Shutdown, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, task::JoinSet};

use crate::{
    client::soon,
    load::{Seen, any_request, count},
    support::Random,
};

/// Number of concurrent requests on one connection.
const STREAMS: u64 = 4;

/// One client: connections with several requests at once, some of which it resets at some moment. The connections
/// are cut as well, with all requests on them.
pub async fn client(server: SocketAddr, watch: Arc<Seen>, seed: u64, end: Instant) {
    let mut random = Random::from_seed(seed);
    while Instant::now() < end {
        let stream = TcpStream::connect(server).await.unwrap().into_std().unwrap();
        let cut = stream.try_clone().unwrap();
        let stream = TokioIo::new(TcpStream::from_std(stream).unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        let closed = Arc::new(AtomicBool::new(false));
        let mut streams = JoinSet::new();
        for _ in 0..STREAMS {
            let (watch, closed) = (Arc::clone(&watch), Arc::clone(&closed));
            streams.spawn(requests(sender.clone(), watch, random.next(), closed));
        }
        tokio::time::sleep(Duration::from_micros(random.below(200_000))).await;
        closed.store(true, Ordering::SeqCst);
        let _ = cut.shutdown(Shutdown::Both);
        while let Some(ended) = soon("the end of a stream", streams.join_next()).await {
            ended.unwrap();
        }
    }
}

/// One request after the other, until the connection is closed.
async fn requests(
    mut sender: http2::SendRequest<Empty<Bytes>>,
    watch: Arc<Seen>,
    seed: u64,
    closed: Arc<AtomicBool>,
) {
    let mut random = Random::from_seed(seed);
    while !closed.load(Ordering::SeqCst) {
        let (path, patience) = any_request(&mut random);
        let request = Request::post(format!("http://test{path}")).body(Empty::new()).unwrap();
        let answer = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status().as_u16();
            Ok::<_, hyper::Error>((status, answer.into_body().collect().await))
        };
        let answered = if random.below(4) == 0 {
            // Dropped, it is reset.
            tokio::time::timeout(patience, answer).await.ok()
        } else {
            Some(soon("the answer", answer).await)
        };
        match answered {
            None => count(&watch.left),
            Some(Ok((status, Ok(_)))) => watch.answered(&path, status),
            Some(Err(_) | Ok((_, Err(_)))) if closed.load(Ordering::SeqCst) => count(&watch.left),
            Some(Ok((_, Err(error)))) => watch.broken_off(&path, &error.to_string()),
            Some(Err(error)) => panic!("{path}: {error}"),
        }
    }
}
