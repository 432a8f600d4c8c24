//! Rings written as the real writer does, then torn, damaged, overtaken and forged, and read back.

use futures_lite::future::block_on;
use proptest::prelude::*;

use super::*;
use crate::ids::{LeaderEpoch, Offset};
use crate::journal::block::{BatchEntry, Seal, seal};
use crate::journal::fixture::put_batch;
use crate::journal::fixture::{BLOCK, Disk, Put, identity, tp};
use crate::journal::ring::Ring;
use crate::limits::JOURNAL_REPLAY_CHUNK_BYTES;

fn start_at(position: u64, sequence: u64) -> Option<Start> {
    Some(Start {
        point: JournalPoint { position, sequence: JournalSequence(sequence) },
        durable_through: JournalSequence(sequence - 1),
    })
}

fn sequences(blocks: &[BlockHeader]) -> Vec<u64> {
    blocks.iter().map(|block| block.sequence.0).collect()
}

fn clean(discarded_blocks: u64) -> Verdict {
    Verdict::TornTail { discarded_blocks }
}

fn batch(n: u8, bytes: Vec<u8>, sequence: u64) -> Replayed {
    Replayed::Batch {
        tp: tp(n),
        append_ms: 77,
        bytes: bytes.into(),
        sequence: JournalSequence(sequence),
    }
}

#[test]
fn a_ring_comes_back_in_order() {
    let mut disk = Disk::new(5, 100);
    let advanced = ControlEntry::LogStartAdvanced { tp: tp(1), offset: Offset(3) };
    let started = ControlEntry::EpochStarted { tp: tp(2), epoch: LeaderEpoch(5), start: Offset(0) };
    disk.block(&[Put::Whole(1, vec![1; 10]), Put::Control(advanced)]);
    disk.block(&[]);
    disk.block(&[Put::Control(started), Put::Whole(2, vec![2; 9000]), Put::Whole(1, vec![3; 5])]);
    let scan = disk.scan(start_at(0, 100));
    assert_eq!(sequences(&scan.good), [100, 101, 102]);
    assert_eq!(scan.later, []);
    assert_eq!(scan.verdict, clean(0));
    assert_eq!(scan.end, disk.ring.head());
    assert_eq!(scan.highest_sequence, JournalSequence(102));
    assert_eq!(scan.headers_lost, 0);
    assert_eq!(scan.ring, Some((disk.identity.clone(), *disk.ring.geometry())));
    let expected = vec![
        batch(1, vec![1; 10], 100),
        Replayed::Control(advanced),
        Replayed::Control(started),
        batch(2, vec![2; 9000], 102),
        batch(1, vec![3; 5], 102),
    ];
    assert_eq!(disk.replay(&scan, Extent::Good), (expected, 0));
}

#[test]
fn replay_begins_at_the_image_and_wraps_around() {
    let mut disk = Disk::new(1, 1);
    let mut points = Vec::new();
    for n in 0..50u8 {
        points.push(disk.ring.head());
        disk.batch(n % 7 + 1, 9000 + usize::from(n) * 40);
        if n >= 8 {
            disk.ring.release_through(points[usize::from(n) - 8]);
        }
    }
    assert!(disk.ring.head().position > 2 * disk.ring.geometry().ring_bytes());
    for (first, point) in points.iter().enumerate().skip(42) {
        let scan = disk.scan(start_at(point.position, point.sequence.0));
        assert_eq!(sequences(&scan.good), (first as u64 + 1..=50).collect::<Vec<_>>());
        assert_eq!((scan.verdict, scan.end), (clean(0), disk.ring.head()));
    }
    // Nothing after the image: a clean stop.
    let end = disk.ring.head();
    let scan = disk.scan(start_at(end.position, end.sequence.0));
    assert_eq!((scan.good.len(), scan.verdict, scan.end), (0, clean(0), end));
    assert_eq!(scan.highest_sequence, JournalSequence(50));
}

#[test]
fn without_an_image_the_oldest_surviving_block_is_the_start() {
    let mut disk = Disk::new(1, 1);
    // File 0 of the first lap ends in a small block that later laps skip over.
    for length in [16_000, 16_000, 16_000, 4_000, 3_000] {
        disk.batch(1, length);
    }
    assert_eq!(disk.placed[4].0, 4096 + 3 * 16384 + 8192);
    for _ in 0..20 {
        disk.ring.release_through(disk.ring.head());
        disk.batch(2, 14_000);
    }
    let scan = disk.scan(None);
    assert_eq!(scan.verdict, clean(0));
    // The head overtook 13; 4 and 5 are still whole on disk, and stale.
    assert_eq!(sequences(&scan.good), (14..=25).collect::<Vec<_>>());
    assert_eq!(scan.end, disk.ring.head());
    let empty = Disk::new(1, 1).scan(None);
    assert_eq!((empty.good.len(), empty.verdict, empty.end), (0, clean(0), NOWHERE));
}

#[test]
fn a_torn_last_block_is_the_end_at_every_sector() {
    for written in (0..8192).step_by(512) {
        let mut disk = Disk::new(1, 1);
        disk.batch(1, 100);
        let end = disk.ring.head();
        disk.batch(2, 8192 - 128);
        disk.edit(1, |block| block[written..].fill(0x11));
        let scan = disk.scan(start_at(0, 1));
        assert_eq!(sequences(&scan.good), [1], "torn after {written}");
        assert_eq!((scan.verdict, scan.end), (clean(0), end));
        assert_eq!(disk.replay(&scan, Extent::Good).0, [batch(1, vec![1; 100], 1)]);
    }
}

#[test]
fn a_block_that_was_overtaken_in_flight_is_not_damage() {
    let mut disk = Disk::new(1, 1);
    disk.in_flight = 2;
    disk.ring = Ring::new(*disk.ring.geometry(), JournalSequence(3));
    for n in 1..6 {
        disk.batch(n, 100);
    }
    // 6 was in flight when 7 was submitted: only 7 is on disk.
    disk.edit(3, |block| block.fill(0));
    let scan = disk.scan(start_at(0, 3));
    assert_eq!(sequences(&scan.good), [3, 4, 5]);
    assert_eq!(sequences(&scan.later), [7]);
    assert_eq!(scan.verdict, clean(1));
    assert_eq!(scan.highest_sequence, JournalSequence(7));
    assert_eq!(scan.end.sequence, JournalSequence(6));
}

#[test]
fn damage_before_an_acknowledged_block_is_named() {
    for damaged in 0..5 {
        let mut disk = Disk::new(1, 1);
        for n in 1..7 {
            disk.batch(n, 10_000);
        }
        let position = disk.placed[damaged].0;
        disk.edit(damaged, |block| block[9000] ^= 1);
        let scan = disk.scan(start_at(0, 1));
        let sequence = damaged as u64 + 1;
        let at = damaged.checked_sub(1).map_or(0, |n| disk.placed[n].0 + disk.placed[n].1 as u64);
        assert_eq!(
            scan.verdict,
            Verdict::Damaged {
                sequence: JournalSequence(sequence),
                position: at,
                proof: Proof::Block(JournalSequence(sequence + 1)),
            }
        );
        assert!(at <= position);
        assert_eq!(sequences(&scan.good), (1..sequence).collect::<Vec<_>>());
        assert_eq!(sequences(&scan.later), (sequence + 1..=6).collect::<Vec<_>>());
        let (all, torn) = disk.replay(&scan, Extent::GoodAndLater);
        let kept: Vec<Replayed> = (1..7u8)
            .filter(|&n| u64::from(n) != sequence)
            .map(|n| batch(n, vec![n; 10_000], n.into()))
            .collect();
        assert_eq!((all, torn), (kept, 0));
    }
}

#[test]
fn an_empty_block_proves_the_last_one() {
    let mut disk = Disk::new(1, 1);
    disk.batch(1, 100);
    disk.batch(2, 100);
    disk.block(&[]);
    disk.edit(1, |block| block.fill(0));
    let verdict = Verdict::Damaged {
        sequence: JournalSequence(2),
        position: 8192,
        proof: Proof::Block(JournalSequence(3)),
    };
    assert_eq!(disk.scan(start_at(0, 1)).verdict, verdict);
}

#[test]
fn the_image_proves_what_was_durable() {
    let mut disk = Disk::new(1, 1);
    for n in 1..4 {
        disk.batch(n, 100);
    }
    disk.edit(2, |block| block.fill(0));
    let mut start = start_at(0, 1).expect("start");
    start.durable_through = JournalSequence(2);
    assert_eq!(disk.scan(Some(start)).verdict, clean(0));
    start.durable_through = JournalSequence(3);
    let position = disk.placed[2].0;
    assert_eq!(
        disk.scan(Some(start)).verdict,
        Verdict::Damaged { sequence: JournalSequence(3), position, proof: Proof::Image }
    );
    // Even if not one file header is left.
    for file in &disk.files {
        file.content.borrow_mut()[..4096].fill(0);
    }
    let scan = disk.scan(Some(start));
    assert_eq!((scan.ring, scan.good.len()), (None, 0));
    assert_eq!(
        scan.verdict,
        Verdict::Damaged { sequence: JournalSequence(1), position: 0, proof: Proof::Image }
    );
    assert_eq!(scan.highest_sequence, JournalSequence(3));
}

#[test]
fn holes_are_cut_only_where_they_are_legitimate() {
    let mut disk = Disk::new(1, 1);
    for n in 1..7 {
        disk.batch(n, 100);
    }
    disk.edit(2, |block| block.fill(0));
    disk.edit(4, |block| block.fill(0));
    let position = disk.placed[2].0;
    let mut expected = disk.expected();
    expected.holes_are_legitimate = true;
    let files = disk.as_files();
    let scan = block_on(scan(&files, &expected, start_at(0, 1))).expect("scan");
    assert_eq!(
        scan.verdict,
        Verdict::Hole { sequence: JournalSequence(3), position, lost_blocks: 4 }
    );
    assert_eq!((sequences(&scan.good), sequences(&scan.later)), (vec![1, 2], vec![4, 6]));
    assert_eq!(
        disk.scan(start_at(0, 1)).verdict,
        Verdict::Damaged {
            sequence: JournalSequence(3),
            position,
            proof: Proof::Block(JournalSequence(4)),
        }
    );
    // A torn tail is no hole.
    disk.edit(3, |block| block.fill(0));
    disk.edit(5, |block| block.fill(0));
    let torn = block_on(super::scan(&files, &expected, start_at(0, 1))).expect("scan");
    assert_eq!(torn.verdict, clean(0));
}

#[test]
fn blocks_of_an_older_boot_never_validate() {
    let mut disk = Disk::new(1, 1);
    for n in 1..9 {
        disk.batch(n, 6000);
    }
    disk.next_boot(20);
    assert_eq!(disk.scan(start_at(0, 20)).verdict, clean(0));
    assert_eq!(disk.scan(None).end, NOWHERE);
    disk.batch(1, 3000);
    let scan = disk.scan(start_at(0, 20));
    assert_eq!((sequences(&scan.good), scan.verdict), (vec![20], clean(0)));
    assert_eq!(scan.highest_sequence, JournalSequence(20));
    // A file whose new header never reached the disk is identified by the others.
    let old = Disk::new(1, 1);
    disk.files[1].content.borrow_mut()[..4096]
        .copy_from_slice(&old.files[1].content.borrow()[..4096]);
    disk.files[2].content.borrow_mut()[..4096].fill(0xff);
    let scan = disk.scan(start_at(0, 20));
    assert_eq!((sequences(&scan.good), scan.headers_lost), (vec![20], 2));
    // The manifest still names the old boot: the new rings do not count.
    let mut expected = disk.expected();
    expected.boot = BootNumber(9);
    let files = disk.as_files();
    let scan = block_on(super::scan(&files, &expected, None)).expect("scan");
    assert_eq!((scan.ring, scan.headers_lost), (None, 0));
}

#[test]
fn any_one_header_suffices_and_files_may_be_missing_or_short() {
    let mut disk = Disk::new(1, 1);
    for n in 1..10 {
        disk.batch(n, 16_000);
    }
    for kept in 0..4 {
        for (n, file) in disk.files.iter().enumerate() {
            if n != kept {
                file.content.borrow_mut()[..4096].fill(0);
            }
        }
        let scan = disk.scan(start_at(0, 1));
        assert_eq!((scan.good.len(), scan.headers_lost), (9, 3), "only header {kept}");
        disk.write_headers();
    }
    let mut files = disk.as_files();
    files[1] = None;
    let scan = block_on(super::scan(&files, &disk.expected(), start_at(0, 1))).expect("scan");
    assert_eq!((sequences(&scan.good), sequences(&scan.later)), (vec![1, 2, 3], vec![7, 8, 9]));
    assert!(matches!(scan.verdict, Verdict::Damaged { sequence: JournalSequence(4), .. }));
    // File 2 holds 7 to 9; it is cut inside 8.
    disk.files[2].content.borrow_mut().truncate(4096 + 16384 + 5000);
    let scan = disk.scan(start_at(0, 1));
    assert_eq!((sequences(&scan.good).len(), scan.verdict), (7, clean(0)));
    disk.files[2].content.borrow_mut().truncate(100);
    assert_eq!(disk.scan(start_at(0, 1)).good.len(), 6);
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let refuses = |edit: &dyn Fn(&mut Disk, &mut Expected)| {
        let mut disk = Disk::new(3, 1);
        let mut expected = disk.expected();
        edit(&mut disk, &mut expected);
        let found = block_on(scan(&disk.as_files(), &expected, None));
        let Err(ReplayError::Foreign { file, what }) = found else { panic!("accepted") };
        (file, what)
    };
    assert_eq!(
        refuses(&|_, expected| expected.shard = ShardId(1)),
        (0, "it is another file of the journal")
    );
    assert_eq!(
        refuses(&|_, expected| expected.file_bytes = 4096),
        (0, "its shape is not the manifest's")
    );
    assert_eq!(refuses(&|disk, _| disk.files.swap(1, 2)), (1, "it is another file of the journal"));
    assert_eq!(
        refuses(&|disk, _| {
            disk.files.pop();
        }),
        (0, "its shape is not the manifest's")
    );
    assert_eq!(
        refuses(&|disk, _| {
            let mut other = identity(3);
            other.journal_id[0] ^= 1;
            let header = FileHeader { identity: other, file: 3, geometry: *disk.ring.geometry() };
            header.encode_into(&mut disk.files[3].content.borrow_mut());
        }),
        (3, "its journal id differs from the other files'")
    );
}

#[test]
fn read_errors_are_not_taken_for_the_end() {
    let mut disk = Disk::new(1, 1);
    disk.batch(1, 100);
    disk.files[2].fails_at.set(Some(40_960));
    let error = block_on(scan(&disk.as_files(), &disk.expected(), None)).expect_err("EIO");
    let ReplayError::Read { file, offset, source } = error else { panic!("{error}") };
    assert_eq!((file, offset, source.raw_os_error()), (2, 4096, Some(5)));
}

#[test]
fn a_clean_stop_needs_no_scan() {
    let start = start_at(73_728, 31).expect("start");
    let scan = Scan::after_clean_stop(start);
    assert_eq!((scan.good.len(), scan.verdict, scan.end), (0, clean(0), start.point));
    assert_eq!(scan.highest_sequence, JournalSequence(30));
}

#[test]
fn forged_blocks_in_payloads_are_never_found() {
    let mut disk = Disk::new(1, 1);
    // Perfect blocks of this ring, made without the secret, for every position of the ring.
    let mut forger = disk.identity.clone();
    forger.secret.0[5] ^= 1;
    let mut payload = vec![0; 4096 - 128];
    for n in 0..3u64 {
        let mut block = vec![0; 4096];
        let range = put_batch(&mut block, 80, &BatchEntry::whole(tp(9), 1, 50));
        let fields = Seal {
            sequence: JournalSequence(50 + n),
            position: 8192 + n * 4096,
            wall_ms: 1,
            durable_through: JournalSequence(49 + n),
            entries: 1,
        };
        let _ = seal(&mut block, range.end, &fields, &forger);
        payload.extend_from_slice(&block);
    }
    assert_eq!(payload.len() + 128, BLOCK as usize);
    disk.block(&[Put::Whole(1, payload)]);
    // The outer block is torn away, so that every position in it is probed.
    for keep_outer in [true, false] {
        if !keep_outer {
            disk.edit(0, |block| block[0] ^= 1);
        }
        let scan = disk.scan(start_at(0, 1));
        assert_eq!(scan.good.len(), usize::from(keep_outer));
        assert_eq!((scan.later.len(), scan.verdict), (0, clean(0)));
    }
    let found = disk.files[0].content.borrow()[8192..12288].to_vec();
    assert_eq!(block::peek(&found, &disk.identity).map(|header| header.sequence.0), Ok(50));
    assert_eq!(block::check(&found, &disk.identity), Err(block::BlockFault::Checksum));
}

#[test]
fn a_block_copied_to_another_position_does_not_count() {
    let mut disk = Disk::new(1, 1);
    disk.batch(1, 100);
    disk.batch(2, 100);
    let copy = disk.files[0].content.borrow()[8192..12288].to_vec();
    disk.edit(1, |block| block.fill(0));
    disk.files[3].content.borrow_mut()[16384..20480].copy_from_slice(&copy);
    let scan = disk.scan(start_at(0, 1));
    assert_eq!((sequences(&scan.good), scan.later.len(), scan.verdict), (vec![1], 0, clean(0)));
}

fn part(n: u8, total: u32, part: u32, start: u32, length: usize) -> Put {
    Put::Part { n, total, part, start, bytes: vec![part as u8; length] }
}

fn joined(parts: &[(u8, usize)]) -> Vec<u8> {
    parts.iter().flat_map(|&(byte, length)| vec![byte; length]).collect()
}

#[test]
fn split_batches_are_joined_among_others() {
    let mut disk = Disk::new(1, 1);
    disk.block(&[Put::Whole(1, vec![9; 4]), part(2, 20_000, 0, 0, 5000)]);
    disk.block(&[part(2, 20_000, 1, 5000, 14_000)]);
    disk.block(&[part(2, 20_000, 2, 19_000, 1000), Put::Whole(2, vec![8; 3])]);
    let scan = disk.scan(start_at(0, 1));
    let whole = joined(&[(0, 5000), (1, 14_000), (2, 1000)]);
    let expected = vec![batch(1, vec![9; 4], 1), batch(2, whole, 3), batch(2, vec![8; 3], 3)];
    assert_eq!(disk.replay(&scan, Extent::Good), (expected, 0));
}

#[test]
fn a_torn_split_batch_is_dropped_whole_and_its_neighbours_stay() {
    for torn in [1, 2] {
        let mut disk = Disk::new(1, 1);
        disk.block(&[Put::Whole(1, vec![9; 4]), part(2, 20_000, 0, 0, 5000)]);
        disk.block(&[part(2, 20_000, 1, 5000, 14_000), Put::Whole(3, vec![7; 2])]);
        disk.block(&[part(2, 20_000, 2, 19_000, 1000)]);
        disk.edit(torn, |block| block[200] ^= 1);
        let scan = disk.scan(start_at(0, 1));
        let mut expected = vec![batch(1, vec![9; 4], 1)];
        if torn == 2 {
            expected.push(batch(3, vec![7; 2], 2));
        }
        assert_eq!(disk.replay(&scan, Extent::Good), (expected.clone(), 1));
        // Nor is anything joined over the gap.
        if torn == 1 {
            assert_eq!(disk.replay(&scan, Extent::GoodAndLater), (expected, 2));
        }
    }
}

#[test]
fn parts_that_do_not_fit_are_dropped() {
    let mut disk = Disk::new(1, 1);
    let dropped = ControlEntry::PartitionDropped { tp: tp(4) };
    disk.block(&[
        part(1, 100, 1, 50, 50),
        part(2, 100, 0, 0, 50),
        part(3, 100, 0, 0, 50),
        part(4, 100, 0, 0, 50),
        part(5, 100, 0, 0, 50),
    ]);
    disk.block(&[
        part(2, 100, 2, 50, 50),
        part(3, 101, 1, 50, 51),
        Put::Control(dropped),
        part(4, 100, 1, 50, 50),
        Put::Whole(5, vec![1; 5]),
        part(5, 100, 1, 50, 50),
    ]);
    let scan = disk.scan(start_at(0, 1));
    let expected = vec![Replayed::Control(dropped), batch(5, vec![1; 5], 2)];
    // Partition 1: one; 2 and 3: one each; 4: its two halves; 5: its two halves.
    assert_eq!(disk.replay(&scan, Extent::Good), (expected, 7));
}

#[test]
fn an_unreadable_entry_stops_the_replay() {
    let mut disk = Disk::new(1, 1);
    disk.batch(1, 10);
    let identity = disk.identity.clone();
    disk.edit(0, |block| {
        block[80] = 77;
        let fields = Seal {
            sequence: JournalSequence(1),
            position: 4096,
            wall_ms: 1,
            durable_through: JournalSequence(0),
            entries: 1,
        };
        let _ = seal(block, 80 + 48 + 10, &fields, &identity);
    });
    let scan = disk.scan(start_at(0, 1));
    let files = disk.as_files();
    let mut replay = Replay::new(&files, &scan, Extent::Good);
    let error = block_on(replay.next()).expect_err("fault");
    assert_eq!(error.to_string(), "journal block 1, byte 80: the entry kind is unknown");
}

#[test]
fn a_block_that_changes_between_the_passes_is_noticed() {
    let mut disk = Disk::new(1, 1);
    disk.batch(1, 10);
    let scan = disk.scan(start_at(0, 1));
    disk.edit(0, |block| block[130] ^= 1);
    let files = disk.as_files();
    let error = block_on(Replay::new(&files, &scan, Extent::Good).next()).expect_err("changed");
    assert!(matches!(error, ReplayError::Changed(JournalSequence(1))), "{error}");
}

#[test]
fn reading_is_chunked() {
    let geometry = Geometry::new(2, 16 << 20, 1 << 20).expect("geometry");
    let mut disk = Disk::sized(geometry, 1, 1);
    for n in 1..20 {
        disk.batch(n, (1 << 20) - 128 - usize::from(n) * 4096);
    }
    let scan = disk.scan(start_at(0, 1));
    assert_eq!(scan.good.len(), 19);
    assert_eq!(disk.replay(&scan, Extent::Good).0.len(), 19);
    for file in &disk.files {
        assert_eq!(file.longest_read.get(), JOURNAL_REPLAY_CHUNK_BYTES);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever is overwritten, what is replayed is a prefix of what was written; and if a block
    /// of the prefix is hit while a later one is whole, that is called damage.
    #[test]
    fn any_damage_leaves_a_prefix(
        lengths in prop::collection::vec(1usize..16_000, 1..12),
        hits in prop::collection::vec((0usize..4, 4096usize..65_536, any::<u8>()), 0..4),
    ) {
        let mut disk = Disk::new(1, 1);
        for (n, length) in lengths.iter().enumerate() {
            disk.batch(n as u8 + 1, *length);
        }
        let before: Vec<Vec<u8>> =
            disk.files.iter().map(|file| file.content.borrow().clone()).collect();
        for &(file, at, byte) in &hits {
            disk.files[file].content.borrow_mut()[at] = byte;
        }
        let intact: Vec<bool> = disk.placed.iter().map(|&(position, aligned)| {
            let (file, offset) = disk.ring.geometry().locate(position);
            let range = offset as usize..offset as usize + aligned;
            disk.files[file as usize].content.borrow()[range.clone()]
                == before[file as usize][range]
        }).collect();
        let good = intact.iter().position(|&whole| !whole).unwrap_or(intact.len());
        let damaged = intact[good..].iter().any(|&whole| whole);
        let scan = disk.scan(start_at(0, 1));
        prop_assert_eq!(scan.good.len(), good);
        prop_assert_eq!(matches!(scan.verdict, Verdict::Damaged { .. }), damaged);
        prop_assert_eq!(disk.replay(&scan, Extent::Good).0.len(), good);
    }

    #[test]
    fn random_rings_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..4096),
        at in 0usize..30,
        boot in 1u32..3,
    ) {
        let disk = Disk::new(1, 1);
        disk.files[0].content.borrow_mut()[at * 1024..at * 1024 + bytes.len()]
            .copy_from_slice(&bytes);
        let mut expected = disk.expected();
        expected.boot = BootNumber(boot);
        let _ = block_on(scan(&disk.as_files(), &expected, None));
    }
}
