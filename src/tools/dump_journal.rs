//! The lines of `ringlog log dump` for what is below `journal/`: rings, images, the manifest,
//! and what offline partitions have left.
//!
//! A ring file is printed under the identity in its own first block, so one file is enough. Blocks
//! come in the order of the file, which is not that of their sequences once a ring has gone round.

use std::io;
use std::rc::Rc;

use bytes::Bytes;

use super::batches::Window;
use super::dump::Dump;
use crate::ids::TopicPartition;
use crate::io::File;
use crate::journal::block::{
    self, BLOCK_HEADER_BYTES, BlockHeader, ControlEntry, Entries, Entry, FileHeader,
};
use crate::journal::image::{Image, PartitionRow};
use crate::journal::manifest::Manifest;
use crate::journal::stranded::{StrandedEntry, StrandedReader};
use crate::limits::BLOCK_ALIGN;

impl Dump<'_> {
    pub(super) async fn ring(&mut self, file: Rc<dyn File>, length: u64) -> io::Result<()> {
        let mut window = Window::new(file);
        let head = match FileHeader::decode(&window.read(0, BLOCK_ALIGN).await?) {
            Ok(head) => head,
            Err(fault) => return self.damage(&fault.to_string()),
        };
        writeln!(
            self.out,
            "ring boot={} shard={} file={} files={} file_bytes={}",
            head.identity.boot,
            head.identity.shard,
            head.file,
            head.geometry.files(),
            head.geometry.file_bytes()
        )?;
        let mut at = BLOCK_ALIGN as u64;
        while at < length {
            let mut step = BLOCK_ALIGN;
            let start = window.read(at, BLOCK_HEADER_BYTES).await?;
            if let Ok(peeked) = block::peek(&start, &head.identity) {
                let bytes = window.read(at, peeked.aligned_bytes()).await?;
                match block::check(&bytes, &head.identity) {
                    Ok(header) => {
                        step = header.aligned_bytes();
                        self.block(at, header, bytes)?;
                    }
                    Err(fault) => {
                        let sequence = peeked.sequence;
                        self.damage(&format!("block byte={at} sequence={sequence}: {fault}"))?;
                    }
                }
            }
            at += step as u64;
        }
        Ok(())
    }

    fn block(&mut self, at: u64, header: BlockHeader, bytes: Bytes) -> io::Result<()> {
        writeln!(
            self.out,
            "block byte={at} sequence={} position={} durable_through={} wall_ms={} used={} \
             entries={}",
            header.sequence,
            header.position,
            header.durable_through,
            header.wall_ms,
            header.used_bytes,
            header.entries
        )?;
        for entry in Entries::new(bytes, header) {
            match entry {
                Ok(Entry::Batch(entry, bytes)) if entry.is_whole() => {
                    let append_ms = entry.append_ms;
                    let place = format!("partition={} append_ms={append_ms}", text(entry.tp));
                    self.batch(&place, &bytes)?;
                }
                Ok(Entry::Batch(entry, _)) => writeln!(
                    self.out,
                    "part partition={} append_ms={} part={} start={} bytes={} batch_bytes={}",
                    text(entry.tp),
                    entry.append_ms,
                    entry.part,
                    entry.part_start,
                    entry.part_bytes,
                    entry.batch_bytes
                )?,
                Ok(Entry::Control(entry)) => self.control(&entry)?,
                Err(fault) => self.damage(&fault.to_string())?,
            }
        }
        Ok(())
    }

    fn control(&mut self, entry: &ControlEntry) -> io::Result<()> {
        let partition = text(entry.tp());
        match entry {
            ControlEntry::LogStartAdvanced { offset, .. } => {
                writeln!(self.out, "log_start partition={partition} offset={offset}")
            }
            ControlEntry::EpochStarted { epoch, start, .. } => {
                writeln!(self.out, "epoch partition={partition} epoch={epoch} start={start}")
            }
            ControlEntry::PartitionDropped { .. } => {
                writeln!(self.out, "dropped partition={partition}")
            }
        }
    }

    pub(super) fn image(&mut self, content: &[u8]) -> io::Result<()> {
        let image = match Image::decode(content) {
            Ok(image) => image,
            Err(fault) => return self.damage(&fault.to_string()),
        };
        writeln!(
            self.out,
            "image boot={} shard={} position={} sequence={} durable_through={} clean={} rows={}",
            image.boot,
            image.shard,
            image.start.point.position,
            image.start.point.sequence,
            image.start.durable_through,
            image.clean,
            image.rows.len()
        )?;
        for row in &image.rows {
            self.row(row)?;
        }
        Ok(())
    }

    fn row(&mut self, row: &PartitionRow) -> io::Result<()> {
        let partition = text(row.tp);
        writeln!(
            self.out,
            "row partition={partition} log_start={} synced_end={} segment={} segment_bytes={} \
             index_bytes={} time_index_bytes={} transaction_index_bytes={} offline={}",
            row.log_start,
            row.synced_end,
            row.segment_base,
            row.segment_bytes,
            row.index_bytes,
            row.time_index_bytes,
            row.transaction_index_bytes,
            row.offline.as_ref().map_or("no", |offline| &offline.reason)
        )?;
        for (epoch, start) in &row.epochs {
            writeln!(self.out, "epoch partition={partition} epoch={epoch} start={start}")?;
        }
        for producer in &row.producers {
            writeln!(
                self.out,
                "producer partition={partition} id={} epoch={} last_append_ms={} batches={:?}",
                producer.id,
                producer.epoch,
                producer.last_append_ms,
                producer
                    .batches
                    .iter()
                    .map(|batch| (batch.last_sequence, batch.last_offset.0))
                    .collect::<Vec<_>>()
            )?;
        }
        Ok(())
    }

    pub(super) fn manifest(&mut self, content: &[u8]) -> io::Result<()> {
        let manifest = match Manifest::decode(content) {
            Ok(manifest) => manifest,
            Err(fault) => return self.damage(&fault.to_string()),
        };
        writeln!(
            self.out,
            "manifest boot={} durability={:?} highest_epoch={} highest_sequence={}",
            manifest.boot, manifest.durability, manifest.highest_epoch, manifest.highest_sequence
        )?;
        for ring in &manifest.rings {
            writeln!(
                self.out,
                "shard shard={} image={} files={} file_bytes={}",
                ring.shard,
                ring.image.display(),
                ring.files.len(),
                ring.file_bytes
            )?;
        }
        Ok(())
    }

    pub(super) fn stranded(&mut self, content: &[u8], tp: TopicPartition) -> io::Result<()> {
        let mut reader = StrandedReader::new(tp, 0);
        reader.feed(content);
        loop {
            match reader.next_entry() {
                Ok(Some(StrandedEntry::Batch { append_ms, bytes })) => {
                    let place = format!("partition={} append_ms={append_ms}", text(tp));
                    self.batch(&place, &bytes)?;
                }
                Ok(Some(StrandedEntry::LogStartAdvanced { offset })) => {
                    self.control(&ControlEntry::LogStartAdvanced { tp, offset })?;
                }
                Ok(Some(StrandedEntry::EpochStarted { epoch, start })) => {
                    self.control(&ControlEntry::EpochStarted { tp, epoch, start })?;
                }
                Ok(None) => break,
                Err(fault) => return self.damage(&fault.to_string()),
            }
        }
        let whole = reader.finish().unwrap_or(0);
        match (content.len() as u64).saturating_sub(whole) {
            0 => Ok(()),
            torn => writeln!(self.out, "torn bytes={torn}"),
        }
    }
}

fn text(tp: TopicPartition) -> String {
    format!("{}-{}", tp.topic, tp.partition)
}
