//! ZooKeeper's protocol, as far as a test needs it, written from its description, so that the tree is inspected
//! independently of the driver under test.

#![allow(dead_code, reason = "each program that tests uses a part of it")]

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// One session; dropped, it is closed.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    session: i64,
    xid: i32,
}

/// The error codes that tests check.
pub const NO_NODE: i32 = -101;
pub const NODE_EXISTS: i32 = -110;
pub const NO_AUTH: i32 = -102;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const SET_ACL: i32 = 7;
const GET_CHILDREN: i32 = 8;
const MULTI: i32 = 14;
const CLOSE: i32 = -11;

pub const PERSISTENT: i32 = 0;
pub const EPHEMERAL: i32 = 1;
pub const PERSISTENT_SEQUENTIAL: i32 = 2;
pub const EPHEMERAL_SEQUENTIAL: i32 = 3;

/// The permissions to read a node and to change its data.
pub const READ: i32 = 1;
pub const WRITE: i32 = 2;
/// The permissions to make children and to delete them.
pub const CREATE_AND_DELETE: i32 = 4 | 8;
/// The permission to change permissions.
pub const ADMIN: i32 = 16;
const ALL: i32 = 31;

/// A buffer in the encoding of the protocol and of the server's files.
#[derive(Default)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Bytes {
    pub(super) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn buffer(self, bytes: &[u8]) -> Self {
        let mut this = self.int(i32::try_from(bytes.len()).unwrap());
        this.0.extend(bytes);
        this
    }
}

/// The rest of an answer.
struct Answer(io::Cursor<Vec<u8>>);

impl Answer {
    fn int(&mut self) -> io::Result<i32> {
        let mut bytes = [0; 4];
        self.0.read_exact(&mut bytes)?;
        Ok(i32::from_be_bytes(bytes))
    }

    fn long(&mut self) -> io::Result<i64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes)?;
        Ok(i64::from_be_bytes(bytes))
    }

    fn buffer(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.int()?).unwrap_or(0)];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut this = Self { stream, session: 0, xid: 0 };
        this.send(&Bytes::default().int(0).long(0).int(60_000).long(0).buffer(&[0; 16]))?;
        let mut answer = this.receive()?;
        answer.int()?;
        answer.int()?;
        this.session = answer.long()?;
        if this.session == 0 {
            return Err(io::Error::other("no session was made"));
        }
        Ok(this)
    }

    /// Returns the number of the session.
    pub fn session(&self) -> i64 {
        self.session
    }

    fn send(&mut self, bytes: &Bytes) -> io::Result<()> {
        self.stream.write_all(&Bytes::default().buffer(&bytes.0).0)
    }

    fn receive(&mut self) -> io::Result<Answer> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut bytes = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap_or(0)];
        self.stream.read_exact(&mut bytes)?;
        Ok(Answer(io::Cursor::new(bytes)))
    }

    /// Returns the answer, or the error code of the server.
    fn call(&mut self, kind: i32, body: impl FnOnce(Bytes) -> Bytes) -> io::Result<Result<Answer, i32>> {
        self.xid += 1;
        self.send(&body(Bytes::default().int(self.xid).int(kind)))?;
        let mut answer = self.receive()?;
        answer.int()?;
        answer.long()?;
        let code = answer.int()?;
        Ok(if code == 0 { Ok(answer) } else { Err(code) })
    }

    pub fn children(&mut self, path: &str) -> io::Result<Result<Vec<String>, i32>> {
        let answer = self.call(GET_CHILDREN, |body| {
            let mut body = body.buffer(path.as_bytes());
            body.0.push(0);
            body
        })?;
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(code) => return Ok(Err(code)),
        };
        let count = answer.int()?;
        let children: io::Result<Vec<_>> = (0..count).map(|_| answer.buffer()).collect();
        Ok(Ok(children?.into_iter().map(|name| String::from_utf8(name).unwrap()).collect()))
    }

    /// Creates a node and returns its path. Every client has all permissions for it.
    pub fn create(&mut self, path: &str, data: &[u8], flags: i32) -> io::Result<Result<String, i32>> {
        self.create_for(ALL, path, data, flags)
    }

    /// Creates a node and returns its path. Every client has the permissions `rights` for it.
    pub fn create_for(
        &mut self,
        rights: i32,
        path: &str,
        data: &[u8],
        flags: i32,
    ) -> io::Result<Result<String, i32>> {
        let answer = self.call(CREATE, |body| {
            let body = body.buffer(path.as_bytes()).buffer(data);
            body.int(1).int(rights).buffer(b"world").buffer(b"anyone").int(flags)
        })?;
        match answer {
            Ok(mut answer) => Ok(Ok(String::from_utf8(answer.buffer()?).unwrap())),
            Err(code) => Ok(Err(code)),
        }
    }

    /// Creates these nodes in one transaction, without data. Every client has all permissions for them.
    pub fn create_all(&mut self, paths: &[String], flags: i32) -> io::Result<Result<(), i32>> {
        let answer = self.call(MULTI, |mut body| {
            for path in paths {
                body = body.int(CREATE);
                body.0.push(0);
                body = body.int(-1).buffer(path.as_bytes()).buffer(b"");
                body = body.int(1).int(ALL).buffer(b"world").buffer(b"anyone").int(flags);
            }
            body = body.int(-1);
            body.0.push(1);
            body.int(-1)
        });
        Ok(answer?.map(drop))
    }

    /// Gives every client these permissions for a node, and no others.
    pub fn set_rights(&mut self, path: &str, rights: i32) -> io::Result<Result<(), i32>> {
        let answer = self.call(SET_ACL, |body| {
            body.buffer(path.as_bytes()).int(1).int(rights).buffer(b"world").buffer(b"anyone").int(-1)
        });
        Ok(answer?.map(drop))
    }

    pub fn delete(&mut self, path: &str) -> io::Result<Result<(), i32>> {
        Ok(self.call(DELETE, |body| body.buffer(path.as_bytes()).int(-1))?.map(drop))
    }

    pub fn data(&mut self, path: &str) -> io::Result<Result<Vec<u8>, i32>> {
        let answer = self.call(GET_DATA, |body| {
            let mut body = body.buffer(path.as_bytes());
            body.0.push(0);
            body
        })?;
        match answer {
            Ok(mut answer) => Ok(Ok(answer.buffer()?)),
            Err(code) => Ok(Err(code)),
        }
    }

    pub fn set_data(&mut self, path: &str, data: &[u8]) -> io::Result<Result<(), i32>> {
        Ok(self.call(SET_DATA, |body| body.buffer(path.as_bytes()).buffer(data).int(-1))?.map(drop))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.send(&Bytes::default().int(self.xid + 1).int(CLOSE));
    }
}
