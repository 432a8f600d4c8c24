//! Exact bytes of the format, every fault class, and proof that damage and imitation are refused.

use proptest::prelude::*;

use super::*;
use crate::ids::{PartitionIndex, TopicId};
use crate::journal::fixture::{put_batch, put_control};

fn tp(n: u8) -> TopicPartition {
    TopicPartition { topic: TopicId([n; 16]), partition: PartitionIndex(i32::from(n)) }
}

fn identity() -> Identity {
    let mut state = 0u64;
    Identity::generate(BootNumber(7), ShardId(2), || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    })
}

fn seal_of(sequence: u64, entries: u32) -> Seal {
    Seal {
        sequence: JournalSequence(sequence),
        position: 4096,
        wall_ms: 1_700_000_000_000,
        durable_through: JournalSequence(sequence - 1),
        entries,
    }
}

/// A sealed block with one batch of each of the given payloads.
fn block_of(payloads: &[&[u8]], sequence: u64) -> Vec<u8> {
    let length: usize = payloads.iter().map(|p| p.len() + BATCH_ENTRY_BYTES).sum();
    let mut buffer = vec![0xee; aligned_bytes(BLOCK_HEADER_BYTES + length)];
    let mut used = BLOCK_HEADER_BYTES;
    for payload in payloads {
        let entry = BatchEntry::whole(tp(1), 5, payload.len() as u32);
        let range = put_batch(&mut buffer, used, &entry);
        buffer[range.clone()].copy_from_slice(payload);
        used = range.end;
    }
    let aligned = seal(&mut buffer, used, &seal_of(sequence, payloads.len() as u32), &identity());
    buffer.truncate(aligned);
    buffer
}

fn entries_of(block: &[u8]) -> Vec<Result<Entry, EntryFault>> {
    let header = check(block, &identity()).expect("a valid block");
    Entries::new(Bytes::copy_from_slice(block), header).collect()
}

/// Reseals a block whose used part was edited, as a faulty writer would have.
fn reseal(block: &mut [u8], used: usize, entries: u32) {
    let _ = seal(block, used, &seal_of(3, entries), &identity());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An epoch entry and the second part of a batch, written down from the table in the file's head.
const ENTRIES_VERSION_1: &[&str] = &[
    "0401000020000000",
    "01010101010101010101010101010101",
    "01000000",
    "09000000",
    "2c01000000000000",
    "020100002c000000",
    "02020202020202020202020202020202",
    "02000000",
    "0403020100000000",
    "0a000000",
    "06000000",
    "01000000",
    "72657374",
];

#[test]
fn layout_is_fixed() {
    let mut buffer = vec![0; 4096];
    let used = put_control(
        &mut buffer,
        BLOCK_HEADER_BYTES,
        &ControlEntry::EpochStarted { tp: tp(1), epoch: LeaderEpoch(9), start: Offset(300) },
    );
    let range = put_batch(
        &mut buffer,
        used,
        &BatchEntry {
            tp: tp(2),
            append_ms: 0x0102_0304,
            batch_bytes: 10,
            part: 1,
            part_start: 6,
            part_bytes: 4,
        },
    );
    assert_eq!((used, range.clone()), (120, 168..172));
    buffer[range].copy_from_slice(b"rest");
    let seal_fields = Seal {
        sequence: JournalSequence(0x11),
        position: 0x2000,
        wall_ms: 0x33,
        durable_through: JournalSequence(0x10),
        entries: 2,
    };
    assert_eq!(seal(&mut buffer, 172, &seal_fields, &identity()), 4096);
    // Written down from the table in the file's head; the journal id is the generator's first
    // two words.
    assert_eq!(
        hex(&buffer[8..24]),
        ["524c6a62", "0100", "0200", &hex(&identity().journal_id[..8])].concat()
    );
    assert_eq!(
        hex(&buffer[32..80]),
        [
            "07000000",
            "02000000",
            "1100000000000000",
            "0020000000000000",
            "3300000000000000",
            "1000000000000000",
            "ac000000",
            "00000000"
        ]
        .concat()
    );
    assert_eq!(hex(&buffer[80..172]), ENTRIES_VERSION_1.concat());
    assert!(buffer[172..].iter().all(|&byte| byte == 0));
    let sum = u64::from_le_bytes(buffer[..8].try_into().expect("8 bytes"));
    assert_eq!(sum, xxh3_64_with_secret(&buffer[8..], &identity().secret.0));
}

#[test]
fn entries_come_back_without_a_copy() {
    let mut buffer = vec![0; 8192];
    let controls = [
        ControlEntry::LogStartAdvanced { tp: tp(1), offset: Offset(77) },
        ControlEntry::EpochStarted { tp: tp(2), epoch: LeaderEpoch(3), start: Offset(12) },
        ControlEntry::PartitionDropped { tp: tp(3) },
    ];
    let mut used = BLOCK_HEADER_BYTES;
    for entry in &controls {
        let before = used;
        used = put_control(&mut buffer, used, entry);
        assert_eq!(used - before, entry.entry_bytes());
        assert!(entry.entry_bytes() <= CONTROL_ENTRY_BYTES_MAX);
    }
    let entry = BatchEntry::whole(tp(4), -1, 5000);
    let range = put_batch(&mut buffer, used, &entry);
    buffer[range.clone()].fill(0xab);
    assert_eq!(seal(&mut buffer, range.end, &seal_of(3, 4), &identity()), 8192);
    let header = check(&buffer, &identity()).expect("valid");
    assert_eq!(header.aligned_bytes(), 8192);
    assert_eq!(header.used_bytes as usize, range.end);
    assert_eq!(header.entries, 4);
    let block = Bytes::from(buffer);
    let read: Vec<Entry> =
        Entries::new(block.clone(), header).map(|entry| entry.expect("entry")).collect();
    for (read, written) in read.iter().zip(&controls) {
        assert_eq!(read, &Entry::Control(*written));
    }
    let Entry::Batch(header, bytes) = &read[3] else { panic!("a batch") };
    assert_eq!(header, &entry);
    assert!(header.is_whole() && header.is_last());
    assert_eq!(bytes, &block.slice(range.clone()));
    assert_eq!(bytes.as_ptr(), block[range].as_ptr());
}

#[test]
fn an_empty_block_is_4_kib() {
    let mut buffer = vec![1; 4096];
    assert_eq!(seal(&mut buffer, BLOCK_HEADER_BYTES, &seal_of(9, 0), &identity()), 4096);
    assert_eq!(entries_of(&buffer), vec![]);
}

#[test]
fn each_fault_has_its_class() {
    let block = block_of(&[b"abc"], 3);
    let me = identity();
    assert_eq!(check(&block, &me).map(|header| header.sequence), Ok(JournalSequence(3)));
    assert_eq!(check(&block[..79], &me), Err(BlockFault::Short { needed: 80, found: 79 }));
    assert_eq!(check(&block[..4095], &me), Err(BlockFault::Short { needed: 4096, found: 4095 }));
    assert_eq!(check(&[0; 4096], &me), Err(BlockFault::Magic));
    assert_eq!(check(&[0xff; 4096], &me), Err(BlockFault::Magic));
    let edited = |at: usize, byte: u8| {
        let mut copy = block.clone();
        copy[at] = byte;
        check(&copy, &me)
    };
    assert_eq!(edited(12, 2), Err(BlockFault::Format(2)));
    assert_eq!(edited(14, 3), Err(BlockFault::Foreign));
    assert_eq!(edited(16, !block[16]), Err(BlockFault::Foreign));
    assert_eq!(edited(32, 6), Err(BlockFault::Foreign));
    assert_eq!(edited(64, 3), Err(BlockFault::Header), "durable through itself");
    assert_eq!(edited(72, 79), Err(BlockFault::Header), "shorter than a header");
    assert_eq!(edited(75, 0xff), Err(BlockFault::Header), "longer than any block");
    assert_eq!(edited(76, 1), Err(BlockFault::Header));
    assert_eq!(edited(73, 0x20), Err(BlockFault::Short { needed: 12288, found: 4096 }));
    assert_eq!(edited(0, !block[0]), Err(BlockFault::Checksum));
    assert_eq!(edited(40, 4), Err(BlockFault::Checksum));
    assert_eq!(edited(4095, 1), Err(BlockFault::Checksum), "padding is covered");
}

#[test]
fn blocks_of_other_journals_are_refused() {
    let block = block_of(&[b"abc"], 3);
    let me = identity();
    for other in [
        Identity { boot: BootNumber(8), ..me.clone() },
        Identity { shard: ShardId(0), ..me.clone() },
        Identity { journal_id: [0; 16], ..me.clone() },
    ] {
        assert_eq!(check(&block, &other), Err(BlockFault::Foreign));
    }
    let mut other_secret = me.clone();
    other_secret.secret.0[0] ^= 1;
    assert_eq!(check(&block, &other_secret), Err(BlockFault::Checksum));
}

#[test]
fn a_zero_checksum_is_no_proof() {
    // G3: zeros, and a block whose stored checksum is zero, are not blocks.
    let mut block = block_of(&[b"abc"], 3);
    block[..8].fill(0);
    assert_eq!(check(&block, &identity()), Err(BlockFault::Checksum));
}

#[test]
fn malformed_entries_are_faults() {
    let cases: &[(usize, u8, &str)] = &[
        (80, 0, "the entry kind is unknown"),
        (80, 9, "the entry kind is unknown"),
        (80, 2, "the batch entry contradicts itself"),
        (80, 3, "the entry is longer than its kind"),
        (80, 5, "the entry is longer than its kind"),
        (81, 2, "the entry version is unknown"),
        (82, 1, "the entry version is unknown"),
        (84, 0, "no partition has this id"),
        (84, 25, "the entry is cut short"),
        (84, 40, "the batch entry contradicts itself"),
        (87, 0x7f, "the entry is longer than its block"),
        (84, 42, "the entry is cut short"),
        (107, 0x80, "no partition has this id"),
        (116, 2, "the batch entry contradicts itself"),
        (120, 1, "the batch entry contradicts itself"),
        (124, 1, "the batch entry contradicts itself"),
        (123, 0xff, "the batch entry contradicts itself"),
    ];
    for &(at, byte, what) in cases {
        let mut block = block_of(&[b"abc"], 3);
        block[at] = byte;
        let used = 80 + BATCH_ENTRY_BYTES + 3;
        // One entry too many is declared, so that a shortened first entry leaves a rest to read.
        reseal(&mut block, used, 2);
        let read = entries_of(&block);
        let fault = read.last().expect("one").clone().expect_err("a fault");
        assert_eq!(fault.what, what, "byte {at} = {byte}");
        assert_eq!(fault.sequence, JournalSequence(3));
    }
}

#[test]
fn the_entry_count_must_match() {
    let mut block = block_of(&[b"abc", b"def"], 3);
    let used = 80 + 2 * (BATCH_ENTRY_BYTES + 3);
    reseal(&mut block, used, 1);
    let read = entries_of(&block);
    assert_eq!(read.len(), 2);
    assert_eq!(read[1].clone().expect_err("fault").what, "bytes follow the last entry");
    reseal(&mut block, used, u32::MAX);
    let read = entries_of(&block);
    assert_eq!(read.len(), 3);
    assert_eq!(read[2].clone().expect_err("fault").what, "the entry is cut short");
}

#[test]
fn a_block_torn_at_any_sector_is_refused() {
    let new = block_of(&[&[0x5a; 12_160]], 8);
    assert_eq!(new.len(), 12288);
    // What was there before: an older block of the same ring, zeros, or 0xff.
    let old = block_of(&[&[0xa5; 12_160]], 4);
    for before in [old, vec![0; 12288], vec![0xff; 12288]] {
        for sectors in 0..24 {
            let written = sectors * 512;
            let mut torn = before.clone();
            torn[..written].copy_from_slice(&new[..written]);
            let found = check(&torn, &identity()).map(|header| header.sequence.0);
            if sectors == 0 {
                assert_ne!(found, Ok(8));
            } else {
                assert!(found.is_err(), "torn after {written} bytes");
            }
            // Written back to front.
            let mut torn = before.clone();
            torn[12288 - written..].copy_from_slice(&new[12288 - written..]);
            assert_ne!(check(&torn, &identity()).map(|header| header.sequence.0), Ok(8));
        }
    }
}

#[test]
fn a_client_cannot_forge_a_block() {
    // The payload is a sequence of perfect blocks of this very journal, made without the secret.
    let mut forger = identity();
    forger.secret = Secret([0x42; SECRET_BYTES]);
    let mut forged = Vec::new();
    for sequence in 3..9 {
        let mut block = vec![0; 4096];
        let range = put_batch(&mut block, 80, &BatchEntry::whole(tp(1), 5, 100));
        let _ = seal(&mut block, range.end, &seal_of(sequence, 1), &forger);
        assert!(check(&block, &forger).is_ok());
        // Also with the unkeyed checksum, should anyone try it.
        let mut plain = block.clone();
        let sum = xxh3_64(&plain[8..]);
        plain[..8].copy_from_slice(&sum.to_le_bytes());
        forged.extend_from_slice(&block);
        forged.extend_from_slice(&plain);
    }
    let mut plausible = 0;
    for shift in 0..4096 {
        // The record bytes start at 128; some shift puts the forged blocks at 4 KiB positions.
        let mut payload = vec![0; shift];
        payload.extend_from_slice(&forged);
        let block = block_of(&[&payload], 2);
        for at in (4096..block.len()).step_by(4096) {
            let fault = check(&block[at..], &identity()).expect_err("forged");
            plausible += usize::from(fault == BlockFault::Checksum);
        }
    }
    assert!(plausible >= 12, "only the secret stood in the way");
}

#[test]
fn file_headers_come_back() {
    let header = FileHeader {
        identity: identity(),
        file: 3,
        geometry: Geometry::new(4, 64 << 20, 1 << 20).expect("geometry"),
    };
    let mut block = vec![0xcc; 8192];
    header.encode_into(&mut block);
    assert_eq!(FileHeader::decode(&block), Ok(header.clone()));
    assert_eq!(
        hex(&block[8..56]),
        [
            "524c6a66",
            "0100",
            "0200",
            &hex(&header.identity.journal_id),
            "07000000",
            "03000000",
            "04000000",
            "00001000",
            "0000000400000000"
        ]
        .concat()
    );
    assert!(block[56 + SECRET_BYTES..4096].iter().all(|&byte| byte == 0));
    assert_eq!(block[4096], 0xcc);
    assert_eq!(FileHeader::decode(&block[..4095]), Err(FileHeaderFault::Magic));
    assert_eq!(FileHeader::decode(&[0; 4096]), Err(FileHeaderFault::Magic));
    for at in (0..8).chain(12..4096) {
        let mut damaged = block.clone();
        damaged[at] ^= 0x10;
        assert_eq!(FileHeader::decode(&damaged), Err(FileHeaderFault::Damaged), "byte {at}");
    }
    let resum = |at: usize, byte: u8| {
        let mut copy = block[..4096].to_vec();
        copy[at] = byte;
        let sum = xxh3_64(&copy[8..]);
        copy[..8].copy_from_slice(&sum.to_le_bytes());
        FileHeader::decode(&copy)
    };
    assert_eq!(resum(12, 2), Err(FileHeaderFault::Format(2)));
    assert_eq!(resum(36, 4), Err(FileHeaderFault::Damaged), "file 4 of 4");
    assert_eq!(resum(40, 0), Err(FileHeaderFault::Damaged), "no files");
}

#[test]
fn secrets_are_not_printed() {
    assert_eq!(format!("{:?}", identity().secret), "Secret(..)");
}

#[test]
fn identities_use_every_random_word() {
    let mut calls = 0;
    let made = Identity::generate(BootNumber(1), ShardId(0), || {
        calls += 1;
        calls
    });
    assert_eq!(calls, 26);
    assert_eq!(made.secret.0[184..], 26u64.to_le_bytes());
}

fn any_entry() -> impl Strategy<Value = (Option<ControlEntry>, Vec<u8>, u32)> {
    prop_oneof![
        (any::<i64>(), 1u8..9).prop_map(|(offset, n)| {
            let entry = ControlEntry::LogStartAdvanced { tp: tp(n), offset: Offset(offset) };
            (Some(entry), vec![], 0)
        }),
        (1u8..9).prop_map(|n| (Some(ControlEntry::PartitionDropped { tp: tp(n) }), vec![], 0)),
        (prop::collection::vec(any::<u8>(), 1..600), 0u32..3)
            .prop_map(|(bytes, part)| (None, bytes, part)),
    ]
}

proptest! {
    #[test]
    fn what_is_put_is_read(entries in prop::collection::vec(any_entry(), 0..20)) {
        let mut buffer = vec![0; 16384];
        let mut used = BLOCK_HEADER_BYTES;
        let mut expected = Vec::new();
        for (control, bytes, part) in &entries {
            if let Some(entry) = control {
                used = put_control(&mut buffer, used, entry);
                expected.push(Entry::Control(*entry));
            } else {
                let entry = BatchEntry {
                    tp: tp(3),
                    append_ms: 1,
                    batch_bytes: part * 1000 + bytes.len() as u32,
                    part: *part,
                    part_start: part * 1000,
                    part_bytes: bytes.len() as u32,
                };
                let range = put_batch(&mut buffer, used, &entry);
                buffer[range.clone()].copy_from_slice(bytes);
                used = range.end;
                expected.push(Entry::Batch(entry, Bytes::copy_from_slice(bytes)));
            }
        }
        let aligned = seal(&mut buffer, used, &seal_of(5, entries.len() as u32), &identity());
        let read: Result<Vec<Entry>, EntryFault> =
            entries_of(&buffer[..aligned]).into_iter().collect();
        prop_assert_eq!(read, Ok(expected));
    }

    #[test]
    fn any_flipped_bit_is_noticed(at in 0usize..8192, bit in 0u8..8) {
        let mut block = block_of(&[&[7; 5000]], 3);
        block[at] ^= 1 << bit;
        prop_assert!(check(&block, &identity()).is_err());
    }

    #[test]
    fn garbage_never_panics(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        entries in any::<u32>(),
    ) {
        let _ = check(&bytes, &identity());
        let _ = FileHeader::decode(&bytes);
        // Garbage entries inside a block that validates.
        let mut block = vec![0; 4096];
        block[80..80 + bytes.len()].copy_from_slice(&bytes);
        reseal(&mut block, 80 + bytes.len(), entries);
        let read = entries_of(&block);
        prop_assert!(read.len() <= 40);
    }

    #[test]
    fn edited_entries_never_panic(
        edits in prop::collection::vec((80usize..300, any::<u8>()), 1..6),
    ) {
        let mut block = block_of(&[b"abc", b"defgh", &[1; 50]], 3);
        for (at, byte) in edits {
            block[at] = byte;
        }
        reseal(&mut block, 80 + 3 * BATCH_ENTRY_BYTES + 58, 3);
        for entry in entries_of(&block).into_iter().flatten() {
            if let Entry::Batch(header, bytes) = entry {
                prop_assert_eq!(header.part_bytes as usize, bytes.len());
            }
        }
    }
}
