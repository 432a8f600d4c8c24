//! A ring on a disk in memory, written block by block as a shard would, for tests to damage.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use futures_lite::future::block_on;

use super::block::{
    BATCH_ENTRY_BYTES, BLOCK_HEADER_BYTES, BatchEntry, ControlEntry, FileHeader, Identity, Seal,
    aligned_bytes, batch_entry, control_entry, seal,
};
use super::forward::{Probing, scan_forward};
use super::replay::{Expected, Extent, Replay, Replayed, Scan, Start, scan};
use super::ring::{Geometry, Ring};
use crate::ids::{BootNumber, JournalSequence, PartitionIndex, ShardId, TopicId, TopicPartition};
use crate::io::{AlignedBuffer, File, LocalFuture};

/// A file in memory that also keeps the length of its longest read.
pub(super) struct MemoryFile {
    pub(super) content: RefCell<Vec<u8>>,
    pub(super) longest_read: Cell<usize>,
    pub(super) fails_at: Cell<Option<u64>>,
    pub(super) bytes_read: Cell<u64>,
}

impl File for MemoryFile {
    fn write_at(&self, _: Arc<AlignedBuffer>, _: u64) -> LocalFuture<'_, io::Result<()>> {
        unreachable!("replay only reads")
    }

    fn read_at(&self, position: u64, length: usize) -> LocalFuture<'_, io::Result<Bytes>> {
        assert!(position.is_multiple_of(4096) && length.is_multiple_of(4096), "unaligned read");
        self.longest_read.set(self.longest_read.get().max(length));
        let end = position + length as u64;
        self.bytes_read.set(self.bytes_read.get() + length as u64);
        if self.fails_at.get().is_some_and(|at| (position..end).contains(&at)) {
            return Box::pin(async { Err(io::Error::from_raw_os_error(5)) });
        }
        let content = self.content.borrow();
        let start = content.len().min(position as usize);
        let end = content.len().min(end as usize);
        let bytes = Bytes::copy_from_slice(&content[start..end]);
        Box::pin(async move { Ok(bytes) })
    }

    fn sync_data(&self) -> LocalFuture<'_, io::Result<()>> {
        unreachable!("replay only reads")
    }

    fn allocate(&self, _: u64, _: u64) -> LocalFuture<'_, io::Result<()>> {
        unreachable!("replay only reads")
    }

    fn set_length(&self, _: u64) -> LocalFuture<'_, io::Result<()>> {
        unreachable!("replay only reads")
    }

    fn length(&self) -> LocalFuture<'_, io::Result<u64>> {
        unreachable!("replay only reads")
    }

    fn modified_ms(&self) -> LocalFuture<'_, io::Result<i64>> {
        unreachable!("replay only reads")
    }

    fn close(self: Rc<Self>) -> LocalFuture<'static, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

pub(super) fn tp(n: u8) -> TopicPartition {
    TopicPartition { topic: TopicId([n; 16]), partition: PartitionIndex(i32::from(n)) }
}

pub(super) fn identity(boot: u32) -> Identity {
    let mut state = u64::from(boot);
    Identity::generate(BootNumber(boot), ShardId(2), || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    })
}

pub(super) const FILE_BYTES: u64 = 64 * 1024;
pub(super) const BLOCK: u32 = 16 * 1024;

/// What goes into a block.
#[derive(Clone)]
pub(super) enum Put {
    Whole(u8, Vec<u8>),
    Part { n: u8, total: u32, part: u32, start: u32, bytes: Vec<u8> },
    Control(ControlEntry),
}

/// A ring and the disk it is on.
pub(super) struct Disk {
    pub(super) ring: Ring,
    pub(super) identity: Identity,
    pub(super) files: Vec<Rc<MemoryFile>>,
    pub(super) placed: Vec<(u64, usize)>,
    /// Blocks that are durable when a block is submitted trail it by so many.
    pub(super) in_flight: u64,
}

impl Disk {
    pub(super) fn new(boot: u32, first_sequence: u64) -> Disk {
        Disk::sized(Geometry::new(4, FILE_BYTES, BLOCK).expect("geometry"), boot, first_sequence)
    }

    pub(super) fn sized(geometry: Geometry, boot: u32, first_sequence: u64) -> Disk {
        let files = (0..geometry.files())
            .map(|_| {
                Rc::new(MemoryFile {
                    content: RefCell::new(vec![0; geometry.file_bytes() as usize]),
                    longest_read: Cell::new(0),
                    fails_at: Cell::new(None),
                    bytes_read: Cell::new(0),
                })
            })
            .collect();
        let mut disk = Disk {
            ring: Ring::new(geometry, JournalSequence(first_sequence)),
            identity: identity(boot),
            files,
            placed: Vec::new(),
            in_flight: 1,
        };
        disk.write_headers();
        disk
    }

    pub(super) fn write_headers(&mut self) {
        for (n, file) in self.files.iter().enumerate() {
            let header = FileHeader {
                identity: self.identity.clone(),
                file: n as u32,
                geometry: *self.ring.geometry(),
            };
            header.encode_into(&mut file.content.borrow_mut());
        }
    }

    /// The next boot takes the ring over.
    pub(super) fn next_boot(&mut self, first_sequence: u64) {
        self.ring = Ring::new(*self.ring.geometry(), JournalSequence(first_sequence));
        self.identity = identity(self.identity.boot.0 + 1);
        self.placed.clear();
        self.write_headers();
    }

    pub(super) fn block(&mut self, puts: &[Put]) -> JournalSequence {
        let mut buffer = vec![0; 2 << 20];
        let mut used = BLOCK_HEADER_BYTES;
        for put in puts {
            let (entry, bytes) = match put {
                Put::Control(entry) => {
                    used = put_control(&mut buffer, used, entry);
                    continue;
                }
                Put::Whole(n, bytes) => (BatchEntry::whole(tp(*n), 77, bytes.len() as u32), bytes),
                Put::Part { n, total, part, start, bytes } => {
                    let entry = BatchEntry {
                        tp: tp(*n),
                        append_ms: 77,
                        batch_bytes: *total,
                        part: *part,
                        part_start: *start,
                        part_bytes: bytes.len() as u32,
                    };
                    (entry, bytes)
                }
            };
            let range = put_batch(&mut buffer, used, &entry);
            buffer[range.clone()].copy_from_slice(bytes);
            used = range.end;
        }
        let placement = self.ring.place(aligned_bytes(used));
        let fields = Seal {
            sequence: placement.sequence,
            position: placement.position,
            wall_ms: 1,
            durable_through: JournalSequence(placement.sequence.0 - self.in_flight),
            entries: puts.len() as u32,
        };
        let aligned = seal(&mut buffer, used, &fields, &self.identity);
        let start = placement.offset as usize;
        self.files[placement.file as usize].content.borrow_mut()[start..start + aligned]
            .copy_from_slice(&buffer[..aligned]);
        self.placed.push((placement.position, aligned));
        placement.sequence
    }

    /// A block with one batch of `length` bytes for partition `n`.
    pub(super) fn batch(&mut self, n: u8, length: usize) -> JournalSequence {
        self.block(&[Put::Whole(n, vec![n; length])])
    }

    pub(super) fn as_files(&self) -> Vec<Option<Rc<dyn File>>> {
        self.files.iter().map(|file| Some(Rc::clone(file) as Rc<dyn File>)).collect()
    }

    pub(super) fn expected(&self) -> Expected {
        Expected {
            boot: self.identity.boot,
            shard: ShardId(2),
            file_bytes: self.ring.geometry().file_bytes(),
            holes_are_legitimate: false,
        }
    }

    /// What a scan finds, and what a start finds, which reads less: it must be the same.
    pub(super) fn scan(&self, start: Option<Start>) -> Scan {
        let whole = self.scan_whole(start);
        if let Some(start) = start {
            let (files, expected, mut keep_bytes) = (self.as_files(), self.expected(), u64::MAX);
            let found = scan_forward(&files, &expected, start, &mut keep_bytes, Probing::default());
            let found = block_on(found).expect("scan");
            assert_eq!((&found.good, &found.later), (&whole.good, &whole.later));
            assert_eq!((found.end, found.verdict), (whole.end, whole.verdict));
            assert_eq!(found.highest_sequence, whole.highest_sequence);
            assert_eq!((&found.ring, found.headers_lost), (&whole.ring, whole.headers_lost));
        }
        whole
    }

    pub(super) fn scan_whole(&self, start: Option<Start>) -> Scan {
        block_on(scan(&self.as_files(), &self.expected(), start)).expect("scan")
    }

    /// Edits the n-th placed block on disk.
    pub(super) fn edit(&self, n: usize, edit: impl FnOnce(&mut [u8])) {
        let (position, aligned) = self.placed[n];
        let (file, offset) = self.ring.geometry().locate(position);
        let start = offset as usize;
        edit(&mut self.files[file as usize].content.borrow_mut()[start..start + aligned]);
    }

    pub(super) fn replay(&self, scan: &Scan, extent: Extent) -> (Vec<Replayed>, u64) {
        let files = self.as_files();
        let mut replay = Replay::new(&files, scan, extent);
        let mut read = Vec::new();
        while let Some(entry) = block_on(replay.next()).expect("entry") {
            read.push(entry);
        }
        (read, replay.torn_batches())
    }
}

/// Writes what stands in front of a batch's record bytes at `used`, and says where those go.
pub(super) fn put_batch(buffer: &mut [u8], used: usize, entry: &BatchEntry) -> Range<usize> {
    let start = used + BATCH_ENTRY_BYTES;
    buffer[used..start].copy_from_slice(&batch_entry(entry));
    start..start + entry.part_bytes as usize
}

/// Writes a control entry at `used`, and says what is used then.
pub(super) fn put_control(buffer: &mut [u8], used: usize, entry: &ControlEntry) -> usize {
    let bytes = control_entry(entry);
    buffer[used..used + bytes.len()].copy_from_slice(&bytes);
    used + bytes.len()
}
