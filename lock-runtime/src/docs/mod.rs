//! The guide: guarantees, the stores compared, operation, the command line, migration, design, and how to write a store.

/// The design of the crate, and the life cycle of a lock.
///
/// # The life of a lock
///
/// <div>
#[doc = include_str!("life_of_a_lock.svg")]
/// </div>
///
#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("distlock.md")]
pub mod distlock {}

#[doc = include_str!("glossary.md")]
pub mod glossary {}

#[doc = include_str!("migration.md")]
pub mod migration {}

#[doc = include_str!("operation.md")]
pub mod operation {}

#[doc = include_str!("redis_topologies.md")]
pub mod redis_topologies {}

#[doc = include_str!("safety.md")]
pub mod safety {}

#[doc = include_str!("stores.md")]
pub mod stores {}

#[doc = include_str!("why_not.md")]
pub mod why_not {}

/// How to implement a store: questions to answer first, a complete example, common mistakes, and how to test a store.
///
#[doc = include_str!("writing_a_store/before.md")]
/// ```ignore
#[doc = include_str!("writing_a_store/files.rs")]
/// ```
///
#[doc = include_str!("writing_a_store/after.md")]
/// ```ignore
#[doc = include_str!("writing_a_store/conformance.rs")]
/// ```
pub mod writing_a_store {}
