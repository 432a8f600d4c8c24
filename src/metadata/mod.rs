//! The catalog: which topics exist, where their partitions live, how they are configured.
//!
//! Owns the immutable [`Image`] that every shard holds, the records that change it, their durable
//! log ([`store`]), and the planning of changes: of topics ([`topics`]) and of what is set
//! ([`alter`]). Shard 0 writes; the others get each new image and never change it. Source of
//! behaviour: Kafka's `ReplicationControlManager` and its siblings.

pub use image::{Image, Tombstone, TombstonePhase, Topic};
pub use records::Record;
pub use store::CatalogStore;

pub mod alter;
pub mod configs;
pub mod image;
mod placement;
pub mod quotas;
pub mod records;
pub mod scram;
pub mod store;
pub mod topics;
