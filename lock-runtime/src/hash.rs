//! The hash of the tables that each acquisition looks into: fast for short names, and seeded at random, because others
//! choose the names.

/// Makes hashers with a seed of its own.
pub(crate) type RandomState = foldhash::quality::RandomState;

/// A map with such a hash.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
