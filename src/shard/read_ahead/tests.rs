//! Whom to read ahead of, and what.

use super::*;
use crate::ids::{PartitionIndex, TopicId};
use crate::log::segments::{ActiveSegment, SealedSegment};

const MIB: u64 = 1024 * 1024;
const FETCH: usize = 64 * 1024;

fn place(partition: i32, offset: i64) -> Place {
    let topic = TopicId([1; 16]);
    (TopicPartition { topic, partition: PartitionIndex(partition) }, Offset(offset))
}

/// Sealed segments of so many bytes at bases 0, 100, 200 and so on; the last one is active.
fn segments(bytes: &[u64]) -> SegmentSet {
    let mut set = SegmentSet::default();
    let (active, sealed) = bytes.split_last().expect("one at least");
    let mut base = 0;
    for &bytes in sealed {
        set.sealed.insert(Offset(base), SealedSegment::unread(bytes));
        base += 100;
    }
    let mut segment = ActiveSegment::new(Offset(base), 0);
    (segment.placed_bytes, segment.written_bytes) = (*active, *active);
    segment.last_block = vec![0; (*active % BLOCK_ALIGN as u64) as usize];
    set.active = Some(segment);
    set
}

/// Has one reader go on so often; the windows it was given.
fn windows(readers: &mut Readers, partition: i32, times: i64) -> Vec<usize> {
    let mut windows = Vec::new();
    for offset in 0..times {
        let ahead = readers.begins(place(partition, offset));
        windows.push(ahead.map_or(0, |ahead| ahead.window_bytes));
        readers.ended(place(partition, offset + 1), FETCH, ahead);
    }
    windows
}

#[test]
fn the_longer_a_reader_goes_on_the_more_is_read_ahead_of_it() {
    let mut readers = Readers::new(64 * MIB as usize);
    let kib: Vec<usize> = windows(&mut readers, 0, 7).iter().map(|bytes| bytes / 1024).collect();
    assert_eq!(kib, [0, 512, 1024, 2048, 4096, 4096, 4096]);
    // Its share of half of the cache.
    let mut readers = Readers::new(3 * MIB as usize);
    let kib: Vec<usize> = windows(&mut readers, 0, 5).iter().map(|bytes| bytes / 1024).collect();
    assert_eq!(kib, [0, 512, 1024, 1536, 1536]);
    let kib: Vec<usize> = windows(&mut readers, 1, 4).iter().map(|bytes| bytes / 1024).collect();
    assert_eq!(kib, [0, 512, 768, 768]);
    assert_eq!(readers.in_order, 2);
}

#[test]
fn nothing_is_read_ahead_of_who_comes_from_nowhere() {
    let mut readers = Readers::new(64 * MIB as usize);
    for offset in (0..100_000).step_by(17) {
        assert_eq!(readers.begins(place(0, offset)), None);
        readers.ended(place(0, offset + 5), FETCH, None);
    }
    assert_eq!(readers.in_order, 0);
    // They do not take anything from one that goes on.
    let last = *windows(&mut readers, 1, 6).last().expect("six");
    assert_eq!(last, READ_AHEAD_BYTES_MAX);
}

#[test]
fn one_that_stays_away_is_forgotten_and_its_share_goes_to_others() {
    let mut readers = Readers::new(8 * MIB as usize);
    windows(&mut readers, 0, 3);
    assert_eq!(readers.in_order, 1);
    windows(&mut readers, 1, 2 * 8 * MIB as i64 / FETCH as i64);
    assert_eq!((readers.in_order, readers.by_place.len(), readers.by_use.len()), (1, 1, 1));
    assert_eq!(readers.begins(place(0, 3)), None, "nothing of what was read for it is left");
    // Without room for anything there are hardly any.
    let mut readers = Readers::new(0);
    windows(&mut readers, 0, 5);
    windows(&mut readers, 1, 5);
    assert_eq!((readers.in_order, readers.by_place.len()), (0, 1));
}

#[test]
fn two_that_meet_are_one_from_there_on() {
    let mut readers = Readers::new(64 * MIB as usize);
    windows(&mut readers, 0, 3);
    let late = readers.begins(place(0, 1));
    assert_eq!(late, None);
    readers.ended(place(0, 3), FETCH, late);
    assert_eq!((readers.in_order, readers.by_place.len(), readers.by_use.len()), (0, 1, 1));
}

#[test]
fn reads_are_whole_and_follow_each_other() {
    let set = segments(&[16 * MIB, 0]);
    let mut ahead = Ahead { window_bytes: 2 * MIB as usize, through: (Offset(7), 0) };
    let half = MIB / 2;
    let reads = |ahead: &mut Ahead, position| {
        let all = ahead.reads((Offset(0), position), &set);
        all.into_iter().map(|(_, range)| (range.start / half, range.end / half)).collect::<Vec<_>>()
    };
    assert_eq!(reads(&mut ahead, 100), [(0, 1), (1, 2), (2, 3), (3, 4)]);
    assert_eq!(reads(&mut ahead, half - 1), []);
    assert_eq!(reads(&mut ahead, half), [(4, 5)]);
    assert_eq!(reads(&mut ahead, 2 * half + 5), [(5, 6)]);
    // It is not where it was expected: from there on, then.
    assert_eq!(reads(&mut ahead, 20 * half), [(20, 21), (21, 22), (22, 23), (23, 24)]);
    assert_eq!(reads(&mut ahead, 0), [(0, 1), (1, 2), (2, 3), (3, 4)]);
}

#[test]
fn what_is_read_ahead_goes_over_to_the_next_segments_but_not_into_what_is_in_memory() {
    let set = segments(&[MIB + 5, 3 * 4096 + 1, 2 * MIB + 17]);
    let mut ahead = Ahead { window_bytes: 4 * MIB as usize, through: (Offset(0), 0) };
    let all = ahead.reads((Offset(0), 0), &set);
    let (first, second, active) = (Offset(0), Offset(100), Offset(200));
    let expected = [
        (first, 0..MIB),
        (first, MIB..MIB + 5),
        (second, 0..3 * 4096 + 1),
        (active, 0..MIB),
        (active, MIB..2 * MIB),
    ];
    assert_eq!(all, expected);
    assert_eq!(ahead.reads((first, MIB), &set), [], "a little more has been written");
    assert_eq!(ahead.reads((second, 4096), &set), []);
    // The reader is in the last segment, of which there is more now.
    let grown = segments(&[MIB + 5, 3 * 4096 + 1, 4 * MIB]);
    let more = [(active, 2 * MIB..3 * MIB), (active, 3 * MIB..4 * MIB)];
    assert_eq!(ahead.reads((active, MIB), &grown), more);
    // A segment that has gone ends it.
    let mut gone = segments(&[MIB, MIB]);
    gone.sealed.clear();
    assert_eq!(ahead.reads((first, 0), &gone), []);
}
