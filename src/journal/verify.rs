//! The offline check of one shard's journal: what its image and ring say, and what damage hits.
//!
//! Owns the wording of `ringlog log verify` for everything below `journal/`. Must never change a
//! file, nor judge segments. Lines are stable and greppable: `shard N: ...`, one finding a line.
//!
//! Invariant: whatever makes recovery refuse a start is reported as a problem here, by name.

use std::collections::BTreeMap;

use super::block::ControlEntry;
use super::image::{Image, ImageFault, PartitionRow};
use super::manifest::{Manifest, RingEntry};
use super::replay::{
    Expected, Extent, Proof, Replay, ReplayError, Replayed, RingFiles, Scan, Verdict, scan,
};
use crate::ids::{Offset, TopicPartition};

/// One line of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Whether this keeps the broker from starting, or a partition offline.
    pub is_problem: bool,
    /// The line, without its end.
    pub text: String,
}

/// Checks one shard. `image` is what decoding the image file that `ring` names gave, or `None` if
/// there is no such file; `files` are the ring's files.
pub async fn verify_shard(
    manifest: &Manifest,
    ring: &RingEntry,
    image: Option<&Result<Image, ImageFault>>,
    files: &RingFiles,
    kernel_boot_id_now: &str,
) -> Vec<Finding> {
    let mut report = Report { shard: format!("shard {}", ring.shard), findings: Vec::new() };
    let image = report.image(manifest, ring, image);
    let expected = Expected {
        boot: manifest.boot,
        shard: ring.shard,
        file_bytes: ring.file_bytes,
        holes_are_legitimate: manifest.holes_are_legitimate(kernel_boot_id_now),
    };
    match scan(files, &expected, image.map(|image| image.start)).await {
        Ok(scan) => {
            report.scan(&scan, ring);
            if let Err(error) = report.entries(&scan, files, image).await {
                report.problem(format!("replay stops: {error}"));
            }
        }
        Err(error) => report.problem(format!("the journal cannot be read: {error}")),
    }
    report.findings
}

struct Report {
    shard: String,
    findings: Vec<Finding>,
}

impl Report {
    fn note(&mut self, text: String) {
        let text = format!("{}: {text}", self.shard);
        self.findings.push(Finding { is_problem: false, text });
    }

    fn problem(&mut self, text: String) {
        let text = format!("{}: PROBLEM: {text}", self.shard);
        self.findings.push(Finding { is_problem: true, text });
    }

    fn image<'a>(
        &mut self,
        manifest: &Manifest,
        ring: &RingEntry,
        image: Option<&'a Result<Image, ImageFault>>,
    ) -> Option<&'a Image> {
        let path = ring.image.display();
        let image = match image {
            None => {
                self.problem(format!("{path} is missing"));
                return None;
            }
            Some(Err(fault)) => {
                self.problem(format!("{path} cannot be used: {fault}"));
                return None;
            }
            Some(Ok(image)) => image,
        };
        if image.boot != manifest.boot || image.shard != ring.shard {
            self.problem(format!(
                "{path} is of boot {} and shard {}, not of boot {}",
                image.boot, image.shard, manifest.boot
            ));
            return None;
        }
        self.note(format!(
            "image of boot {} with {} partitions, replay from position {}, sequence {}{}",
            image.boot,
            image.rows.len(),
            image.start.point.position,
            image.start.point.sequence,
            if image.clean { ", clean stop" } else { "" }
        ));
        for row in &image.rows {
            if let Some(offline) = &row.offline {
                self.problem(format!(
                    "partition {} is offline: {} ({} stranded bytes)",
                    name(row.tp),
                    offline.reason,
                    offline.stranded_bytes
                ));
            }
        }
        Some(image)
    }

    fn scan(&mut self, scan: &Scan, ring: &RingEntry) {
        let Some((_, geometry)) = &scan.ring else {
            self.note("journal is empty".to_owned());
            return self.verdict(&scan.verdict, |_| String::new());
        };
        if scan.headers_lost > 0 {
            self.note(format!("{} ring file headers are not of this boot", scan.headers_lost));
        }
        let span = match (scan.good.first(), scan.good.last()) {
            (Some(first), Some(last)) => format!(" ({} to {})", first.sequence, last.sequence),
            _ => String::new(),
        };
        self.note(format!("{} journal blocks to replay{span}", scan.good.len()));
        self.verdict(&scan.verdict, |position| {
            let (file, offset) = geometry.locate(position);
            let path = ring.files.get(file as usize).map(|path| path.display().to_string());
            format!(" at or after {} byte {offset}", path.unwrap_or_default())
        });
    }

    fn verdict(&mut self, verdict: &Verdict, place: impl Fn(u64) -> String) {
        match *verdict {
            Verdict::TornTail { discarded_blocks: 0 } => {}
            Verdict::TornTail { discarded_blocks } => self.note(format!(
                "torn tail: {discarded_blocks} blocks after it were never acknowledged"
            )),
            Verdict::Damaged { sequence, position, proof } => {
                let witness = match proof {
                    Proof::Block(later) => format!("block {later}"),
                    Proof::Image => "the image".to_owned(),
                };
                self.problem(format!(
                    "acknowledged block {sequence}{} is damaged or missing ({witness} proves it)",
                    place(position)
                ));
            }
            Verdict::Hole { sequence, position, lost_blocks } => self.note(format!(
                "machine crash in process-crash mode: block {sequence}{} and what follows is lost, \
                 {lost_blocks} blocks at least",
                place(position)
            )),
        }
    }

    /// Follows every partition over all valid blocks and names those with gaps.
    async fn entries(
        &mut self,
        scan: &Scan,
        files: &RingFiles,
        image: Option<&Image>,
    ) -> Result<(), ReplayError> {
        let mut ends: BTreeMap<TopicPartition, Offset> = BTreeMap::new();
        let rows = image.map_or(&[] as &[PartitionRow], |image| &image.rows);
        ends.extend(rows.iter().map(|row| (row.tp, row.synced_end)));
        let mut replay = Replay::new(files, scan, Extent::GoodAndLater);
        let mut batches = 0u64;
        while let Some(entry) = replay.next().await? {
            match entry {
                Replayed::Batch { tp, bytes, .. } => {
                    batches += 1;
                    let Some((base, next)) = offsets(&bytes) else {
                        self.problem(format!("partition {}: a batch is malformed", name(tp)));
                        continue;
                    };
                    // Without a whole image nothing is known of what came before.
                    let unknown = if image.is_some() { Offset(0) } else { base };
                    let end = ends.entry(tp).or_insert(unknown);
                    if next <= *end {
                        continue;
                    }
                    let was = *end;
                    *end = next;
                    if base > was {
                        let (tp, last) = (name(tp), Offset(base.0 - 1));
                        self.problem(format!(
                            "partition {tp}: offsets {was} to {last} are missing"
                        ));
                    } else if base < was {
                        let tp = name(tp);
                        self.problem(format!(
                            "partition {tp}: batch {base} to {next} overlaps its end {was}"
                        ));
                    }
                }
                Replayed::Control(ControlEntry::PartitionDropped { tp }) => {
                    ends.remove(&tp);
                }
                Replayed::Control(_) => {}
            }
        }
        let torn = replay.torn_batches();
        self.note(format!("{batches} whole batches in the journal, {torn} cut short"));
        Ok(())
    }
}

fn name(tp: TopicPartition) -> String {
    format!("{}-{}", tp.topic, tp.partition)
}

/// Base offset and the offset after the last of a record batch (version 2) that fills `batch`.
fn offsets(batch: &[u8]) -> Option<(Offset, Offset)> {
    let base = i64::from_be_bytes(*batch.first_chunk()?);
    let length = i32::from_be_bytes(*batch.get(8..)?.first_chunk()?);
    let magic = *batch.get(16)?;
    let last_delta = i32::from_be_bytes(*batch.get(23..)?.first_chunk()?);
    let whole = usize::try_from(length).ok()?.checked_add(12)? == batch.len();
    if !whole || magic != 2 || base < 0 || last_delta < 0 {
        return None;
    }
    let next = base.checked_add(i64::from(last_delta))?.checked_add(1)?;
    Some((Offset(base), Offset(next)))
}

#[cfg(test)]
mod tests {
    use futures_lite::future::block_on;

    use super::*;
    use crate::ids::{BootNumber, JournalSequence, LeaderEpoch, ShardId};
    use crate::journal::fixture::{Disk, Put, tp};
    use crate::journal::image::OfflineRow;
    use crate::journal::manifest::Durability;
    use crate::journal::replay::Start;
    use crate::journal::ring::JournalPoint;

    fn record_batch(base: i64, records: i32) -> Vec<u8> {
        let mut batch = vec![0; 61 + 10];
        batch[..8].copy_from_slice(&base.to_be_bytes());
        batch[8..12].copy_from_slice(&59i32.to_be_bytes());
        batch[16] = 2;
        batch[23..27].copy_from_slice(&(records - 1).to_be_bytes());
        batch
    }

    fn row(n: u8, synced_end: i64) -> PartitionRow {
        PartitionRow {
            tp: tp(n),
            log_start: Offset(0),
            synced_end: Offset(synced_end),
            segment_base: Offset(0),
            segment_bytes: 0,
            index_bytes: 0,
            time_index_bytes: 0,
            transaction_index_bytes: 0,
            epochs: vec![],
            producers: vec![],
            offline: None,
        }
    }

    fn image(rows: Vec<PartitionRow>) -> Image {
        Image {
            boot: BootNumber(4),
            shard: ShardId(2),
            start: Start {
                point: JournalPoint { position: 0, sequence: JournalSequence(1) },
                durable_through: JournalSequence(0),
            },
            clean: false,
            rows,
        }
    }

    fn lines(disk: &Disk, image: Option<&Result<Image, ImageFault>>) -> Vec<String> {
        let ring = RingEntry::new(BootNumber(4), ShardId(2), 4, 64 * 1024);
        let manifest = Manifest {
            boot: BootNumber(4),
            durability: Durability::PowerLoss,
            kernel_boot_id: String::new(),
            highest_epoch: LeaderEpoch(4),
            highest_sequence: JournalSequence(0),
            rings: vec![ring.clone()],
        };
        let findings = block_on(verify_shard(&manifest, &ring, image, &disk.as_files(), "now"));
        for finding in &findings {
            assert_eq!(finding.is_problem, finding.text.starts_with("shard 2: PROBLEM: "));
        }
        findings.into_iter().map(|finding| finding.text).collect()
    }

    fn disk() -> Disk {
        let mut disk = Disk::new(4, 1);
        disk.block(&[Put::Whole(1, record_batch(40, 10)), Put::Whole(1, record_batch(50, 5))]);
        disk.block(&[Put::Whole(1, record_batch(55, 5)), Put::Whole(2, record_batch(0, 1))]);
        disk.block(&[Put::Whole(1, record_batch(60, 5)), Put::Whole(3, record_batch(7, 1))]);
        disk
    }

    #[test]
    fn a_whole_journal_has_no_problems() {
        let found = lines(&disk(), Some(&Ok(image(vec![row(1, 50), row(3, 7)]))));
        assert_eq!(
            found,
            [
                "shard 2: image of boot 4 with 2 partitions, replay from position 0, sequence 1",
                "shard 2: 3 journal blocks to replay (1 to 3)",
                "shard 2: 6 whole batches in the journal, 0 cut short",
            ]
        );
    }

    #[test]
    fn damage_names_what_it_hits() {
        let disk = disk();
        disk.edit(1, |block| block[100] ^= 1);
        let found = lines(&disk, Some(&Ok(image(vec![row(1, 50), row(3, 7)]))));
        assert_eq!(
            found[1..],
            [
                "shard 2: 1 journal blocks to replay (1 to 1)",
                "shard 2: PROBLEM: acknowledged block 2 at or after journal/rings/2.0 byte 8192 is \
                 damaged or missing (block 3 proves it)",
                "shard 2: PROBLEM: partition AQEBAQEBAQEBAQEBAQEBAQ-1: offsets 55 to 59 are \
                 missing",
                "shard 2: 4 whole batches in the journal, 0 cut short",
            ]
        );
    }

    #[test]
    fn overlaps_offline_rows_and_bad_images_are_named() {
        let mut offline = row(3, 8);
        offline.offline = Some(OfflineRow { reason: "no".to_owned(), stranded_bytes: 9 });
        let found = lines(&disk(), Some(&Ok(image(vec![row(1, 52), offline]))));
        assert_eq!(
            found[1],
            "shard 2: PROBLEM: partition AwMDAwMDAwMDAwMDAwMDAw-3 is offline: no (9 stranded bytes)"
        );
        assert_eq!(
            found[3],
            "shard 2: PROBLEM: partition AQEBAQEBAQEBAQEBAQEBAQ-1: batch 50 to 55 overlaps its \
             end 52"
        );
        assert_eq!(
            lines(&disk(), Some(&Err(ImageFault::Checksum)))[0],
            "shard 2: PROBLEM: journal/4/image-2 cannot be used: the checkpoint image's checksum \
             does not match"
        );
        assert_eq!(lines(&disk(), None)[0], "shard 2: PROBLEM: journal/4/image-2 is missing");
        let mut other = image(vec![]);
        other.boot = BootNumber(3);
        assert_eq!(
            lines(&disk(), Some(&Ok(other)))[0],
            "shard 2: PROBLEM: journal/4/image-2 is of boot 3 and shard 2, not of boot 4"
        );
    }

    #[test]
    fn an_empty_or_malformed_journal_is_named() {
        let mut disk = Disk::new(4, 1);
        disk.batch(1, 30);
        let found = lines(&disk, Some(&Ok(image(vec![]))));
        assert_eq!(
            found[2],
            "shard 2: PROBLEM: partition AQEBAQEBAQEBAQEBAQEBAQ-1: a batch is malformed"
        );
        for file in &disk.files {
            file.content.borrow_mut().fill(0);
        }
        let found = lines(&disk, Some(&Ok(image(vec![]))));
        assert_eq!(found[1], "shard 2: journal is empty");
        disk.files[1].fails_at.set(Some(0));
        let found = lines(&disk, Some(&Ok(image(vec![]))));
        assert!(
            found[1].starts_with(
                "shard 2: PROBLEM: the journal cannot be read: cannot read journal ring file 1 at 0"
            ),
            "{found:?}"
        );
    }
}
