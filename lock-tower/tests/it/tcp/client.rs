//! An HTTP/1.1 client on one keep-alive connection, which sends and sees every byte.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::soon;

/// An answer as an HTTP/1.1 client sees it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// A keep-alive connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Bytes read and not yet taken.
    pub(crate) received: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(server: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(server).await.expect("listening"), received: Vec::new() }
    }

    pub(crate) async fn send(&mut self, path: &str) {
        self.send_all(&head(path, 0)).await;
    }

    pub(crate) async fn send_all(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("sent");
    }

    /// Reads until `pattern`, and takes everything up to its end.
    pub(crate) async fn take(&mut self, pattern: &str) -> String {
        loop {
            let found = self.received.windows(pattern.len()).position(|window| window == pattern.as_bytes());
            if let Some(at) = found {
                let rest = self.received.split_off(at + pattern.len());
                return String::from_utf8(std::mem::replace(&mut self.received, rest)).expect("UTF-8");
            }
            let read = soon(pattern, self.stream.read_buf(&mut self.received)).await.expect("received");
            assert!(read > 0, "closed before {pattern:?}: {:?}", String::from_utf8_lossy(&self.received));
        }
    }

    /// The answer to the request that was sent, to its last byte and no further.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.take("\r\n\r\n").await.to_ascii_lowercase();
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        let body = if let Some((_, length)) = head.split_once("content-length: ") {
            let length = length.split("\r\n").next().expect("a value").parse().expect("a number");
            while self.received.len() < length {
                let read =
                    soon("the body", self.stream.read_buf(&mut self.received)).await.expect("received");
                assert!(read > 0, "closed in the body");
            }
            let rest = self.received.split_off(length);
            String::from_utf8(std::mem::replace(&mut self.received, rest)).expect("UTF-8")
        } else if head.contains("transfer-encoding: chunked") {
            self.take("0\r\n\r\n").await
        } else {
            assert_eq!(status, 204, "{head}");
            String::new()
        };
        Answer { status, body }
    }
}

/// The head of a `POST` with a body of `length` bytes.
pub(crate) fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {length}\r\n\r\n")
}
