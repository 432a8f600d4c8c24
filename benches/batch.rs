//! What validating a batch costs: time, throughput and allocations per batch.
//!
//! The common path (create time, the producer's codec, not compressed) must not allocate; the
//! table shows it beside the paths that may. Run with `cargo bench --bench batch`.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use bytes::Bytes;
use lz4_flex::frame::{BlockSize, FrameEncoder, FrameInfo};
use ringlog::batch::build::finish_batch;
use ringlog::batch::{
    BatchBuilder, BatchHeader, Compression, CompressionTarget, HEADER_BYTES, TimestampType,
    ValidateRules, validate,
};

mod counting;

use counting::Count;

fn main() {
    println!(
        "{:<42} {:>8} {:>8} {:>12} {:>10} {:>12}",
        "batch", "records", "bytes", "ns/batch", "GB/s", "allocs/batch"
    );
    for (records, value_bytes, name) in SHAPES {
        let batch = build(Compression::None, records, value_bytes);
        measure(&format!("{name}, create time"), records, &batch, &RULES);
        let rules = ValidateRules { timestamp_type: TimestampType::LogAppendTime, ..RULES };
        measure(&format!("{name}, append time"), records, &batch, &rules);
    }
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let batch = build(codec, 64, 1000);
        measure(&format!("64 KiB in {}", codec.name()), 64, &batch, &RULES);
    }
    for (records, value_bytes) in [(1, 955), (64, 1000)] {
        let batch = in_large_blocks(&build(Compression::None, records, value_bytes));
        measure("lz4 in blocks of 4 MiB, as from Go", records, &batch, &RULES);
    }
    let rules = ValidateRules { compression: CompressionTarget::Lz4(9), ..RULES };
    let batch = build(Compression::None, 64, 1000);
    measure("64 KiB, compressed for the topic by lz4", 64, &batch, &rules);
}

fn build(codec: Compression, records: usize, value_bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new(CompressionTarget::of(codec));
    for n in 0..records {
        let value: Vec<u8> = (0..value_bytes).map(|m| (m * 7 % 61 + n % 13) as u8).collect();
        builder.push(NOW_MS + n as i64, None, Some(&value), &[]);
    }
    Bytes::from(builder.finish())
}

/// The same records in an LZ4 frame as the clients in Go write it.
fn in_large_blocks(plain: &Bytes) -> Bytes {
    let mut header = BatchHeader::read(plain).expect("a whole batch");
    let info = FrameInfo::new().block_size(BlockSize::Max4MB).content_checksum(true);
    let mut encoder = FrameEncoder::with_frame_info(info, vec![0; HEADER_BYTES]);
    encoder.write_all(&plain[HEADER_BYTES..]).expect("memory");
    header.attributes |= i16::from(Compression::Lz4.id());
    Bytes::from(finish_batch(header, encoder.finish().expect("memory")))
}

/// The best of several rounds: what the code costs, not what else the machine did.
fn measure(name: &str, records: usize, batch: &Bytes, rules: &ValidateRules) {
    let mut best_ns = f64::INFINITY;
    let mut allocations = 0;
    let mut rounds_left = ROUNDS;
    let mut batches = 1_u64;
    while rounds_left > 0 {
        let before = Count::now();
        let started = Instant::now();
        for _ in 0..batches {
            let valid = validate(Some(black_box(batch).clone()), black_box(rules), NOW_MS);
            let _ = black_box(valid.expect("a good batch"));
        }
        let nanoseconds = started.elapsed().as_nanos() as f64;
        allocations = before.elapsed().allocations / batches;
        if nanoseconds < ROUND_NS {
            batches *= 2;
            continue;
        }
        best_ns = best_ns.min(nanoseconds / batches as f64);
        rounds_left -= 1;
    }
    println!(
        "{name:<42} {records:>8} {:>8} {best_ns:>12.1} {:>10.2} {allocations:>12}",
        batch.len(),
        batch.len() as f64 / best_ns
    );
}

const RULES: ValidateRules = ValidateRules::DEFAULT;

/// Records, bytes of a value, name.
const SHAPES: [(usize, usize, &str); 4] = [
    (1, 32, "100 B, one record"),
    (1, 955, "1 KiB, one record"),
    (64, 1010, "64 KiB of 1 KiB records"),
    (655, 88, "64 KiB of 100 B records"),
];

const NOW_MS: i64 = 1_700_000_000_000;
const ROUNDS: usize = 7;
const ROUND_NS: f64 = 20_000_000.0;
