//! The shard's journal: a ring of pre-allocated files that holds what was acknowledged and is not
//! yet in synced segments, and the images and manifest that say where replaying it begins.
//!
//! Owns framing ([`block`]), ring arithmetic ([`ring`]), reading a ring back ([`replay`]), the
//! checkpoint image of a shard ([`image`]), the manifest and the path rules ([`manifest`]), the
//! evidence of offline partitions ([`stranded`]) and the offline check ([`verify`]). Must never
//! decide about a partition's log: it hands out entries in order and says how far they can be
//! trusted.
//!
//! Invariants: a block that validates was written by this boot of this shard, at this position; a
//! sequence is never reused; ring space is reused only after an image that no longer needs it;
//! nothing read from a disk makes these modules panic or allocate by an unchecked count.

pub mod block;
mod cursor;
#[cfg(test)]
mod fixture;
pub mod forward;
pub mod image;
pub mod manifest;
pub mod replay;
pub mod ring;
pub mod stranded;
pub mod verify;
mod window;
pub mod writer;

pub use block::Identity;
pub use ring::{Geometry, JournalPoint, Ring};
