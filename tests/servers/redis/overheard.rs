//! All messages that are published on a server, as a subscriber receives them.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
    thread,
};

use crate::support::{redis_server::RedisServer, until};

/// All messages published on a server from now on, as they come.
pub(crate) struct Overheard(Arc<Mutex<Vec<u8>>>);

impl Overheard {
    pub(crate) async fn on(server: &RedisServer) -> Self {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        // Where there is no such user, it is refused, and the subscriber needs none.
        stream.write_all(b"AUTH evil secret\r\nPSUBSCRIBE *\r\n").unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&heard);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends with its server.
            while let Ok(1..) = stream.read(&mut buffer).inspect(|read| {
                all.lock().unwrap().extend(&buffer[..*read]);
            }) {}
        });
        let this = Self(heard);
        until("the attacker listens", || match this.text() {
            text if text.contains("psubscribe") => Ok(()),
            text => Err(text),
        })
        .await;
        this
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// The words behind each `word` at the beginning of a message.
    pub(crate) fn messages(&self, word: &str) -> Vec<Vec<String>> {
        let text = self.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix(word));
        lines.map(|rest| rest.split(' ').skip(1).map(str::to_owned).collect()).collect()
    }

    /// Returns the words of the grant to the place with this number, as soon as it is overheard; `None` if the lock
    /// was left open instead.
    pub(crate) async fn grant(&self, number: &str) -> Option<Vec<String>> {
        let of_it = |words: &Vec<String>| words[0] == number;
        let mut grant = None;
        until("a grant or an opening is overheard", || {
            grant = self.messages("granted").into_iter().find(of_it);
            if grant.is_some() || self.messages("free").iter().any(of_it) { Ok(()) } else { Err(self.text()) }
        })
        .await;
        grant
    }
}
