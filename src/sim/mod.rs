//! The simulated machine: the second implementation of the seams in [`crate::io`].
//!
//! Owns a deterministic executor with virtual time ([`World`]), a disk with a write cache, faults
//! and crashes ([`SimDisk`] over [`Medium`]), byte streams ([`net`]), a recorder of real disks
//! whose traces are cut into crash images ([`recording`]), and the history checker that says
//! whether a log kept its promises ([`checker`]). Must never name glommio, read a real clock, or
//! let anything but the seed decide: a failing seed replays exactly.
//!
//! How a crash test goes: make a `World` and a `SimDisk`, spawn the code under test on runtimes of
//! the world, run some steps, `World::crash`, `SimDisk::crash`, and start the code again on the
//! disk that is returned.

pub use disk::SimDisk;
pub use faults::{Delays, FaultPlan, FaultRule, Operation};
pub use medium::Medium;
pub use net::{NetOptions, Network, SimStream};
pub use random::Random;
pub use recording::{Recorder, RecordingDisk};
pub use trace::{RuleBroken, Trace};
pub use world::{Event, Stalled, World};

pub mod checker;
mod content;
pub mod disk;
mod executor;
pub mod faults;
mod filenode;
mod image;
pub mod medium;
mod names;
pub mod net;
pub mod random;
pub mod recording;
pub mod trace;
pub mod world;
