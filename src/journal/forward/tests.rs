//! How little of a ring is read, and that it is enough.

use super::*;
use crate::journal::fixture::{BLOCK, Disk, FILE_BYTES};
use crate::journal::replay::{Extent, Proof, Verdict};

/// Looks as far apart as one would be in a large ring.
const TINY: Probing = Probing { whole_bytes: 16 * 1024, stride_bytes: 64 * 1024 };

fn start_at(sequence: u64) -> Start {
    let point = JournalPoint { position: 0, sequence: JournalSequence(sequence) };
    Start { point, durable_through: JournalSequence(sequence - 1) }
}

fn bytes_read(disk: &Disk) -> u64 {
    disk.files.iter().map(|file| file.bytes_read.replace(0)).sum()
}

#[test]
fn what_is_not_in_use_is_looked_at_here_and_there() {
    let geometry = Geometry::new(2, 64 * FILE_BYTES, BLOCK).expect("geometry");
    let look = |range, probing| probes(&geometry, range, probing);
    let file = geometry.file_bytes();
    let everything = look(8192..2 * file + 8192, Probing::default());
    assert_eq!(everything, [(0, 8192..file), (1, 0..file), (0, 0..8192)]);
    let probing = Probing { whole_bytes: 16_384, stride_bytes: 32 * FILE_BYTES };
    let half = 32 * FILE_BYTES;
    let found = look(8192..2 * file + 8192, probing);
    let block = u64::from(BLOCK);
    let expected = [
        (0, 8192..8192 + 16_384),
        (0, half..half + block),
        (1, 0..block),
        (1, half..half + block),
        (0, 0..8192),
    ];
    assert_eq!(found, expected);
    assert_eq!(look(file - 4096..file + 8192, probing), [(0, file - 4096..file), (1, 0..8192)]);
    assert_eq!(look(5 * 4096..5 * 4096, probing), []);
}

#[test]
fn a_ring_of_which_little_is_in_use_is_hardly_read() {
    let geometry = Geometry::new(2, 64 * FILE_BYTES, BLOCK).expect("geometry");
    let mut disk = Disk::sized(geometry, 1, 1);
    for n in 1..10 {
        disk.batch(n, 9_000);
    }
    let whole = disk.scan_whole(Some(start_at(1)));
    assert!(bytes_read(&disk) >= geometry.ring_bytes());
    let (told, found) = disk.follow(start_at(1), TINY).expect("a torn tail");
    // The chunk that holds the blocks, and a block's length in each of 128.
    let most = 2 * 4096 + 64 * FILE_BYTES + 128 * u64::from(BLOCK);
    assert!(bytes_read(&disk) <= most);
    assert_eq!((found.good.len(), found.later.len()), (9, 0));
    assert_eq!((found.verdict, found.end), (whole.verdict, whole.end));
    assert_eq!((&found.good, found.highest_sequence), (&whole.good, whole.highest_sequence));
    assert_eq!(told, disk.replay(&whole, Extent::Good).0);
}

#[test]
fn a_later_block_at_a_place_that_is_looked_at_has_everything_read() {
    let geometry = Geometry::new(4, 16 * FILE_BYTES, BLOCK).expect("geometry");
    let mut disk = Disk::sized(geometry, 1, 1);
    while disk.ring.head().position < 2 * geometry.file_bytes() {
        disk.batch(1, 15_000);
    }
    // From the tenth block to the end of the file everything is lost, and the next file begins
    // with what is left.
    let blocks_of_file = disk.placed.iter().filter(|placed| placed.0 < geometry.file_bytes());
    let last = blocks_of_file.count();
    for n in 9..last {
        disk.edit(n, |block| block.fill(0));
    }
    assert_eq!(disk.follow(start_at(1), TINY), None);
    let found = disk.scan_whole(Some(start_at(1)));
    let proof = Proof::Block(JournalSequence(last as u64 + 1));
    let position = disk.placed[8].0 + disk.placed[8].1 as u64;
    let sequence = JournalSequence(10);
    assert_eq!(found.verdict, Verdict::Damaged { sequence, position, proof });
    assert_eq!(found.later.len(), disk.placed.len() - last);
}

#[test]
fn a_missing_or_short_file_has_everything_read() {
    let geometry = Geometry::new(2, 64 * FILE_BYTES, BLOCK).expect("geometry");
    let mut disk = Disk::sized(geometry, 1, 1);
    disk.batch(1, 9_000);
    assert!(disk.follow(start_at(1), TINY).is_some());
    disk.files[1].content.borrow_mut().truncate(8_192);
    assert_eq!(disk.follow(start_at(1), TINY), None);
    let found = disk.scan_whole(Some(start_at(1)));
    assert_eq!((found.good.len(), found.verdict), (1, Verdict::TornTail { discarded_blocks: 0 }));
}

#[test]
fn what_is_in_use_is_read_once() {
    let geometry = Geometry::new(2, 64 * FILE_BYTES, BLOCK).expect("geometry");
    let mut disk = Disk::sized(geometry, 1, 1);
    while disk.ring.head().position < 96 * FILE_BYTES {
        disk.batch(1, 15_000);
    }
    let nowhere = Probing { whole_bytes: 0, stride_bytes: 2 * geometry.file_bytes() };
    bytes_read(&disk);
    let (told, found) = disk.follow(start_at(1), nowhere).expect("a torn tail");
    // Once, and headers and beginnings of the files again.
    assert!(bytes_read(&disk) <= geometry.ring_bytes() + 4 * u64::from(BLOCK));
    assert_eq!((told.len(), found.good.len()), (disk.placed.len(), disk.placed.len()));
}
