//! An HTTP/1.1 client on one keep-alive connection, which sees every byte.

use std::{future::Future, net::SocketAddr, time::Duration};

use axum::{Router, serve::ListenerExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

pub async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Otherwise the end of a stream leaves 40 ms after it.
    let listener = listener.tap_io(|connection| connection.set_nodelay(true).unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

pub fn request(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\n\r\n")
}

pub struct Client {
    pub stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub async fn connect(server: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(server).await.unwrap(), received: Vec::new() }
    }

    pub async fn send(&mut self, path: &str) {
        self.stream.write_all(request(path).as_bytes()).await.unwrap();
    }

    /// Returns the status of the next answer, once its last byte is there; the bytes received if it was broken off.
    pub async fn status(&mut self) -> Result<u16, String> {
        loop {
            if let Some((length, status)) = complete(&self.received) {
                self.received.drain(..length);
                return Ok(status);
            }
            match self.stream.read_buf(&mut self.received).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(String::from_utf8_lossy(&self.received).into()),
            }
        }
    }
}

/// The length of the answer at the beginning, if it is complete, and its status.
fn complete(received: &[u8]) -> Option<(usize, u16)> {
    let text = String::from_utf8_lossy(received).to_ascii_lowercase();
    let head = text.find("\r\n\r\n")? + 4;
    let status = text.split(' ').nth(1)?.parse().unwrap();
    let body = match text[..head].split_once("content-length: ") {
        Some((_, rest)) => rest.split("\r\n").next()?.parse().unwrap(),
        None => text[head..].find("0\r\n\r\n")? + 5,
    };
    (head + body <= received.len()).then_some((head + body, status))
}
