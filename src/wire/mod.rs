//! Bytes to requests and responses back to bytes; no I/O.
//!
//! Owns framing, headers, the table of served APIs, the bounded shape check before decoding, and
//! the encoders of hot responses. Must never panic, overflow or allocate by an unchecked count,
//! whatever the bytes are. Path of a request: [`frame`] -> [`header`] -> [`decode`] (which runs
//! [`shape`] over the descriptions of [`shapes`] first); of a response: [`encode`], or [`gather`]
//! and [`produce`] for the two hot ones.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod codes;
pub mod decode;
pub mod encode;
pub mod frame;
pub mod gather;
pub mod header;
pub mod leader;
pub mod log_dirs;
pub mod offsets;
pub mod produce;
pub mod shape;
pub mod shapes;
pub mod topic_id;
pub mod txn_markers;
pub mod versions;

pub(crate) mod primitive;

#[cfg(test)]
mod tests;
