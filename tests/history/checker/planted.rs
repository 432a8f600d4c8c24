//! Every anomaly planted once in an otherwise sound history, and found by its name.

use super::{Kind, check};
use crate::history::{
    Commit, Group, History, Identity, Line, Log, Operation, Outcome, Own, Poll, Process, Send, Txn,
    Value, What,
};

const LOG: Log = Log { topic: 0, partition: 0 };
const OTHER: Log = Log { topic: 0, partition: 1 };
const WRITER: Process = Process(1);
const SECOND: Process = Process(2);
const READER: Process = Process(9);
const GROUP: Group = Group(0);

/// A history made by hand. Times go up by ten with each operation, unless they are set.
#[derive(Default)]
struct Draft {
    history: History,
    now: u64,
}

impl Draft {
    fn add(&mut self, process: Process, what: What) -> &mut Operation {
        let (invoked, done) = (self.now + 1, self.now + 9);
        self.now += 10;
        self.history.operations.push(Operation { process, invoked, done, what });
        self.history.operations.last_mut().expect("just added")
    }

    fn send_in(
        &mut self,
        transaction: Option<Txn>,
        process: Process,
        log: Log,
        base: i64,
        values: &[Value],
    ) -> &mut Send {
        let send = Send {
            log,
            values: values.to_vec(),
            transaction,
            outcome: Outcome::Ok,
            base: Some(base),
            ordered: true,
            sources: Vec::new(),
        };
        match &mut self.add(process, What::Send(send)).what {
            What::Send(send) => send,
            _ => unreachable!(),
        }
    }

    fn send(&mut self, process: Process, base: i64, values: &[Value]) -> &mut Send {
        self.send_in(None, process, LOG, base, values)
    }

    fn begin(&mut self, transaction: u64, line: u32, epoch: i16) -> Txn {
        let identity = Identity { id: 7, epoch };
        let transaction = Txn(transaction);
        self.add(WRITER, What::Begin { transaction, line: Line(line), identity });
        transaction
    }

    fn end(&mut self, transaction: Txn, commit: bool) -> &mut Operation {
        self.add(WRITER, What::End { transaction, commit, outcome: Outcome::Ok })
    }

    fn poll(&mut self, log: Log, from: i64, next: i64, records: &[(i64, Value)]) -> &mut Poll {
        let records = records.to_vec();
        let committed = true;
        let poll = Poll { log, committed, transaction: None, from, next, ends: None, records };
        match &mut self.add(READER, What::Poll(poll)).what {
            What::Poll(poll) => poll,
            _ => unreachable!(),
        }
    }

    fn commit(&mut self, offset: i64) -> &mut Operation {
        let (transaction, outcome) = (None, Outcome::Ok);
        let commit = Commit { group: GROUP, log: LOG, offset, transaction, outcome };
        self.add(WRITER, What::Commit(commit))
    }

    fn own(&mut self, process: Process, generation: i32, from: u64, until: u64) {
        let own = Own { group: GROUP, log: LOG, generation: Some(generation), until };
        self.add(process, What::Own(own)).done = from;
    }

    fn rest(&mut self, log: Log, committed: &[(i64, Value)], all: &[(i64, Value)]) {
        let rest = self.history.rests.entry(log).or_default();
        rest.committed = committed.to_vec();
        rest.all = all.to_vec();
    }

    fn rest_of_committed(&mut self, log: Log, records: &[(i64, Value)]) {
        self.rest(log, records, records);
    }

    /// It is found, and nothing else.
    fn expect(&self, kinds: &[Kind]) {
        let findings = check(&self.history);
        assert_eq!(findings.kinds(), kinds, "{findings}");
    }
}

/// Two acknowledged batches of one producer.
fn two_batches() -> Draft {
    let mut draft = Draft::default();
    draft.send(WRITER, 0, &[11, 12]);
    draft.send(WRITER, 2, &[13]);
    draft.rest_of_committed(LOG, &[(0, 11), (1, 12), (2, 13)]);
    draft
}

/// A transaction over two logs that ends so, between values that belong to none.
fn one_transaction(commit: bool) -> Draft {
    let mut draft = Draft::default();
    draft.send(SECOND, 0, &[1]);
    let transaction = draft.begin(5, 0, 0);
    draft.send_in(Some(transaction), WRITER, LOG, 1, &[51, 52]);
    draft.send_in(Some(transaction), WRITER, OTHER, 0, &[53]);
    draft.end(transaction, commit);
    draft.send(SECOND, 4, &[2]);
    let all = [(0, 1), (1, 51), (2, 52), (4, 2)];
    if commit {
        draft.rest_of_committed(LOG, &all);
        draft.rest_of_committed(OTHER, &[(0, 53)]);
    } else {
        draft.rest(LOG, &[(0, 1), (4, 2)], &all);
        draft.rest(OTHER, &[], &[(0, 53)]);
    }
    draft
}

#[test]
fn sound_histories_pass() {
    two_batches().expect(&[]);
    one_transaction(true).expect(&[]);
    one_transaction(false).expect(&[]);
    let mut draft = one_transaction(true);
    draft.poll(LOG, 0, 2, &[(0, 1), (1, 51)]).ends = Some((5, 5));
    draft.poll(LOG, 2, 5, &[(2, 52), (4, 2)]);
    draft.poll(OTHER, 0, 2, &[(0, 53)]);
    draft.commit(3);
    draft.commit(5);
    draft.own(READER, 1, 100, 200);
    draft.own(SECOND, 2, 200, 300);
    draft.expect(&[]);
}

#[test]
fn an_acknowledged_record_that_is_gone_is_lost() {
    let mut draft = two_batches();
    draft.rest_of_committed(LOG, &[(0, 11), (1, 12)]);
    draft.expect(&[Kind::Lost]);
}

#[test]
fn an_acknowledged_record_of_no_transaction_that_is_hidden_is_lost() {
    let mut draft = two_batches();
    draft.rest(LOG, &[(0, 11), (1, 12)], &[(0, 11), (1, 12), (2, 13)]);
    draft.expect(&[Kind::Lost]);
}

#[test]
fn a_record_of_an_aborted_transaction_that_is_not_stored_any_more_is_lost() {
    let mut draft = one_transaction(false);
    draft.rest(OTHER, &[], &[]);
    draft.expect(&[Kind::Lost]);
}

#[test]
fn a_committed_transaction_of_which_nothing_is_shown_is_lost() {
    let mut draft = one_transaction(true);
    draft.rest(LOG, &[(0, 1), (4, 2)], &[(0, 1), (1, 51), (2, 52), (4, 2)]);
    draft.rest(OTHER, &[], &[(0, 53)]);
    draft.expect(&[Kind::Lost]);
}

#[test]
fn a_record_that_was_seen_and_is_gone_is_lost() {
    let mut draft = two_batches();
    let send = draft.send(WRITER, 3, &[14]);
    (send.outcome, send.base) = (Outcome::Unknown, None);
    draft.poll(LOG, 0, 4, &[(0, 11), (1, 12), (2, 13), (3, 14)]);
    draft.expect(&[Kind::Lost]);
}

#[test]
fn a_value_at_two_offsets_is_duplicated() {
    let mut draft = two_batches();
    draft.rest_of_committed(LOG, &[(0, 11), (1, 12), (2, 13), (3, 99)]);
    draft.send(SECOND, 3, &[99]);
    draft.expect(&[]);
    draft.rest_of_committed(OTHER, &[]);
    let again = [(0, 11), (1, 12), (2, 13), (3, 99), (4, 99)];
    draft.rest_of_committed(LOG, &again);
    draft.expect(&[Kind::Duplicated]);
}

#[test]
fn records_against_their_producers_order_are_reordered() {
    let mut draft = Draft::default();
    for (value, at) in [(11, 1), (12, 1)] {
        let send = draft.send(WRITER, at, &[value]);
        (send.outcome, send.base) = (Outcome::Unknown, None);
    }
    draft.rest_of_committed(LOG, &[(0, 12), (1, 11)]);
    draft.expect(&[Kind::Reordered]);
}

#[test]
fn records_against_real_time_are_reordered() {
    let mut draft = Draft::default();
    draft.send(WRITER, 1, &[11]);
    draft.send(SECOND, 0, &[21]);
    draft.rest_of_committed(LOG, &[(0, 21), (1, 11)]);
    draft.expect(&[Kind::Reordered]);
    // Not if the two were under way at one time.
    draft.history.operations[1].invoked = 5;
    draft.expect(&[]);
}

#[test]
fn a_record_that_nobody_sent_is_a_phantom() {
    let mut draft = two_batches();
    draft.rest_of_committed(LOG, &[(0, 11), (1, 12), (2, 13), (3, 99)]);
    draft.expect(&[Kind::Phantom]);
}

#[test]
fn a_record_that_was_refused_is_a_phantom() {
    let mut draft = two_batches();
    let send = draft.send(WRITER, 3, &[14]);
    (send.outcome, send.base) = (Outcome::Refused, None);
    draft.expect(&[]);
    draft.rest_of_committed(LOG, &[(0, 11), (1, 12), (2, 13), (3, 14)]);
    draft.expect(&[Kind::Phantom]);
}

#[test]
fn a_record_in_another_log_is_a_phantom() {
    let mut draft = two_batches();
    let send = draft.send(WRITER, 3, &[14]);
    (send.outcome, send.base) = (Outcome::Unknown, None);
    draft.rest_of_committed(OTHER, &[(0, 14)]);
    draft.expect(&[Kind::Phantom]);
}

#[test]
fn a_record_of_an_aborted_transaction_that_is_shown_is_an_aborted_read() {
    let mut draft = one_transaction(false);
    draft.rest_of_committed(OTHER, &[(0, 53)]);
    draft.expect(&[Kind::AbortedRead]);
    // A reader who was too early: at the end it is hidden, as it should be.
    let mut draft = one_transaction(false);
    draft.poll(OTHER, 0, 1, &[(0, 53)]);
    draft.poll(LOG, 0, 5, &[(0, 1), (4, 2)]);
    draft.expect(&[Kind::AbortedRead]);
}

#[test]
fn a_transaction_of_which_one_log_shows_its_part_is_torn() {
    let mut draft = one_transaction(true);
    draft.rest(OTHER, &[], &[(0, 53)]);
    draft.expect(&[Kind::Torn]);
    // Also if nobody knows whether it was committed.
    let end = draft.history.operations.iter_mut().rev();
    for operation in end {
        if let What::End { outcome, .. } = &mut operation.what {
            *outcome = Outcome::Unknown;
        }
    }
    draft.expect(&[Kind::Torn]);
}

#[test]
fn a_reader_who_sees_a_part_of_a_transaction_has_it_torn() {
    let mut draft = one_transaction(true);
    draft.poll(OTHER, 0, 2, &[(0, 53)]);
    draft.poll(LOG, 0, 5, &[(0, 1), (1, 51), (4, 2)]);
    draft.expect(&[Kind::Torn, Kind::Unseen]);
}

#[test]
fn a_reader_who_goes_past_a_record_has_skipped_it() {
    let mut draft = two_batches();
    draft.poll(LOG, 0, 3, &[(0, 11), (2, 13)]);
    draft.poll(LOG, 3, 3, &[]);
    draft.expect(&[Kind::Skipped, Kind::Unseen]);
    // Between two polls too.
    let mut draft = two_batches();
    draft.poll(LOG, 0, 1, &[(0, 11)]);
    draft.poll(LOG, 2, 3, &[(2, 13)]);
    draft.expect(&[Kind::Skipped, Kind::Unseen]);
}

#[test]
fn a_record_that_no_reader_reached_is_unseen() {
    let mut draft = two_batches();
    draft.poll(LOG, 0, 2, &[(0, 11), (1, 12)]);
    draft.expect(&[Kind::Unseen]);
}

#[test]
fn offsets_that_fall_are_a_poll_that_is_not_monotonic() {
    let mut draft = two_batches();
    draft.poll(LOG, 0, 3, &[(0, 11), (2, 13), (1, 12)]);
    assert!(check(&draft.history).kinds().contains(&Kind::NonMonotonicPoll));
    let mut draft = two_batches();
    draft.poll(LOG, 0, 3, &[(0, 11), (1, 12), (2, 13)]);
    draft.poll(LOG, 1, 3, &[(1, 12), (2, 13)]);
    draft.expect(&[Kind::NonMonotonicPoll]);
}

#[test]
fn acknowledgements_that_fall_are_sends_that_are_not_monotonic() {
    let mut draft = two_batches();
    match &mut draft.history.operations[1].what {
        What::Send(send) => send.base = Some(0),
        _ => unreachable!(),
    }
    draft.expect(&[Kind::NonMonotonicSend, Kind::InconsistentOffset]);
}

#[test]
fn two_sayings_about_an_offset_are_inconsistent() {
    let mut draft = two_batches();
    match &mut draft.history.operations[1].what {
        What::Send(send) => send.base = Some(5),
        _ => unreachable!(),
    }
    draft.expect(&[Kind::InconsistentOffset]);
    let mut draft = two_batches();
    draft.rest(LOG, &[(0, 11), (1, 12)], &[(0, 11), (1, 12), (2, 13)]);
    draft.send(SECOND, 3, &[31]);
    draft.rest(LOG, &[(0, 11), (1, 12), (2, 31)], &[(0, 11), (1, 12), (2, 13), (3, 31)]);
    assert!(check(&draft.history).kinds().contains(&Kind::InconsistentOffset));
}

#[test]
fn what_is_shown_beyond_the_stable_end_is_read_beyond_it() {
    let mut draft = two_batches();
    draft.poll(LOG, 0, 3, &[(0, 11), (1, 12), (2, 13)]).ends = Some((3, 2));
    draft.expect(&[Kind::ReadBeyondEnd]);
}

#[test]
fn an_end_below_what_was_acknowledged_is_stale() {
    let mut draft = two_batches();
    draft.poll(LOG, 0, 2, &[(0, 11), (1, 12)]).ends = Some((2, 2));
    draft.poll(LOG, 2, 3, &[(2, 13)]);
    draft.expect(&[Kind::StaleEnd]);
    // Not while the acknowledgement is on its way.
    draft.history.operations[1].done = 25;
    draft.expect(&[]);
}

#[test]
fn an_end_below_one_that_was_told_is_stale() {
    let mut draft = two_batches();
    draft.poll(LOG, 0, 3, &[(0, 11), (1, 12), (2, 13)]).ends = Some((4, 3));
    draft.poll(LOG, 3, 3, &[]).ends = Some((3, 3));
    draft.expect(&[Kind::StaleEnd]);
    let mut draft = two_batches();
    draft.poll(LOG, 0, 3, &[(0, 11), (1, 12), (2, 13)]).ends = Some((4, 4));
    draft.poll(LOG, 3, 3, &[]).ends = Some((4, 3));
    draft.expect(&[Kind::StaleEnd]);
}

#[test]
fn a_commit_below_an_earlier_one_went_back() {
    let mut draft = Draft::default();
    draft.commit(5);
    draft.commit(4);
    draft.expect(&[Kind::OffsetWentBack]);
    // Two at one time may come in either order.
    draft.history.operations[1].invoked = 5;
    draft.expect(&[]);
}

#[test]
fn an_offset_told_below_a_commit_went_back() {
    let mut draft = Draft::default();
    draft.commit(4);
    draft.commit(5);
    draft.add(READER, What::Committed { group: GROUP, log: LOG, offset: 4 });
    draft.expect(&[Kind::OffsetWentBack]);
    let mut draft = Draft::default();
    draft.commit(5);
    draft.history.offsets.insert((GROUP, LOG), -1);
    draft.expect(&[Kind::OffsetWentBack]);
}

#[test]
fn an_offset_that_nobody_committed_is_a_phantom() {
    let mut draft = one_transaction(false);
    draft.add(READER, What::Committed { group: GROUP, log: LOG, offset: -1 });
    draft.expect(&[]);
    // In a transaction that was aborted it is not committed.
    let transaction = Some(Txn(5));
    let (group, log, outcome) = (GROUP, LOG, Outcome::Ok);
    draft.add(WRITER, What::Commit(Commit { group, log, offset: 3, transaction, outcome }));
    draft.expect(&[]);
    draft.add(READER, What::Committed { group: GROUP, log: LOG, offset: 3 });
    draft.expect(&[Kind::Phantom]);
}

#[test]
fn a_partition_with_two_members_at_one_time_has_two_owners() {
    let mut draft = Draft::default();
    draft.own(READER, 1, 100, 200);
    draft.own(SECOND, 2, 150, 300);
    draft.expect(&[Kind::TwoOwners]);
    // One generation is enough.
    let mut draft = Draft::default();
    draft.own(READER, 1, 100, 120);
    draft.own(SECOND, 1, 150, 300);
    draft.expect(&[Kind::TwoOwners]);
}

#[test]
fn a_fenced_producer_that_is_granted_something_is_a_zombie() {
    let mut draft = Draft::default();
    let transaction = draft.begin(5, 0, 0);
    let identity = Identity { id: 7, epoch: 1 };
    draft.add(SECOND, What::Init { line: Line(0), identity });
    draft.send_in(Some(transaction), WRITER, LOG, 0, &[51]);
    draft.rest(LOG, &[], &[(0, 51)]);
    draft.expect(&[Kind::Zombie]);
    // Not if it was on its way before.
    draft.history.operations[2].invoked = 15;
    draft.expect(&[]);
    draft.end(transaction, true);
    draft.rest_of_committed(LOG, &[(0, 51)]);
    draft.expect(&[Kind::Zombie]);
}

/// Two committed transactions of two transactional ids that ran at one time, each with one record.
fn side_by_side() -> (Draft, [Txn; 2]) {
    let mut draft = Draft::default();
    let transactions = [draft.begin(5, 0, 0), draft.begin(6, 1, 0)];
    draft.send_in(Some(transactions[0]), WRITER, LOG, 0, &[51]);
    draft.send_in(Some(transactions[1]), SECOND, OTHER, 0, &[61]);
    draft.rest_of_committed(LOG, &[(0, 51)]);
    draft.rest_of_committed(OTHER, &[(0, 61)]);
    (draft, transactions)
}

#[test]
fn transactions_that_read_each_other_are_a_read_cycle() {
    let (mut draft, transactions) = side_by_side();
    draft.poll(LOG, 0, 1, &[(0, 51)]).transaction = Some(transactions[1]);
    draft.end(transactions[0], true);
    draft.end(transactions[1], true);
    draft.poll(OTHER, 0, 1, &[(0, 61)]);
    draft.expect(&[]);
    let mut draft = {
        draft.history.operations.pop();
        draft
    };
    draft.poll(OTHER, 0, 1, &[(0, 61)]).transaction = Some(transactions[0]);
    draft.expect(&[Kind::ReadCycle]);
}

#[test]
fn a_transaction_that_read_one_which_began_after_its_end_is_a_read_cycle() {
    let mut draft = Draft::default();
    let first = draft.begin(5, 0, 0);
    draft.send_in(Some(first), WRITER, LOG, 0, &[51]);
    draft.poll(OTHER, 0, 1, &[(0, 61)]).transaction = Some(first);
    draft.end(first, true);
    let second = draft.begin(6, 1, 0);
    draft.send_in(Some(second), SECOND, OTHER, 0, &[61]);
    draft.end(second, true);
    draft.poll(LOG, 0, 1, &[(0, 51)]);
    draft.rest_of_committed(LOG, &[(0, 51)]);
    draft.rest_of_committed(OTHER, &[(0, 61)]);
    draft.expect(&[Kind::ReadCycle]);
}

/// Two transactions of one transactional id, each in both logs, in this order in the second.
fn in_both_logs(second_log: [i64; 2]) -> Draft {
    let mut draft = Draft::default();
    let processes = [WRITER, SECOND];
    let transactions = [draft.begin(5, 0, 0), draft.begin(6, 0, 1)];
    for place in 0..2 {
        let (transaction, value) = (transactions[place], place as u64 * 10);
        let process = processes[place];
        draft.send_in(Some(transaction), process, LOG, place as i64, &[51 + value]);
        let send = draft.send_in(Some(transaction), process, OTHER, 0, &[52 + value]);
        (send.outcome, send.base) = (Outcome::Unknown, None);
    }
    for transaction in transactions {
        let end = draft.end(transaction, true);
        end.what = What::End { transaction, commit: true, outcome: Outcome::Unknown };
    }
    draft.rest_of_committed(LOG, &[(0, 51), (1, 61)]);
    let mut other = [(second_log[0], 52), (second_log[1], 62)];
    other.sort_unstable();
    draft.rest_of_committed(OTHER, &other);
    draft
}

#[test]
fn writes_of_one_transactional_id_against_their_order_are_a_write_cycle() {
    in_both_logs([0, 1]).expect(&[]);
    in_both_logs([1, 0]).expect(&[Kind::WriteCycle]);
}

/// Two records, each made into an output in one transaction with the offset after both.
fn two_made() -> Draft {
    let mut draft = Draft::default();
    draft.send(SECOND, 0, &[1, 2]);
    let transaction = draft.begin(5, 0, 0);
    let send = draft.send_in(Some(transaction), WRITER, OTHER, 0, &[51, 52]);
    send.sources = vec![(LOG, 0), (LOG, 1)];
    let (group, log, outcome) = (GROUP, LOG, Outcome::Ok);
    let commit = Commit { group, log, offset: 2, transaction: Some(transaction), outcome };
    draft.add(WRITER, What::Commit(commit));
    draft.end(transaction, true);
    draft.rest_of_committed(LOG, &[(0, 1), (1, 2)]);
    draft.rest_of_committed(OTHER, &[(0, 51), (1, 52)]);
    draft.history.offsets.insert((GROUP, LOG), 2);
    draft
}

#[test]
fn an_input_with_two_outputs_is_duplicated() {
    two_made().expect(&[]);
    let mut draft = two_made();
    let transaction = draft.begin(6, 0, 1);
    let send = draft.send_in(Some(transaction), WRITER, OTHER, 3, &[61]);
    send.sources = vec![(LOG, 1)];
    let (group, log, outcome) = (GROUP, LOG, Outcome::Ok);
    let commit = Commit { group, log, offset: 2, transaction: Some(transaction), outcome };
    draft.add(WRITER, What::Commit(commit));
    draft.end(transaction, true);
    draft.rest_of_committed(OTHER, &[(0, 51), (1, 52), (3, 61)]);
    draft.expect(&[Kind::Duplicated]);
}

#[test]
fn an_offset_without_its_outputs_is_torn() {
    let mut draft = two_made();
    draft.send(SECOND, 2, &[3]);
    draft.rest_of_committed(LOG, &[(0, 1), (1, 2), (2, 3)]);
    draft.expect(&[]);
    draft.commit(3);
    draft.history.offsets.insert((GROUP, LOG), 3);
    draft.expect(&[Kind::Torn]);
}

#[test]
fn outputs_without_their_offset_are_torn() {
    let mut draft = two_made();
    draft.history.offsets.insert((GROUP, LOG), 1);
    draft.commit(1).invoked = 0;
    let kinds = check(&draft.history).kinds();
    assert_eq!(kinds, [Kind::Torn, Kind::OffsetWentBack]);
}
