//! Where logs start, as clients were told: it never moves back, over a crash neither, and moves
//! no further than somebody asked for, unless the topic's settings delete by themselves.
//!
//! Owns the requests to delete records, and what their answers promise: once answered, nobody reads
//! a record below.

use std::collections::BTreeMap;
use std::rc::Rc;

use ringlog::error_code::ErrorCode;
use ringlog::ids::{Offset, ShardId, TopicId, TopicPartition};
use ringlog::limits::RETENTION_SLICE;
use ringlog::metadata::topics::CreateTopic;
use ringlog::shard::Shard;
use ringlog::shard::message::{CatalogChange, CatalogOutcome, DeleteRecordsPart, Operation, Reply};

use crate::clients::Client;
use crate::machine::Cluster;
use crate::oracle::partition;
use crate::scenario::Machine;

/// The starts that clients know.
#[derive(Clone, Default, Debug)]
pub struct Starts {
    told: BTreeMap<TopicPartition, Offset>,
    asked: BTreeMap<TopicPartition, Offset>,
}

impl Starts {
    /// The log starts here, or above.
    pub fn known(&self, tp: TopicPartition) -> Offset {
        self.told.get(&tp).copied().unwrap_or_default()
    }

    /// The highest start that anybody has asked for.
    pub fn most_asked(&self, tp: TopicPartition) -> Offset {
        self.asked.get(&tp).copied().unwrap_or_default()
    }

    /// Somebody is about to ask for this start.
    fn asked(&mut self, tp: TopicPartition, start: Offset) {
        let asked = self.asked.entry(tp).or_default();
        *asked = (*asked).max(start);
    }

    /// Takes note of a start; `before` is what was known when it was asked for, and `retains` says
    /// that the topic deletes nothing by itself.
    pub fn told(
        &mut self,
        tp: TopicPartition,
        start: Offset,
        before: Offset,
        retains: bool,
    ) -> Result<(), String> {
        if start < before {
            return Err(format!("{tp:?} starts at {start}, and started at {before} before"));
        }
        let asked = self.most_asked(tp);
        if retains && start > asked {
            return Err(format!("{tp:?} starts at {start}, nobody asked for more than {asked}"));
        }
        let told = self.told.entry(tp).or_default();
        *told = (*told).max(start);
        Ok(())
    }
}

/// Whether the topic of this partition is there and deletes nothing by itself within a simulated
/// life.
pub fn retains(shard: &Shard, tp: TopicPartition) -> bool {
    let topic = shard.catalog().topic_by_id(tp.topic).cloned();
    topic.is_some_and(|topic| {
        let config = &topic.config;
        let long = config.retention_ms.is_none_or(|milliseconds| milliseconds > LONG_MS);
        long && config.retention_bytes.is_none()
    })
}

/// Settings of a new topic: most keep what they have.
pub fn settings(draw: usize) -> Vec<(String, Option<String>)> {
    let rows: &[&[(&str, &str)]] = &[
        &[],
        &[],
        &[],
        &[("retention.ms", "5200")],
        &[("retention.ms", "1")],
        &[("retention.bytes", "60000")],
        &[("retention.bytes", "0"), ("retention.ms", "-1")],
        &[("retention.bytes", "200000"), ("retention.ms", "6000"), ("segment.ms", "1000")],
    ];
    let row = rows[draw % rows.len()];
    row.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect()
}

impl Client {
    /// Deletes the records below an offset that there is, or all of them.
    pub async fn delete_records(
        &mut self,
        front: &Rc<Shard>,
        tp: TopicPartition,
    ) -> Result<(), String> {
        let Some(owner) = front.owner(tp) else { return Ok(()) };
        let end = self.oracle.borrow().end(tp);
        let some = Offset(self.random.below(end.0.cast_unsigned() + 1).cast_signed());
        let offset = if self.random.chance(1, 5) { Offset(-1) } else { some };
        let before = self.oracle.borrow().starts.known(tp);
        let bound = if offset.0 < 0 { Offset(i64::MAX) } else { offset };
        self.oracle.borrow_mut().starts.asked(tp, bound);
        self.oracle.borrow().told();
        let part = DeleteRecordsPart { partition: tp, offset };
        let reply = front.ask(owner, Operation::DeleteRecords(vec![part])).await;
        let outcome = match reply {
            Reply::LogStarts(mut starts) if starts.len() == 1 => starts.remove(0),
            other => return Err(format!("DeleteRecords was answered with {other:?}")),
        };
        match outcome {
            Ok(start) if start < offset => {
                Err(format!("{tp:?} starts at {start} after deleting below {offset}"))
            }
            Ok(start) => {
                let retains = retains(front, tp);
                let told = self.oracle.borrow_mut().starts.told(tp, start, before, retains);
                self.oracle.borrow().told();
                told
            }
            Err(ErrorCode::UnknownTopicOrPartition) => self.topic_is_gone(tp),
            Err(ErrorCode::KafkaStorageError) if self.may_fail.get() => Ok(()),
            Err(code) => Err(format!("deleting below {offset} of {tp:?}, end {end}: {code:?}")),
        }
    }
}

/// Nothing wholly below its log's start is left on the disk, but for what is on its way.
pub fn check_files(
    cluster: &Cluster,
    logs: &BTreeMap<TopicPartition, usize>,
) -> Result<(), String> {
    for shard in &cluster.shards {
        let mut left = shard.removals.count();
        for partition in shard.partitions() {
            let kept = partition.segments.borrow().bases().count();
            let found = logs.get(&partition.id).copied().unwrap_or(0);
            let beyond = found.saturating_sub(kept);
            if beyond > left {
                return Err(format!("{:?} has {found} logs for {kept} segments", partition.id));
            }
            left -= beyond;
        }
    }
    Ok(())
}

const LONG_MS: i64 = 1_000_000;

/// More partitions than retention looks at in one go, all of which lose everything, the segments
/// that are written to included; their files go, and what is appended then stays.
#[test]
fn all_partitions_are_looked_at() {
    let mut machine = Machine::new(7);
    let cluster = machine.boot().expect("a boot");
    let mut client = machine.client(&cluster);
    let shards = cluster.shards.clone();
    let partitions = RETENTION_SLICE * shards.len() + 7;
    let done = machine.world.run_until(async move {
        let front = &shards[0];
        let configs = [("retention.ms", "1"), ("file.delete.delay.ms", "0")];
        let id = create_with(front, partitions, &configs).await;
        let all: Vec<_> = (0..partitions as i32).map(|index| partition(id, index)).collect();
        for &tp in &all {
            client.append_one(front, tp).await.expect("an append");
        }
        loop {
            let mut gone = 0;
            for shard in &shards {
                for partition in shard.partitions_of(id) {
                    let log = partition.log.borrow();
                    let empty = partition.segments.borrow().bases().next().is_none();
                    gone += usize::from(log.log_start() == log.next_offset() && empty);
                }
            }
            let removed = shards.iter().all(|shard| shard.removals.count() == 0);
            if gone == partitions && removed {
                return shards
                    .iter()
                    .map(|shard| shard.metrics.segments_deleted.get())
                    .sum::<u64>();
            }
            let next = front.runtime.now().plus_ms(10);
            front.runtime.sleep_until(next).await;
        }
    });
    assert_eq!(done.expect("it comes to an end"), partitions as u64);
    let logs = machine.logs_on_disk(&cluster);
    assert_eq!(logs.values().sum::<usize>(), 0);
}

async fn create_with(front: &Rc<Shard>, partitions: usize, configs: &[(&str, &str)]) -> TopicId {
    let config = |(name, value): &(&str, &str)| ((*name).to_owned(), Some((*value).to_owned()));
    let topic = CreateTopic {
        name: "many".to_owned(),
        num_partitions: partitions as i32,
        replication_factor: 1,
        assignments: Vec::new(),
        configs: configs.iter().map(config).collect(),
    };
    let change =
        CatalogChange::CreateTopics { topics: vec![topic], validate_only: false, automatic: false };
    match front.ask(ShardId(0), Operation::Catalog(change)).await {
        Reply::Catalog(CatalogOutcome::Created(results)) => {
            results[0].as_ref().expect("a topic").id
        }
        other => panic!("creating a topic was answered with {other:?}"),
    }
}
