//! What appending costs without a client: allocations and time of validation and append, on a shard
//! with its journal, over a real disk.
//!
//! The bar is none: neither validation nor the append of a batch allocates. What a block of the
//! journal allocates, once for many batches, is told as a share of appends. Run with
//! `cargo bench --bench append`.

mod counting;
#[path = "../tests/sim/machine.rs"]
#[allow(dead_code, reason = "the simulation uses all of it")]
mod machine;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use counting::allocations_of_this_thread;
use futures_lite::future::poll_once;
use ringlog::batch::{BatchBuilder, CompressionTarget, ValidateRules, validate};
use ringlog::ids::{PartitionIndex, ProducerEpoch, ProducerId, TopicPartition};
use ringlog::io::executor::{GlommioRuntime, run_here};
use ringlog::io::file::RingDisk;
use ringlog::io::mailbox::MeshLimits;
use ringlog::io::{Disk, Runtime};
use ringlog::metadata::topics::CreateTopic;
use ringlog::shard::message::{CatalogChange, CatalogOutcome, Operation, Reply};
use ringlog::shard::{Shard, append};
use tempfile::TempDir;

fn main() {
    let directory = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR"));
    let directory = directory.expect("a data directory");
    let path = directory.path().to_str().expect("a plain path").to_owned();
    run_here(measure(path)).expect("an executor");
}

async fn measure(path: String) {
    let disk = RingDisk::new(path.as_ref()).expect("a disk");
    let disk: Rc<dyn Disk> = Rc::new(disk);
    let runtime: Rc<dyn Runtime> = Rc::new(GlommioRuntime::new());
    let ring = machine::Ring { files: 4, file_bytes: 64 << 20 };
    let config = machine::config(&path, 1, &ring, &[("memory", "1GiB")]);
    let booted = machine::boot(
        disk,
        vec![runtime],
        Arc::new(config),
        MeshLimits::default(),
        "bench".to_owned(),
    );
    let cluster = booted.await.expect("a broker");
    let shard = &cluster.shards[0];
    let partition = create(shard).await;
    println!(
        "{:<34} {:>12} {:>12} {:>14} {:>12} {:>12}",
        "batch", "validate ns", "append ns", "without allocs", "most allocs", "allocs each"
    );
    for (records, value_bytes, name) in SHAPES {
        for producer in [None, Some(ProducerId((records + value_bytes) as i64))] {
            let kind = if producer.is_some() { "idempotent" } else { "plain" };
            let batches = batches(records, value_bytes, producer);
            let name = format!("{name}, {kind}");
            appends(shard, partition, &batches, &name).await;
        }
    }
    cluster.stop().await.expect("an orderly end");
}

async fn create(shard: &Rc<Shard>) -> TopicPartition {
    let topic = CreateTopic {
        name: "bench".to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        assignments: Vec::new(),
        configs: Vec::new(),
    };
    let change =
        CatalogChange::CreateTopics { topics: vec![topic], validate_only: false, automatic: false };
    let Reply::Catalog(CatalogOutcome::Created(created)) =
        shard.ask(shard.id, Operation::Catalog(change)).await
    else {
        panic!("the catalog does not answer");
    };
    let topic = created[0].as_ref().expect("the topic").id;
    TopicPartition { topic, partition: PartitionIndex(0) }
}

/// As many batches as fit into a few blocks of the journal, in the order of their sequences.
fn batches(records: usize, value_bytes: usize, producer: Option<ProducerId>) -> Vec<Bytes> {
    let count = BATCHES_MAX.min(BYTES_MAX / (records * value_bytes));
    let batch = |number: usize| {
        let mut builder = BatchBuilder::new(CompressionTarget::Uncompressed);
        if let Some(id) = producer {
            builder = builder.producer(id, ProducerEpoch(0), (number * records) as i32);
        }
        for _ in 0..records {
            builder.push(NOW_MS, None, Some(&vec![7; value_bytes]), &[]);
        }
        Bytes::from(builder.finish())
    };
    (0..count).map(batch).collect()
}

/// Validates and appends them one by one, and lets the journal go on in between.
async fn appends(shard: &Rc<Shard>, partition: TopicPartition, batches: &[Bytes], name: &str) {
    let (mut validate_ns, mut append_ns) = (0, 0);
    let (mut most, mut all, mut with_any) = (0, 0, 0);
    for (number, bytes) in batches.iter().enumerate() {
        let bytes = bytes.clone();
        let before = allocations_of_this_thread();
        let begun = Instant::now();
        let valid = validate(Some(bytes), &ValidateRules::DEFAULT, NOW_MS).expect("a good batch");
        let validated = begun.elapsed();
        let in_validate = allocations_of_this_thread() - before;
        assert_eq!(in_validate, 0, "validation has allocated");
        let before = allocations_of_this_thread();
        let begun = Instant::now();
        let appended = poll_once(append::append(shard, partition, &valid, None)).await;
        let took = begun.elapsed();
        let in_append = allocations_of_this_thread() - before;
        let pending = appended.expect("there is room").expect("it is taken");
        if number % BATCHES_PER_COMMIT == 0 {
            shard.durable(pending.durable_at).await.expect("a journal");
        }
        if number >= WARM_UP {
            validate_ns += validated.as_nanos();
            append_ns += took.as_nanos();
            (most, all) = (in_append.max(most), all + in_append);
            with_any += u32::from(in_append > 0);
        }
    }
    let each = |sum: f64| sum / (batches.len() - WARM_UP) as f64;
    println!(
        "{name:<34} {:>12.0} {:>12.0} {:>12.1} % {most:>12} {:>12.3}",
        each(validate_ns as f64),
        each(append_ns as f64),
        100.0 - 100.0 * each(f64::from(with_any)),
        each(all as f64)
    );
}

/// Records, bytes of a value, name.
const SHAPES: [(usize, usize, &str); 3] =
    [(1, 32, "100 B"), (1, 955, "1 KiB"), (64, 1010, "64 KiB in 64 records")];

const NOW_MS: i64 = 1_700_000_000_000;
const BATCHES_MAX: usize = 4_000;
const BYTES_MAX: usize = 64 << 20;
const BATCHES_PER_COMMIT: usize = 8;
const WARM_UP: usize = 100;
