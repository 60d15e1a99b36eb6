//! Parts that the stores share: the settings of a URL, attempts to connect, the names of connections, what records
//! state of their clients, sessions, work on threads, TLS, the server's clock, release messages, notices of
//! revocations, the waiter's loop, the question of a holder whether others wait, hexadecimal digits, and the log lines
//! of an outage.

pub(super) mod client_name;
pub(super) mod cold;
pub(super) mod contention;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) mod credentials;
pub(super) mod hedged;
pub(super) mod hex;
pub(super) mod hints;
pub(super) mod host;
pub(super) mod inquiry;
#[cfg(any(feature = "postgres", feature = "zookeeper"))]
pub(super) mod link;
pub(super) mod outage;
pub(super) mod parts;
pub(super) mod place_proof;
pub(super) mod renewable;
pub(super) mod revocations;
pub(super) mod server_clock;
#[cfg(any(feature = "postgres", feature = "zookeeper"))]
pub(super) mod session;
pub(super) mod settings;
pub(super) mod signature;
pub(super) mod single_flight;
pub(super) mod threads;
pub(super) mod tls;
pub(super) mod waiting;
