//! Case 49: what compaction leaves of transactions.

use crate::calls::{Producer, UNCOMMITTED, ends, now_ms, produce, read_all};
use crate::stage::{Stage, await_some};
use crate::support::batch::{Batch, Record};
use crate::support::requests::Topic;

cases!(
    // What stands in Ringlog's journal only is not compacted yet.
    case_49_compaction: Needs::Alone(&[("checkpoint_interval_ms", "200ms")]),
);

/// Two logs are written to in the same way. One forgets a marker as soon as it may, which is some
/// passes after the last data of its transaction is gone; the other keeps it for a day.
fn case_49_compaction(stage: &Stage) {
    let mut forgets = Compacted::new(stage, "0");
    let mut remembers = Compacted::new(stage, "86400000");
    for log in [&mut forgets, &mut remembers] {
        log.write_and_clean();
        log.go_on();
    }
    for _ in 0..PASSES {
        forgets.pass();
        remembers.pass();
    }
    assert_eq!(forgets.offsets_below(12), [7, 8, 10, 11]);
    assert_eq!(remembers.offsets_below(12), [2, 5, 7, 8, 9, 10, 11]);
}

/// A log, a producer that commits in it, and one that aborts.
struct Compacted<'a> {
    stage: &'a Stage,
    topic: Topic,
    kept: Producer<'a>,
    dropped: Producer<'a>,
    fillers: Vec<i64>,
}

impl<'a> Compacted<'a> {
    fn new(stage: &'a Stage, delete_retention_ms: &str) -> Compacted<'a> {
        let configs = [
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0"),
            ("segment.ms", "1000"),
            ("delete.retention.ms", delete_retention_ms),
        ];
        Compacted {
            stage,
            topic: stage.topic_with("compacted", 1, &configs),
            kept: Producer::new(stage, "kept"),
            dropped: Producer::new(stage, "dropped"),
            fillers: Vec::new(),
        }
    }

    /// Values that are replaced, and aborted, and one pass over them.
    fn write_and_clean(&mut self) {
        let (kept, dropped) = (self.kept.clone(), self.dropped.clone());
        assert_eq!(self.send(&kept, 0, "k", "first"), (0, 0));
        assert_eq!(self.send(&kept, 1, "k", "second"), (0, 1));
        kept.clone().ended(4, true);
        assert_eq!(self.send(&dropped, 0, "k", "aborted"), (0, 3));
        assert_eq!(self.send(&dropped, 1, "k", "aborted too"), (0, 4));
        dropped.clone().ended(4, false);
        self.roll();
        await_some("the old segment is cleaned", || {
            (!self.offsets_below(6).contains(&3)).then_some(())
        });
        let left = self.offsets_below(6);
        assert_eq!(left, [1, 2, 5], "the newest committed value and both markers");
        assert_eq!(ends(self.stage, &self.topic, 0), [(2, 0, true), (5, 0, false)]);
    }

    /// Both producers go on, and nothing of their first transactions is the newest of anything.
    fn go_on(&mut self) {
        let (mut kept, mut dropped) = (self.kept.clone(), self.dropped.clone());
        // Not both of one producer: a batch sent again opens no transaction, but its verification
        // is remembered with its sequence, and the next one is refused (45).
        assert_eq!(self.send(&dropped, 1, "k", "aborted too"), (0, 4), "the last batch again");
        assert_eq!(self.send(&kept, 2, "k", "third"), (0, 7), "sequences go on");
        kept.ended(4, true);
        dropped.ended(4, false);
        assert_eq!(self.send(&dropped, 2, "d", "kept"), (0, 10));
        dropped.ended(4, true);
    }

    /// Another segment, and a pass over all before it.
    fn pass(&mut self) {
        self.roll();
        // The newest filler is in the segment that no pass touches, the one before is the newest
        // of those that a pass sees.
        let Some(place) = self.fillers.len().checked_sub(3) else { return };
        let replaced = self.fillers[place];
        await_some("a filler is cleaned away", || {
            (!self.offsets_below(i64::MAX).contains(&replaced)).then_some(())
        });
    }

    /// Begins a segment, by a record whose time is so much later than all before.
    fn roll(&mut self) {
        let later_ms = 60_000 * (1 + self.fillers.len() as i64);
        let filler = Batch::of(vec![Record::keyed("filler", "")]);
        let filler = Batch { base_timestamp: now_ms() + later_ms, ..filler };
        let answer = produce(self.stage, 13, &self.topic, 0, &filler);
        assert_eq!(answer.error_code, 0);
        self.fillers.push(answer.base_offset);
    }

    fn send(&self, producer: &Producer<'_>, sequence: i32, key: &str, value: &str) -> (i16, i64) {
        producer.added(&self.topic, 0);
        let mut batch = producer.batch(sequence, 1);
        batch.records = vec![Record::keyed(key, value)];
        let request = producer.produce_request(9, &self.topic, 0, batch.encode());
        let node = self.stage.leader(&self.topic.name, 0);
        let response = self.stage.call(node, 9, &request);
        let answer = &response.responses[0].partition_responses[0];
        (answer.error_code, answer.base_offset)
    }

    fn offsets_below(&self, bound: i64) -> Vec<i64> {
        let batches = read_all(self.stage, &self.topic, 0, UNCOMMITTED);
        let offsets = batches.iter().flat_map(|batch| &batch.records).map(|record| record.offset);
        offsets.take_while(|offset| *offset < bound).collect()
    }
}

/// Enough for a transaction's data to go, its marker to be stamped, and the marker to go.
const PASSES: usize = 6;
