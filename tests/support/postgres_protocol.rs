//! PostgreSQL's protocol, as far as a test needs it to inspect a server and to act as a client of its own: simple queries.

#![allow(dead_code, reason = "each program that tests uses a part of it")]

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// A session of the superuser.
#[derive(Debug)]
pub struct Session(UnixStream);

/// The rows of an answer, in text.
pub type Rows = Vec<Vec<Option<String>>>;

impl Session {
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let parameters = b"user\0postgres\0database\0postgres\0\0";
        let length = u32::try_from(8 + parameters.len()).unwrap();
        // At once: a pooler closes a connection whose first packet ends after the length.
        let packet = [&length.to_be_bytes()[..], &0x0003_0000_u32.to_be_bytes(), parameters].concat();
        stream.write_all(&packet)?;
        let mut session = Self(stream);
        session.answer()?;
        Ok(session)
    }

    /// Executes statements, as in one line of `psql`; returns the rows of all.
    ///
    /// # Errors
    /// Those of the connection, and those that the server reports ([`io::ErrorKind::Other`]).
    pub fn query(&mut self, text: &str) -> io::Result<Rows> {
        let mut message = vec![b'Q'];
        message.extend(u32::try_from(text.len() + 5).unwrap().to_be_bytes());
        message.extend(text.as_bytes());
        message.push(0);
        self.0.write_all(&message)?;
        self.answer()
    }

    /// Reads until the server is ready for the next query.
    fn answer(&mut self) -> io::Result<Rows> {
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head)?;
            let [kind, length @ ..] = head;
            let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
            self.0.read_exact(&mut body)?;
            match kind {
                b'D' => rows.push(row(&body)),
                b'E' => error = Some(String::from_utf8_lossy(&body).replace('\0', " ")),
                b'R' if body[..4] != [0; 4] => return Err(io::Error::other("a password is asked for")),
                b'Z' => return error.map_or(Ok(rows), |error| Err(io::Error::other(error))),
                _ => {}
            }
            // Before it is ready, the server closes a session that it refuses.
            if kind == b'E' && body.starts_with(b"SFATAL") {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, error.unwrap_or_default()));
            }
        }
    }
}

fn row(mut body: &[u8]) -> Vec<Option<String>> {
    let mut take = |count: usize| {
        let (taken, rest) = body.split_at(count);
        body = rest;
        taken.to_vec()
    };
    let columns = u16::from_be_bytes(take(2).try_into().unwrap());
    (0..columns)
        .map(|_| {
            let length = i32::from_be_bytes(take(4).try_into().unwrap());
            let value = take(usize::try_from(length).ok()?);
            Some(String::from_utf8_lossy(&value).into_owned())
        })
        .collect()
}
