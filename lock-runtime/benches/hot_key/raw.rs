//! What the contenders share that use the driver itself: the key, its ttl, and connections with messages.

use redis::{AsyncConnectionConfig, PushInfo, PushKind, aio::MultiplexedConnection};

pub(crate) const KEY: &str = "hot";
pub(crate) const TTL_MS: u64 = 30_000;

/// A connection whose messages go to `take`.
pub(crate) async fn listening(
    url: &str,
    take: impl Fn(&PushInfo) + Send + Sync + 'static,
) -> MultiplexedConnection {
    let settings =
        AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Message {
                take(&push);
            }
            Ok::<(), redis::aio::SendError>(())
        });
    let client = redis::Client::open(format!("{url}/?protocol=resp3")).unwrap();
    client.get_multiplexed_async_connection_with_config(&settings).await.unwrap()
}
