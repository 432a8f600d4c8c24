//! Journal blocks and rings: sealed ones with any content, damaged ones, and their replay.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use ringlog::ids::{
    BootNumber, JournalSequence, LeaderEpoch, Offset, PartitionIndex, ShardId, TopicId,
    TopicPartition,
};
use ringlog::io::{AlignedBuffer, File, LocalFuture};
use ringlog::journal::Geometry;
use ringlog::journal::block::{
    BLOCK_HEADER_BYTES, BatchEntry, ControlEntry, Entries, FileHeader, Identity, Seal,
    aligned_bytes, batch_entry, check, control_entry, seal,
};
use ringlog::journal::replay::{Expected, Extent, Replay, scan};

use crate::allocation::within;
use crate::run;
use crate::sample::Choices;

const FILE_BYTES: u64 = 64 * 1024;
const FILES: u32 = 2;

/// The windows that a ring is read through.
const REPLAY_BYTES: usize = 4 << 20;

fn identity() -> Identity {
    let mut word = 7_u64;
    Identity::generate(BootNumber(2), ShardId(0), || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        word
    })
}

fn partition(choices: &mut Choices<'_>) -> TopicPartition {
    TopicPartition {
        topic: TopicId([choices.byte() % 3; 16]),
        partition: PartitionIndex(i32::from(choices.byte() % 3)),
    }
}

/// A sealed block of entries; some of their bytes may be anything.
fn block(choices: &mut Choices<'_>, sequence: u64, position: u64) -> Vec<u8> {
    let mut buffer = vec![0; BLOCK_HEADER_BYTES];
    let mut entries = 0;
    for _ in 0..choices.below(5) {
        let tp = partition(choices);
        let entry = match choices.byte() % 4 {
            0 => Some(ControlEntry::LogStartAdvanced { tp, offset: Offset(choices.edge()) }),
            1 => Some(ControlEntry::EpochStarted {
                tp,
                epoch: LeaderEpoch(choices.byte().into()),
                start: Offset(choices.edge()),
            }),
            2 => Some(ControlEntry::PartitionDropped { tp }),
            _ => None,
        };
        match entry {
            Some(entry) => buffer.extend_from_slice(&control_entry(&entry)),
            None => {
                let mut content = choices.bytes(200);
                content.push(choices.byte());
                let entry = BatchEntry::whole(tp, 1_000, content.len() as u32);
                buffer.extend_from_slice(&batch_entry(&entry));
                buffer.extend_from_slice(&content);
            }
        }
        entries += 1;
    }
    let used = buffer.len();
    buffer.resize(aligned_bytes(used), 0);
    if choices.chance(3) && used > BLOCK_HEADER_BYTES {
        for _ in 0..=choices.below(3) {
            let place = BLOCK_HEADER_BYTES + choices.below(used - BLOCK_HEADER_BYTES);
            buffer[place] = choices.byte();
        }
    }
    let said = Seal {
        sequence: JournalSequence(sequence),
        position,
        wall_ms: 1_000,
        durable_through: JournalSequence(sequence - 1),
        entries: if choices.chance(6) { choices.number() as u32 } else { entries },
    };
    assert_eq!(seal(&mut buffer, used, &said, &identity()), buffer.len());
    buffer
}

#[test]
fn blocks() {
    run("blocks", |choices| {
        let mut bytes = block(choices, 5, 0);
        let header = check(&bytes, &identity()).expect("sealed here");
        within(1_024 + 4 * bytes.len(), "a block", || {
            let mut entries = Entries::new(Bytes::copy_from_slice(&bytes), header);
            let mut count = 0;
            while let Some(Ok(_)) = entries.next() {
                count += 1;
            }
            assert!(count <= bytes.len());
        });
        choices.damage(&mut bytes);
        let damaged = check(&bytes, &identity());
        assert!(damaged.is_err() || damaged == Ok(header));
        let _ = FileHeader::decode(&bytes);
        let random = choices.rest();
        let _ = check(random, &identity());
    });
}

/// A ring file in memory.
struct Held(Bytes);

impl File for Held {
    fn write_at(&self, _: Arc<AlignedBuffer>, _: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn read_at(&self, position: u64, length: usize) -> LocalFuture<'_, io::Result<Bytes>> {
        let start = usize::try_from(position).unwrap_or(usize::MAX).min(self.0.len());
        let end = start.saturating_add(length).min(self.0.len());
        Box::pin(async move { Ok(self.0.slice(start..end)) })
    }

    fn sync_data(&self) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn allocate(&self, _: u64, _: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn set_length(&self, _: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn length(&self) -> LocalFuture<'_, io::Result<u64>> {
        Box::pin(async { Ok(self.0.len() as u64) })
    }

    fn modified_ms(&self) -> LocalFuture<'_, io::Result<i64>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn close(self: Rc<Self>) -> LocalFuture<'static, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// Two ring files with a few blocks one after another, some damaged.
fn ring(choices: &mut Choices<'_>, geometry: &Geometry) -> Vec<Option<Rc<dyn File>>> {
    let mut files = vec![vec![0; FILE_BYTES as usize]; FILES as usize];
    for (number, file) in files.iter_mut().enumerate() {
        let header = FileHeader { identity: identity(), file: number as u32, geometry: *geometry };
        header.encode_into(file);
    }
    let mut position = 0;
    for sequence in 1..1 + choices.below(6) as u64 {
        let block = block(choices, sequence, position);
        let at = 4_096 + position as usize;
        files[0][at..at + block.len()].copy_from_slice(&block);
        position += block.len() as u64;
    }
    for _ in 0..choices.below(4) {
        let file = choices.below(files.len());
        let place = choices.below(16 * 1024);
        files[file][place] = choices.byte();
    }
    let lost = choices.byte() % 8;
    files
        .into_iter()
        .enumerate()
        .map(|(number, bytes)| {
            let held: Rc<dyn File> = Rc::new(Held(Bytes::from(bytes)));
            (usize::from(lost) != number).then_some(held)
        })
        .collect()
}

#[test]
fn replays() {
    let geometry = Geometry::new(FILES, FILE_BYTES, 16 * 1024).expect("a small ring");
    run("replays", move |choices| {
        let files = ring(choices, &geometry);
        let expected = Expected {
            boot: BootNumber(2),
            shard: ShardId(0),
            file_bytes: FILE_BYTES,
            holes_are_legitimate: choices.chance(2),
        };
        within(REPLAY_BYTES, "a replay", || {
            futures_lite::future::block_on(async {
                let Ok(scan) = scan(&files, &expected, None).await else { return };
                let mut replay = Replay::new(&files, &scan, Extent::GoodAndLater);
                let mut count = 0;
                while let Ok(Some(_)) = replay.next().await {
                    count += 1;
                    assert!(count < 100_000, "a replay without an end");
                }
            });
        });
    });
}
