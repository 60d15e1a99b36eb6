//! TLS to the servers, the same for all stores: the settings of a URL and the files that the settings name, the meaning
//! of a failed handshake, and the protocol that a port speaks.

#[cfg(feature = "tls")]
mod certificates;
#[cfg(feature = "tls")]
mod diagnosis;
pub(in crate::backend) mod probe;
pub(in crate::backend) mod settings;
#[cfg(not(feature = "tls"))]
mod switched_off;

#[cfg(all(feature = "tls", feature = "zookeeper"))]
pub(in crate::backend) use self::diagnosis::ask;
#[cfg(not(feature = "tls"))]
pub(in crate::backend) use self::switched_off::{Tls, speaks_tls};
#[cfg(feature = "tls")]
pub(in crate::backend) use self::{
    certificates::{Certificates, Tls, install_provider},
    diagnosis::{Look, explain, look, rustls_error, speaks_tls},
};
