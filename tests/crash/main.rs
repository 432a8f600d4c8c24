//! Crashes of a real broker process: `kill -9` under mixed load, planted journal blocks, the
//! largest and smallest batches, a full disk, refused starts, clean stops.
//!
//! Owns nothing of the broker: what was acknowledged is kept in a ledger here and held against what
//! a restarted broker serves. `RINGLOG_CRASH_ROUNDS` sets the number of kill rounds (20) and
//! `RINGLOG_CRASH_SEED` repeats the choices of a run (not its timing).

#[path = "../support/mod.rs"]
mod support;

mod cases;
mod churn;
mod cluster;
mod full_disk;
mod ledger;
mod load;
mod random;
mod retention;
mod rounds;
mod starts;
