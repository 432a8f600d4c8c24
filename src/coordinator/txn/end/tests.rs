//! What an end means: every cell of the tables of both protocols, also of states that always have
//! something pending in a running coordinator.

use super::*;
use crate::ids::ProducerEpoch;

const E: i16 = 9;

/// Meanings of abort repeated, abort current, commit repeated, commit current.
fn check_strict(state: State, expected: [Meaning; 4]) {
    let durable = durable(state, 7, E);
    let asked = [(false, E - 1), (false, E), (true, E - 1), (true, E)];
    for ((commit, epoch), expected) in asked.into_iter().zip(expected) {
        let meaning = meaning_strict(&durable, &request(commit, 7, epoch), false);
        assert_eq!(meaning, expected, "{state:?}, commit {commit}, epoch {epoch}");
        let pending = meaning_strict(&durable, &request(commit, 7, epoch), true);
        assert_eq!(pending, Meaning::Concurrent);
    }
    for epoch in [E + 1, E - 2, 0, -1, i16::MAX] {
        for commit in [false, true] {
            let meaning = meaning_strict(&durable, &request(commit, 7, epoch), false);
            assert_eq!(meaning, FENCED, "{state:?}, commit {commit}, epoch {epoch}");
        }
    }
}

/// Meanings of commit and abort at the current epoch.
fn check_legacy(state: State, expected: [Meaning; 2]) {
    let durable = durable(state, 7, E);
    for (commit, expected) in [true, false].into_iter().zip(expected) {
        let meaning = |producer_id, epoch, is_pending| {
            meaning_legacy(&durable, &request(commit, producer_id, epoch), is_pending)
        };
        assert_eq!(meaning(7, E, false), expected, "{state:?}, commit {commit}");
        assert_eq!(meaning(7, E, true), Meaning::Concurrent);
        // The producer is looked at before what is pending.
        for is_pending in [false, true] {
            assert_eq!(meaning(8, E, is_pending), UNMAPPED);
            assert_eq!(meaning(7, E - 1, is_pending), FENCED);
            assert_eq!(meaning(7, E + 1, is_pending), FENCED);
        }
    }
}

#[test]
fn strict_empty() {
    check_strict(State::Empty, [FENCED, Meaning::New, FENCED, INVALID]);
}

#[test]
fn strict_ongoing() {
    check_strict(State::Ongoing, [FENCED, Meaning::New, FENCED, Meaning::New]);
}

#[test]
fn strict_prepare_commit() {
    check_strict(State::PrepareCommit, [INVALID, FENCED, Meaning::Concurrent, FENCED]);
}

#[test]
fn strict_prepare_abort() {
    check_strict(State::PrepareAbort, [Meaning::Concurrent, FENCED, INVALID, FENCED]);
}

#[test]
fn strict_complete_abort() {
    // The third cell is KAFKA-20785: INVALID_TXN_STATE before it.
    check_strict(State::CompleteAbort, [Meaning::Repeated, Meaning::New, FENCED, INVALID]);
}

#[test]
fn strict_complete_commit() {
    check_strict(State::CompleteCommit, [INVALID, Meaning::New, Meaning::Repeated, INVALID]);
}

/// A legacy end leaves the epoch: whoever had the one before was fenced by an InitProducerId, and
/// must not be told what the producer is now.
#[test]
fn strict_after_a_legacy_end() {
    let prepared = [State::PrepareCommit, State::PrepareAbort];
    for state in prepared.into_iter().chain([State::CompleteCommit, State::CompleteAbort]) {
        let durable = Metadata { client_version: 0, ..durable(state, 7, E) };
        for commit in [false, true] {
            let meaning = meaning_strict(&durable, &request(commit, 7, E - 1), false);
            assert_eq!(meaning, FENCED, "{state:?}, commit {commit}");
        }
    }
    let complete = Metadata { client_version: 0, ..durable(State::CompleteAbort, 7, E) };
    assert_eq!(meaning_strict(&complete, &request(false, 7, E), false), Meaning::New);
}

#[test]
fn strict_other_producer() {
    for state in [State::Empty, State::Ongoing, State::PrepareCommit, State::CompleteAbort] {
        let meaning = meaning_strict(&durable(state, 7, E), &request(true, 8, E), false);
        assert_eq!(meaning, UNMAPPED);
    }
}

#[test]
fn strict_repetition_over_a_rotation() {
    let check = |state, commit, expected| {
        let durable = durable(state, 70, 0);
        let meaning = meaning_strict(&durable, &request(commit, 7, i16::MAX - 1), false);
        assert_eq!(meaning, expected, "{state:?}, commit {commit}");
        let earlier = meaning_strict(&durable, &request(commit, 7, i16::MAX - 2), false);
        assert_eq!(earlier, UNMAPPED);
    };
    check(State::CompleteCommit, true, Meaning::Repeated);
    check(State::CompleteCommit, false, INVALID);
    check(State::CompleteAbort, false, Meaning::Repeated);
    check(State::CompleteAbort, true, FENCED);
    // The producer id is known there, its epoch means nothing.
    check(State::Empty, true, FENCED);
    check(State::Empty, false, FENCED);
}

#[test]
fn legacy_ongoing() {
    check_legacy(State::Ongoing, [Meaning::New, Meaning::New]);
}

#[test]
fn legacy_complete_commit() {
    check_legacy(State::CompleteCommit, [Meaning::Repeated, INVALID]);
}

#[test]
fn legacy_complete_abort() {
    check_legacy(State::CompleteAbort, [INVALID, Meaning::Repeated]);
}

#[test]
fn legacy_prepare_commit() {
    check_legacy(State::PrepareCommit, [Meaning::Concurrent, INVALID]);
}

#[test]
fn legacy_prepare_abort() {
    check_legacy(State::PrepareAbort, [INVALID, Meaning::Concurrent]);
}

#[test]
fn legacy_empty() {
    check_legacy(State::Empty, [INVALID, INVALID]);
}

/// The id at some producer, after one of producer id 7; what ended, if anything, did so as in
/// KIP-890.
fn durable(state: State, producer_id: i64, epoch: i16) -> Metadata {
    Metadata {
        producer: Identity { id: ProducerId(producer_id), epoch: ProducerEpoch(epoch) },
        previous_producer_id: ProducerId(7),
        client_version: STRICT_LEVEL,
        state,
        ..Metadata::new(ProducerId(producer_id), 60_000, 0)
    }
}

fn request(commit: bool, producer_id: i64, epoch: i16) -> EndTxn {
    let producer = Identity { id: ProducerId(producer_id), epoch: ProducerEpoch(epoch) };
    EndTxn { transactional_id: "a".into(), producer, commit, strict: true }
}

const FENCED: Meaning = Meaning::Refused(ErrorCode::ProducerFenced);
const INVALID: Meaning = Meaning::Refused(ErrorCode::InvalidTxnState);
const UNMAPPED: Meaning = Meaning::Refused(ErrorCode::InvalidProducerIdMapping);
