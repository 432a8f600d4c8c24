//! Library of the integration tests: a raw protocol client, short requests, hand-built batches, a
//! broker process under control.
//!
//! Include it with `mod support;` (or `#[path = "support/mod.rs"]` from a deeper folder). It is
//! the independent witness: it shares no code with `src/`, only the codec library's structures for
//! typed requests. Every wait is bounded; a broken promise panics with what was seen.
#![allow(dead_code, reason = "each test binary uses its own part of this library")]

pub mod batch;
pub mod broker;
pub mod client;
pub mod groups;
pub mod kafka;
pub mod offsets;
pub mod requests;
pub mod transactions;
