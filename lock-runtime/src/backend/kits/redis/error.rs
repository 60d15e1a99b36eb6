//! Translates failures of the driver and the server into errors that name the remedy.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::{format, slot::Slot};
#[cfg(feature = "tls")]
use crate::backend::common::tls::{self, Certificates, Look};
use crate::{FencingToken, LockError, LockErrorKind, backend::FindingCode};

/// The messages about a Sentinel and about a node of a cluster.
pub(crate) const SENTINEL: &str = "the server is a Redis Sentinel, which keeps no locks; the URL must lead to the primary that it \
     watches, or be written `redis-sentinel://host:26379/name`";
pub(crate) const CLUSTER: &str = "the server is a node of a Redis Cluster; write `redis-cluster://host:6379`, where one node \
     is enough to find the others, or use a server without `cluster-enabled`";

/// The predicate of a message about a server that is not Redis; see [`unfit`].
pub(super) const NOT_REDIS: &str = "does not speak the Redis protocol; check address and port";

/// The texts of a script's error about a command that the server does not have.
const DISABLED_COMMAND_TEXTS: [&str; 2] =
    ["Unknown Redis command called from script", "Invalid command passed to redis.acl_check_cmd()"];

/// Why a call got no usable answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server refused the call: it was not applied.
    Refused(LockError),
    /// The call was not applied, and its connection is given up; the call may succeed over another connection.
    GivenUp(LockError),
    /// It is unknown whether the call was applied, and the connection is unusable.
    Disconnected(LockError),
    /// No answer came in time: it is unknown whether the call was or will be applied.
    TimedOut(LockError),
    /// The call was applied, but too few replicas are known to have its writes.
    Unconfirmed(LockError),
    /// A server of a cluster refused the call, which was not applied and may succeed elsewhere or later.
    Redirected(Redirection, LockError),
}

/// Where or when a call may succeed that a server of a cluster has refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirection {
    /// At the server that has this slot now.
    Moved { slot: Slot, to: (String, u16) },
    /// This one call at the server to which the slot is being moved, behind `ASKING`.
    Ask { to: (String, u16) },
    /// Later: some keys of the call were moved already, and others not.
    Later,
    /// Later: the cluster takes no calls for this slot for now.
    Down,
}

impl Redirection {
    /// Returns the redirection that an answer of the server at `host` contains, if any.
    pub(crate) fn of(error: &RedisError, host: &str) -> Option<Self> {
        let to = || {
            let (address, slot) = error.redirect_node()?;
            let (to, port) = address.rsplit_once(':')?;
            let to = to.trim_start_matches('[').trim_end_matches(']');
            // A server that does not know the name of the other one means its own.
            let to = if to.is_empty() || to == "?" { host } else { to };
            Some((Slot::numbered(slot)?, (to.to_owned(), port.parse().ok()?)))
        };
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => to().map(|(slot, to)| Self::Moved { slot, to }),
            ErrorKind::Server(ServerErrorKind::Ask) => to().map(|(_, to)| Self::Ask { to }),
            ErrorKind::Server(ServerErrorKind::TryAgain) => Some(Self::Later),
            ErrorKind::Server(ServerErrorKind::ClusterDown) => Some(Self::Down),
            _ => None,
        }
    }

    /// Explains the error that contains this redirection.
    pub(crate) fn explain(&self, error: RedisError) -> LockError {
        let message = match self {
            Self::Moved { .. } => {
                "the servers of the Redis Cluster do not agree yet which of them has the hash slot of the lock".to_owned()
            }
            Self::Ask { .. } | Self::Later => {
                "the hash slot of the lock is being moved to another server of the Redis Cluster".to_owned()
            }
            Self::Down => format!(
                "the Redis Cluster takes no calls for the hash slot of the lock for now: {}",
                words(error.detail().unwrap_or("CLUSTERDOWN"))
            ),
        };
        LockError::backend(message).with_source(error)
    }
}

/// The meaning of an error for the connection over which it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The connection is unusable.
    Broken,
    /// The server of the connection is a replica.
    ReadOnly,
    /// The server of the connection takes no calls for now.
    NotReady,
    /// The connection is not at fault, so another connection would not help.
    OfThisCall,
}

impl Refusal {
    pub(crate) fn of(error: &RedisError) -> Self {
        if error.is_unrecoverable_error() || error.is_io_error() {
            return Self::Broken;
        }
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::ReadOnly) => Self::ReadOnly,
            ErrorKind::Server(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown) => Self::NotReady,
            // Before Redis 7, a script's error contains the code of the command's error in its text.
            _ if error.detail().is_some_and(|detail| detail.contains("-READONLY ")) => Self::ReadOnly,
            _ => Self::OfThisCall,
        }
    }
}

impl Failure {
    pub(crate) fn timed_out(limit: Duration) -> Self {
        Self::TimedOut(LockError::backend(format!("Redis did not answer within {limit:?}")))
    }

    /// Returns the failure of a request that the server refused twice because the time limit of the request had passed.
    pub(crate) fn too_late() -> Self {
        Self::Refused(LockError::backend(
            "requests reach Redis too late to be executed; is the server or the network overloaded?",
        ))
    }

    pub(crate) fn not_sent() -> Self {
        Self::GivenUp(LockError::backend(
            "the request was not sent to Redis: its connection broke, or its time was over",
        ))
    }

    pub(crate) fn runtime_gone() -> Self {
        Self::Disconnected(LockError::backend("the runtime of the connection to Redis was shut down"))
    }

    pub(crate) fn into_error(self) -> LockError {
        match self {
            Self::Refused(error)
            | Self::GivenUp(error)
            | Self::Disconnected(error)
            | Self::TimedOut(error)
            | Self::Unconfirmed(error)
            | Self::Redirected(_, error) => error,
        }
    }

    /// Returns whether a replica was asked, or a server that another one has replaced.
    pub(crate) fn is_of_no_primary(&self) -> bool {
        match self {
            Self::Refused(error) | Self::GivenUp(error) => error.fault() == Some(FindingCode::ReadOnly),
            _ => false,
        }
    }

    /// Returns whether the call was certainly not applied, and will not be.
    pub(crate) fn is_definite(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::GivenUp(_) | Self::Redirected(..))
    }
}

/// Returns the error for an answer that the script cannot give.
pub(crate) fn unexpected(what: &str) -> LockError {
    LockError::backend(format!("Redis gave an unexpected answer to {what}; is a proxy in between?"))
}

/// Returns the message for an error that shows that the server cannot hold locks. The error may come before the check
/// of the server, or a proxy may have answered the check.
fn not_fit(error: &RedisError) -> Option<String> {
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain
            | ServerErrorKind::CrossSlot
            | ServerErrorKind::ClusterDown,
        ) => Some(CLUSTER.into()),
        _ if detail.contains("cluster mode") => Some(CLUSTER.into()),
        // The text of a script's error does not name the command.
        _ if DISABLED_COMMAND_TEXTS.iter().any(|text| detail.contains(text)) => Some(
            "a command that locks need is switched off on the server (`rename-command`): TIME, PUBLISH or another one that \
             the documentation of the store names in its minimal ACL"
                .into(),
        ),
        _ if detail.contains("unknown command") => {
            let command = detail.split(['\'', '`']).nth(1).unwrap_or("a command of locks");
            Some(format!(
                "the server does not know {command}; is it a Redis Sentinel or a proxy? The URL must lead to the \
                 primary itself"
            ))
        }
        _ => None,
    }
}

/// Returns the beginning of the server's message, without positions in scripts, and without words of 32 or more bytes:
/// digests of scripts, and words that may be secrets.
fn words(detail: &str) -> String {
    let line = detail.lines().next().unwrap_or_default();
    let words =
        line.split_whitespace().take_while(|word| !word.starts_with("script:") && !word.starts_with('@'));
    let words: Vec<_> =
        words.filter(|word| word.len() < 32 && !word.contains(char::is_control)).take(24).collect();
    words.join(" ").trim_end_matches([',', ':', '.']).to_owned()
}

/// Returns the fault of the configuration that an error shows.
fn fault(error: &RedisError) -> Option<FindingCode> {
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        _ if is_no_permission(error) => Some(FindingCode::Rights),
        // An operator has switched the command off for all users.
        _ if DISABLED_COMMAND_TEXTS.iter().any(|text| detail.contains(text)) => Some(FindingCode::Rights),
        _ if not_fit(error).is_some() => Some(FindingCode::Topology),
        _ if Refusal::of(error) == Refusal::ReadOnly => Some(FindingCode::ReadOnly),
        _ if error.code() == Some("OOM") || detail.contains("OOM") => Some(FindingCode::Memory),
        ErrorKind::RESP3NotSupported => Some(FindingCode::Version),
        _ => match error.code()? {
            "MISCONF" => Some(FindingCode::Persistence),
            "NOREPLICAS" => Some(FindingCode::Replicas),
            _ => None,
        },
    }
}

/// Explains a failure and its remedy, with the driver's error as the source.
pub(crate) fn explain(error: RedisError) -> LockError {
    let fault = fault(&error);
    in_words(error).with_fault(fault)
}

fn in_words(error: RedisError) -> LockError {
    let is_no_lock = |text: &str| text.contains("WRONGTYPE");
    if error.code().is_some_and(is_no_lock) || error.detail().is_some_and(is_no_lock) {
        let message = "a key with the lock's name exists and is not a lock; choose another name or prefix";
        return LockError::new(LockErrorKind::InvalidKey, message).into_permanent().with_source(error);
    }
    if error.code() == Some("FENCE")
        && let Some((number, counter)) = error.detail().and_then(|detail| detail.split_once(' '))
    {
        let message = format!(
            "the counter of fencing tokens `{counter}` stands at {number}, and tokens are numbers from 1 to {}: it was set \
             by hand. Set it to the last token that the resources remember",
            FencingToken::LAST_MICROS,
        );
        return LockError::backend(message).into_permanent().with_source(error);
    }
    if error.code() == Some("FENCE") {
        let message = format!(
            "the counter of fencing tokens stands at {}, beyond the year 2112: a clock was wrong, or it was set by hand. \
             Once the server's time is right, delete the key that ends in `~{}:fence`, and reset the tokens that the \
             resources remember",
            error.detail().unwrap_or("a number"),
            format::FORMAT,
        );
        return LockError::backend(message).into_permanent().with_source(error);
    }
    // The comparison covers only the common part of the text: Redis 7 does not name the refused command, and other
    // versions name it in different ways.
    if error.detail().is_some_and(|detail| detail.contains("The user executing the script can't")) {
        let message = "the Redis user may not do all that locks need; compare its ACL with the one in the documentation of \
                       the store";
        return LockError::backend(message).into_permanent().with_source(error);
    }
    if let Some(message) = not_fit(&error) {
        // The driver's error is no source here, because its text would repeat the arguments of the call.
        return LockError::new(LockErrorKind::Unsupported, message);
    }
    let permanent = match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::RESP3NotSupported
        | ErrorKind::Server(ServerErrorKind::NoPerm) => true,
        _ if error.detail().is_some_and(|detail| detail.contains("DB index")) => true,
        _ => matches!(error.code(), Some("NOAUTH" | "WRONGPASS")),
    };
    let message = match error.kind() {
        ErrorKind::Io => "the connection to Redis failed".to_owned(),
        ErrorKind::AuthenticationFailed => {
            "Redis refused the credentials; check user and password in the URL".into()
        }
        ErrorKind::Parse => {
            "the server there does not speak the Redis protocol; check address and port".into()
        }
        ErrorKind::RESP3NotSupported => "this Redis is too old: version 6.0 is needed for RESP3".into(),
        _ if Refusal::of(&error) == Refusal::ReadOnly => {
            "the Redis server of this connection is a replica now; a new connection will look for the primary"
                .into()
        }
        ErrorKind::Server(ServerErrorKind::MasterDown) => {
            "the Redis server of this connection is a replica that has lost its primary".into()
        }
        ErrorKind::Server(ServerErrorKind::BusyLoading) => "Redis is still loading its data".into(),
        ErrorKind::Server(ServerErrorKind::NoPerm) => format!(
            "the Redis user may not do this; extend its ACL: {}",
            error.detail().unwrap_or("see the minimal ACL in the documentation of the store")
        ),
        _ => match error.code() {
            Some("OOM") => {
                "Redis is out of memory (`maxmemory`); no lock can be taken until there is room".into()
            }
            Some("MISCONF") => "Redis refuses writes because it cannot persist them; see its log".into(),
            Some("BUSY") => "Redis is busy with a long script".into(),
            Some("NOREPLICAS") => "Redis refuses writes because too few replicas are in sync".into(),
            Some("NOAUTH") => "Redis requires credentials; add user and password to the URL".into(),
            Some("WRONGPASS") => "Redis refused the credentials; check user and password in the URL".into(),
            _ if error.detail().is_some_and(|detail| detail.contains("OOM")) => {
                "Redis is out of memory (`maxmemory`); no lock can be taken until there is room".into()
            }
            _ if error.detail().is_some_and(|detail| detail.contains("DB index")) => {
                "Redis has no database of this number; check the one in the URL".into()
            }
            Some(code) => match words(error.detail().unwrap_or_default()) {
                words if words.is_empty() => format!("Redis refused the call: {code}"),
                words => format!("Redis refused the call: {words} ({code})"),
            },
            None => "the call to Redis failed".into(),
        },
    };
    let explained = LockError::backend(message).with_source(error);
    if permanent { explained.into_permanent() } else { explained }
}

/// Explains why a connection was not made.
pub(super) fn cannot_connect(address: &str, error: RedisError) -> LockError {
    let (refused, io, detail) = (error.is_connection_refusal(), error.is_io_error(), error.to_string());
    let error = explain(error);
    let message = if refused {
        format!("cannot connect to Redis at {address}: nothing listens there; is the server running?")
    } else if io {
        format!("cannot connect to Redis at {address}: {detail}")
    } else {
        format!("Redis at {address}: {}", error.message())
    };
    error.saying(message)
}

/// Returns the server's words if it has refused a call because the user may not make the call, or because a script may not
/// run one of its commands.
pub(crate) fn no_permission(error: &LockError) -> Option<&str> {
    let cause = error.cause().and_then(|cause| cause.downcast_ref::<RedisError>())?;
    is_no_permission(cause).then(|| cause.detail().unwrap_or_default())
}

fn is_no_permission(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
        || error.detail().is_some_and(|detail| detail.contains("The user executing the script can't"))
}

/// Returns whether no connection was made because the server allows no more clients.
pub(super) fn is_full(error: &LockError) -> bool {
    let cause = error.cause().and_then(|cause| cause.downcast_ref::<RedisError>());
    cause.and_then(RedisError::detail).is_some_and(|detail| detail.contains("max number of clients"))
}

/// Returns the error for a fault in TLS, if `error` shows that such a fault prevented the connection.
#[cfg(feature = "tls")]
pub(super) fn refused_handshake(
    address: &str,
    error: &(dyn std::error::Error + 'static),
    ours: Option<&Certificates>,
) -> Option<LockError> {
    match tls::explain(tls::rustls_error(error)?, ours) {
        Look::Wrong(what) => Some(unfit(address, &what)),
        Look::Closed | Look::Unclear => None,
    }
}

/// Returns the error with a message that ends with "the server", followed by the predicate `what`, for example
/// [`NOT_REDIS`].
pub(super) fn unfit(address: &str, what: &str) -> LockError {
    let message = format!("cannot connect to Redis at {address}: the server {what}");
    LockError::backend(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an answer");
        value.extract_error().expect_err("an error")
    }

    #[test]
    fn a_replica_is_known_by_its_answer_in_every_version() {
        for text in [
            "READONLY You can't write against a read only replica. script: 0a9f, on @user_script:1.",
            "ERR Error running script (call to f_0a9f): @user_script:1: -READONLY You can't write against a read only \
             replica.",
        ] {
            let error = answer(text);
            assert_eq!(Refusal::of(&error), Refusal::ReadOnly, "{text}");
            let error = explain(error);
            assert!(error.is_retryable() && error.to_string().contains("is a replica now"), "{error}");
        }
        for text in ["LOADING Redis is loading the dataset in memory", "MASTERDOWN Link with MASTER is down"]
        {
            assert_eq!(Refusal::of(&answer(text)), Refusal::NotReady, "{text}");
        }
        for text in ["OOM command not allowed", "NOSCRIPT No matching script.", "ERR other"] {
            assert_eq!(Refusal::of(&answer(text)), Refusal::OfThisCall, "{text}");
        }
    }

    #[test]
    fn a_redirection_names_slot_and_server() {
        let to = |host: &str, port| (host.to_owned(), port);
        let slot = Slot::numbered(3_999).expect("a slot");
        for (text, meant) in [
            ("MOVED 3999 127.0.0.1:6381", Some(Redirection::Moved { slot, to: to("127.0.0.1", 6_381) })),
            ("MOVED 3999 a.example:6381", Some(Redirection::Moved { slot, to: to("a.example", 6_381) })),
            ("MOVED 3999 ::1:6381", Some(Redirection::Moved { slot, to: to("::1", 6_381) })),
            ("MOVED 3999 :6381", Some(Redirection::Moved { slot, to: to("here", 6_381) })),
            ("MOVED 3999 ?:6381", Some(Redirection::Moved { slot, to: to("here", 6_381) })),
            ("MOVED 16384 127.0.0.1:6381", None),
            ("MOVED 3999 127.0.0.1", None),
            ("ASK 3999 127.0.0.1:6381", Some(Redirection::Ask { to: to("127.0.0.1", 6_381) })),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Some(Redirection::Later)),
            ("CLUSTERDOWN Hash slot not served", Some(Redirection::Down)),
            ("CROSSSLOT Keys in request don't hash to the same slot", None),
            ("ERR other", None),
        ] {
            assert_eq!(Redirection::of(&answer(text), "here"), meant, "{text}");
        }
    }

    #[test]
    fn what_the_server_says_is_kept_without_secrets_and_places() {
        for (text, shown) in [
            ("ERR max number of clients reached", "max number of clients reached (ERR)"),
            (
                "ERR value is not an integer script: 1fe59c1ff5b4f27c7b0f6f8f0b4f3bd8c7e56b1d, on @user_script:7.",
                "value is not an integer (ERR)",
            ),
            ("ERR 0123456789abcdef0123456789abcdef is unknown", "is unknown (ERR)"),
            ("ODD", "Redis refused the call: ODD"),
        ] {
            let error = explain(answer(text));
            assert!(error.is_retryable() && error.to_string().ends_with(shown), "{error}");
        }
        assert!(!explain(answer("ERR DB index is out of range")).is_retryable());
    }

    #[test]
    fn a_counter_is_named_where_it_is_not_the_usual_one() {
        for (text, words) in [
            ("FENCE 4503599627370496", &["4503599627370496", "beyond the year 2112", "`~1:fence`"][..]),
            (
                "FENCE 9007199254740993 redisson_lock_token:{x y}",
                &["9007199254740993", "`redisson_lock_token:{x y}`", "to 4503599627370495", "set by hand"],
            ),
        ] {
            let error = explain(answer(text));
            assert!(!error.is_retryable(), "{error}");
            for word in words {
                assert!(error.to_string().contains(word), "{word}: {error}");
            }
        }
    }

    #[test]
    fn what_a_user_may_not_do_is_permanent_also_inside_of_a_script() {
        for text in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "ERR The user executing the script can't run this command or subcommand",
            "ERR Error running script (call to f_0a): @user_script:1: The user executing the script can't run this command",
        ] {
            let error = explain(answer(text));
            assert!(!error.is_retryable() && error.to_string().contains("ACL"), "{text}: {error}");
        }
    }

    #[test]
    fn a_server_of_another_kind_is_named_and_the_call_is_not_repeated_in_the_text() {
        for (text, word) in [
            ("CROSSSLOT Keys in request don't hash to the same slot", "Redis Cluster"),
            ("MOVED 1234 10.0.0.1:6379", "Redis Cluster"),
            ("CLUSTERDOWN Hash slot not served", "Redis Cluster"),
            ("ERR SELECT is not allowed in cluster mode", "Redis Cluster"),
            ("ERR unknown command 'SCRIPT', with args beginning with: 'LOAD' '-- Takes'", "SCRIPT"),
            ("ERR Unknown Redis command called from script script: 0a, on @user_script:4.", "switched off"),
            ("ERR unknown command `SCRIPT`, with args beginning with: `LOAD`, `-- Takes`, ", "SCRIPT"),
        ] {
            let error = explain(answer(text));
            assert_eq!(error.kind(), LockErrorKind::Unsupported, "{text}");
            assert!(!error.is_retryable() && error.to_string().contains(word), "{error}");
            assert!(!format!("{error:?}").contains("Takes"), "{error:?}");
        }
    }
}
