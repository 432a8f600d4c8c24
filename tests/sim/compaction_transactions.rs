//! Lives of a compacted topic that is written in transactions, beside plain records: passes keep
//! exactly the model's set, over crashes in the middle of anything and failing operations.
//!
//! There is no coordinator: clients verify, append and write markers themselves, and wait for each
//! answer. A transaction that a crash leaves open is aborted before the next clients begin; whether
//! one ended whose marker was not answered is seen from what is open then. The model is the list of
//! what was committed, by offset. At rest the part that passes have been through holds, of every
//! key, the newest committed record below its end and nothing else; newest tombstones may stay.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ringlog::batch::{
    BatchBuilder, BatchHeader, Compression, CompressionTarget, HEADER_BYTES, Marker, MarkerKind,
    ValidBatch,
};
use ringlog::error_code::ErrorCode;
use ringlog::ids::{Offset, ProducerEpoch, ProducerId, TopicPartition};
use ringlog::log::ProducerFacts;
use ringlog::log::verification::Verification;
use ringlog::shard::message::{AppendPart, MarkerPart, Operation, Reply, VerifyPart};
use ringlog::shard::partition::Partition;
use ringlog::shard::{Shard, checkpoint};
use ringlog::sim::Random;

use crate::compaction::{KEYS, Kind, Place, READ_BYTES, Record, SEEDS, life, take_records, valid};
use crate::machine::Cluster;
use crate::scenario::Machine;
use crate::{oracle, run_seeds};

#[test]
fn compaction_keeps_what_was_committed() {
    let counts =
        run_seeds("compaction_keeps_what_was_committed", SEEDS, |seed| life::<Known>(seed, false));
    assert!(counts.passes > 0 && counts.crashes > 0, "{counts:?}");
}

#[test]
fn compaction_keeps_what_was_committed_on_a_failing_disk() {
    let name = "compaction_keeps_what_was_committed_on_a_failing_disk";
    let counts = run_seeds(name, SEEDS, |seed| life::<Known>(seed, true));
    assert!(counts.passes > 0 && counts.faulty_boots > 0, "{counts:?}");
}

/// Records by their offsets.
type Log = BTreeMap<Offset, Record>;

/// What clients know.
#[derive(Default)]
struct Known {
    /// What was committed, or written without a transaction and acknowledged.
    committed: Log,
    /// Plain records that were sent and not answered.
    unanswered: Vec<Record>,
    writers: [Writer; WRITERS],
    next_value: u64,
    violation: Option<String>,
    commits: u64,
    aborts: u64,
}

/// A producer with transactions, as it knows itself.
#[derive(Default)]
struct Writer {
    epoch: i16,
    next_sequence: i32,
    /// What was acknowledged in the open transaction.
    open: Log,
    /// It may be open: something was sent in it.
    began: bool,
    /// Its end was asked for.
    ending: Option<MarkerKind>,
}

impl Known {
    /// Holds what a reader of committed records finds against the model; learns of plain records
    /// whose answer a crash has taken.
    fn check(&mut self, found: &Log) -> Result<(), String> {
        for (offset, record) in found {
            match self.committed.get(offset) {
                Some(committed) if committed == record => {}
                None if self.unanswered.contains(record) => {
                    self.committed.insert(*offset, *record);
                }
                other => {
                    return Err(format!("{record:?} is shown at {offset}, known is {other:?}"));
                }
            }
        }
        for key in 0..KEYS {
            let of_key = |(_, record): &(&Offset, &Record)| record.0 == key;
            let Some((at, newest)) = self.committed.iter().rfind(of_key) else { continue };
            match found.iter().rfind(of_key) {
                Some((shown_at, _)) if shown_at == at => {}
                None if newest.1.is_none() => {}
                other => {
                    return Err(format!("{newest:?} was committed at {at}, shown is {other:?}"));
                }
            }
        }
        Ok(())
    }

    /// Exactly what passes must have left below `end`.
    fn check_cleaned(&self, stored: &Log, end: Offset) -> Result<(), String> {
        let below =
            |log: &Log| log.range(..end).map(|(at, record)| (*at, *record)).collect::<Log>();
        let stored = below(stored);
        let mut newest: BTreeMap<u8, (Offset, Record)> = BTreeMap::new();
        for (offset, record) in below(&self.committed) {
            newest.insert(record.0, (offset, record));
        }
        let wanted: Log = newest.into_values().collect();
        for (offset, record) in &stored {
            if wanted.get(offset) != Some(record) {
                return Err(format!("{record:?} is left at {offset}, below {end}: {wanted:?}"));
            }
        }
        let lost =
            wanted.iter().find(|(at, record)| record.1.is_some() && !stored.contains_key(at));
        match lost {
            Some((at, record)) => Err(format!("{record:?} at {at} is gone, below {end}")),
            None => Ok(()),
        }
    }
}

impl Kind for Known {
    fn start(machine: &mut Machine, place: &Place<Known>, may_fail: &Rc<Cell<bool>>) {
        for writer in 0..=WRITERS {
            let (may_fail, random) = (Rc::clone(may_fail), machine.random.fork());
            let client = Client { place: place.clone(), may_fail, random, writer };
            place.cluster.shards[0].runtime.spawn(Box::pin(client.run()));
        }
    }

    /// Ends what is open, and checks what readers are shown.
    fn check(machine: &Machine, place: &Place<Known>) -> Result<(), String> {
        let resolved = machine.world.run_until(resolve(place));
        resolved.map_err(|stalled| stalled.to_string())??;
        let read = machine.world.run_until(read_all(&place.cluster, place.tp, true));
        let found = read.map_err(|stalled| stalled.to_string())??;
        place.known.borrow_mut().check(&found)
    }

    /// Writes until everything from before is below an active segment and has been through a pass;
    /// then passes come to rest, and what they have left is what the model says.
    async fn settle(place: &Place<Known>, random: Random) -> Result<(), String> {
        let may_fail = Rc::default();
        let mut client = Client { place: place.clone(), may_fail, random, writer: WRITERS };
        let Place { cluster, known, tp } = place;
        let before = known.borrow().committed.last_key_value().map_or(Offset(0), |(last, _)| *last);
        let (shard, partition) = owner(cluster, *tp)?;
        for _ in 0..100 {
            for _ in 0..10 {
                client.plain().await?;
            }
            checkpoint::take(shard, false).await.map_err(|error| error.to_string())?;
            let cleaned = rest(shard, &partition).await;
            // How short the log gets is not asked: markers stay for `delete.retention.ms`.
            if cleaned.is_some_and(|cleaned| cleaned > before) {
                let stored = read_all(cluster, *tp, false).await?;
                let shown = read_all(cluster, *tp, true).await?;
                known.borrow_mut().check(&shown)?;
                return known.borrow().check_cleaned(&stored, cleaned.unwrap_or_default());
            }
        }
        Err(format!("{before} does not come to be cleaned: {:?}", shard.cleaner.cleaned_end(*tp)))
    }

    fn violation(&self) -> Option<String> {
        self.violation.clone()
    }

    fn acked(&self) -> u64 {
        self.committed.len() as u64
    }
}

/// Learns which transactions have ended, and aborts the others in a new epoch.
async fn resolve(place: &Place<Known>) -> Result<(), String> {
    let Place { cluster, known, tp } = place;
    for place in 0..WRITERS {
        let is_open = {
            let (shard, partition) = owner(cluster, *tp)?;
            let log = partition.log.borrow();
            let entry = log.producers().get(id_of(place), shard.runtime.wall_ms());
            entry.is_some_and(|entry| entry.open_transaction_first_offset.is_some())
        };
        {
            let mut known = known.borrow_mut();
            let writer = &mut known.writers[place];
            let records = std::mem::take(&mut writer.open);
            let ending = writer.ending.take();
            if !is_open && ending.is_none() && !records.is_empty() {
                return Err(format!("the open transaction of {place} is gone: {records:?}"));
            }
            if !is_open && ending == Some(MarkerKind::Commit) {
                known.committed.extend(records);
            }
        }
        if is_open {
            known.borrow_mut().writers[place].epoch += 1;
            let code = mark(cluster, known, *tp, place, MarkerKind::Abort).await?;
            if code != ErrorCode::None {
                return Err(format!("the transaction of {place} cannot be aborted: {code:?}"));
            }
            known.borrow_mut().aborts += 1;
        }
        // What is not known of the last batch is not known of its sequence.
        let mut known = known.borrow_mut();
        let writer = &mut known.writers[place];
        if std::mem::take(&mut writer.began) {
            (writer.epoch, writer.next_sequence) = (writer.epoch + 1, 0);
        }
    }
    Ok(())
}

fn owner(cluster: &Cluster, tp: TopicPartition) -> Result<(&Rc<Shard>, Rc<Partition>), String> {
    let owner = cluster.shards[0].owner(tp).ok_or("nobody owns it")?;
    let shard = &cluster.shards[usize::from(owner.0)];
    Ok((shard, shard.partition(tp).ok_or("it is gone")?))
}

fn id_of(place: usize) -> ProducerId {
    ProducerId(100 + place as i64)
}

/// Writes a marker in the writer's epoch.
async fn mark(
    cluster: &Rc<Cluster>,
    known: &Rc<RefCell<Known>>,
    tp: TopicPartition,
    place: usize,
    kind: MarkerKind,
) -> Result<ErrorCode, String> {
    let part = MarkerPart {
        partition: tp,
        kind,
        producer_id: id_of(place),
        producer_epoch: ProducerEpoch(known.borrow().writers[place].epoch),
        coordinator_epoch: 0,
        transaction_version: 0,
    };
    let front = &cluster.shards[0];
    let owner = front.owner(tp).ok_or("nobody owns it")?;
    match front.ask(owner, Operation::WriteMarkers(vec![part])).await {
        Reply::Markers(codes) if codes.len() == 1 => Ok(codes[0]),
        other => Err(format!("a marker was answered with {other:?}")),
    }
}

/// Everything in the log: as a reader of committed records sees it, or all that is stored.
async fn read_all(
    cluster: &Cluster,
    tp: TopicPartition,
    committed_only: bool,
) -> Result<Log, String> {
    let mut log = Log::new();
    let mut next = Offset(0);
    loop {
        let front = &cluster.shards[0];
        let outcome = oracle::read_of(front, tp, next, READ_BYTES, committed_only).await?;
        if outcome.error != ErrorCode::None {
            return Err(format!("a read at {next} answers {:?}", outcome.error));
        }
        if outcome.records.is_empty() {
            // Nothing is open when this is asked.
            let all = next == outcome.high_watermark && next == outcome.last_stable_offset;
            let ends = (outcome.high_watermark, outcome.last_stable_offset);
            return if all { Ok(log) } else { Err(format!("nothing to read at {next}: {ends:?}")) };
        }
        let mut aborted = outcome.aborted.clone().unwrap_or_default();
        let records = Bytes::from(outcome.records.concat());
        next = take_batches(records, &mut aborted, next, &mut log)?;
    }
}

/// Takes the records that a client hands on, by Kafka's algorithm; the offset after the last batch.
fn take_batches(
    mut rest: Bytes,
    aborted: &mut Vec<(ProducerId, Offset)>,
    mut next: Offset,
    log: &mut Log,
) -> Result<Offset, String> {
    aborted.sort_by_key(|(_, first)| *first);
    let mut skipped: Vec<ProducerId> = Vec::new();
    while !rest.is_empty() {
        let header = BatchHeader::read_verified(&rest).map_err(|fault| fault.to_string())?;
        let batch = rest.split_to(header.total_bytes());
        if header.next_offset() <= next {
            return Err(format!("a read at {next} returns {}", header.last_offset()));
        }
        next = header.next_offset();
        while aborted.first().is_some_and(|(_, first)| *first <= header.last_offset()) {
            skipped.push(aborted.remove(0).0);
        }
        if header.is_control() {
            let marker = match header.record_count {
                0 => None,
                _ => Marker::read(&header, &batch[HEADER_BYTES..]).map_err(|f| f.to_string())?,
            };
            if marker.is_some_and(|marker| marker.kind == MarkerKind::Abort) {
                skipped.retain(|id| *id != header.producer_id);
            }
            continue;
        }
        if header.is_transactional() && skipped.contains(&header.producer_id) {
            continue;
        }
        take_records(&header, &batch, log)?;
    }
    Ok(next)
}

/// Waits until no pass runs or begins any more; where the last one ended.
async fn rest(shard: &Rc<Shard>, partition: &Partition) -> Option<Offset> {
    loop {
        let passes = shard.cleaner.metrics.passes.get();
        let due = shard.runtime.now().plus_ms(100);
        shard.runtime.sleep_until(due).await;
        if shard.cleaner.metrics.passes.get() == passes && !partition.cleaning.get() {
            return shard.cleaner.cleaned_end(partition.id);
        }
    }
}

/// Writes one thing after the other: in transactions, or plain records as the last one does.
struct Client {
    place: Place<Known>,
    may_fail: Rc<Cell<bool>>,
    random: Random,
    writer: usize,
}

impl Client {
    async fn run(mut self) {
        while !self.place.cluster.shards[0].is_stopping() {
            let done = match self.writer {
                WRITERS => self.plain().await.map(|()| true),
                _ => self.transaction().await,
            };
            match done {
                Ok(true) => {}
                Ok(false) => return,
                Err(what) => {
                    self.place.known.borrow_mut().violation.get_or_insert(what);
                    return;
                }
            }
            if self.random.chance(1, 3) {
                let runtime = &self.place.cluster.shards[0].runtime;
                let due = runtime.now().plus_ms(self.random.below(4));
                runtime.sleep_until(due).await;
            }
        }
    }

    /// Whether refusals are to be expected: by a disk that fails, or a stop.
    fn is_refused(&self) -> bool {
        self.may_fail.get() || self.place.cluster.shards[0].is_stopping()
    }

    /// One batch of values without a transaction.
    async fn plain(&mut self) -> Result<(), String> {
        let records = self.records(false);
        self.place.known.borrow_mut().unanswered.extend_from_slice(&records);
        let batch = self.batch(None, &records)?;
        let part = AppendPart { partition: self.place.tp, batch, guard: None };
        if let Some(base) = self.append(part).await? {
            let mut known = self.place.known.borrow_mut();
            known.unanswered.retain(|record| !records.contains(record));
            known.committed.extend(placed(base, &records));
        }
        Ok(())
    }

    /// One transaction from its first batch to its marker; `false` if the disk or a stop is in the
    /// way: what became of it is seen at the next boot.
    async fn transaction(&mut self) -> Result<bool, String> {
        let place = self.writer;
        for _ in 0..1 + self.random.below(4) {
            let records = self.records(true);
            let (epoch, sequence) = {
                let mut known = self.place.known.borrow_mut();
                let writer = &mut known.writers[place];
                writer.began = true;
                (writer.epoch, writer.next_sequence)
            };
            let producer = ProducerFacts {
                id: id_of(place),
                epoch: ProducerEpoch(epoch),
                base_sequence: sequence,
            };
            let Some(guard) = self.verify(producer).await? else { return Ok(false) };
            let batch = self.batch(Some(producer), &records)?;
            let guard = match guard {
                Verification::NotNeeded => None,
                Verification::Guard(guard) => Some(guard),
            };
            let part = AppendPart { partition: self.place.tp, batch, guard };
            let Some(base) = self.append(part).await? else { return Ok(false) };
            let mut known = self.place.known.borrow_mut();
            let writer = &mut known.writers[place];
            writer.next_sequence += records.len() as i32;
            writer.open.extend(placed(base, &records));
        }
        let commit = self.random.chance(2, 3);
        let kind = if commit { MarkerKind::Commit } else { MarkerKind::Abort };
        self.place.known.borrow_mut().writers[place].ending = Some(kind);
        let code = mark(&self.place.cluster, &self.place.known, self.place.tp, place, kind).await?;
        if code != ErrorCode::None {
            let refused = format!("a marker was refused: {code:?}");
            return if self.is_refused() { Ok(false) } else { Err(refused) };
        }
        let mut known = self.place.known.borrow_mut();
        let writer = &mut known.writers[place];
        (writer.ending, writer.began) = (None, false);
        let records = std::mem::take(&mut writer.open);
        if commit {
            known.committed.extend(records);
            known.commits += 1;
        } else {
            known.aborts += 1;
        }
        Ok(true)
    }

    async fn verify(&mut self, producer: ProducerFacts) -> Result<Option<Verification>, String> {
        let front = Rc::clone(&self.place.cluster.shards[0]);
        let owner = front.owner(self.place.tp).ok_or("nobody owns it")?;
        let part = VerifyPart { partition: self.place.tp, producer, strict: false };
        match front.ask(owner, Operation::Verify(vec![part])).await {
            Reply::Verified(mut outcomes) if outcomes.len() == 1 => match outcomes.remove(0) {
                Ok(verification) => Ok(Some(verification)),
                Err(_) if self.is_refused() => Ok(None),
                Err(code) => Err(format!("a verification was refused: {code:?}")),
            },
            other => Err(format!("a verification was answered with {other:?}")),
        }
    }

    /// The base offset, or `None` if it is refused and may be.
    async fn append(&mut self, part: AppendPart) -> Result<Option<Offset>, String> {
        let front = Rc::clone(&self.place.cluster.shards[0]);
        let owner = front.owner(self.place.tp).ok_or("nobody owns it")?;
        match front.ask(owner, Operation::Append(vec![part])).await {
            Reply::Appended(outcomes) => match &outcomes[..] {
                [Ok(appended)] => Ok(Some(appended.base_offset)),
                [Err(_)] if self.is_refused() => Ok(None),
                other => Err(format!("an append was answered with {other:?}")),
            },
            other => Err(format!("an append was answered with {other:?}")),
        }
    }

    fn records(&mut self, with_tombstones: bool) -> Vec<Record> {
        let mut known = self.place.known.borrow_mut();
        let random = &mut self.random;
        let count = 1 + random.below(6);
        let records = (0..count).map(|_| {
            known.next_value += 1;
            let is_tombstone = with_tombstones && random.chance(1, 5);
            let value = known.next_value;
            (random.below(u64::from(KEYS)) as u8, (!is_tombstone).then_some(value))
        });
        records.collect()
    }

    fn batch(
        &mut self,
        producer: Option<ProducerFacts>,
        records: &[Record],
    ) -> Result<ValidBatch, String> {
        let front = &self.place.cluster.shards[0];
        let topic = front.catalog().topic_by_id(self.place.tp.topic).map(Arc::clone);
        let topic = topic.ok_or("the topic is gone")?;
        let codec = Compression::from_id(self.random.below(5) as u8).expect("a codec");
        let mut builder = BatchBuilder::new(CompressionTarget::of(codec));
        if let Some(ProducerFacts { id, epoch, base_sequence }) = producer {
            builder = builder.producer(id, epoch, base_sequence).transactional();
        }
        valid(builder, records, &topic.config, front.runtime.wall_ms(), &mut self.random)
    }
}

/// Records at the offsets that they were given.
fn placed(base: Offset, records: &[Record]) -> impl Iterator<Item = (Offset, Record)> {
    (0..).map(move |place| base.plus(place)).zip(records.iter().copied())
}

/// Producers with transactions; one more writes plain records.
const WRITERS: usize = 2;
