//! All messages that are published on a server, as a subscriber receives them.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
    thread,
};

use crate::support::{redis_server::RedisServer, until};

/// All that is published on a server from now on, as it comes.
pub(super) struct Overheard(Arc<Mutex<Vec<u8>>>);

impl Overheard {
    pub(super) async fn on(server: &RedisServer) -> Self {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        // Where there is no such user, it is refused, and who listens needs none.
        stream.write_all(b"AUTH evil secret\r\nPSUBSCRIBE *\r\n").unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&heard);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // It ends with its server.
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

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// The words behind each `word` at the beginning of a message.
    pub(super) fn messages(&self, word: &str) -> Vec<Vec<String>> {
        let text = self.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix(word));
        lines.map(|rest| rest.split(' ').skip(1).map(str::to_owned).collect()).collect()
    }

    /// The words of a grant, of the place with this number if one is given.
    pub(super) async fn grant(&self, number: Option<&str>) -> Vec<String> {
        let is_meant = |words: &Vec<String>| {
            words.len() == 6 && words[1].len() == 40 && number.is_none_or(|number| words[0] == number)
        };
        let mut grant = None;
        until("a grant is overheard", || {
            grant = self.messages("granted").into_iter().find(is_meant);
            if grant.is_some() { Ok(()) } else { Err(self.text()) }
        })
        .await;
        grant.expect("waited for")
    }
}
