//! Golden bytes of format 1, reading in pieces, torn ends and damage.

use proptest::prelude::*;

use super::*;
use crate::ids::{JournalSequence, PartitionIndex, TopicId};

fn tp(n: u8) -> TopicPartition {
    TopicPartition { topic: TopicId([n; 16]), partition: PartitionIndex(i32::from(n)) }
}

fn entries() -> Vec<StrandedEntry> {
    vec![
        StrandedEntry::EpochStarted { epoch: LeaderEpoch(4), start: Offset(7) },
        StrandedEntry::Batch { append_ms: 0x0102, bytes: Bytes::from_static(b"a batch") },
        StrandedEntry::LogStartAdvanced { offset: Offset(8) },
    ]
}

fn file_of(entries: &[StrandedEntry]) -> Vec<u8> {
    let mut file = encode_head(tp(1));
    for entry in entries {
        let place = file.len() as u64;
        encode_record(entry, place, &mut file);
    }
    file
}

/// What a reader makes of a file that comes in pieces of `step` bytes.
fn read(
    file: &[u8],
    expected_bytes: u64,
    step: usize,
) -> Result<(Vec<StrandedEntry>, u64), StrandedFault> {
    let mut reader = StrandedReader::new(tp(1), expected_bytes);
    let mut entries = Vec::new();
    for piece in file.chunks(step) {
        reader.feed(piece);
        while let Some(entry) = reader.next_entry()? {
            entries.push(entry);
        }
    }
    Ok((entries, reader.finish()?))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Format 1 as it was first written; must be readable for ever.
const VERSION_1: &[&str] = &[
    "524c7374",
    "0100",
    "0000",
    "01010101010101010101010101010101",
    "01000000",
    "b7a3727bba08fa37",
    "2541a1833bdeae97",
    "0c000000",
    "03000000",
    "04000000",
    "0700000000000000",
    "5bf95934f6fb96f7",
    "0f000000",
    "01000000",
    "0201000000000000",
    "61206261746368",
    "c14e8e8bd0f55bc6",
    "08000000",
    "02000000",
    "0800000000000000",
];

#[test]
fn version_1_is_read_and_written() {
    let file = file_of(&entries());
    assert_eq!(hex(&file), VERSION_1.concat());
    assert_eq!(file.len(), HEAD_BYTES + 28 + 31 + 24);
    for step in [1, 2, 7, 64, 4096] {
        assert_eq!(read(&file, 119, step), Ok((entries(), 119)));
    }
}

#[test]
fn a_torn_end_is_cut_and_damage_is_named() {
    let file = file_of(&entries());
    let ends = [36, 64, 95, 119];
    for cut in 0..file.len() {
        let whole = ends.iter().filter(|&&end| end <= cut).max().copied().unwrap_or(0);
        let count = ends.iter().filter(|&&end| end <= cut).count().saturating_sub(1);
        assert_eq!(read(&file[..cut], 0, 10), Ok((entries()[..count].to_vec(), whole as u64)));
        // The image row vouches for all of it.
        assert_eq!(
            read(&file[..cut], 119, 10),
            Err(StrandedFault::Damaged { at: whole as u64, expected: 119 })
        );
    }
    for at in HEAD_BYTES..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 4;
        let whole = ends.iter().filter(|&&end| end <= at).max().copied().expect("the head");
        let (_, found) = read(&damaged, 36, 4096).expect("cut");
        assert_eq!(found, whole as u64, "byte {at}");
        assert_eq!(
            read(&damaged, 119, 4096),
            Err(StrandedFault::Damaged { at: whole as u64, expected: 119 })
        );
    }
}

#[test]
fn the_head_must_fit() {
    let file = file_of(&entries());
    for at in (0..4).chain(6..36) {
        let mut damaged = file.clone();
        damaged[at] ^= 4;
        assert_eq!(read(&damaged, 36, 4096), Err(StrandedFault::Head), "byte {at}");
        assert_eq!(read(&damaged, 0, 4096), Ok((vec![], 0)), "a head torn when it was made");
    }
    let mut newer = file;
    newer[4] = 2;
    assert_eq!(read(&newer, 0, 4096), Err(StrandedFault::Format(2)));
}

#[test]
fn a_record_at_another_place_is_not_taken() {
    let file = file_of(&entries());
    let mut moved = file[..64].to_vec();
    moved.extend_from_slice(&file[95..]);
    assert_eq!(read(&moved, 0, 4096), Ok((entries()[..1].to_vec(), 64)));
    // Nor the same record twice.
    let mut twice = file[..64].to_vec();
    twice.extend_from_slice(&file[36..64]);
    assert_eq!(read(&twice, 0, 4096), Ok((entries()[..1].to_vec(), 64)));
}

#[test]
fn replayed_entries_are_kept_but_for_drops() {
    let batch = Replayed::Batch {
        tp: tp(2),
        append_ms: 5,
        bytes: Bytes::from_static(b"x"),
        sequence: JournalSequence(9),
    };
    assert_eq!(
        StrandedEntry::from_replayed(&batch),
        Some((tp(2), StrandedEntry::Batch { append_ms: 5, bytes: Bytes::from_static(b"x") }))
    );
    let started = Replayed::Control(ControlEntry::EpochStarted {
        tp: tp(2),
        epoch: LeaderEpoch(4),
        start: Offset(7),
    });
    assert_eq!(StrandedEntry::from_replayed(&started), Some((tp(2), entries()[0].clone())));
    let advanced =
        Replayed::Control(ControlEntry::LogStartAdvanced { tp: tp(2), offset: Offset(8) });
    assert_eq!(StrandedEntry::from_replayed(&advanced), Some((tp(2), entries()[2].clone())));
    let dropped = Replayed::Control(ControlEntry::PartitionDropped { tp: tp(2) });
    assert_eq!(StrandedEntry::from_replayed(&dropped), None);
}

proptest! {
    #[test]
    fn garbage_after_the_head_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        step in 1usize..50,
    ) {
        let mut file = encode_head(tp(1));
        file.extend_from_slice(&bytes);
        let (entries, whole) = read(&file, 0, step).expect("cut");
        prop_assert_eq!((entries, whole), (vec![], 36));
        let _ = read(&bytes, 0, step);
    }

    #[test]
    fn records_of_any_content_with_a_good_checksum_never_panic(
        kind in any::<u8>(),
        body in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut file = encode_head(tp(1));
        let mut record = vec![0; 8];
        record.extend_from_slice(&(body.len() as u32).to_le_bytes());
        record.extend_from_slice(&[kind, 0, 0, 0]);
        record.extend_from_slice(&body);
        let sum = xxh3_64_with_seed(&record[8..], 36);
        record[..8].copy_from_slice(&sum.to_le_bytes());
        file.extend_from_slice(&record);
        let (entries, whole) = read(&file, 0, 4096).expect("read");
        prop_assert_eq!(whole, if entries.is_empty() { 36 } else { file.len() as u64 });
    }
}
