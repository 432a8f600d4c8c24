//! Coordinators: the state machines behind transactional ids and groups, and their records.
//!
//! Owns what the internal topics mean. Pure: takes requests, records and `now`, returns answers
//! and records to append. Must never read a clock, wait, or answer from anything that is not on
//! the medium. `src/shard` appends, waits and sends markers.

pub mod record;
pub mod txn;
