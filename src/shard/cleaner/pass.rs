//! One pass over a partition: notes the keys of its dirty part, then makes cleaned segments of all
//! segments from the log's start on.
//!
//! Owns the reading of sources, batch by batch, each checked by its checksum, and the pauses
//! between slices. Reads past the read cache, which is for readers. Gives way: one small read or
//! write at a time, and none while a commit of the journal is on its way. Must stop at the next
//! batch when the shard stops or the partition goes.

use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;

use super::segment::CleanedSegment;
use super::{Stop, swap};
use crate::batch::{
    BatchHeader, Compression, HEADER_BYTES, Inflating, Rewrite, RewriteRules, Rewritten,
};
use crate::ids::Offset;
use crate::io::{File, OpenMode};
use crate::limits::{CLEANER_PIECE_BYTES, CLEANER_SLICE_BYTES};
use crate::log::cleaner::candidate::{Candidate, GroupLimits, SegmentFacts, group};
use crate::log::cleaner::filter::{Filter, KeyBatch, KeyPass, Verdict};
use crate::log::cleaner::offset_map::{ENTRY_BYTES, OffsetMap};
use crate::log::layout::SegmentFile;
use crate::shard::partition::Partition;
use crate::shard::{Shard, read, write_behind};
use crate::tools::batches::{Batches, Piece};

/// A segment that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub base: Offset,
    /// Base of the one after it.
    pub next: Offset,
    pub bytes: u64,
}

/// Cleans as far as the map goes; returns where that is.
pub(super) async fn run(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    candidate: &Candidate,
) -> Result<Offset, Stop> {
    let mut pace = Pace { shard, partition, bytes: 0, unwaited_bytes: 0 };
    let sources = sources(partition, candidate.end);
    let map = keys(&mut pace, &sources, candidate).await?;
    let (producers, now_ms) = {
        let log = partition.log.borrow();
        let now_ms = shard.runtime.wall_ms();
        (log.producers().live_rows(now_ms), now_ms)
    };
    let retention_ms = partition.topic.borrow().config.delete_retention_ms;
    let mut filter = Filter::new(map, &producers, candidate.end, now_ms, retention_ms);
    let cleaned_end = filter.cleaned_end();
    let touched: Vec<SegmentFacts> = sources
        .iter()
        .filter(|source| source.base < cleaned_end)
        .map(|source| SegmentFacts {
            base: source.base,
            bytes: source.bytes,
            first_timestamp_ms: None,
            largest_timestamp_ms: None,
        })
        .collect();
    let end = sources.get(touched.len()).map_or(candidate.end, |source| source.base);
    for bases in group(&touched, end, &group_limits(shard, partition)) {
        let first = sources.partition_point(|source| source.base < bases[0]);
        let old = &sources[first..first + bases.len()];
        let cleaned = clean_group(&mut pace, &mut filter, old).await?;
        swap::swap(shard, partition, old, cleaned).await?;
    }
    Ok(cleaned_end)
}

fn sources(partition: &Partition, end: Offset) -> Vec<Source> {
    let segments = partition.segments.borrow();
    let below = segments.sealed.range(..end);
    let mut sources: Vec<Source> =
        below.map(|(&base, sealed)| Source { base, next: end, bytes: sealed.bytes }).collect();
    for place in 1..sources.len() {
        sources[place - 1].next = sources[place].base;
    }
    sources
}

fn group_limits(shard: &Shard, partition: &Partition) -> GroupLimits {
    let rules = shard.segment_rules(partition);
    GroupLimits {
        segment_bytes: rules.segment_bytes,
        index_bytes: u64::from(rules.index_bytes_max),
        index_interval_bytes: rules.index_interval_bytes,
    }
}

/// A map with room for what the dirty part may hold, but no larger than it may be.
fn empty_map(shard: &Shard, candidate: &Candidate) -> OffsetMap {
    let catalog = shard.catalog();
    let config = catalog.broker();
    let all = usize::try_from(config.log_cleaner_dedupe_buffer_size).unwrap_or(0);
    let most = all / usize::from(shard.context.shards.max(1));
    // Every record has an offset of its own, and takes some bytes.
    let offsets = candidate.end.0.abs_diff(candidate.first_dirty.0);
    let records = offsets.min(candidate.dirty_bytes / RECORD_BYTES_MIN + 1);
    let records = usize::try_from(records).unwrap_or(usize::MAX);
    let load_factor = config.log_cleaner_io_buffer_load_factor;
    let wanted = (records.saturating_mul(ENTRY_BYTES) as f64 / load_factor.max(0.01)) as usize;
    OffsetMap::new(
        most.min(wanted.saturating_add(ENTRY_BYTES)),
        load_factor,
        shard.runtime.random(),
    )
}

async fn keys(
    pace: &mut Pace<'_>,
    sources: &[Source],
    candidate: &Candidate,
) -> Result<OffsetMap, Stop> {
    let mut map = empty_map(pace.shard, candidate);
    while map.take_chunk() {
        pace.shard.runtime.yield_now().await;
    }
    let mut pass = KeyPass::new(candidate.first_dirty, map);
    for source in sources.iter().filter(|source| source.next > candidate.first_dirty) {
        pass.transactions.tell(pace.aborted(source).await?);
        let mut batches = pace.open(source).await?;
        while let Some((header, batch)) = pace.next(&mut batches, source).await? {
            if !pass.pass(&header, &batch)? {
                pass.passed_below(header.next_offset());
                continue;
            }
            let records = pace.inflated(&header, &batch).await?;
            let mut keys = KeyBatch::new(&header, records);
            let fits = loop {
                match pass.step(&mut keys, CLEANER_SLICE_BYTES) {
                    Poll::Ready(fits) => break fits.map_err(crate::batch::BatchFault::from)?,
                    Poll::Pending => pace.shard.runtime.yield_now().await,
                }
            };
            if !fits {
                return Ok(pass.into_map());
            }
        }
        pass.passed_below(source.next);
    }
    Ok(pass.into_map())
}

/// Makes one cleaned segment of some neighbours, complete and synced.
async fn clean_group(
    pace: &mut Pace<'_>,
    filter: &mut Filter,
    old: &[Source],
) -> Result<CleanedSegment, Stop> {
    let (base, bytes) = (old[0].base, old.iter().map(|source| source.bytes).sum());
    let mut cleaned = CleanedSegment::create(pace.shard, pace.partition, base, bytes).await?;
    match fill(pace, filter, old, &mut cleaned).await {
        Ok(()) => Ok(cleaned),
        Err(stop) => {
            cleaned.remove(pace.shard, pace.partition).await;
            Err(stop)
        }
    }
}

async fn fill(
    pace: &mut Pace<'_>,
    filter: &mut Filter,
    old: &[Source],
    cleaned: &mut CleanedSegment,
) -> Result<(), Stop> {
    let shard = pace.shard;
    for source in old {
        filter.transactions.tell(pace.aborted(source).await?);
        let mut batches = pace.open(source).await?;
        while let Some((header, batch)) = pace.next(&mut batches, source).await? {
            let kept = match filter.judge(&header, &batch)? {
                Verdict::Drop => continue,
                Verdict::Empty(batch) => Rewritten {
                    batch: Some(batch),
                    max_timestamp_ms: header.max_timestamp,
                    records: 0,
                },
                Verdict::Records(rules) => pace.rewritten(filter, &header, batch, rules).await?,
            };
            if let Some(batch) = &kept.batch {
                cleaned.add(&header, kept.max_timestamp_ms, batch).await?;
                pace.moved(batch.len()).await?;
            }
        }
    }
    cleaned.finish(shard, filter.transactions.take_kept()).await?;
    Ok(())
}

/// Reads for a pass, and pauses.
struct Pace<'a> {
    shard: &'a Rc<Shard>,
    partition: &'a Rc<Partition>,
    /// Moved since the last pause.
    bytes: usize,
    /// Moved since it gave way.
    unwaited_bytes: usize,
}

impl Pace<'_> {
    /// Lets others run after a slice, and waits where the pace is limited.
    async fn moved(&mut self, bytes: usize) -> Result<(), Stop> {
        self.bytes += bytes;
        if self.bytes < CLEANER_SLICE_BYTES {
            return Ok(());
        }
        let moved = std::mem::take(&mut self.bytes) as u64;
        let shard = self.shard;
        let rate = shard.catalog().broker().log_cleaner_io_max_bytes_per_second;
        let now = shard.runtime.now();
        let until = shard.cleaner.throttle.borrow_mut().moved(moved, rate, now.0);
        if until > now.0.saturating_add(PAUSE_NS_MIN) {
            let timer = shard.runtime.sleep_until(crate::io::Monotonic(until));
            futures_lite::future::or(timer, shard.stopped()).await;
        } else {
            shard.runtime.yield_now().await;
        }
        self.unwaited_bytes += moved as usize;
        if self.unwaited_bytes >= CLEANER_PIECE_BYTES {
            self.unwaited_bytes = 0;
            self.give_way().await;
        }
        self.check()
    }

    /// Waits for the records that wait for the journal. What comes meanwhile finds a device that
    /// is idle but for one piece.
    async fn give_way(&self) {
        let journal = &self.shard.journal;
        let newest = journal.appended_through();
        if newest > journal.durable_through() {
            // A failed journal is everybody's end.
            let _ = journal.wait(newest).await;
        }
    }

    fn check(&self) -> Result<(), Stop> {
        match self.shard.is_stopping() || !self.partition.is_online() {
            true => Err(Stop::Abandoned),
            false => Ok(()),
        }
    }

    /// The aborted transactions that overlap a segment.
    async fn aborted(
        &self,
        source: &Source,
    ) -> Result<Vec<crate::log::aborted::AbortedTransaction>, Stop> {
        let _shared = self.partition.segment_use.shared().await;
        let found = read::aborted_in(self.shard, self.partition, source.base, source.next).await;
        self.check()?;
        Ok(found?)
    }

    async fn open(&self, source: &Source) -> Result<Batches, Stop> {
        // Its path is its own only as long as no deletion comes in between.
        write_behind::hold(self.partition).await;
        let opened = match self.check() {
            Ok(()) => self.open_held(source).await,
            Err(stop) => Err(stop),
        };
        write_behind::release(self.partition);
        Ok(Batches::new(opened?, source.bytes).by_pieces(CLEANER_PIECE_BYTES))
    }

    async fn open_held(&self, source: &Source) -> Result<Rc<dyn File>, Stop> {
        let kind = SegmentFile::Log;
        let path = write_behind::segment_path(self.shard, self.partition, kind, source.base);
        Ok(self.shard.disk.open(&path, OpenMode::default()).await?)
    }

    /// The next batch, sound.
    async fn next(
        &mut self,
        batches: &mut Batches,
        source: &Source,
    ) -> Result<Option<(BatchHeader, Bytes)>, Stop> {
        let damaged = |position: u64, what: &str| {
            let name = SegmentFile::Log.name(source.base);
            Stop::Failed(format!("{name} byte {position}: {what}"))
        };
        let (position, bytes) = match batches.next().await? {
            None => return Ok(None),
            Some(Piece::Batch { position, bytes }) => (position, bytes),
            Some(Piece::Blank { position }) => return Err(damaged(position, "only zeroes")),
            Some(Piece::Unreadable { position, reason }) => return Err(damaged(position, &reason)),
        };
        let header = BatchHeader::read_verified(&bytes)
            .map_err(|fault| damaged(position, &fault.to_string()))?;
        self.shard.cleaner.metrics.read_bytes.add(bytes.len() as u64);
        self.moved(bytes.len()).await?;
        Ok(Some((header, bytes)))
    }

    async fn inflated(&self, header: &BatchHeader, batch: &Bytes) -> Result<Bytes, Stop> {
        if header.compression() == Some(Compression::None) {
            return Ok(batch.slice(HEADER_BYTES..header.total_bytes()));
        }
        Inflating::start(header, batch)?;
        let start = || Inflating::start(header, batch).expect("invariant: it has started once");
        Ok(self.shard.through_records(start).await?)
    }

    async fn rewritten(
        &self,
        filter: &Filter,
        header: &BatchHeader,
        batch: Bytes,
        rules: RewriteRules,
    ) -> Result<Rewritten, Stop> {
        let records = self.inflated(header, &batch).await?;
        let mut rewrite = Rewrite::start(header, batch, records, rules);
        let mut keep =
            |record: &crate::batch::Record<'_>, offset| filter.keeps(header, record, offset);
        loop {
            match rewrite.step(CLEANER_SLICE_BYTES, &mut keep) {
                Poll::Ready(rewritten) => return Ok(rewritten?),
                Poll::Pending => self.shard.runtime.yield_now().await,
            }
        }
    }
}

/// A record with a key takes no less, where it is not compressed.
const RECORD_BYTES_MIN: u64 = 8;

/// Shorter pauses are not worth a timer.
const PAUSE_NS_MIN: u64 = 1_000_000;
