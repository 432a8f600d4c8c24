//! What the state of a partition's producers costs: the check of a sequence, and the last stable
//! offset, over how many there are of either.
//!
//! The bars: a check in 100 ns without an allocation, whatever the number of producers; a last
//! stable offset in O(log open transactions); 256 bytes per producer. Run with
//! `cargo bench --bench producers`.

mod counting;

use std::hint::black_box;
use std::time::Instant;

use counting::Count;
use ringlog::batch::MarkerKind;
use ringlog::ids::{JournalSequence, LeaderEpoch, Offset, ProducerEpoch, ProducerId};
use ringlog::log::epochs::EpochHistory;
use ringlog::log::producers::Producers;
use ringlog::log::tail::TailBatch;
use ringlog::log::transactions::Transactions;
use ringlog::log::{AppendCheck, BatchFacts, Log, ProducerFacts};

fn main() {
    println!(
        "{:<34} {:>9} {:>9} {:>11} {:>10}",
        "what", "of them", "ns each", "allocs each", "bytes each"
    );
    for count in COUNTS {
        sequences(count);
    }
    for count in COUNTS {
        stable_offset(count);
    }
}

/// Checks and appends of idempotent batches of so many producers, in an order that no cache likes.
fn sequences(count: u64) {
    let before = Count::now();
    let producers = Producers::new(i64::MAX);
    let mut log = Log::recovered(Offset(0), Offset(0), EpochHistory::default(), producers);
    log.start_epoch(LeaderEpoch(0));
    for id in 0..count {
        append(&mut log, &facts(id, 0));
    }
    let bytes = before.elapsed().live_bytes as f64 / count as f64;
    row("producer that has written once", count, f64::NAN, f64::NAN, bytes);
    // Five batches are remembered: from here on nothing grows.
    for sequence in 1..REMEMBERED {
        (0..count).for_each(|id| append(&mut log, &facts(id, sequence)));
    }
    let bytes = before.elapsed().live_bytes as f64 / count as f64;
    row("producer with five batches", count, f64::NAN, f64::NAN, bytes);
    let order: Vec<u64> = (0..LOOKS).map(|look| look.wrapping_mul(STRIDE) % count).collect();
    let (ns, allocations) = time(LOOKS, || {
        for &id in &order {
            let checked = log.check(black_box(&facts(id, REMEMBERED)), 0);
            assert!(matches!(checked, Ok(AppendCheck::Append(_))));
        }
    });
    row("check of a sequence", count, ns, allocations, f64::NAN);
    let (ns, allocations) = time(LOOKS, || {
        for &id in &order {
            let checked = log.check(black_box(&facts(id, REMEMBERED - 1)), 0);
            assert!(matches!(checked, Ok(AppendCheck::Duplicate { .. })));
        }
    });
    row("check of a duplicate", count, ns, allocations, f64::NAN);
    let mut next = vec![REMEMBERED; count as usize];
    let (ns, allocations) = time(LOOKS, || {
        for &id in &order {
            let sequence = &mut next[id as usize];
            append(&mut log, &facts(id, *sequence));
            *sequence += 1;
        }
    });
    row("check and append", count, ns, allocations, f64::NAN);
}

/// One transaction ends and another begins, with so many open all the time.
fn stable_offset(count: u64) {
    let mut transactions = Transactions::default();
    let mut end = 0;
    for _ in 0..count {
        transactions.open(Offset(end), ProducerId(end));
        end += 1;
    }
    let mut oldest = 0;
    let (ns, allocations) = time(LOOKS, || {
        for _ in 0..LOOKS {
            transactions.end(Offset(oldest), Offset(end), MarkerKind::Commit);
            transactions.open(Offset(end + 1), ProducerId(end + 1));
            end += 2;
            transactions.durable_through(Offset(end));
            transactions.released_through(Offset(end));
            oldest = transactions.first_unstable().map_or(end, |first| first.0);
            black_box(oldest);
        }
    });
    row("end, begin and last stable offset", count, ns, allocations, f64::NAN);
}

/// Appends a batch that is durable and written at once.
fn append(log: &mut Log, facts: &BatchFacts) {
    let base_offset = log.next_offset();
    let checked = log.check(facts, 0);
    assert_eq!(checked, Ok(AppendCheck::Append(base_offset)));
    let batch = TailBatch {
        base_offset,
        last_offset: base_offset,
        max_timestamp_ms: 0,
        append_ms: 0,
        bytes: facts.bytes,
        sequence: JournalSequence(1),
        parts: Default::default(),
    };
    log.append(facts, batch, 0);
    let end = log.next_offset();
    log.advance_high_watermark(end);
    log.written_through(end);
}

fn facts(id: u64, sequence: i32) -> BatchFacts {
    BatchFacts {
        last_offset_delta: 0,
        max_timestamp_ms: 0,
        bytes: 100,
        producer: Some(ProducerFacts {
            id: ProducerId(id as i64),
            epoch: ProducerEpoch(0),
            base_sequence: sequence,
        }),
        transactional: false,
        guard: None,
    }
}

/// Nanoseconds and allocations of one of `count` steps.
fn time(count: u64, steps: impl FnOnce()) -> (f64, f64) {
    let before = Count::now();
    let begun = Instant::now();
    steps();
    let ns = begun.elapsed().as_nanos() as f64 / count as f64;
    (ns, before.elapsed().allocations as f64 / count as f64)
}

fn row(what: &str, count: u64, ns: f64, allocations: f64, bytes: f64) {
    let cell = |figure: f64, digits: usize| match figure.is_nan() {
        true => "-".to_owned(),
        false => format!("{figure:.digits$}"),
    };
    println!(
        "{what:<34} {count:>9} {:>9} {:>11} {:>10}",
        cell(ns, 1),
        cell(allocations, 4),
        cell(bytes, 0)
    );
}

const COUNTS: [u64; 6] = [1, 100, 1_000, 10_000, 100_000, 200_000];
const LOOKS: u64 = 400_000;
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
const REMEMBERED: i32 = 5;
