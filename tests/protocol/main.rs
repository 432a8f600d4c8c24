//! Every served API, request by request, against the real process in every mode it can run in.
//!
//! One broker process per mode is shared by all tests of that mode; each test works on topics of
//! its own. Expectations are what Apache Kafka 4.3 answers, measured on the wire, or a deviation
//! that the handler's own documentation names. Exact codes, offsets and bytes; no sleeps.

#[path = "../support/mod.rs"]
mod support;

#[macro_use]
mod cluster;
mod calls;

mod admin;
mod codecs;
mod cold_reads;
mod compaction;
mod configs;
mod consumer_groups;
mod delete_records;
mod fetch;
mod group_offsets;
mod groups;
mod handshake;
mod holds;
mod idempotence;
mod markers;
mod metrics;
mod mixed_groups;
mod offsets;
mod order;
mod produce;
mod restart;
mod retention;
mod sessions;
mod topics;
mod transactions;
mod txn_offsets;
mod wrong_node;
