//! A Redis server in the simulation: strings that expire, scripts, and subscriptions, over RESP 3.
//!
//! It runs the real scripts, in the same version of Lua as Redis.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    io,
    rc::Rc,
    time::Duration,
};

use mlua::{Function, Lua, LuaString, Value as LuaValue, Variadic};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    time::sleep,
};
use turmoil::net::{TcpListener, TcpStream};

use super::now;
use crate::simulated;

/// A moment in 2026, µs.
const EPOCH: u64 = 1_767_225_600_000_000;

/// How a server's clock differs from the one of the simulation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    pub(super) offset_us: i64,
    /// How much faster it runs, in millionths.
    pub(super) faster_ppm: i64,
}

/// A server, of which the host has a clone, so that its data outlasts a crash of the host.
#[derive(Clone)]
pub(super) struct Server(Rc<RefCell<State>>);

struct State {
    number: usize,
    clock: Clock,
    data: BTreeMap<Vec<u8>, Entry>,
    /// Whether it persists each write, as it says.
    durable: bool,
    started: Duration,
    starts: u32,
    /// Until when it neither reads nor answers.
    paused_until: Duration,
    subscribers: Vec<Subscriber>,
    lua: Lua,
    scripts: HashMap<String, Function>,
    /// Number of commands so far, including those of scripts: the same for the same seed.
    commands: u64,
}

struct Entry {
    value: Vec<u8>,
    ends_ms: Option<u64>,
}

struct Subscriber {
    channel: Vec<u8>,
    messages: mpsc::UnboundedSender<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Reply {
    Nil,
    Ok,
    Number(i64),
    Text(Vec<u8>),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Push(Vec<Reply>),
    Error(String),
}

impl Server {
    pub(super) fn new(number: usize, clock: Clock, durable: bool) -> Self {
        let server = Self(Rc::new(RefCell::new(State {
            number,
            clock,
            data: BTreeMap::new(),
            durable,
            // Long ago, so that it votes.
            started: Duration::ZERO,
            starts: 0,
            paused_until: Duration::ZERO,
            subscribers: Vec::new(),
            lua: Lua::new(),
            scripts: HashMap::new(),
            commands: 0,
        })));
        server.provide_redis().expect("Lua takes the functions");
        server
    }

    /// Starts again, with the data, unless they are lost.
    pub(super) fn restart(&self, with_data: bool, now: Duration) {
        let mut state = self.0.borrow_mut();
        state.subscribers.clear();
        state.scripts.clear();
        (state.started, state.starts) = (now, state.starts + 1);
        if !with_data {
            state.data.clear();
        }
    }

    pub(super) fn pause(&self, until: Duration) {
        self.0.borrow_mut().paused_until = until;
    }

    /// Returns the keys whose values are those of holders.
    pub(super) fn holders(&self, now: Duration) -> Vec<String> {
        let mut state = self.0.borrow_mut();
        state.expire(now);
        let is_counter = |key: &&Vec<u8>| key.ends_with(b":fence");
        let keys = state.data.keys().filter(|key| !is_counter(key));
        keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    pub(super) fn commands(&self) -> u64 {
        self.0.borrow().commands
    }

    /// Serves, as the software of a host.
    pub(super) async fn serve(self) -> turmoil::Result {
        let listener = TcpListener::bind(("0.0.0.0", 6379)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            let server = self.clone();
            tokio::task::spawn_local(async move {
                // The client sees the end of the connection.
                let _ = server.converse(stream).await;
            });
        }
    }

    async fn converse(&self, stream: TcpStream) -> io::Result<()> {
        let peer = turmoil::reverse_lookup(stream.peer_addr()?.ip()).unwrap_or_default();
        let (mut reader, mut writer) = stream.into_split();
        let (messages, mut outgoing) = mpsc::unbounded_channel::<Vec<u8>>();
        let (mut received, mut part) = (Vec::new(), vec![0; 16 * 1024]);
        loop {
            tokio::select! {
                biased;
                Some(message) = outgoing.recv() => writer.write_all(&message).await?,
                read = reader.read(&mut part) => {
                    let length = read?;
                    if length == 0 {
                        return Ok(());
                    }
                    received.extend_from_slice(&part[..length]);
                    self.resumed().await;
                    let mut answers = Vec::new();
                    while let Some((words, used)) = command(&received) {
                        received.drain(..used);
                        self.execute(&peer, &words, &messages).write(&mut answers);
                        // What was published meanwhile comes first, also to this connection.
                        while let Ok(message) = outgoing.try_recv() {
                            answers.extend(message);
                        }
                    }
                    writer.write_all(&answers).await?;
                }
            }
        }
    }

    async fn resumed(&self) {
        loop {
            let until = self.0.borrow().paused_until;
            let Some(left) = until.checked_sub(now()).filter(|left| !left.is_zero()) else { return };
            sleep(left).await;
        }
    }

    fn execute(&self, peer: &str, words: &[Vec<u8>], messages: &mpsc::UnboundedSender<Vec<u8>>) -> Reply {
        self.0.borrow_mut().expire(now());
        simulated::trace(|| {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
            let is_text = |word: &str| word.contains('\n');
            let words: Vec<_> =
                words.iter().map(|word| if is_text(word) { "(text)" } else { word }).collect();
            format!("{peer} to node {}: {}", self.0.borrow().number, words.join(" "))
        });
        let [name, arguments @ ..] = words else { return Reply::Error("ERR empty".into()) };
        match name.to_ascii_uppercase().as_slice() {
            b"HELLO" => Reply::Map(
                [("server", "redis"), ("version", "8.0.0"), ("mode", "standalone"), ("role", "master")]
                    .map(|(name, value)| (Reply::text(name), Reply::text(value)))
                    .into(),
            ),
            b"CLIENT" => Reply::Ok,
            b"PING" => Reply::text("PONG"),
            b"INFO" => self.info(),
            b"CONFIG" => Reply::Map(vec![(Reply::text("appendfsync"), Reply::text("always"))]),
            b"SCRIPT" => match self.load(&arguments[1]) {
                Ok(sha) => Reply::Text(sha.into_bytes()),
                Err(error) => Reply::Error(format!("ERR {error}")),
            },
            b"EVALSHA" => {
                let script = self.0.borrow().scripts.get(&*String::from_utf8_lossy(&arguments[0])).cloned();
                match script {
                    Some(script) => self.run(&script, &arguments[1..]),
                    None => Reply::Error("NOSCRIPT No matching script.".into()),
                }
            }
            b"EVAL" => match self.load(&arguments[0]) {
                Ok(sha) => {
                    let script = self.0.borrow().scripts[&sha].clone();
                    self.run(&script, &arguments[1..])
                }
                Err(error) => Reply::Error(format!("ERR {error}")),
            },
            b"SUBSCRIBE" => {
                let subscriber = Subscriber { channel: arguments[0].clone(), messages: messages.clone() };
                self.0.borrow_mut().subscribers.push(subscriber);
                Reply::Push(vec![
                    Reply::text("subscribe"),
                    Reply::Text(arguments[0].clone()),
                    Reply::Number(1),
                ])
            }
            b"UNSUBSCRIBE" => {
                let mut state = self.0.borrow_mut();
                state.subscribers.retain(|subscriber| {
                    subscriber.channel != arguments[0] || !subscriber.messages.same_channel(messages)
                });
                Reply::Push(vec![
                    Reply::text("unsubscribe"),
                    Reply::Text(arguments[0].clone()),
                    Reply::Number(0),
                ])
            }
            _ => self.0.borrow_mut().call(words),
        }
    }

    fn info(&self) -> Reply {
        let state = self.0.borrow();
        Reply::Text(
            format!(
                "# Server\r\nrun_id:{}-{}\r\nuptime_in_seconds:{}\r\nserver_time_usec:{}\r\nmaxmemory:0\r\n\
                 maxmemory_policy:noeviction\r\naof_enabled:{}\r\n",
                state.number,
                state.starts,
                // As if the first start had been an hour before the simulation.
                now().saturating_sub(state.started).as_secs() + if state.starts == 0 { 3600 } else { 0 },
                state.clock.micros(now()),
                u8::from(state.durable),
            )
            .into_bytes(),
        )
    }

    fn load(&self, text: &[u8]) -> mlua::Result<String> {
        let mut state = self.0.borrow_mut();
        let sha = sha1_smol::Sha1::from(text).digest().to_string();
        if !state.scripts.contains_key(&sha) {
            let script = state.lua.load(text).into_function()?;
            state.scripts.insert(sha.clone(), script);
        }
        Ok(sha)
    }

    /// Runs a script with the number of keys, the keys and the arguments.
    fn run(&self, script: &Function, arguments: &[Vec<u8>]) -> Reply {
        let lua = self.0.borrow().lua.clone();
        let run = || {
            let count: usize =
                String::from_utf8_lossy(&arguments[0]).parse().map_err(mlua::Error::external)?;
            let (keys, arguments) = arguments[1..].split_at(count);
            for (name, words) in [("KEYS", keys), ("ARGV", arguments)] {
                let words: Vec<_> =
                    words.iter().map(|word| lua.create_string(word)).collect::<Result<_, _>>()?;
                lua.globals().set(name, words)?;
            }
            Reply::of_lua(script.call::<LuaValue>(())?)
        };
        run().unwrap_or_else(|error| Reply::Error(format!("ERR {error}")))
    }

    /// Gives the scripts their table `redis`.
    fn provide_redis(&self) -> mlua::Result<()> {
        let lua = self.0.borrow().lua.clone();
        let redis = lua.create_table()?;
        for (name, raises) in [("call", true), ("pcall", false)] {
            // Otherwise the state would own itself.
            let state = Rc::downgrade(&self.0);
            let call = lua.create_function(move |lua, words: Variadic<LuaString>| {
                let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
                let state = state.upgrade().expect("it runs the script");
                let reply = state.borrow_mut().call(&words);
                match reply {
                    Reply::Error(error) if raises => Err(mlua::Error::runtime(error)),
                    reply => reply.into_lua(lua),
                }
            })?;
            redis.set(name, call)?;
        }
        let error_reply = lua.create_function(|lua, text: LuaString| {
            let error = lua.create_table()?;
            error.set("err", text)?;
            Ok(error)
        })?;
        redis.set("error_reply", error_reply)?;
        lua.globals().set("redis", redis)
    }
}

impl Clock {
    pub(super) fn micros(self, now: Duration) -> u64 {
        let now = i64::try_from(now.as_micros()).expect("short");
        let here = now + now * self.faster_ppm / 1_000_000 + self.offset_us;
        EPOCH.saturating_add_signed(here)
    }
}

impl State {
    fn expire(&mut self, now: Duration) {
        let now = self.clock.micros(now) / 1_000;
        self.data.retain(|_, entry| entry.ends_ms.is_none_or(|ends| now <= ends));
    }

    /// Executes a command that scripts can call, too.
    fn call(&mut self, words: &[Vec<u8>]) -> Reply {
        self.commands += 1;
        let micros = self.clock.micros(now());
        let text = |at: usize| words.get(at).map(|word| String::from_utf8_lossy(word).to_ascii_uppercase());
        let number = |at: usize| text(at).and_then(|text| text.parse::<u64>().ok());
        let key = words.get(1).cloned().unwrap_or_default();
        match text(0).as_deref() {
            Some("TIME") => {
                let part = |number: u64| Reply::Text(number.to_string().into_bytes());
                Reply::Array(vec![part(micros / 1_000_000), part(micros % 1_000_000)])
            }
            Some("GET") => self.data.get(&key).map_or(Reply::Nil, |entry| Reply::Text(entry.value.clone())),
            Some("SET") => {
                let (mut ends_ms, mut at) = (None, 3);
                while let Some(option) = text(at) {
                    match option.as_str() {
                        "PX" => {
                            at += 1;
                            let Some(length) = number(at) else { return Reply::Error("ERR PX".into()) };
                            ends_ms = Some(micros / 1_000 + length);
                        }
                        "KEEPTTL" => ends_ms = self.data.get(&key).and_then(|entry| entry.ends_ms),
                        "NX" if self.data.contains_key(&key) => return Reply::Nil,
                        "NX" => {}
                        other => return Reply::Error(format!("ERR unknown option {other}")),
                    }
                    at += 1;
                }
                self.data.insert(key, Entry { value: words[2].clone(), ends_ms });
                Reply::Ok
            }
            Some("DEL") => Reply::Number(self.data.remove(&key).is_some().into()),
            Some("EXISTS") => Reply::Number(self.data.contains_key(&key).into()),
            Some("PTTL") => Reply::Number(match self.data.get(&key) {
                None => -2,
                Some(Entry { ends_ms: None, .. }) => -1,
                Some(Entry { ends_ms: Some(ends), .. }) => {
                    i64::try_from(ends.saturating_sub(micros / 1_000)).expect("short")
                }
            }),
            Some("PEXPIRE") => {
                let ends = number(2).map(|length| micros / 1_000 + length);
                let entry = self.data.get_mut(&key);
                Reply::Number(entry.map(|entry| entry.ends_ms = ends).is_some().into())
            }
            Some("PUBLISH") => {
                let mut message = Vec::new();
                let words = [Reply::text("message"), Reply::Text(key.clone()), Reply::Text(words[2].clone())];
                Reply::Push(words.into()).write(&mut message);
                let subscribers = self.subscribers.iter().filter(|subscriber| subscriber.channel == key);
                let count = subscribers.filter(|to| to.messages.send(message.clone()).is_ok()).count();
                Reply::Number(i64::try_from(count).expect("few"))
            }
            Some("PUBSUB") => {
                let channel = words[2].clone();
                let subscribers = self.subscribers.iter().filter(|subscriber| subscriber.channel == channel);
                let count = subscribers.filter(|to| !to.messages.is_closed()).count();
                Reply::Array(vec![Reply::Text(channel), Reply::Number(i64::try_from(count).expect("few"))])
            }
            _ => Reply::Error(format!("ERR unknown command {:?}", text(0))),
        }
    }
}

impl Reply {
    fn text(text: &str) -> Self {
        Self::Text(text.as_bytes().to_vec())
    }

    fn write(&self, to: &mut Vec<u8>) {
        let head = |to: &mut Vec<u8>, kind: &str, number: String| {
            to.extend_from_slice(format!("{kind}{number}\r\n").as_bytes());
        };
        match self {
            Self::Nil => to.extend_from_slice(b"_\r\n"),
            Self::Ok => to.extend_from_slice(b"+OK\r\n"),
            Self::Number(number) => head(to, ":", number.to_string()),
            Self::Text(text) => {
                head(to, "$", text.len().to_string());
                to.extend_from_slice(text);
                to.extend_from_slice(b"\r\n");
            }
            Self::Array(replies) | Self::Push(replies) => {
                let kind = if matches!(self, Self::Push(_)) { ">" } else { "*" };
                head(to, kind, replies.len().to_string());
                for reply in replies {
                    reply.write(to);
                }
            }
            Self::Map(pairs) => {
                head(to, "%", pairs.len().to_string());
                for (name, value) in pairs {
                    name.write(to);
                    value.write(to);
                }
            }
            Self::Error(error) => head(to, "-", error.replace(['\r', '\n'], " ")),
        }
    }

    fn into_lua(self, lua: &Lua) -> mlua::Result<LuaValue> {
        Ok(match self {
            Self::Nil => LuaValue::Boolean(false),
            #[expect(clippy::cast_precision_loss, reason = "as in Redis")]
            Self::Number(number) => LuaValue::Number(number as f64),
            Self::Text(text) => LuaValue::String(lua.create_string(text)?),
            Self::Array(replies) => {
                let values = replies.into_iter().map(|reply| reply.into_lua(lua));
                LuaValue::Table(lua.create_sequence_from(values.collect::<Result<Vec<_>, _>>()?)?)
            }
            Self::Ok | Self::Error(_) => {
                let table = lua.create_table()?;
                match self {
                    Self::Error(error) => table.set("err", error)?,
                    _ => table.set("ok", "OK")?,
                }
                LuaValue::Table(table)
            }
            Self::Map(_) | Self::Push(_) => unreachable!("no script gets one"),
        })
    }

    fn of_lua(value: LuaValue) -> mlua::Result<Self> {
        Ok(match value {
            LuaValue::Boolean(true) => Self::Number(1),
            LuaValue::Integer(number) => Self::Number(number),
            #[expect(clippy::cast_possible_truncation, reason = "as in Redis")]
            LuaValue::Number(number) => Self::Number(number as i64),
            LuaValue::String(text) => Self::Text(text.as_bytes().to_vec()),
            LuaValue::Table(table) => {
                if let Some(error) = table.get::<Option<String>>("err")? {
                    Self::Error(error)
                } else {
                    let values = table.sequence_values::<LuaValue>();
                    Self::Array(values.map(|value| Self::of_lua(value?)).collect::<Result<_, _>>()?)
                }
            }
            _ => Self::Nil,
        })
    }
}

/// Returns the words of the first command, and its length, if it is complete.
fn command(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut rest = bytes;
    let count = number(&mut rest)?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = number(&mut rest)?;
        words.push(rest.get(..length)?.to_vec());
        rest = rest.get(length + 2..)?;
    }
    Some((words, bytes.len() - rest.len()))
}

/// Takes a line such as `*3` or `$5`.
fn number(rest: &mut &[u8]) -> Option<usize> {
    let end = rest.windows(2).position(|end| end == b"\r\n")?;
    let number = String::from_utf8_lossy(&rest[1..end]).parse().expect("the driver writes a number");
    *rest = &rest[end + 2..];
    Some(number)
}
