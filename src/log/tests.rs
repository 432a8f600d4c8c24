//! The log's bounds and steps, one partition at a time.

mod model;
mod transactions;

use smallvec::SmallVec;

use super::transactions::EndedTransaction;
use super::*;
use crate::ids::JournalSequence;

fn facts(count: i32) -> BatchFacts {
    BatchFacts {
        last_offset_delta: count - 1,
        max_timestamp_ms: 7,
        bytes: 100,
        producer: None,
        transactional: false,
        guard: None,
    }
}

fn append(log: &mut Log, count: i32, sequence: u64) {
    let facts = facts(count);
    let Ok(AppendCheck::Append(base_offset)) = log.check(&facts, 0) else { panic!("refused") };
    let batch = TailBatch {
        base_offset,
        last_offset: base_offset.plus(i64::from(count) - 1),
        max_timestamp_ms: 7,
        append_ms: 0,
        bytes: 100,
        sequence: JournalSequence(sequence),
        parts: SmallVec::new(),
    };
    log.append(&facts, batch, 0);
}

fn empty() -> Log {
    Log::recovered(Offset(0), Offset(0), EpochHistory::default(), Producers::new(1_000))
}

#[test]
fn bounds_move_only_forward() {
    let mut log = empty();
    append(&mut log, 3, 1);
    append(&mut log, 2, 2);
    assert_eq!((log.next_offset(), log.high_watermark()), (Offset(5), Offset(0)));
    assert_eq!(log.check_log_start(Offset(1)), Err(ErrorCode::OffsetOutOfRange));
    log.advance_high_watermark(Offset(3));
    log.advance_high_watermark(Offset(2));
    assert_eq!(log.high_watermark(), Offset(3));
    assert_eq!(log.last_stable_offset(), Offset(3));
    log.written_through(Offset(3));
    assert_eq!(log.tail().start(), Some(Offset(3)));
    assert_eq!(log.tail().bytes(), 100);
    assert_eq!(log.check_log_start(Offset(3)), Ok(()));
    assert_eq!(log.check_log_start(Offset(4)), Err(ErrorCode::OffsetOutOfRange));
    log.append_log_start(Offset(2));
    log.append_log_start(Offset(1));
    assert!(log.log_start_durable(Offset(2)));
    assert!(!log.log_start_durable(Offset(1)));
    assert_eq!(log.log_start(), Offset(2));
}

#[test]
fn the_log_start_is_seen_when_it_is_durable() {
    let mut log = empty();
    log.start_epoch(LeaderEpoch(4));
    append(&mut log, 5, 1);
    log.advance_high_watermark(Offset(5));
    log.append_log_start(Offset(2));
    log.append_log_start(Offset(4));
    assert_eq!((log.log_start(), log.log_start_appended()), (Offset(0), Offset(4)));
    assert!(log.log_start_durable(Offset(2)));
    assert_eq!((log.log_start(), log.log_start_appended()), (Offset(2), Offset(4)));
    assert_eq!(log.epochs().entries(), [(LeaderEpoch(4), Offset(2))]);
    // All of it may go, read or not, written or not.
    log.append_log_start(Offset(5));
    assert!(log.log_start_durable(Offset(5)));
    assert_eq!((log.log_start(), log.written_end()), (Offset(5), Offset(0)));
    assert_eq!(log.last_stable_offset(), Offset(5));
    assert_eq!(log.epochs().entries(), [(LeaderEpoch(4), Offset(5))]);
}

#[test]
fn the_tail_is_found_by_any_offset_of_a_batch() {
    let mut log = empty();
    append(&mut log, 3, 1);
    append(&mut log, 3, 1);
    let bases = |offset: i64| -> Vec<i64> {
        log.tail().from_offset(Offset(offset)).map(|batch| batch.base_offset.0).collect()
    };
    assert_eq!(bases(0), vec![0, 3]);
    assert_eq!(bases(2), vec![0, 3]);
    assert_eq!(bases(3), vec![3]);
    assert_eq!(bases(6), Vec::<i64>::new());
}

#[test]
fn epochs_start_once_and_client_epochs_are_compared() {
    let mut log = empty();
    assert!(log.starts_epoch(LeaderEpoch(4)));
    log.start_epoch(LeaderEpoch(4));
    assert!(!log.starts_epoch(LeaderEpoch(4)));
    let check = |epoch| Log::check_leader_epoch(epoch, LeaderEpoch(4)).map_err(ErrorCode::code);
    assert_eq!((check(-1), check(4), check(3), check(5)), (Ok(()), Ok(()), Err(74), Err(75)));
}

#[test]
fn offsets_never_overflow() {
    let end = Offset(i64::MAX - 2);
    let log = Log::recovered(Offset(0), end, EpochHistory::default(), Producers::new(1_000));
    assert_eq!(log.check(&facts(2), 0), Ok(AppendCheck::Append(end)));
    assert_eq!(log.check(&facts(3), 0), Err(ErrorCode::RecordListTooLarge));
}
