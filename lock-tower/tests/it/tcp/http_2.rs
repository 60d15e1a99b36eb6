//! What differs over HTTP/2.

use std::net::SocketAddr;

use axum::{Router, body::Body, extract::Request, routing::any};
use http::{Method, header};
use hyper::{
    client::conn::http2::{self, SendRequest},
    ext::Protocol,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::{
    client::{Client, head},
    lock, serve,
};
use crate::support::{key, soon, store};

async fn connect(server: SocketAddr) -> SendRequest<Body> {
    let stream = TcpStream::connect(server).await.expect("listening");
    let (client, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    client
}

async fn status(client: &mut SendRequest<Body>, request: Request) -> u16 {
    soon("the head", client.send_request(request)).await.expect("answered").status().as_u16()
}

/// The handshake of a WebSocket over HTTP/2 (RFC 8441).
fn handshake() -> Request {
    let mut request = Request::connect("http://test/rooms/1").body(Body::empty()).expect("a request");
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    request
}

#[tokio::test]
async fn the_handshake_of_a_web_socket_is_locked_like_that_over_http_1() {
    let (memory, locks) = store();
    memory.set_failing(true);
    // 503 shows that a lock was requested, and 200 that none was.
    for (methods, status_1, status_2) in [
        (None, 200, 200),
        (Some(vec![Method::GET]), 503, 503),
        (Some(vec![Method::POST]), 200, 200),
        // Asked for by its own name.
        (Some(vec![Method::CONNECT]), 200, 503),
    ] {
        let layer = lock(&locks, "room:<id>");
        let layer = if let Some(methods) = methods { layer.methods(methods) } else { layer };
        let route = any(|| async {}).layer::<_, std::convert::Infallible>(layer);
        let server = serve(Router::new().route("/rooms/{id}", route)).await;

        let mut client = Client::connect(server).await;
        let upgrade = "connection: upgrade\r\nupgrade: websocket\r\ncontent-length: 0\r\n\r\n";
        client.send_all(&format!("GET /rooms/1 HTTP/1.1\r\nhost: test\r\n{upgrade}")).await;
        assert_eq!(client.answer().await.status, status_1);

        let mut client = connect(server).await;
        // The server's settings, which allow the `:protocol`, come before this answer.
        let first = Request::get("http://test/nothing").body(Body::empty()).expect("a request");
        assert_eq!(status(&mut client, first).await, 404);
        assert_eq!(status(&mut client, handshake()).await, status_2);
    }
}

#[tokio::test]
async fn a_connect_request_of_http_1_with_a_path_gets_no_further_without_its_lock() {
    let (memory, locks) = store();
    memory.set_failing(true);
    let route = any(|| async {}).layer::<_, std::convert::Infallible>(lock(&locks, "room:<id>"));
    let server = serve(Router::new().route("/rooms/{id}", route)).await;
    let mut client = Client::connect(server).await;
    client.send_all(&head("/rooms/1", 0).replacen("POST", "CONNECT", 1)).await;
    assert_eq!(client.answer().await.status, 503);
}

#[tokio::test]
async fn the_fields_of_a_cookie_are_one() {
    let (_memory, locks) = store();
    let route = any(key).layer::<_, std::convert::Infallible>(lock(&locks, "<header.cookie>"));
    let mut client = connect(serve(Router::new().route("/", route)).await).await;
    for (fields, name) in [
        (&["a=1; b=2"] as &[_], Ok("a=1;%20b=2")),
        (&["a=1", "b=2"], Ok("a=1;%20b=2")),
        (&["b=2", "a=1"], Ok("b=2;%20a=1")),
        (&[], Err(400)),
    ] {
        let mut request = Request::post("http://test/");
        for field in fields {
            request = request.header(header::COOKIE, *field);
        }
        let request = request.body(Body::empty()).expect("a request");
        let answer = soon("the head", client.send_request(request)).await.expect("answered");
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(Body::new(answer), usize::MAX).await.expect("a body");
        match name {
            Ok(name) => assert_eq!((status, &body[..]), (200, name.as_bytes()), "{fields:?}"),
            Err(expected) => assert_eq!(status, expected, "{fields:?}"),
        }
    }
}
