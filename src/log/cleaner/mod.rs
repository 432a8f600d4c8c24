//! Compaction: which records of a log go because later ones have the same key, and which batches
//! and markers stay although nothing is left of them.
//!
//! Owns the rules of Kafka's cleaner, as values in and values out: which partition to clean and up
//! to where ([`candidate`]), the newest offset of every key ([`offset_map`]), which transactions
//! were aborted and which markers are needed ([`transactions`]), what happens to a batch
//! ([`filter`]). Rewriting a batch is `batch::rewrite`'s, files and their swap are
//! `shard::cleaner`'s. Must never look at or beyond the last stable offset, and never change the
//! offset of a record.
//!
//! Invariants: the newest committed value of every key stays; nothing aborted stays; a tombstone
//! or marker goes only after its delete horizon, which a pass before has set; the last batch of
//! every known producer and of the cleaned part stays, empty if need be.
//! Source: Kafka's `LogCleaner`, `LogCleanerManager`, `SkimpyOffsetMap`, KIP-98, KIP-534.

pub mod candidate;
pub mod filter;
pub mod offset_map;
pub mod throttle;
pub mod transactions;

#[cfg(test)]
mod tests;
