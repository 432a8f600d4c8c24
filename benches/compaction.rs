//! What a compaction pass costs in CPU: checksums, keys into the map, and the batches that take the
//! place of the old ones, copied once; files apart (`ringlog-perf run compaction` has them, too).
//!
//! The bar is 200 MB of input per second and core for uncompressed records of 1 KiB. Input counts
//! once, though a pass reads what is new twice. "all new" writes no key twice, "half" and "tenth"
//! keep that part of the records. Run with `cargo bench --bench compaction`.

use std::hint::black_box;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use ringlog::batch::{
    BatchBuilder, BatchHeader, Compression, CompressionTarget, Record, Rewrite,
    decompressed_records,
};
use ringlog::ids::{LeaderEpoch, Offset};
use ringlog::log::cleaner::filter::{Filter, KeyBatch, KeyPass, Verdict};
use ringlog::log::cleaner::offset_map::{ENTRY_BYTES, OffsetMap};

fn main() {
    println!("{:<8} {:<8} {:>8} {:>10} {:>10}", "codec", "case", "records", "MB in", "MB/s");
    for codec in [Compression::None, Compression::Lz4, Compression::Zstd] {
        for (case, keys) in [("all new", RECORDS), ("half", RECORDS / 2), ("tenth", RECORDS / 10)] {
            let log = log(codec, keys);
            let bytes: usize = log.iter().map(Bytes::len).sum();
            let best = (0..ROUNDS).map(|_| measure(&log)).fold(f64::INFINITY, f64::min);
            println!(
                "{:<8} {case:<8} {RECORDS:>8} {:>10.1} {:>10.0}",
                codec.name(),
                bytes as f64 / 1e6,
                bytes as f64 / 1e6 / best
            );
        }
    }
}

fn log(codec: Compression, keys: usize) -> Vec<Bytes> {
    let mut batches = Vec::new();
    for first in (0..RECORDS).step_by(RECORDS_PER_BATCH) {
        let mut builder = BatchBuilder::new(CompressionTarget::of(codec))
            .at(Offset(first as i64), LeaderEpoch(1));
        for number in first..first + RECORDS_PER_BATCH {
            let key = ((number * 7_919) % keys).to_be_bytes();
            let value: Vec<u8> = (0..1_000).map(|n| (n * 7 % 61 + number % 13) as u8).collect();
            builder.push(1_700_000_000_000 + number as i64, Some(&key), Some(&value), &[]);
        }
        batches.push(Bytes::from(builder.finish()));
    }
    batches
}

/// Seconds of one pass.
fn measure(log: &[Bytes]) -> f64 {
    let end = Offset(RECORDS as i64);
    let started = Instant::now();
    let mut keys = KeyPass::new(Offset(0), OffsetMap::new(RECORDS * ENTRY_BYTES * 2, 0.9, 5));
    for batch in log {
        let header = BatchHeader::read_verified(batch).expect("sound");
        if keys.pass(&header, batch).expect("sound") {
            let records = decompressed_records(&header, batch, usize::MAX).expect("sound");
            let mut of_batch = KeyBatch::new(&header, records);
            while keys.step(&mut of_batch, SLICE_BYTES).is_pending() {}
        }
    }
    let mut filter = Filter::new(keys.into_map(), &[], end, 0, 86_400_000);
    let mut out = Vec::with_capacity(1 << 20);
    for batch in log {
        let header = BatchHeader::read_verified(batch).expect("sound");
        let Verdict::Records(rules) = filter.judge(&header, batch).expect("sound") else {
            continue;
        };
        let records = decompressed_records(&header, batch, usize::MAX).expect("sound");
        let mut rewrite = Rewrite::start(&header, batch.clone(), records, rules);
        let rewritten = loop {
            let mut keep =
                |record: &Record<'_>, offset: Offset| filter.keeps(&header, record, offset);
            if let Poll::Ready(done) = rewrite.step(SLICE_BYTES, &mut keep) {
                break done.expect("sound");
            }
        };
        if let Some(kept) = rewritten.batch {
            if out.len() + kept.len() > out.capacity() {
                out.clear();
            }
            out.extend_from_slice(&kept);
        }
    }
    black_box(&out);
    started.elapsed().as_secs_f64()
}

const RECORDS: usize = 64_000;
const RECORDS_PER_BATCH: usize = 16;
const SLICE_BYTES: usize = 64 * 1024;
const ROUNDS: usize = 5;
