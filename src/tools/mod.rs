//! Looking at the files of a stopped broker: what they hold ([`dump`]), whether it is sound
//! ([`verify`]), and how those of Apache Kafka become ours ([`import`]).
//!
//! Owns the lines that `ringlog log` prints. Must never change a file that is there, and never
//! trust one: damage is reported where it is, and reading goes on behind it where that is possible.
//! Works through [`crate::io::Disk`], so a simulated machine can be verified too.

pub mod batches;
pub mod dump;
mod dump_journal;
pub mod import;
pub mod verify;
mod verify_partition;
