//! The `ringlog` command line.
//!
//! Owns the arguments ([`args`]); each command's body is a file of its own. Exit codes: 0 done,
//! 1 a command found something wrong, 2 it could not start, 3 a shard's journal failed.

pub mod args;
pub mod client;
pub mod doctor;
mod import;
pub mod log;
pub mod txn;
