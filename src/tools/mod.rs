//! Looking at the files of a stopped broker: what they hold ([`dump`]) and whether it is sound
//! ([`verify`]).
//!
//! Owns the lines that `ringlog log` prints. Must never change a file, and never trust one: damage
//! is reported where it is, and reading goes on behind it where that is possible. Works through
//! [`crate::io::Disk`], so a simulated machine can be verified too.

pub mod batches;
pub mod dump;
mod dump_journal;
pub mod verify;
mod verify_partition;
