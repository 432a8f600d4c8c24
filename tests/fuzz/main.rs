//! Fuzz targets: every decoder of bytes that somebody else wrote, on a wire or on a disk.
//!
//! `cargo test --test fuzz` runs [`ROUNDS`] inputs of each target. `RINGLOG_FUZZ_ROUNDS=N` runs N
//! of each instead, which wants the release profile:
//! `RINGLOG_FUZZ_ROUNDS=5000000 cargo test --release --test fuzz -- --nocapture` says how many a
//! second each target does. Inputs are random bytes, and what is valid and then damaged in a few
//! places: random bytes alone never get past the first length. `BOLERO_RANDOM_SEED` repeats a run.
//!
//! Each target holds that nothing panics, and that what is allocated while an input of `n` bytes is
//! handled stays under a bound in `n` (see [`allocation`]); where something encodes, that decoding
//! what was encoded gives it back.

mod allocation;
mod batches;
mod coordinator;
mod files;
mod group_memory;
mod journal;
mod sample;
mod wire;

use std::panic::RefUnwindSafe;
use std::time::Instant;

use sample::Choices;

/// Inputs of each target unless the environment says otherwise.
const ROUNDS: usize = 15_000;

/// Longest input that choices are taken from.
const INPUT_BYTES_MAX: usize = 1_024;

/// Runs a target on choices taken from random bytes.
fn run(name: &str, target: impl Fn(&mut Choices<'_>) + RefUnwindSafe) {
    let rounds = std::env::var("RINGLOG_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds = rounds.unwrap_or(ROUNDS);
    let began = Instant::now();
    bolero::check!()
        .with_iterations(rounds)
        .with_max_len(INPUT_BYTES_MAX)
        .for_each(|input: &[u8]| target(&mut Choices::new(input)));
    let took = began.elapsed();
    println!("{name}: {rounds} inputs, {:.0} a second", rounds as f64 / took.as_secs_f64());
}
