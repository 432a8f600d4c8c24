//! Input that no well-behaved client sends, from raw sockets to a real broker process.
//!
//! After each attack: another connection, open before it, produces and fetches correct data, so
//! does a new one; exactly the connections at fault were closed; the process's largest resident
//! memory is within what `--memory` promises (see `stage::Stage::memory_is_kept`).
//! Exact expectations are those of Apache Kafka; `deviation` says where they are not.

#[path = "../support/mod.rs"]
mod support;

mod bombs;
mod descriptors;
mod frames;
mod limits;
mod memory;
mod places;
mod reach;
mod slow;
mod stage;
