//! The files of a partition that only Apache Kafka and its tools read: the epoch checkpoint, the
//! producer snapshot, and the empty segment of a log of which nothing is left.
//!
//! Owns their formats. Epochs and snapshot are written at a clean stop. None of them is ever read
//! by Ringlog itself, whose state is in the checkpoint images. Source: Kafka's `CheckpointFile`,
//! `ProducerStateManager`, `UnifiedLog.deleteSegments`.
//!
//! **Deviation**: Kafka writes a snapshot at every roll. There it shortens the replay after a crash
//! and lets a follower truncate; here images do the first, and there are no followers. A roll
//! is found when segments are written, behind the appends: the producers of that offset are known
//! no more by then, and to keep them would cost a copy of all producers per roll for a file that
//! nobody reads. The one at the end, from which Kafka starts after a clean stop, is enough for it;
//! the first segment of the next boot has its name, and takes it along when it is deleted.

use std::fmt::Write as _;
use std::io;
use std::rc::Rc;

use super::Shard;
use super::partition::Partition;
use super::write_behind;
use crate::batch::crc::crc32c;
use crate::ids::Offset;
use crate::journal::image::ProducerRow;
use crate::log::epochs::EpochHistory;
use crate::log::layout::{self, SegmentFile};

/// Writes both files of a partition that is completely in segments; nothing of them is synced.
///
/// # Errors
/// What the disk says.
pub async fn write(shard: &Rc<Shard>, partition: &Rc<Partition>) -> io::Result<()> {
    let (end, epochs, snapshot) = {
        let log = partition.log.borrow();
        let snapshot = encode_snapshot(&log.producers().to_rows());
        (log.next_offset(), encode_epochs(log.epochs()), snapshot)
    };
    let directory = layout::partition_directory(
        &shard.context.data_dir,
        &partition.topic.borrow().name,
        partition.index(),
    );
    let checkpoint = directory.join(layout::LEADER_EPOCH_CHECKPOINT);
    shard.disk.write_unsynced(&checkpoint, epochs.as_bytes()).await?;
    let path = write_behind::segment_path(shard, partition, SegmentFile::Snapshot, end);
    shard.disk.write_unsynced(&path, &snapshot).await?;
    partition.kafka_files_end.set(Some(end));
    Ok(())
}

/// Whether a clean stop has to write a partition's files: one that was written to in this boot, or
/// that recovery has completed.
#[must_use]
pub fn are_due(partition: &Partition) -> bool {
    let end = partition.log.borrow().next_offset();
    let is_there = partition.directory_made.get() && partition.is_online();
    is_there && partition.kafka_files_end.get() != Some(end)
}

/// Where nothing of a log is left, an empty segment at its end says where it goes on, until the
/// next batch is written to it. Nobody writes the partition's files meanwhile. A failure is not
/// told: a later stop tries again, and nothing here needs the files.
pub async fn leave_empty_segment(shard: &Rc<Shard>, partition: &Rc<Partition>) {
    let end = partition.log.borrow().next_offset();
    let is_left = {
        let (log, segments) = (partition.log.borrow(), partition.segments.borrow());
        let is_written = log.written_end() == end && log.log_start() == end;
        is_written && segments.active.is_none() && end > Offset(0)
    };
    if !is_left || !partition.directory_made.get() || !partition.is_online() {
        return;
    }
    for kind in [SegmentFile::Index, SegmentFile::TimeIndex, SegmentFile::Log] {
        let path = write_behind::segment_path(shard, partition, kind, end);
        if shard.disk.write_unsynced(&path, &[]).await.is_err() {
            return;
        }
    }
}

/// Text of `leader-epoch-checkpoint`: version, count, then one line per epoch.
#[must_use]
pub fn encode_epochs(epochs: &EpochHistory) -> String {
    let mut text = format!("0\n{}\n", epochs.entries().len());
    for (epoch, start) in epochs.entries() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{epoch} {start}");
    }
    text
}

/// Content of a `.snapshot` file.
#[must_use]
pub fn encode_snapshot(producers: &[ProducerRow]) -> Vec<u8> {
    let mut out = Vec::with_capacity(10 + 46 * producers.len());
    out.extend_from_slice(&1i16.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(producers.len() as u32).to_be_bytes());
    for producer in producers {
        let last = producer.batches.last();
        let last_offset = last.map_or(Offset(-1), |batch| batch.last_offset);
        let open = producer.open_transaction_first_offset.unwrap_or(Offset(-1));
        out.extend_from_slice(&producer.id.0.to_be_bytes());
        out.extend_from_slice(&producer.epoch.0.to_be_bytes());
        out.extend_from_slice(&last.map_or(-1, |batch| batch.last_sequence).to_be_bytes());
        out.extend_from_slice(&last_offset.0.to_be_bytes());
        out.extend_from_slice(&last.map_or(0, |batch| batch.offset_delta).to_be_bytes());
        out.extend_from_slice(&producer.last_timestamp_ms.to_be_bytes());
        out.extend_from_slice(&producer.coordinator_epoch.to_be_bytes());
        out.extend_from_slice(&open.0.to_be_bytes());
    }
    let crc = crc32c(&out[6..]);
    out[2..6].copy_from_slice(&crc.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LeaderEpoch, ProducerEpoch, ProducerId};
    use crate::journal::image::ProducerBatchRow;

    #[test]
    fn the_epoch_checkpoint_is_kafkas_text() {
        let entries = [(LeaderEpoch(3), Offset(0)), (LeaderEpoch(5), Offset(42))];
        assert_eq!(encode_epochs(&EpochHistory::from_entries(entries)), "0\n2\n3 0\n5 42\n");
    }

    #[test]
    fn the_snapshot_has_46_bytes_per_producer_and_a_checksum() {
        let row = ProducerRow {
            id: ProducerId(7),
            epoch: ProducerEpoch(1),
            coordinator_epoch: -1,
            last_append_ms: 5,
            last_timestamp_ms: 99,
            open_transaction_first_offset: None,
            batches: vec![ProducerBatchRow {
                last_sequence: 9,
                last_offset: Offset(19),
                offset_delta: 4,
                max_timestamp_ms: 99,
                append_ms: 5,
            }],
        };
        let bytes = encode_snapshot(&[row]);
        assert_eq!(bytes.len(), 56);
        assert_eq!(bytes[..2], [0, 1]);
        assert_eq!(bytes[2..6], crc32c(&bytes[6..]).to_be_bytes());
        assert_eq!(bytes[10..18], 7i64.to_be_bytes());
        assert_eq!(bytes[20..24], 9i32.to_be_bytes());
        assert_eq!(bytes[24..32], 19i64.to_be_bytes());
        assert_eq!(bytes[48..56], (-1i64).to_be_bytes());
    }
}
