//! The rules of transactional batches, guards and markers, one row of the tables at a time: a
//! script sends batches and markers to one log and compares codes and offsets.

use super::*;
use crate::batch::MarkerKind;

const NOW_MS: i64 = 1_000_000;
const EXPIRATION_MS: i64 = 1_000;

/// A log to which batches of producer 9 come, unless another is named.
struct Script {
    log: Log,
    now_ms: i64,
    strict: bool,
}

/// A batch: producer, epoch, base sequence, records.
#[derive(Clone, Copy)]
struct Sent(i64, i16, i32, i32);

impl Script {
    fn new() -> Script {
        let producers = Producers::new(EXPIRATION_MS);
        let log = Log::recovered(Offset(0), Offset(0), EpochHistory::default(), producers);
        Script { log, now_ms: NOW_MS, strict: false }
    }

    fn producer(sent: Sent) -> ProducerFacts {
        let Sent(id, epoch, base_sequence, _) = sent;
        ProducerFacts { id: ProducerId(id), epoch: ProducerEpoch(epoch), base_sequence }
    }

    /// A guard where one is needed, as Produce gets it.
    fn begin(&mut self, sent: Sent) -> Result<Option<VerificationGuard>, i16> {
        let producer = Script::producer(sent);
        match self.log.begin_verification(&producer, self.strict, self.now_ms) {
            Ok(Verification::NotNeeded) => Ok(None),
            Ok(Verification::Guard(guard)) => Ok(Some(guard)),
            Err(code) => Err(code.code()),
        }
    }

    /// Base offset of what was written, or of the original.
    fn append(
        &mut self,
        sent: Sent,
        transactional: bool,
        guard: Option<VerificationGuard>,
    ) -> Result<i64, i16> {
        let facts = BatchFacts {
            last_offset_delta: sent.3 - 1,
            max_timestamp_ms: 7,
            bytes: 100,
            producer: Some(Script::producer(sent)),
            transactional,
            guard,
        };
        match self.log.check(&facts, self.now_ms) {
            Err(code) => Err(code.code()),
            Ok(AppendCheck::Duplicate { base_offset, .. }) => Ok(base_offset.0),
            Ok(AppendCheck::Append(base_offset)) => {
                let tail = tail_batch(base_offset, sent.3);
                self.log.append(&facts, tail, self.now_ms);
                Ok(base_offset.0)
            }
        }
    }

    /// Verifies, with a coordinator that admits everything, and appends.
    fn send(&mut self, sent: Sent) -> Result<i64, i16> {
        let guard = self.begin(sent)?;
        self.append(sent, true, guard)
    }

    fn plain(&mut self, sent: Sent) -> Result<i64, i16> {
        self.append(sent, false, None)
    }

    /// Offset of the marker.
    fn mark(
        &mut self,
        kind: MarkerKind,
        id: i64,
        epoch: i16,
        coordinator_epoch: i32,
        strict: bool,
    ) -> Result<i64, i16> {
        let marker = Marker {
            kind,
            producer_id: ProducerId(id),
            producer_epoch: ProducerEpoch(epoch),
            coordinator_epoch,
            timestamp_ms: self.now_ms,
        };
        let offset =
            self.log.check_marker(&marker, strict, self.now_ms).map_err(ErrorCode::code)?;
        self.log.append_marker(&marker, strict, tail_batch(offset, 1), self.now_ms);
        Ok(offset.0)
    }

    fn commit(&mut self, id: i64, epoch: i16) -> Result<i64, i16> {
        self.mark(MarkerKind::Commit, id, epoch, 0, false)
    }

    fn abort(&mut self, id: i64, epoch: i16) -> Result<i64, i16> {
        self.mark(MarkerKind::Abort, id, epoch, 0, false)
    }

    fn durable(&mut self) -> (i64, i64) {
        self.log.advance_high_watermark(self.log.next_offset());
        (self.log.last_stable_offset().0, self.log.high_watermark().0)
    }

    fn aborted(&self) -> Vec<(i64, i64, i64, i64)> {
        let ended = self.log.producers().transactions().ended_from(Offset(0));
        ended
            .filter_map(EndedTransaction::aborted)
            .map(|entry| {
                let (first, last) = (entry.first_offset.0, entry.last_offset.0);
                (entry.producer_id.0, first, last, entry.last_stable_offset.0)
            })
            .collect()
    }
}

fn tail_batch(base_offset: Offset, count: i32) -> TailBatch {
    TailBatch {
        base_offset,
        last_offset: base_offset.plus(i64::from(count) - 1),
        max_timestamp_ms: 7,
        append_ms: 0,
        bytes: 100,
        sequence: JournalSequence(1),
        parts: SmallVec::new(),
    }
}

#[test]
fn the_first_batch_needs_a_guard_and_the_others_none() {
    let mut script = Script::new();
    assert_eq!(script.append(Sent(9, 0, 0, 2), true, None), Err(48), "never verified");
    assert_eq!(script.append(Sent(9, 0, 0, 2), true, Some(VerificationGuard(7))), Err(48));
    let guard = script.begin(Sent(9, 0, 0, 2)).expect("verified");
    assert!(guard.is_some());
    assert_eq!(script.append(Sent(9, 0, 0, 2), true, guard), Ok(0));
    assert_eq!(script.begin(Sent(9, 0, 2, 1)), Ok(None), "the transaction is open");
    assert_eq!(script.append(Sent(9, 0, 2, 1), true, None), Ok(2));
    assert_eq!(script.begin(Sent(9, 1, 0, 1)).map(|guard| guard.is_some()), Ok(true));
    assert_eq!(script.append(Sent(9, 1, 0, 1), true, None), Err(48), "not open in this epoch");
}

/// A process of the newer protocol began a verification and was fenced. One before KIP-890 goes on
/// with the id; the end of *its* transaction leaves the epoch, and must take the guard away: a
/// batch after the marker would be in a transaction that nobody ends.
#[test]
fn a_marker_takes_the_guard_away_from_whoever_comes_after_a_strict_producer() {
    let mut script = Script::new();
    script.strict = true;
    let of_fenced = script.begin(Sent(9, 8, 0, 1)).expect("verified");
    script.strict = false;
    let guard = script.begin(Sent(9, 11, 0, 1)).expect("verified");
    assert_eq!(script.abort(9, 11), Ok(0));
    assert_eq!(script.append(Sent(9, 11, 0, 1), true, guard), Err(48));
    assert_eq!(script.append(Sent(9, 8, 0, 1), true, of_fenced), Err(47));
    assert_eq!(script.durable(), (1, 1), "nothing is open");
}

/// One and the same producer may write by the newer protocol and end by the one before: the marker
/// says which it was.
#[test]
fn the_marker_of_a_legacy_end_takes_the_guard_of_a_strict_producer_away() {
    let mut script = Script::new();
    script.strict = true;
    let guard = script.begin(Sent(9, 4, 0, 1)).expect("verified");
    assert_eq!(script.abort(9, 4), Ok(0));
    assert_eq!(script.append(Sent(9, 4, 0, 1), true, guard), Err(48));
    let guard = script.begin(Sent(9, 5, 0, 1)).expect("verified");
    assert_eq!(script.mark(MarkerKind::Abort, 9, 5, 0, true), Ok(1), "of the transaction before");
    assert_eq!(script.append(Sent(9, 5, 0, 1), true, guard), Ok(2));
    assert_eq!(script.durable(), (2, 3), "its own is open");
}

/// The race that guards are for: the transaction ends between the coordinator's word and the
/// append (apache/kafka#13579, case 52).
#[test]
fn a_marker_takes_the_guard_away() {
    let mut script = Script::new();
    let guard = script.begin(Sent(9, 0, 0, 1)).expect("verified");
    assert_eq!(script.abort(9, 0), Ok(0));
    assert_eq!(script.append(Sent(9, 0, 0, 1), true, guard), Err(48), "same epoch");
    let guard = script.begin(Sent(9, 0, 0, 1)).expect("verified");
    assert_eq!(script.abort(9, 1), Ok(1));
    assert_eq!(script.append(Sent(9, 0, 0, 1), true, guard), Err(47), "the epoch has risen");
    assert_eq!(script.begin(Sent(9, 0, 0, 1)), Err(47));
    assert_eq!(script.log.next_offset(), Offset(2), "only the markers");
}

#[test]
fn epoch_comes_before_guard_and_copies_come_before_both() {
    let mut script = Script::new();
    assert_eq!(script.send(Sent(9, 3, 0, 2)), Ok(0));
    assert_eq!(script.append(Sent(9, 2, 0, 2), true, None), Err(47), "not 48");
    assert_eq!(script.append(Sent(9, 2, 5, 2), false, None), Err(47));
    assert_eq!(script.commit(9, 3), Ok(2));
    assert_eq!(script.append(Sent(9, 3, 0, 2), true, None), Ok(0), "a copy needs no guard");
    assert_eq!(script.append(Sent(9, 3, 2, 2), true, None), Err(48), "new data does");
}

#[test]
fn a_batch_without_a_transaction_does_not_come_in_between() {
    let mut script = Script::new();
    assert_eq!(script.send(Sent(9, 0, 0, 1)), Ok(0));
    assert_eq!(script.plain(Sent(9, 0, 5, 1)), Err(45), "the sequence is looked at first");
    assert_eq!(script.plain(Sent(9, 0, 1, 1)), Err(48));
    assert_eq!(script.plain(Sent(8, 0, 1, 1)), Ok(1), "another producer may");
    assert_eq!(script.commit(9, 0), Ok(2));
    assert_eq!(script.plain(Sent(9, 0, 1, 1)), Ok(3));
}

#[test]
fn the_first_batch_of_a_strict_transaction_has_sequence_0() {
    let mut script = Script::new();
    assert_eq!(script.send(Sent(7, 0, 5, 1)), Ok(0), "legacy: an unknown producer starts anywhere");
    script.strict = true;
    assert_eq!(script.send(Sent(9, 0, 5, 1)), Err(45));
    assert_eq!(script.log.next_offset(), Offset(1), "nothing was written");
    assert_eq!(script.send(Sent(9, 0, 0, 2)), Ok(1));
    assert_eq!(script.mark(MarkerKind::Commit, 9, 1, 0, true), Ok(3));
    assert_eq!(script.send(Sent(9, 1, 2, 1)), Err(45), "sequences begin again");
    assert_eq!(script.send(Sent(9, 1, 0, 1)), Ok(4));
}

/// An earlier batch that was refused must be sent again before a later one is written.
#[test]
fn nothing_above_the_lowest_sequence_waiting_is_written() {
    let mut script = Script::new();
    let first = script.begin(Sent(9, 0, 3, 1)).expect("verified");
    let second = script.begin(Sent(9, 0, 4, 1)).expect("verified");
    assert_eq!(first, second, "one entry per producer");
    assert_eq!(script.append(Sent(9, 0, 4, 1), true, second), Err(45));
    assert_eq!(script.append(Sent(9, 0, 3, 1), true, first), Ok(0));
    assert_eq!(script.append(Sent(9, 0, 4, 1), true, None), Ok(1));
}

#[test]
fn a_coordinators_batch_has_an_epoch_and_no_sequence() {
    let mut script = Script::new();
    for offset in 0..7 {
        assert_eq!(script.send(Sent(9, 2, -1, 1)), Ok(offset), "no batch is a copy of another");
    }
    assert_eq!(script.append(Sent(9, 1, -1, 1), true, None), Err(47));
    assert_eq!(script.append(Sent(8, 0, -1, 1), true, None), Err(48), "not verified");
    assert_eq!(script.commit(9, 2), Ok(7));
    let rows = script.log.producers().to_rows();
    assert_eq!(rows[0].batches.last().map(|batch| batch.last_sequence), Some(-1));
}

/// Spec §4.3 and §5.6, the legacy rule.
#[test]
fn a_legacy_marker_ends_what_is_open_at_its_epoch_or_below() {
    let mut script = Script::new();
    assert_eq!(script.send(Sent(9, 3, 0, 2)), Ok(0));
    assert_eq!(script.commit(9, 2), Err(47));
    assert_eq!(script.commit(9, 3), Ok(2));
    assert_eq!(script.commit(9, 3), Ok(3), "a copy is appended again");
    assert_eq!(script.abort(9, 3), Ok(4), "so is one of the other kind, and does nothing");
    assert!(script.aborted().is_empty());
    assert_eq!(script.send(Sent(9, 3, 2, 1)), Ok(5), "sequences go on at the same epoch");
    assert_eq!(script.abort(9, 4), Ok(6), "the epoch rises");
    assert_eq!(script.aborted(), [(9, 5, 6, 7)]);
    assert_eq!(script.send(Sent(9, 4, 3, 1)), Err(45), "and sequences begin again");
    assert_eq!(script.send(Sent(9, 4, 0, 1)), Ok(7));
}

/// Spec §4.3 and §5.6, the strict rule (KIP-1228, KAFKA-19999).
#[test]
fn a_strict_marker_has_a_higher_epoch_or_is_a_copy() {
    let mut script = Script::new();
    script.strict = true;
    let commit = |script: &mut Script, epoch| script.mark(MarkerKind::Commit, 9, epoch, 0, true);
    assert_eq!(script.send(Sent(9, 3, 0, 1)), Ok(0));
    assert_eq!(commit(&mut script, 2), Err(47));
    assert_eq!(commit(&mut script, 3), Err(47), "the same epoch while open: a late one");
    assert_eq!(commit(&mut script, 4), Ok(1));
    assert_eq!(commit(&mut script, 4), Ok(2), "the same epoch with none open: sent again");
    assert_eq!(script.send(Sent(9, 4, 0, 1)), Ok(3), "the next transaction has that epoch");
    assert_eq!(commit(&mut script, 4), Err(47), "now it would end the wrong one");
    let last = i16::MAX;
    assert_eq!(commit(&mut script, last), Ok(4));
    assert_eq!(script.send(Sent(9, last, 0, 1)), Ok(5));
    assert_eq!(commit(&mut script, last), Ok(6), "there is no higher epoch");
}

#[test]
fn an_older_coordinator_is_fenced_after_the_epoch_check() {
    let mut script = Script::new();
    let mark = |script: &mut Script, epoch, coordinator| {
        script.mark(MarkerKind::Abort, 9, epoch, coordinator, false)
    };
    assert_eq!(mark(&mut script, 5, 7), Ok(0), "an unknown producer gets an entry");
    assert_eq!(mark(&mut script, 5, 6), Err(52));
    assert_eq!(mark(&mut script, 4, 6), Err(47));
    assert_eq!(mark(&mut script, 5, 7), Ok(1));
    let rows = script.log.producers().to_rows();
    assert_eq!((rows[0].epoch.0, rows[0].coordinator_epoch), (5, 7));
    assert!(rows[0].batches.is_empty());
    assert_eq!(script.plain(Sent(9, 5, 3, 1)), Err(45), "no batch since the marker: must be 0");
    assert_eq!(script.plain(Sent(9, 5, 0, 1)), Ok(2));
}

/// nisshi-io/nisshi#689, redpanda-data/redpanda#3036: the last stable offset is the first offset
/// of the oldest open transaction, whatever comes after it.
#[test]
fn the_last_stable_offset_is_the_first_offset_of_the_oldest_transaction() {
    let mut script = Script::new();
    assert_eq!(script.plain(Sent(1, 0, 0, 3)), Ok(0));
    assert_eq!(script.send(Sent(9, 0, 0, 2)), Ok(3));
    assert_eq!(script.send(Sent(8, 0, 0, 2)), Ok(5));
    assert_eq!(script.plain(Sent(1, 0, 3, 5)), Ok(7));
    assert_eq!(script.log.last_stable_offset(), Offset(0), "nothing is durable");
    assert_eq!(script.durable(), (3, 12));
    assert_eq!(script.abort(9, 0), Ok(12));
    assert_eq!(script.log.last_stable_offset(), Offset(3), "the marker is not durable");
    assert_eq!(script.durable(), (5, 13));
    assert_eq!(script.commit(8, 0), Ok(13));
    assert_eq!(script.durable(), (14, 14));
    assert_eq!(script.aborted(), [(9, 3, 12, 5)]);
}

/// redpanda-data/redpanda#13364: a marker takes one offset.
#[test]
fn an_aborted_transaction_takes_one_offset_more_than_its_records() {
    let mut script = Script::new();
    assert_eq!(script.send(Sent(9, 0, 0, 10)), Ok(0));
    assert_eq!(script.abort(9, 0), Ok(10));
    assert_eq!(script.log.next_offset(), Offset(11));
}

#[test]
fn the_log_start_raises_the_last_stable_offset_over_an_open_transaction() {
    let mut script = Script::new();
    assert_eq!(script.send(Sent(9, 0, 0, 5)), Ok(0));
    assert_eq!(script.plain(Sent(1, 0, 0, 5)), Ok(5));
    assert_eq!(script.durable(), (0, 10));
    script.log.append_log_start(Offset(7));
    assert_eq!(script.log.last_stable_offset(), Offset(0), "not before it is durable");
    assert!(script.log.log_start_durable(Offset(7)));
    assert_eq!(script.log.last_stable_offset(), Offset(7));
}

#[test]
fn an_open_transaction_does_not_expire() {
    let mut script = Script::new();
    assert_eq!(script.send(Sent(9, 0, 0, 1)), Ok(0));
    assert_eq!(script.plain(Sent(1, 0, 0, 1)), Ok(1));
    script.now_ms += 10 * EXPIRATION_MS;
    script.log.producers_mut().expire(script.now_ms);
    assert_eq!(script.log.producers().len(), 1);
    assert_eq!(script.send(Sent(9, 0, 1, 1)), Ok(2), "its sequence is known");
    script.now_ms += 10 * EXPIRATION_MS;
    assert_eq!(script.abort(9, 0), Ok(3));
    script.now_ms += EXPIRATION_MS;
    script.log.producers_mut().expire(script.now_ms);
    assert!(script.log.producers().is_empty());
}

/// redpanda-data/redpanda#30003: the state that a checkpoint takes has what is open.
#[test]
fn open_transactions_survive_in_rows() {
    let mut script = Script::new();
    assert_eq!(script.send(Sent(9, 0, 0, 2)), Ok(0));
    assert_eq!(script.send(Sent(8, 4, 0, 1)), Ok(2));
    assert_eq!(script.commit(9, 0), Ok(3));
    let rows = script.log.producers().to_rows();
    let end = script.log.next_offset();
    let producers = Producers::from_rows(&rows, EXPIRATION_MS);
    assert_eq!(producers.to_rows(), rows);
    script.log = Log::recovered(Offset(0), end, EpochHistory::default(), producers);
    assert_eq!(script.log.last_stable_offset(), Offset(2));
    assert_eq!(script.begin(Sent(8, 4, 1, 1)), Ok(None), "still open");
    assert_eq!(script.append(Sent(8, 4, 1, 1), true, None), Ok(4));
    assert_eq!(script.abort(8, 4), Ok(5));
    assert_eq!(script.durable(), (6, 6));
    assert_eq!(script.aborted(), [(8, 2, 5, 6)]);
}
