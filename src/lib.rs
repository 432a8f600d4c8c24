//! Ringlog: a Kafka-protocol broker for one Linux machine.

pub mod api;
pub mod batch;
pub mod cli;
pub mod config;
pub mod error_code;
pub mod ids;
pub mod io;
pub mod journal;
pub mod limits;
pub mod log;
pub mod metadata;
pub mod recovery;
pub mod preflight;
pub mod shard;
pub mod sim;
pub mod wire;
