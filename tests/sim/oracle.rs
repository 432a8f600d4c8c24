//! What the outside world was told, over all crashes of one seed, and whether it still holds.
//!
//! Owns the history of records and of topics. Topics: an acknowledged creation stays, with its id;
//! an acknowledged deletion stays; what was asked for and not answered may be either. A topic
//! created again under a name is another topic, and starts empty: its records are its own.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use ringlog::error_code::ErrorCode;
use ringlog::ids::{LeaderEpoch, Offset, PartitionIndex, ShardId, TopicId, TopicPartition};
use ringlog::metadata::image::Topic;
use ringlog::shard::Shard;
use ringlog::shard::message::{OffsetQuery, Operation, ReadOutcome, ReadPart, ReadParts, Reply};
use ringlog::shard::offsets::EARLIEST;
use ringlog::sim::Recorder;
use ringlog::sim::checker::{AttemptId, History, LogView, RecordId, Session};

use crate::batches;
use crate::machine::Cluster;
use crate::starts::{self, Starts};

/// How far a topic is, as far as clients know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopicState {
    Created,
    /// A deletion was asked for and not answered.
    Deleting,
    Deleted,
}

/// A topic that clients have seen.
#[derive(Clone, Debug)]
pub struct KnownTopic {
    pub name: String,
    pub partitions: i32,
    pub state: TopicState,
}

/// A recorded run: what clients knew at each mark of its trace.
pub struct Recording {
    pub recorder: Recorder,
    pub known: RefCell<Vec<Oracle>>,
}

/// Everything that clients know.
#[derive(Clone, Default)]
pub struct Oracle {
    pub recording: Option<Rc<Recording>>,
    pub history: History,
    pub topics: BTreeMap<TopicId, KnownTopic>,
    /// Creations asked for and not answered, by name.
    creating: BTreeMap<String, u32>,
    producer_ids: BTreeSet<i64>,
    /// Acknowledged end of each partition, at least.
    ends: BTreeMap<TopicPartition, Offset>,
    /// Where logs start.
    pub starts: Starts,
    next_record: u64,
    epoch: LeaderEpoch,
    violation: Option<String>,
    /// Acknowledged batches.
    pub acked: u64,
    /// Where topics were in which boot, by name.
    homes: BTreeMap<String, (LeaderEpoch, ShardId)>,
    /// Topics created again on another shard.
    pub moved: u64,
}

impl Oracle {
    /// Notes the first thing that went wrong.
    pub fn violated(&mut self, what: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(what.into());
        }
    }

    /// What went wrong, if anything has.
    pub fn check(&self) -> Result<(), String> {
        match &self.violation {
            Some(what) => Err(what.clone()),
            None => Ok(()),
        }
    }

    /// Marks in the trace, if there is one, that clients know something more from here on.
    pub fn told(&self) {
        if let Some(recording) = &self.recording {
            let mut known = recording.known.borrow_mut();
            recording.recorder.mark("told", "clients", known.len() as i64);
            known.push(Oracle { recording: None, ..self.clone() });
        }
    }

    /// Notes a batch about to be sent.
    pub fn attempt(
        &mut self,
        tp: TopicPartition,
        session: Option<Session>,
        records: Vec<RecordId>,
    ) -> AttemptId {
        let attempt = self.history.attempt(tp, session, records);
        self.told();
        attempt
    }

    /// New record ids.
    pub fn records(&mut self, count: usize) -> Vec<RecordId> {
        let first = self.next_record;
        self.next_record += count as u64;
        (first..self.next_record).map(RecordId).collect()
    }

    /// Notes an acknowledged append.
    pub fn acked(&mut self, tp: TopicPartition, attempt: AttemptId, base: Offset, count: usize) {
        self.acked += 1;
        if let Err(broken) = self.history.acked(attempt, base) {
            self.violated(broken.to_string());
        }
        let end = self.ends.entry(tp).or_default();
        *end = (*end).max(base.plus(count as i64));
        self.told();
    }

    /// Acknowledged end of a partition, at least.
    pub fn end(&self, tp: TopicPartition) -> Offset {
        self.ends.get(&tp).copied().unwrap_or_default()
    }

    /// Notes a producer id handed out.
    pub fn producer_id(&mut self, id: i64) {
        if !self.producer_ids.insert(id) {
            self.violated(format!("producer id {id} was handed out twice"));
        }
    }

    /// Notes a creation about to be asked for.
    pub fn creating(&mut self, name: &str) {
        *self.creating.entry(name.to_owned()).or_default() += 1;
        self.told();
    }

    /// Notes that a creation was answered.
    pub fn created(&mut self, name: &str, created: Option<(TopicId, i32)>) {
        if let Some(count) = self.creating.get_mut(name) {
            *count -= 1;
        }
        if let Some((id, partitions)) = created {
            let state = TopicState::Created;
            let topic = KnownTopic { name: name.to_owned(), partitions, state };
            if self.topics.insert(id, topic).is_some() {
                self.violated(format!("topic id {id} was given twice"));
            }
        }
        self.told();
    }

    /// Notes where a topic is that was created.
    pub fn at_home(&mut self, name: &str, home: ShardId) {
        let before = self.homes.insert(name.to_owned(), (self.epoch, home));
        self.moved +=
            u64::from(before.is_some_and(|(epoch, old)| epoch == self.epoch && old != home));
    }

    /// Notes what became of a deletion.
    pub fn deleted(&mut self, id: TopicId) {
        if let Some(topic) = self.topics.get_mut(&id) {
            topic.state = TopicState::Deleted;
        }
        self.told();
    }

    /// Notes a deletion about to be asked for.
    pub fn deleting(&mut self, id: TopicId) {
        if let Some(topic) = self.topics.get_mut(&id)
            && topic.state == TopicState::Created
        {
            topic.state = TopicState::Deleting;
        }
        self.told();
    }

    /// State of a topic; one that nobody knows counts as deleted.
    pub fn state(&self, id: TopicId) -> TopicState {
        self.topics.get(&id).map_or(TopicState::Deleted, |topic| topic.state)
    }

    /// Partitions of deleted topics.
    pub fn unusable(&self) -> Vec<TopicPartition> {
        let gone = self.topics.iter().filter(|(_, topic)| topic.state == TopicState::Deleted);
        gone.map(|(&id, _)| partition(id, 0)).collect()
    }

    /// Partitions that may be used.
    pub fn usable(&self) -> Vec<TopicPartition> {
        let live = self.topics.iter().filter(|(_, topic)| topic.state == TopicState::Created);
        live.flat_map(|(&id, topic)| (0..topic.partitions).map(move |index| partition(id, index)))
            .collect()
    }

    /// Takes over the catalog of a new boot: what was not answered is decided now.
    fn check_catalog(&mut self, topics: &[Arc<Topic>]) -> Result<(), String> {
        let present: BTreeSet<TopicId> = topics.iter().map(|topic| topic.id).collect();
        for (id, known) in &mut self.topics {
            match (known.state, present.contains(id)) {
                (TopicState::Created, false) => {
                    return Err(format!("topic {} ({id}), created, is gone", known.name));
                }
                (TopicState::Deleted, true) => {
                    return Err(format!("topic {} ({id}), deleted, is back", known.name));
                }
                (TopicState::Deleting, true) => known.state = TopicState::Created,
                (TopicState::Deleting, false) => known.state = TopicState::Deleted,
                _ => {}
            }
        }
        for topic in topics {
            if self.topics.contains_key(&topic.id) {
                continue;
            }
            let asked = self.creating.get(&*topic.name).copied().unwrap_or(0);
            if asked == 0 {
                return Err(format!("topic {} ({}) was never asked for", topic.name, topic.id));
            }
            let (name, partitions) = (topic.name.to_string(), topic.partition_count());
            let state = TopicState::Created;
            self.topics.insert(topic.id, KnownTopic { name, partitions, state });
        }
        self.creating.clear();
        Ok(())
    }

    fn check_epoch(&mut self, epoch: LeaderEpoch) -> Result<(), String> {
        if epoch <= self.epoch {
            return Err(format!("leader epoch {epoch} follows {}", self.epoch));
        }
        self.epoch = epoch;
        Ok(())
    }
}

/// One partition of a topic.
pub fn partition(topic: TopicId, index: i32) -> TopicPartition {
    TopicPartition { topic, partition: PartitionIndex(index) }
}

/// Checks a new boot against everything known: catalog, epoch, and every record of every log.
pub async fn verify(cluster: &Cluster, oracle: &RefCell<Oracle>) -> Result<(), String> {
    oracle.borrow().check()?;
    let topics: Vec<Arc<Topic>> = cluster.shards[0].catalog().topics().cloned().collect();
    oracle.borrow_mut().check_epoch(cluster.epoch())?;
    oracle.borrow_mut().check_catalog(&topics)?;
    oracle.borrow().told();
    verify_records(cluster, oracle).await
}

/// Checks every record of every log.
pub async fn verify_records(cluster: &Cluster, oracle: &RefCell<Oracle>) -> Result<(), String> {
    let topics: Vec<Arc<Topic>> = cluster.shards[0].catalog().topics().cloned().collect();
    for topic in &topics {
        for index in 0..topic.partition_count() {
            let tp = partition(topic.id, index);
            let before = oracle.borrow().starts.known(tp);
            let log = read_all(&cluster.shards, tp, cluster.epoch()).await;
            let log = log.map_err(|what| format!("{}-{index} ({tp:?}): {what}", topic.name))?;
            let retains = starts::retains(&cluster.shards[0], tp);
            oracle.borrow_mut().starts.told(tp, log.start, before, retains)?;
            let oracle = oracle.borrow();
            let verified = oracle.history.verify(tp, &log);
            verified.map_err(|broken| format!("{}: {broken}", topic.name))?;
        }
    }
    Ok(())
}

/// Reads a whole log through the shard that owns it.
pub async fn read_all(
    shards: &[Rc<Shard>],
    tp: TopicPartition,
    epoch: LeaderEpoch,
) -> Result<LogView, String> {
    let mut log = LogView::default();
    let mut last_epoch = LeaderEpoch(-1);
    loop {
        let outcome = read(&shards[0], tp, log.end, READ_BYTES).await?;
        if outcome.error == ErrorCode::OffsetOutOfRange {
            // Retention goes on meanwhile: what was read so far is deleted, or there was none.
            let start = log_start(shards, tp).await?;
            if start <= log.end {
                return Err(format!(
                    "offset {} is out of range, the log starts at {start}",
                    log.end
                ));
            }
            log = LogView { start, end: start, ..LogView::default() };
            continue;
        }
        if outcome.error != ErrorCode::None {
            return Err(format!("a read at {} answers {:?}", log.end, outcome.error));
        }
        if outcome.records.is_empty() {
            if outcome.high_watermark != log.end {
                return Err(format!(
                    "nothing to read at {}, below the high watermark {}",
                    log.end, outcome.high_watermark
                ));
            }
            log.start = outcome.log_start;
            let start = log.start;
            log.entries.retain(|(offset, _)| *offset >= start);
            return Ok(log);
        }
        let decoded = batches::decode(&outcome.records.concat())?;
        for (offset, of_batch) in &decoded.epochs {
            if *of_batch < last_epoch || *of_batch > epoch {
                return Err(format!("epoch {of_batch} at {offset} follows {last_epoch}"));
            }
            last_epoch = *of_batch;
        }
        log.end = decoded.end.unwrap_or(log.end);
        log.entries.extend(decoded.entries);
    }
}

/// Where a log starts, by the shard that owns it.
async fn log_start(shards: &[Rc<Shard>], tp: TopicPartition) -> Result<Offset, String> {
    let owner = shards[0].owner(tp).ok_or("the partition is gone")?;
    let query = OffsetQuery {
        partition: tp,
        timestamp: EARLIEST,
        leader_epoch: -1,
        committed_only: false,
        to_log_end: false,
        version: 1,
    };
    match shards[0].ask(owner, Operation::ListOffsets(vec![query])).await {
        Reply::Offsets(answers) if answers[0].error == ErrorCode::None => Ok(answers[0].offset),
        other => Err(format!("the log start was answered with {other:?}")),
    }
}

/// One read by the shard that owns the partition.
pub async fn read(
    front: &Rc<Shard>,
    tp: TopicPartition,
    offset: Offset,
    bytes_max: usize,
) -> Result<ReadOutcome, String> {
    read_of(front, tp, offset, bytes_max, false).await
}

/// The same, of committed records only if wanted.
pub async fn read_of(
    front: &Rc<Shard>,
    tp: TopicPartition,
    offset: Offset,
    bytes_max: usize,
    committed_only: bool,
) -> Result<ReadOutcome, String> {
    let Some(owner) = front.owner(tp) else {
        return Ok(ReadOutcome::failed(ErrorCode::UnknownTopicOrPartition));
    };
    let part = ReadPart {
        partition: tp,
        offset,
        bytes_max,
        leader_epoch: -1,
        last_fetched_epoch: -1,
        committed_only,
    };
    let parts = ReadParts { parts: vec![part], bytes_max, at_least_one: true };
    match front.ask(owner, Operation::Read(parts)).await {
        Reply::Read(mut outcomes) if outcomes.len() == 1 => Ok(outcomes.remove(0)),
        other => Err(format!("a read was answered with {other:?}")),
    }
}

/// Notes what a read returned; every record is durable.
pub fn note_read(
    oracle: &mut Oracle,
    tp: TopicPartition,
    offset: Offset,
    outcome: &ReadOutcome,
) -> Result<(), String> {
    let decoded = batches::decode(&outcome.records.concat())?;
    let mut expected = None;
    for (at, entry) in decoded.entries {
        if expected.is_some_and(|expected| expected != at) {
            return Err(format!("a read of {tp:?} jumps to {at}"));
        }
        expected = Some(at.plus(1));
        if at >= outcome.high_watermark {
            return Err(format!("offset {at} was read above {}", outcome.high_watermark));
        }
        if at >= offset {
            oracle.history.read(tp, at, entry).map_err(|broken| broken.to_string())?;
        }
    }
    if outcome.records.is_empty() && offset < outcome.high_watermark {
        return Err(format!("nothing was read at {offset}, below {}", outcome.high_watermark));
    }
    Ok(())
}

const READ_BYTES: usize = 300 * 1024;
