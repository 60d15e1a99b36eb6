//! What Redisson's clients send, as seen of its releases 3.17.7 and 4.7.0, from a program that is not Java.

use std::time::Duration;

use super::{redis_server::RedisServer, resp::Value};

/// The client's UUID.
const CLIENT: &str = "8f3c1a70-5d1e-4c1b-9a55-0d6c3f9b2e11";
/// Keys: lock. Arguments: lease in ms, owner. Nil, or the rest of the other owner's lease.
const ACQUIRE: &str = "
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";
/// Keys: lock, channel. Arguments: message, lease in ms, owner. Nil if it is not the owner's, otherwise whether it is free.
const RELEASE: &str = "
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return 1";
/// The watchdog. Keys: lock. Arguments: lease in ms, owner.
const RENEW: &str = "
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
redis.call('pexpire', KEYS[1], ARGV[1])
return 1";

/// A client on this server.
#[derive(Debug)]
pub struct Java<'a> {
    server: &'a RedisServer,
}

impl<'a> Java<'a> {
    pub fn new(server: &'a RedisServer) -> Self {
        Self { server }
    }

    pub fn owner(thread: u64) -> String {
        format!("{CLIENT}:{thread}")
    }

    pub fn channel(lock: &str) -> String {
        if lock.contains('{') {
            format!("redisson_lock__channel:{lock}")
        } else {
            format!("redisson_lock__channel:{{{lock}}}")
        }
    }

    /// `tryLock`; the error is the rest of the other owner's lease in ms.
    pub fn acquire(&self, lock: &str, lease: Duration, owner: &str) -> Result<(), i64> {
        let lease = lease.as_millis().to_string();
        match self.server.command(&["EVAL", ACQUIRE, "1", lock, &lease, owner]) {
            Value::Nil => Ok(()),
            left => Err(left.int()),
        }
    }

    /// `tryLockAndGetToken` of an `RFencedLock`; the error is the rest of the other owner's lease in ms.
    pub fn acquire_fenced(&self, lock: &str, lease: Duration, owner: &str) -> Result<u64, i64> {
        self.acquire(lock, lease, owner)?;
        let counter = if lock.contains('{') {
            format!("redisson_lock_token:{lock}")
        } else {
            format!("redisson_lock_token:{{{lock}}}")
        };
        Ok(u64::try_from(self.server.command(&["INCR", &counter]).int()).unwrap())
    }

    /// `unlock`; `None` if the owner does not hold it, otherwise whether it is free now.
    pub fn release(&self, lock: &str, owner: &str) -> Option<bool> {
        let channel = Self::channel(lock);
        match self.server.command(&["EVAL", RELEASE, "2", lock, &channel, "0", "30000", owner]) {
            Value::Nil => None,
            freed => Some(freed.int() == 1),
        }
    }

    pub fn renew(&self, lock: &str, lease: Duration, owner: &str) -> bool {
        let lease = lease.as_millis().to_string();
        self.server.command(&["EVAL", RENEW, "1", lock, &lease, owner]).int() == 1
    }

    /// The message of a release.
    pub fn announce(&self, lock: &str) {
        self.server.command(&["PUBLISH", &Self::channel(lock), "0"]);
    }
}
