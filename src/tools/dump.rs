//! `ringlog log dump`: the content of a file, one entry a line.
//!
//! Owns which file is printed how, and the lines of segments, indexes, snapshots and the catalog;
//! the journal's are in `dump_journal.rs`. A line begins with what it is (`batch`, `record`, ...)
//! and goes on with `name=value` pairs, so that it can be searched with grep. What cannot be read
//! is a line that begins with `damaged`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;

use super::batches::{Batches, Piece};
use crate::batch::crc::crc32c;
use crate::batch::{
    BatchHeader, HEADER_BYTES, Marker, MarkerKind, Record, Records, decompressed_records,
};
use crate::ids::{Offset, TopicPartition};
use crate::io::{Disk, OpenMode};
use crate::journal::manifest;
use crate::limits::INFLATED_BATCH_BYTES_MAX;
use crate::log::aborted::{ABORTED_ENTRY_BYTES, read_entry};
use crate::log::index::{OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES};
use crate::log::layout::{self, SegmentFile};
use crate::metadata::records;

/// Why nothing was printed, or not all.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file or directory cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the disk says.
        error: io::Error,
    },
    /// Neither one of a data directory's files by its name, nor a directory with any.
    #[error("{} is no file of a data directory by its name", .0.display())]
    Unknown(PathBuf),
    /// The output is gone.
    #[error("cannot print: {0}")]
    Output(#[from] io::Error),
}

/// The kinds of file of a data directory, by name and place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Segment(SegmentFile, Offset),
    Ring,
    Image,
    Manifest,
    Stranded(TopicPartition),
    Catalog,
    Text,
}

/// Prints a file, or every file of a directory that has entries, behind a line with its name.
/// Returns how many lines tell of damage.
///
/// # Errors
/// See [`DumpError`].
pub async fn dump(disk: &Rc<dyn Disk>, path: &Path, out: &mut dyn Write) -> Result<u64, DumpError> {
    let mut dump = Dump { disk, out, damaged: 0 };
    if let Some(kind) = kind(path) {
        dump.file(path, kind).await?;
        return Ok(dump.damaged);
    }
    let listed = disk.list(path, true, &[]).await;
    let entries = match listed {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(DumpError::Unknown(path.to_owned()));
        }
        Err(error) => return Err(DumpError::Read { path: path.to_owned(), error }),
    };
    let mut found = false;
    for entry in entries.iter().filter(|entry| !entry.is_directory) {
        let file = path.join(&entry.path);
        if let Some(kind) = kind(&file) {
            found = true;
            writeln!(dump.out, "# {}", file.display())?;
            dump.file(&file, kind).await?;
        }
    }
    match found {
        true => Ok(dump.damaged),
        false => Err(DumpError::Unknown(path.to_owned())),
    }
}

fn kind(path: &Path) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    let parent = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    if let Some((kind, base)) = SegmentFile::parse(name) {
        return Some(Kind::Segment(kind, base));
    }
    let numbered = |prefix: &str| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|number| number.parse::<u64>().is_ok())
    };
    match (name, parent) {
        ("manifest", _) => Some(Kind::Manifest),
        (layout::PARTITION_METADATA | layout::LEADER_EPOCH_CHECKPOINT | "format", _) => {
            Some(Kind::Text)
        }
        ("snapshot", _) => Some(Kind::Catalog),
        (_, Some("rings")) => Some(Kind::Ring),
        (_, Some("stranded")) => manifest::stranded_partition(name).map(Kind::Stranded),
        _ if numbered("image-") => Some(Kind::Image),
        _ if numbered("log-") => Some(Kind::Catalog),
        _ => None,
    }
}

/// One run: where to read, where to print.
pub(super) struct Dump<'a> {
    disk: &'a Rc<dyn Disk>,
    pub(super) out: &'a mut dyn Write,
    damaged: u64,
}

impl Dump<'_> {
    async fn file(&mut self, path: &Path, kind: Kind) -> Result<(), DumpError> {
        let unreadable = |error| DumpError::Read { path: path.to_owned(), error };
        if let Kind::Segment(SegmentFile::Log, _) | Kind::Ring = kind {
            let file = self.disk.open(path, OpenMode::default()).await.map_err(unreadable)?;
            let length = file.length().await.map_err(unreadable)?;
            let done = match kind {
                Kind::Ring => self.ring(file, length).await,
                _ => self.segment(Batches::new(file, length)).await,
            };
            return done.map_err(unreadable);
        }
        let content = self.disk.read(path).await.map_err(unreadable)?;
        match kind {
            Kind::Segment(SegmentFile::Index, base) => self.offset_index(&content, base)?,
            Kind::Segment(SegmentFile::TimeIndex, base) => self.time_index(&content, base)?,
            Kind::Segment(SegmentFile::TransactionIndex, _) => self.aborted(&content)?,
            Kind::Segment(SegmentFile::Snapshot, _) => self.producers(&content)?,
            Kind::Segment(SegmentFile::Log, _) | Kind::Ring => {}
            Kind::Image => self.image(&content)?,
            Kind::Manifest => self.manifest(&content)?,
            Kind::Stranded(tp) => self.stranded(&content, tp)?,
            Kind::Catalog => self.catalog(&content)?,
            Kind::Text => self.text(&content)?,
        }
        Ok(())
    }

    /// A line about what cannot be read.
    pub(super) fn damage(&mut self, text: &str) -> io::Result<()> {
        self.damaged += 1;
        writeln!(self.out, "damaged {text}")
    }

    async fn segment(&mut self, mut batches: Batches) -> io::Result<()> {
        while let Some(piece) = batches.next().await? {
            match piece {
                Piece::Batch { position, bytes } => {
                    self.batch(&format!("position={position}"), &bytes)?;
                }
                Piece::Blank { position } => writeln!(self.out, "blank position={position}")?,
                Piece::Unreadable { position, reason } => {
                    self.damage(&format!("position={position}: {reason}"))?;
                }
            }
        }
        Ok(())
    }

    /// A batch and its records; `place` says where it stands.
    pub(super) fn batch(&mut self, place: &str, bytes: &Bytes) -> io::Result<()> {
        let header = match BatchHeader::read_verified(bytes) {
            Ok(header) => header,
            Err(fault) => return self.damage(&format!("batch {place}: {fault}")),
        };
        let codec = header.compression().map_or("unknown", |codec| codec.name());
        write!(
            self.out,
            "batch {place} bytes={} base={} last={} records={} epoch={}",
            bytes.len(),
            header.base_offset,
            header.last_offset(),
            header.record_count,
            header.leader_epoch
        )?;
        writeln!(
            self.out,
            " producer={} producer_epoch={} sequence={} timestamp_type={:?} max_timestamp={} \
             codec={codec} transactional={} control={} crc={:#010x}",
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.timestamp_type(),
            header.max_timestamp,
            header.is_transactional(),
            header.is_control(),
            header.crc
        )?;
        if header.is_control() {
            return self.marker(place, &header, &bytes[HEADER_BYTES..]);
        }
        let records = match decompressed_records(&header, bytes, INFLATED_BATCH_BYTES_MAX) {
            Ok(records) => records,
            Err(fault) => return self.damage(&format!("batch {place}: {fault}")),
        };
        for record in Records::new(&records, header.record_count) {
            match record {
                Ok(record) => self.record(&header, &record)?,
                Err(fault) => self.damage(&format!("batch {place}: {fault}"))?,
            }
        }
        Ok(())
    }

    fn marker(&mut self, place: &str, header: &BatchHeader, records: &[u8]) -> io::Result<()> {
        let marker = match Marker::read(header, records) {
            Ok(Some(marker)) => marker,
            Ok(None) => return writeln!(self.out, "control offset={}", header.base_offset),
            Err(fault) => return self.damage(&format!("batch {place}: {fault}")),
        };
        let kind = match marker.kind {
            MarkerKind::Abort => "abort",
            MarkerKind::Commit => "commit",
        };
        writeln!(
            self.out,
            "marker offset={} timestamp={} kind={kind} coordinator_epoch={}",
            header.base_offset, marker.timestamp_ms, marker.coordinator_epoch
        )
    }

    fn record(&mut self, header: &BatchHeader, record: &Record<'_>) -> io::Result<()> {
        let offset = header.record_offset(record.offset_delta);
        let timestamp = header.record_timestamp(record.timestamp_delta);
        write!(self.out, "record offset={offset} timestamp={timestamp} key=")?;
        self.bytes(record.key)?;
        write!(self.out, " value=")?;
        self.bytes(record.value)?;
        write!(self.out, " headers=[")?;
        for (place, (name, value)) in record.headers.enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(self.out, "{comma}{}=", name.escape_ascii())?;
            self.bytes(value)?;
        }
        writeln!(self.out, "]")
    }

    fn bytes(&mut self, bytes: Option<&[u8]>) -> io::Result<()> {
        match bytes {
            Some(bytes) => write!(self.out, "\"{}\"", bytes.escape_ascii()),
            None => write!(self.out, "null"),
        }
    }

    fn offset_index(&mut self, content: &[u8], base: Offset) -> io::Result<()> {
        for (relative, position) in offset_entries(content) {
            let offset = base.plus(i64::from(relative));
            writeln!(self.out, "entry offset={offset} position={position}")?;
        }
        self.rest(content, OFFSET_ENTRY_BYTES)
    }

    fn time_index(&mut self, content: &[u8], base: Offset) -> io::Result<()> {
        for (timestamp, relative) in time_entries(content) {
            let offset = base.plus(i64::from(relative));
            writeln!(self.out, "entry timestamp={timestamp} offset={offset}")?;
        }
        self.rest(content, TIME_ENTRY_BYTES)
    }

    fn aborted(&mut self, content: &[u8]) -> io::Result<()> {
        for bytes in content.chunks_exact(ABORTED_ENTRY_BYTES) {
            match read_entry(bytes) {
                Some(entry) => writeln!(
                    self.out,
                    "aborted producer={} first={} last={} last_stable={}",
                    entry.producer_id,
                    entry.first_offset,
                    entry.last_offset,
                    entry.last_stable_offset
                )?,
                None => self.damage("an entry of an unknown version")?,
            }
        }
        self.rest(content, ABORTED_ENTRY_BYTES)
    }

    fn rest(&mut self, content: &[u8], entry_bytes: usize) -> io::Result<()> {
        match content.len() % entry_bytes {
            0 => Ok(()),
            rest => self.damage(&format!("{rest} bytes at the end are no entry")),
        }
    }

    /// A producer snapshot, as Kafka's tools read it.
    fn producers(&mut self, content: &[u8]) -> io::Result<()> {
        let rows = content.get(SNAPSHOT_HEAD_BYTES..).unwrap_or_default();
        let stored = content.get(2..6).and_then(|bytes| bytes.first_chunk::<4>());
        let checked = content.get(6..).unwrap_or_default();
        if stored.copied().map(u32::from_be_bytes) != Some(crc32c(checked)) {
            self.damage("the snapshot's checksum does not match")?;
        }
        for row in rows.chunks_exact(SNAPSHOT_ROW_BYTES) {
            let long = |at: usize| i64::from_be_bytes(array(row, at));
            let int = |at: usize| i32::from_be_bytes(array(row, at));
            writeln!(
                self.out,
                "producer id={} epoch={} last_sequence={} last_offset={} offset_delta={} \
                 timestamp={} coordinator_epoch={} open_transaction_first_offset={}",
                long(0),
                i16::from_be_bytes(array(row, 8)),
                int(10),
                long(14),
                int(22),
                long(26),
                int(34),
                long(38)
            )?;
        }
        self.rest(rows, SNAPSHOT_ROW_BYTES)
    }

    fn catalog(&mut self, content: &[u8]) -> io::Result<()> {
        let decoded = match records::decode(content) {
            Ok(decoded) => decoded,
            Err(fault) => return self.damage(&fault.to_string()),
        };
        for (group, records) in decoded.groups.iter().enumerate() {
            for record in records {
                writeln!(self.out, "change group={group} {record:?}")?;
            }
        }
        match content.len() - decoded.intact_bytes {
            0 => Ok(()),
            torn => writeln!(self.out, "torn bytes={torn}"),
        }
    }

    fn text(&mut self, content: &[u8]) -> io::Result<()> {
        for line in String::from_utf8_lossy(content).lines() {
            writeln!(self.out, "line {line}")?;
        }
        Ok(())
    }
}

/// Entries of an `.index`: offset relative to the base, position.
pub(super) fn offset_entries(content: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    content
        .chunks_exact(OFFSET_ENTRY_BYTES)
        .map(|entry| (u32::from_be_bytes(array(entry, 0)), u32::from_be_bytes(array(entry, 4))))
}

/// Entries of a `.timeindex`: timestamp, offset relative to the base.
pub(super) fn time_entries(content: &[u8]) -> impl Iterator<Item = (i64, u32)> + '_ {
    content
        .chunks_exact(TIME_ENTRY_BYTES)
        .map(|entry| (i64::from_be_bytes(array(entry, 0)), u32::from_be_bytes(array(entry, 8))))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    *field.expect("invariant: rows and entries have a fixed length")
}

const SNAPSHOT_HEAD_BYTES: usize = 10;
const SNAPSHOT_ROW_BYTES: usize = 46;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ShardId;

    #[test]
    fn files_are_known_by_name_and_place() {
        let known = |path: &str| kind(Path::new(path));
        let log = "data/topics/orders-0/00000000000000000042.log";
        assert_eq!(known(log), Some(Kind::Segment(SegmentFile::Log, Offset(42))));
        let ring = manifest::ring_file_path(ShardId(1), 3);
        assert_eq!(kind(&Path::new("data").join(ring)), Some(Kind::Ring));
        assert_eq!(known("data/journal/manifest"), Some(Kind::Manifest));
        assert_eq!(known("data/journal/7/image-0"), Some(Kind::Image));
        assert_eq!(known("data/catalog/log-12"), Some(Kind::Catalog));
        assert_eq!(known("data/catalog/snapshot"), Some(Kind::Catalog));
        assert_eq!(known("data/format"), Some(Kind::Text));
        for other in ["data", "data/lock", "data/reserve", "data/journal/7/image-x", "a.log"] {
            assert_eq!(known(other), None, "{other}");
        }
    }
}
