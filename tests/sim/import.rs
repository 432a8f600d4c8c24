//! Imports that are crashed, or whose disk fails, and are begun again.
//!
//! One seed is the log directory of a stopped Apache Kafka and some tries to import it, as the
//! command makes them: into a directory under another name, cleared before each try, which gets its
//! own name last. Whatever ends a try, the source is as it was; the one that says it is done has
//! left all of it on the medium: a broker serves every record at its offset, over a power loss
//! right after, and replays nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ringlog::batch::{BatchHeader, HEADER_BYTES, Records};
use ringlog::error_code::ErrorCode;
use ringlog::ids::{Offset, ShardId, TopicId, TopicPartition};
use ringlog::io::Disk;
use ringlog::sim::{FaultPlan, Medium, Operation, SimDisk};
use ringlog::tools::import::{Report, Request, import};

use crate::machine::{Cluster, DATA_DIR};
use crate::scenario::Machine;
use crate::seeds::{Trouble, require_all};
use crate::support::batch::{Batch, Record};
use crate::{oracle, run_seeds};

#[test]
fn imports_are_whole_or_nothing() {
    let total = run_seeds("imports_are_whole_or_nothing", SEEDS, life);
    require_all(&total, Trouble::FAULTS);
}

counts! {
    /// What tries came to.
    pub struct Counts {
        pub boots: u64,
        pub imported: u64,
        pub crashes: u64,
        /// Tries that a fault ended.
        pub failed: u64,
        /// Tries that got over a fault, or did not meet it.
        pub survived: u64,
        pub batches: u64,
    }
}

/// Values by offset, of each partition.
type Logs = BTreeMap<i32, BTreeMap<i64, Vec<u8>>>;

fn life(seed: u64) -> Result<Counts, String> {
    let mut machine = Machine::new(seed);
    machine.durability = "power-loss";
    let (medium, logs) = source(&mut machine);
    machine.disk = SimDisk::with_medium(&machine.world, medium, FaultPlan::default());
    let before = tree_of_source(&machine);
    let mut counts = Counts::default();
    let report = loop {
        let outcome = one_try(&mut machine, &mut counts)?;
        if tree_of_source(&machine) != before {
            return Err("the source has changed".to_owned());
        }
        if let Some(report) = outcome {
            break report;
        }
    };
    give_name(&mut machine)?;
    machine.crash();
    counts.batches = report.batches;
    counts.imported = 1;
    let cluster = machine.boot()?;
    if cluster.batches_replayed > 0 {
        return Err(format!("{} batches were replayed", cluster.batches_replayed));
    }
    check(&machine, &cluster, &logs)?;
    machine.crash();
    let cluster = machine.boot()?;
    check(&machine, &cluster, &logs)?;
    counts.boots = machine.counts.boots;
    Ok(counts)
}

/// One try, which may be crashed or fail; what it says if it comes to its end.
fn one_try(machine: &mut Machine, counts: &mut Counts) -> Result<Option<Report>, String> {
    let disk: Rc<dyn Disk> = Rc::new(machine.disk.clone());
    let cleared = async {
        disk.remove_tree(Path::new(TARGET)).await?;
        disk.create_directory(Path::new(TARGET)).await
    };
    let cleared = machine.world.run_until(cleared).map_err(|stalled| stalled.to_string())?;
    cleared.map_err(|error| error.to_string())?;
    let is_faulty = machine.random.chance(1, 2);
    if is_faulty {
        plan_fault(machine);
    }
    let crashes = machine.random.chance(1, 3);
    let steps = if crashes { machine.random.below(STEPS) } else { u64::MAX };
    let outcome = Rc::new(RefCell::new(None));
    let config = Arc::new(machine.config());
    let (shards, done) = (config.shards, Rc::clone(&outcome));
    machine.world.runtime(ShardId(0)).spawn(Box::pin(async move {
        let request = Request {
            sources: &[PathBuf::from(SOURCE)],
            target: Path::new(TARGET),
            shards,
            broker: config,
            kernel_boot_id: "kernel".to_owned(),
            now_ms: NOW_MS,
        };
        let imported = import(&disk, &request).await;
        done.replace(Some(imported.map_err(|error| error.to_string())));
    }));
    machine.world.run_steps(steps);
    machine.disk.plan(|plan| plan.rules.clear());
    match outcome.take() {
        Some(Ok(report)) => {
            counts.survived += u64::from(is_faulty);
            Ok(Some(report))
        }
        Some(Err(what)) if !is_faulty => Err(format!("no import: {what}")),
        None if !crashes => Err("an import hangs".to_owned()),
        ended => {
            counts.failed += u64::from(ended.is_some());
            counts.crashes += 1;
            machine.crash();
            Ok(None)
        }
    }
}

fn plan_fault(machine: &mut Machine) {
    let (operation, path) = [
        (Operation::Read, SOURCE),
        (Operation::Open, SOURCE),
        (Operation::List, SOURCE),
        (Operation::Open, TARGET),
        (Operation::Write, TARGET),
        (Operation::WriteWhole, TARGET),
        (Operation::SetLength, TARGET),
        (Operation::CreateDirectory, TARGET),
        (Operation::Rename, TARGET),
        (Operation::SyncData, TARGET),
        (Operation::SyncDirectory, TARGET),
        (Operation::SyncFilesystem, ""),
    ][machine.random.index(12)];
    let skip = machine.random.below(12);
    let code = if machine.random.chance(1, 3) { libc::ENOSPC } else { libc::EIO };
    machine.disk.plan(|plan| {
        plan.fail_once(operation, path, skip);
        if let Some(rule) = plan.rules.last_mut() {
            rule.code = code;
        }
    });
}

/// What the command does at the end.
fn give_name(machine: &mut Machine) -> Result<(), String> {
    let disk = machine.disk.clone();
    let named = async {
        disk.remove_tree(Path::new(DATA_DIR)).await?;
        disk.rename(Path::new(TARGET), Path::new(DATA_DIR)).await?;
        disk.sync_directory(Path::new("/")).await
    };
    let named = machine.world.run_until(named).map_err(|stalled| stalled.to_string())?;
    named.map_err(|error| error.to_string())
}

fn tree_of_source(machine: &Machine) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut tree = machine.disk.medium().tree();
    tree.retain(|path, _| path.starts_with(SOURCE));
    tree
}

/// A broker serves exactly these records.
fn check(machine: &Machine, cluster: &Rc<Cluster>, logs: &Logs) -> Result<(), String> {
    if let Some(note) = cluster.notes.first() {
        return Err(format!("recovery notes: {note}"));
    }
    let topic = cluster.shards[0].catalog().topic(TOPIC).map(|topic| topic.id);
    let topic = topic.ok_or("the topic is not there")?;
    if topic != TopicId([ID; 16]) {
        return Err(format!("the topic has another id: {topic:?}"));
    }
    for (&index, log) in logs {
        let tp = oracle::partition(topic, index);
        let read = machine.world.run_until(read_all(cluster, tp));
        let found = read.map_err(|stalled| stalled.to_string())??;
        if found != *log {
            let (found, log) = (found.keys(), log.keys());
            return Err(format!("{TOPIC}-{index} has {found:?}, the source has {log:?}"));
        }
    }
    Ok(())
}

async fn read_all(cluster: &Cluster, tp: TopicPartition) -> Result<BTreeMap<i64, Vec<u8>>, String> {
    let mut found = BTreeMap::new();
    let mut next = Offset(0);
    loop {
        let outcome = oracle::read(&cluster.shards[0], tp, next, 100_000).await?;
        if outcome.error != ErrorCode::None {
            return Err(format!("a read at {next} answers {:?}", outcome.error));
        }
        let mut rest = Bytes::from(outcome.records.concat());
        if rest.is_empty() {
            return Ok(found);
        }
        while !rest.is_empty() {
            let header = BatchHeader::read_verified(&rest).map_err(|fault| fault.to_string())?;
            let batch = rest.split_to(header.total_bytes());
            next = header.next_offset();
            for record in Records::new(&batch[HEADER_BYTES..], header.record_count) {
                let record = record.map_err(|fault| fault.to_string())?;
                let at = header.record_offset(record.offset_delta);
                found.insert(at.0, record.value.unwrap_or_default().to_vec());
            }
        }
    }
}

/// The log directory of a broker that was stopped cleanly, and what is in it.
fn source(machine: &mut Machine) -> (Medium, Logs) {
    let mut files: Vec<(String, Vec<u8>)> = vec![
        ("meta.properties".to_owned(), PROPERTIES.to_vec()),
        (".kafka_cleanshutdown".to_owned(), b"{\"version\":0,\"brokerEpoch\":5}".to_vec()),
    ];
    let mut metadata = vec![metadata_record(2, &[&[7][..], TOPIC.as_bytes(), &[ID; 16]].concat())];
    let mut logs = Logs::new();
    for index in 0..1 + machine.random.below(3) as i32 {
        metadata.push(metadata_record(3, &[&index.to_be_bytes()[..], &[ID; 16]].concat()));
        let directory = format!("{TOPIC}-{index}");
        let about = format!("version: 0\ntopic_id: {ID_TEXT}\n");
        files.push((format!("{directory}/partition.metadata"), about.into_bytes()));
        let log = logs.entry(index).or_default();
        let mut next = 0;
        for _ in 0..1 + machine.random.below(3) {
            let base = next;
            let mut segment = Vec::new();
            for _ in 0..1 + machine.random.below(20) {
                let values: Vec<Vec<u8>> = (0..1 + machine.random.below(4))
                    .map(|_| vec![next as u8; machine.random.index(3_000)])
                    .collect();
                let mut batch = Batch::of(values.iter().map(Record::value).collect());
                (batch.base_offset, batch.partition_leader_epoch) = (next, 0);
                batch.base_timestamp = NOW_MS;
                segment.extend_from_slice(&batch.encode());
                for value in values {
                    log.insert(next, value);
                    next += 1;
                }
            }
            files.push((format!("{directory}/{base:020}.log"), segment));
        }
    }
    let mut batch = Batch::of(metadata.iter().map(Record::value).collect());
    batch.partition_leader_epoch = 1;
    let name = "__cluster_metadata-0/00000000000000000000.log".to_owned();
    files.push((name, batch.encode().to_vec()));
    let mut medium = Medium::new();
    for (name, content) in files {
        medium.put(&Path::new(SOURCE).join(name), &content).expect("an empty disk takes files");
    }
    medium.settle();
    (medium, logs)
}

/// A metadata record: frame version, type, version, fields, no tagged fields.
fn metadata_record(kind: u8, fields: &[u8]) -> Vec<u8> {
    [&[1, kind, 0][..], fields, &[0]].concat()
}

const SOURCE: &str = "/kafka";
const TARGET: &str = "/data.importing";
const TOPIC: &str = "orders";
const PROPERTIES: &[u8] = b"#\nversion=1\nnode.id=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\n";

/// Every byte of the topic's id, and the id as Kafka writes it.
const ID: u8 = 9;
const ID_TEXT: &str = "CQkJCQkJCQkJCQkJCQkJCQ";

/// About when the simulated clock starts: retention takes nothing.
const NOW_MS: i64 = 1_767_225_600_000;

/// Above the steps of most imports.
const STEPS: u64 = 400;

/// Seeds when nothing else is asked for.
const SEEDS: u64 = 320;
