//! Readers of a simulated broker: of committed records, of all records, of bounds and of committed
//! offsets. What they are told goes to the oracle.
//!
//! Owns the positions of the two consumers of each partition, which outlive the broker's crashes.
//! Aborted records are left out by Kafka's algorithm, which knows nothing but the list that came
//! with them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::protocol::Request;
use ringlog::batch::compression::CompressionTarget;
use ringlog::batch::{BatchBuilder, BatchHeader, HEADER_BYTES, Marker, MarkerKind, Records};
use ringlog::ids::Offset;
use ringlog::metadata::image::CONSUMER_OFFSETS;
use ringlog::sim::checker::{Entry, LogView, RecordId};

use super::clients::{PATIENCE_MS, Surroundings, filled};
use super::oracle::Bounds;
use super::topics::SPARE_PARTITIONS;
use super::{PARTITIONS, SPARE, TOPIC, group_of};
use crate::caller::Caller;
use crate::support::requests::{Topic, fetch, list_offsets, produce};
use crate::support::transactions::offset_fetch;

/// Where the consumers of each partition are.
#[derive(Default)]
pub struct Positions {
    committed: BTreeMap<i32, i64>,
    all: BTreeMap<i32, i64>,
}

/// A reader of some partitions.
pub struct Reader {
    pub around: Surroundings,
    /// Nothing that it asks is lost or doubled.
    pub caller: Caller,
    pub positions: Rc<RefCell<Positions>>,
    /// Transactional ids whose offsets it asks for.
    pub ids: usize,
}

/// A batch as it was read.
struct Batch {
    header: BatchHeader,
    marker: Option<MarkerKind>,
    records: Vec<(Offset, RecordId)>,
}

impl Reader {
    /// Reads on and on in the partitions whose number is `remainder` modulo 2.
    pub async fn run(mut self, remainder: i32) {
        loop {
            let index = remainder + 2 * self.caller.random.index(PARTITIONS as usize / 2) as i32;
            match self.caller.random.below(100) {
                0..35 => {
                    let from = self.positions.borrow().committed.get(&index).copied();
                    let next = self.read_committed(index, from.unwrap_or(0)).await;
                    if let Some(next) = next {
                        self.positions.borrow_mut().committed.insert(index, next);
                    }
                }
                35..55 => {
                    let from = self.positions.borrow().all.get(&index).copied();
                    if let Some(log) = self.read_all(index, from.unwrap_or(0)).await {
                        self.positions.borrow_mut().all.insert(index, log.end.0);
                    }
                }
                55..65 => {
                    self.bound(index, self.caller.random.clone().chance(1, 2)).await;
                }
                65..75 => {
                    let id = self.caller.random.index(self.ids);
                    let stable = self.caller.random.chance(3, 4);
                    self.offset(id, stable).await;
                }
                75..80 => self.write(index).await,
                _ => self.caller.pause(12).await,
            }
        }
    }

    /// Reads committed records from an offset; where to go on.
    pub async fn read_committed(&mut self, index: i32, from: i64) -> Option<i64> {
        let mut request = fetch(12, &Topic::named(TOPIC), index, from).with_isolation_level(1);
        request.max_bytes = 1 + self.caller.random.index(20_000) as i32;
        if self.caller.random.chance(1, 4) {
            request =
                request.with_max_wait_ms(self.caller.random.below(60) as i32).with_min_bytes(1);
        }
        let known = self.around.oracle.borrow().bounds(index);
        let answer = self.ask_leader(12, index, &request).await?;
        let data = &answer.responses[0].partitions[0];
        let batches = self.taken(index, known, data, from)?;
        let Some(last) = batches.last() else {
            if from < data.last_stable_offset {
                let stable = data.last_stable_offset;
                self.violated(format!("nothing to read at {from} of {index}, below {stable}"));
            }
            return Some(from);
        };
        let next = last.header.next_offset().0;
        if next > data.last_stable_offset {
            let stable = data.last_stable_offset;
            self.violated(format!("{next} of {index} was reached, over {stable}"));
        }
        let Some(list) = &data.aborted_transactions else {
            self.violated(format!("no list of aborted transactions at {from} of {index}"));
            return None;
        };
        let aborted = list.iter().map(|aborted| (aborted.producer_id.0, aborted.first_offset));
        let mut got = committed(&batches, aborted.collect());
        got.retain(|(offset, _)| offset.0 >= from);
        self.around.oracle.borrow_mut().delivered(index, from, next, &got);
        Some(next)
    }

    /// Reads all there is from an offset.
    async fn read_all(&mut self, index: i32, from: i64) -> Option<LogView> {
        let request = fetch(12, &Topic::named(TOPIC), index, from);
        let known = self.around.oracle.borrow().bounds(index);
        let answer = self.ask_leader(12, index, &request).await?;
        let data = &answer.responses[0].partitions[0];
        let batches = self.taken(index, known, data, from)?;
        let end = batches.last().map_or(from, |last| last.header.next_offset().0);
        let mut log = LogView { start: Offset(from), end: Offset(end), ..LogView::default() };
        for batch in &batches {
            match batch.marker {
                Some(_) => log.entries.push((batch.header.base_offset, Entry::Control)),
                None => {
                    let records = batch.records.iter();
                    log.entries.extend(records.map(|&(at, record)| (at, Entry::Record(record))));
                }
            }
        }
        let mut oracle = self.around.oracle.borrow_mut();
        let tp = oracle.tp(index);
        for &(offset, entry) in &log.entries {
            if let Err(broken) = oracle.history.read(tp, offset, entry) {
                oracle.violated(broken.to_string());
            }
        }
        Some(log)
    }

    /// The batches of an answer, whose bounds are noted; `None` if it is an error.
    fn taken(
        &self,
        index: i32,
        known: Bounds,
        data: &PartitionData,
        from: i64,
    ) -> Option<Vec<Batch>> {
        self.around.oracle.borrow_mut().counts.reads += 1;
        if data.error_code != 0 {
            if !self.around.may_fail.get() {
                let code = data.error_code;
                self.violated(format!("a read at {from} of {index} is answered {code}"));
            }
            return None;
        }
        let told = Bounds { high_watermark: data.high_watermark, stable: data.last_stable_offset };
        self.around.oracle.borrow_mut().told_bounds(index, known, told);
        match decoded(data.records.as_deref().unwrap_or_default()) {
            Ok(batches) => Some(batches),
            Err(what) => {
                self.violated(format!("{what}, read at {from} of {index}"));
                None
            }
        }
    }

    /// What ListOffsets says of the end.
    pub async fn bound(&mut self, index: i32, committed: bool) -> Option<i64> {
        let isolation = i8::from(committed);
        let request = list_offsets(TOPIC, index, -1).with_isolation_level(isolation);
        let known = self.around.oracle.borrow().bounds(index);
        let answer = self.ask_leader(7, index, &request).await?;
        let partition = &answer.topics[0].partitions[0];
        if partition.error_code != 0 {
            if !self.around.may_fail.get() {
                let code = partition.error_code;
                self.violated(format!("ListOffsets of {index} is answered {code}"));
            }
            return None;
        }
        let told = match committed {
            true => Bounds { high_watermark: -1, stable: partition.offset },
            false => Bounds { high_watermark: partition.offset, stable: -1 },
        };
        self.around.oracle.borrow_mut().told_bounds(index, known, told);
        Some(partition.offset)
    }

    /// The committed offset of a transactional id; the code if it is not told.
    pub async fn offset(&mut self, id: usize, stable: bool) -> Option<Result<i64, i16>> {
        let index = id as i32 % PARTITIONS;
        let request = offset_fetch(&group_of(id), TOPIC, &[index], stable);
        let known = self.around.oracle.borrow().committed_offset(id);
        self.caller.aim_at_keeper(CONSUMER_OFFSETS, &group_of(id));
        let answer = self.ask(8, &request).await?;
        let group = &answer.groups[0];
        let partition = group.topics.first().map(|topic| &topic.partitions[0]);
        let code = partition.map_or(group.error_code, |partition| partition.error_code);
        if code != 0 {
            self.around.oracle.borrow_mut().counts.unstable_offsets += u64::from(code == 88);
            let is_usual = matches!(code, 14..=16) || (code == 88 && stable);
            if !is_usual && !self.around.may_fail.get() {
                self.violated(format!("the offset of id {id} is answered {code}"));
            }
            return Some(Err(code));
        }
        let told = partition.map_or(-1, |partition| partition.committed_offset);
        // Without the wish for stable ones a decided offset may still be on its way.
        let known = if stable { known } else { 0 };
        self.around.oracle.borrow_mut().told_offset(id, known, told.max(0));
        Some(Ok(told))
    }

    /// A batch outside any transaction, sent once.
    async fn write(&mut self, index: i32) {
        let count = 1 + self.caller.random.index(2);
        let (attempt, records) = self.around.oracle.borrow_mut().sending(None, None, index, count);
        let builder = BatchBuilder::new(CompressionTarget::Producer);
        let set = filled(builder, &records, self.caller.runtime.wall_ms(), &mut self.caller.random);
        let request = produce(9, &Topic::named(TOPIC), index, -1, set);
        let Some(answer) = self.ask_leader(9, index, &request).await else { return };
        let partition = &answer.responses[0].partition_responses[0];
        match partition.error_code {
            0 => {
                let base = Offset(partition.base_offset);
                self.around.oracle.borrow_mut().acked(attempt, &records, base);
            }
            _ if self.around.may_fail.get() => {}
            code => self.violated(format!("a plain batch for {index} is refused with {code}")),
        }
    }

    /// Everything, when nothing moves any more: logs by partition, and bounds at their end.
    pub async fn read_everything(&mut self) -> Result<BTreeMap<i32, LogView>, String> {
        let mut logs = BTreeMap::new();
        for index in 0..PARTITIONS {
            let end = self.bound(index, false).await.ok_or("no end")?;
            let stable = self.bound(index, true).await.ok_or("no end")?;
            if stable != end {
                return Err(format!(
                    "the last stable offset of {index} is stuck: {stable} of {end}"
                ));
            }
            let mut log = LogView::default();
            while log.end.0 < end {
                let more = self.read_all(index, log.end.0).await.ok_or("no log")?;
                if more.end == log.end {
                    return Err(format!("nothing to read at {} of {index}, below {end}", log.end));
                }
                log.end = more.end;
                log.entries.extend(more.entries);
            }
            let mut at = 0;
            while at < end {
                let next = self.read_committed(index, at).await.ok_or("no records")?;
                if next == at {
                    return Err(format!("nothing committed at {at} of {index}, below {end}"));
                }
                at = next;
            }
            logs.insert(index, log);
        }
        Ok(logs)
    }

    /// Nothing is left open in the topic that comes and goes, when nothing moves any more.
    pub async fn check_spare(&mut self) -> Result<(), String> {
        for index in 0..SPARE_PARTITIONS {
            self.caller.aim = self.caller.owner(SPARE, index);
            if self.caller.aim.is_none() {
                continue;
            }
            let mut bounds = Vec::new();
            for (timestamp, isolation) in [(-1, 0), (-1, 1), (-2, 0)] {
                let request = list_offsets(SPARE, index, timestamp);
                let answer = self.ask(7, &request.with_isolation_level(isolation)).await;
                let answer = answer.ok_or("no bound")?;
                let partition = &answer.topics[0].partitions[0];
                bounds.push((partition.error_code, partition.offset));
            }
            if bounds[0] != bounds[1] || bounds[0].0 != 0 {
                return Err(format!("something is open in {index} of {SPARE}: {bounds:?}"));
            }
            self.around.oracle.borrow_mut().counts.forgotten += u64::from(bounds[2].1 > 0);
        }
        Ok(())
    }

    async fn ask<R: Request>(&mut self, version: i16, request: &R) -> Option<R::Response> {
        self.caller.ask(version, request, PATIENCE_MS).await
    }

    /// Asks the node that has a partition.
    async fn ask_leader<R: Request>(
        &mut self,
        version: i16,
        index: i32,
        request: &R,
    ) -> Option<R::Response> {
        self.caller.aim = self.caller.owner(TOPIC, index);
        self.ask(version, request).await
    }

    fn violated(&self, what: String) {
        self.around.oracle.borrow_mut().violated(what);
    }
}

fn decoded(bytes: &[u8]) -> Result<Vec<Batch>, String> {
    let mut batches = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let header = BatchHeader::read_verified(rest).map_err(|fault| format!("{fault:?}"))?;
        let (batch, after) = rest.split_at(header.total_bytes());
        let body = &batch[HEADER_BYTES..];
        let mut records = Vec::new();
        let marker = match header.is_control() {
            true => Marker::read(&header, body).map_err(|fault| format!("{fault:?}"))?,
            false => None,
        };
        if !header.is_control() {
            for record in Records::new(body, header.record_count) {
                let record = record.map_err(|fault| format!("a record: {fault}"))?;
                let value = record.value.unwrap_or_default();
                let id = value.first_chunk::<8>().ok_or("a record without an id")?;
                let offset = header.record_offset(record.offset_delta);
                records.push((offset, RecordId(u64::from_be_bytes(*id))));
            }
        }
        batches.push(Batch { header, marker: marker.map(|marker| marker.kind), records });
        rest = after;
    }
    Ok(batches)
}

/// What a consumer of committed records hands on.
fn committed(batches: &[Batch], mut aborted: Vec<(i64, i64)>) -> Vec<(Offset, RecordId)> {
    aborted.sort_by_key(|(_, first)| *first);
    let mut aborted = aborted.into_iter().peekable();
    let mut skipped: Vec<i64> = Vec::new();
    let mut got = Vec::new();
    for Batch { header, marker, records } in batches {
        let last = header.last_offset().0;
        while let Some((producer, _)) = aborted.next_if(|(_, first)| *first <= last) {
            skipped.push(producer);
        }
        let producer = header.producer_id.0;
        match marker {
            Some(MarkerKind::Abort) => skipped.retain(|other| *other != producer),
            Some(MarkerKind::Commit) => {}
            None if header.is_transactional() && skipped.contains(&producer) => {}
            None => got.extend_from_slice(records),
        }
    }
    got
}
