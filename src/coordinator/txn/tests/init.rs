//! InitProducerId: a test for each row of its tables.

use super::*;

fn check_refusal(rules: Rules, change: impl FnOnce(&mut InitProducerId), code: ErrorCode) {
    let mut world = World::new(rules);
    let mut request = init_request(None);
    change(&mut request);
    assert_eq!(world.ask_init(&request), Verdict::Refuse(code));
    assert_eq!(world.log, []);
}

#[test]
fn the_empty_id_is_an_invalid_request() {
    check_refusal(RULES, |request| request.transactional_id = "".into(), ErrorCode::InvalidRequest);
}

#[test]
fn an_id_too_long_for_a_record_is_an_invalid_request() {
    let long: Arc<str> = "x".repeat(32_768).into();
    check_refusal(RULES, |request| request.transactional_id = long, ErrorCode::InvalidRequest);
}

#[test]
fn two_phase_commit_is_refused_where_it_is_off() {
    let code = ErrorCode::TransactionalIdAuthorizationFailed;
    check_refusal(RULES, |request| request.two_phase = true, code);
    // It is looked at before keep_prepared and the timeout, after the id.
    let all = |request: &mut InitProducerId| {
        (request.two_phase, request.keep_prepared, request.timeout_ms) = (true, true, 0);
    };
    check_refusal(RULES, all, code);
}

#[test]
fn keeping_a_prepared_transaction_is_not_supported() {
    let keep = |request: &mut InitProducerId| {
        (request.keep_prepared, request.timeout_ms) = (true, 0);
    };
    check_refusal(RULES, keep, ErrorCode::UnsupportedVersion);
    let both = |request: &mut InitProducerId| {
        (request.two_phase, request.keep_prepared) = (true, true);
    };
    let rules = Rules { two_phase_commit: true, ..RULES };
    check_refusal(rules, both, ErrorCode::UnsupportedVersion);
}

#[test]
fn timeouts_are_from_1_to_the_maximum() {
    for timeout_ms in [i32::MIN, -1, 0, 900_001, i32::MAX] {
        let code = ErrorCode::InvalidTransactionTimeout;
        check_refusal(RULES, |request| request.timeout_ms = timeout_ms, code);
    }
    for timeout_ms in [1, 900_000] {
        let mut world = World::new(RULES);
        let request = InitProducerId { timeout_ms, ..init_request(None) };
        let verdict = world.ask_init(&request);
        assert_eq!(world.settle(verdict), Ok(who(FRESH, 0)));
        assert_eq!(world.durable().timeout_ms, timeout_ms);
    }
}

#[test]
fn two_phase_commit_never_times_out() {
    let mut world = World::new(Rules { two_phase_commit: true, ..RULES });
    let request = InitProducerId { two_phase: true, timeout_ms: -5, ..init_request(None) };
    let verdict = world.ask_init(&request);
    assert_eq!(world.settle(verdict), Ok(who(FRESH, 0)));
    assert_eq!(world.durable().timeout_ms, i32::MAX);
    assert_eq!(world.add(who(FRESH, 0)), Ok(()));
    world.now_ms = i64::MAX;
    assert_eq!(world.time_out(), 0);
}

#[test]
fn other_partitions_and_loading_ones_are_told() {
    let mut world = World::new(RULES);
    let request = init_request(None);
    let other = PartitionIndex(4);
    let verdict = world.coordinator.init_producer_id(other, &request, None, 0);
    assert_eq!(verdict, Verdict::Refuse(ErrorCode::NotCoordinator));
    world.coordinator.begin_load(other);
    let verdict = world.coordinator.init_producer_id(other, &request, None, 0);
    assert_eq!(verdict, Verdict::Refuse(ErrorCode::CoordinatorLoadInProgress));
    // What is wrong with the request itself comes first.
    let bad = InitProducerId { timeout_ms: 0, ..request };
    let verdict = world.coordinator.init_producer_id(PartitionIndex(9), &bad, None, 0);
    assert_eq!(verdict, Verdict::Refuse(ErrorCode::InvalidTransactionTimeout));
}

#[test]
fn a_new_id_gets_a_new_producer_id_at_epoch_0() {
    let mut world = World::new(RULES);
    let request = init_request(None);
    let verdict = world.coordinator.init_producer_id(PARTITION, &request, None, 0);
    assert_eq!(verdict, Verdict::NeedsProducerId);
    assert_eq!(world.init(None), Ok(who(FRESH, 0)));
    let durable = world.durable();
    assert_eq!((durable.state, durable.last_epoch.0, durable.start_ms), (State::Empty, -1, -1));
    assert_eq!(durable.previous_producer_id, ProducerId(FRESH));
    assert_eq!(world.init(None), Ok(who(FRESH, 1)));
}

#[test]
fn a_new_id_takes_no_notice_of_what_is_expected() {
    for expected in [who(999, 7), who(999, 32_767), who(0, 0)] {
        let mut world = World::new(RULES);
        assert_eq!(world.init(Some(expected)), Ok(who(FRESH, 0)));
        assert_eq!(world.durable().last_epoch.0, -1);
    }
}

#[test]
fn a_pending_transition_holds_whatever_is_expected() {
    let mut world = World::with(RULES, &at(State::Empty, 3));
    let Verdict::Write { write, .. } = world.ask_init(&init_request(None)) else { panic!() };
    for expected in [None, Some(who(P, 3)), Some(who(99, 0))] {
        assert_eq!(world.ask_init(&init_request(expected)), Verdict::Hold);
    }
    assert_eq!(world.append(write).released.as_deref(), Some(ID));
    assert_eq!(world.init(None), Ok(who(P, 5)));
}

#[test]
fn the_first_record_of_an_id_holds_too() {
    let mut world = World::new(RULES);
    let Verdict::Write { write, then } = world.ask_init(&init_request(None)) else { panic!() };
    assert_eq!(world.ask_init(&init_request(None)), Verdict::Hold);
    assert_eq!(world.durable_of(ID), None);
    world.append(write);
    assert_eq!(world.durable().producer, then);
}

#[test]
fn another_producer_id_is_fenced() {
    for state in [State::Empty, State::Ongoing, State::CompleteCommit, State::CompleteAbort] {
        let mut world = World::with(RULES, &at(state, 3));
        assert_eq!(world.init(Some(who(99, 3))), refused(ErrorCode::ProducerFenced));
        assert_eq!(world.durable(), &at(state, 3));
    }
}

#[test]
fn the_previous_producer_id_is_fenced_below_the_last_epoch() {
    let previous_producer_id = ProducerId(6);
    let rotated = Metadata { previous_producer_id, ..at(State::Empty, 0) };
    let mut world = World::with(RULES, &rotated);
    assert_eq!(world.init(Some(who(6, 32_765))), refused(ErrorCode::ProducerFenced));
    // At the last epoch it may be a repetition; of what, the last epoch says: here of nothing.
    assert_eq!(world.init(Some(who(6, 32_766))), refused(ErrorCode::ProducerFenced));
}

#[test]
fn a_transaction_that_is_ending_holds() {
    for state in [State::PrepareCommit, State::PrepareAbort] {
        let mut world = World::with(RULES, &at(state, 3));
        assert_eq!(world.ask_init(&init_request(None)), Verdict::Hold);
        assert_eq!(world.ask_init(&init_request(Some(who(P, 3)))), Verdict::Hold);
    }
}

const SETTLED: [State; 3] = [State::Empty, State::CompleteCommit, State::CompleteAbort];

#[test]
fn without_an_expectation_the_epoch_is_raised() {
    for state in SETTLED {
        let last_epoch = ProducerEpoch(2);
        let mut world = World::with(RULES, &Metadata { last_epoch, ..at(state, 3) });
        assert_eq!(world.init(None), Ok(who(P, 4)));
        assert_eq!((world.durable().state, world.durable().last_epoch.0), (State::Empty, -1));
        // Whoever had it before is fenced.
        assert_eq!(world.init(Some(who(P, 3))), refused(ErrorCode::ProducerFenced));
    }
}

#[test]
fn the_current_epoch_is_raised_and_remembered() {
    for state in SETTLED {
        let mut world = World::with(RULES, &at(state, 3));
        assert_eq!(world.init(Some(who(P, 3))), Ok(who(P, 4)));
        assert_eq!(world.durable().last_epoch.0, 3);
    }
}

#[test]
fn a_repetition_gets_the_same_answer() {
    let mut world = World::with(RULES, &at(State::Empty, 3));
    for _ in 0..3 {
        assert_eq!(world.init(Some(who(P, 3))), Ok(who(P, 4)));
    }
    assert_eq!((world.identity(), world.durable().last_epoch.0), ((P, 4), 3));
    assert_eq!(world.init(Some(who(P, 2))), refused(ErrorCode::ProducerFenced));
}

#[test]
fn a_repetition_survives_a_restart() {
    // KAFKA-20357: before it, the last epoch was in no record.
    let mut world = World::with(RULES, &at(State::Empty, 3));
    assert_eq!(world.init(Some(who(P, 3))), Ok(who(P, 4)));
    world.restart();
    assert_eq!(world.init(Some(who(P, 3))), Ok(who(P, 4)));
}

#[test]
fn records_of_version_0_forget_the_last_epoch() {
    let mut world = World::new(Rules { finalized_level: 0, ..RULES });
    assert_eq!(world.init(None), Ok(who(FRESH, 0)));
    assert_eq!(world.init(Some(who(FRESH, 0))), Ok(who(FRESH, 1)));
    assert_eq!(world.init(Some(who(FRESH, 0))), Ok(who(FRESH, 1)));
    world.restart();
    assert_eq!(world.init(Some(who(FRESH, 0))), refused(ErrorCode::ProducerFenced));
}

#[test]
fn any_other_epoch_is_fenced() {
    for state in SETTLED {
        let last_epoch = ProducerEpoch(2);
        let mut world = World::with(RULES, &Metadata { last_epoch, ..at(state, 3) });
        for epoch in [-1, 0, 1, 4, 32_767] {
            let answer = world.init(Some(who(P, epoch)));
            // With an epoch of -1 as the last one unknown, -1 is no repetition either.
            assert_eq!(answer, refused(ErrorCode::ProducerFenced), "epoch {epoch}");
        }
    }
}

#[test]
fn epoch_32766_is_the_last_for_clients() {
    let mut world = World::with(RULES, &at(State::Empty, 32_765));
    assert_eq!(world.init(None), Ok(who(P, 32_766)));
    assert_eq!(world.init(None), Ok(who(FRESH, 0)));
}

#[test]
fn without_epochs_left_the_producer_id_rotates() {
    for state in SETTLED {
        for epoch in [32_766, 32_767] {
            let mut world = World::with(RULES, &at(state, epoch));
            assert_eq!(world.init(None), Ok(who(FRESH, 0)));
            let durable = world.durable();
            assert_eq!((durable.previous_producer_id.0, durable.last_epoch.0), (P, -1));
            assert_eq!(world.init(Some(who(P, epoch))), refused(ErrorCode::ProducerFenced));
            let mut world = World::with(RULES, &at(state, epoch));
            assert_eq!(world.init(Some(who(P, epoch))), Ok(who(FRESH, 0)));
            assert_eq!(world.durable().last_epoch.0, epoch);
        }
    }
}

#[test]
fn without_epochs_left_another_epoch_is_an_unknown_server_error() {
    let last_epoch = ProducerEpoch(32_765);
    let mut world = World::with(RULES, &Metadata { last_epoch, ..at(State::Empty, 32_766) });
    for epoch in [3, 32_765, 32_767] {
        assert_eq!(world.init(Some(who(P, epoch))), refused(ErrorCode::UnknownServerError));
    }
}

#[test]
fn a_rotation_may_be_repeated_once() {
    let mut world = World::with(RULES, &at(State::Empty, 32_766));
    assert_eq!(world.init(Some(who(P, 32_766))), Ok(who(FRESH, 0)));
    assert_eq!(world.init(Some(who(P, 32_766))), Ok(who(FRESH, 0)));
    assert_eq!(world.init(Some(who(P, 32_766))), refused(ErrorCode::ProducerFenced));
}

#[test]
fn a_rotation_may_be_repeated_after_a_restart() {
    // KAFKA-20310 and KAFKA-20357.
    let mut world = World::with(RULES, &at(State::Empty, 32_766));
    assert_eq!(world.init(Some(who(P, 32_766))), Ok(who(FRESH, 0)));
    world.restart();
    assert_eq!(world.init(Some(who(P, 32_766))), Ok(who(FRESH, 0)));
}

#[test]
fn an_open_transaction_is_aborted_first() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    let Verdict::AbortFirst(write) = world.ask_init(&init_request(None)) else { panic!() };
    assert!(write.ends);
    assert_eq!(world.ask_init(&init_request(None)), Verdict::Hold);
    let completion = world.append(write).markers.expect("an abort has markers");
    assert_eq!(
        completion,
        Completion {
            ticket: completion.ticket,
            transactional_id: ID.into(),
            producer: who(P, 4),
            commit: false,
            coordinator_epoch: COORDINATOR_EPOCH,
            transaction_version: 2,
            partitions: partitions(),
        }
    );
    assert_eq!(world.ask_init(&init_request(None)), Verdict::Hold);
    world.complete(&completion);
    assert_eq!((world.durable().state, world.identity()), (State::CompleteAbort, (P, 4)));
    assert_eq!(world.init(None), Ok(who(P, 5)));
}

#[test]
fn a_stale_epoch_aborts_an_open_transaction_before_it_is_fenced() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    assert_eq!(world.init(Some(who(P, 1))), refused(ErrorCode::ConcurrentTransactions));
    assert_eq!(world.durable().state, State::CompleteAbort);
    assert_eq!(world.init(Some(who(P, 1))), refused(ErrorCode::ProducerFenced));
}

#[test]
fn the_aborted_producer_goes_on_since_kip_890() {
    let mut world = World::with(RULES, &at(State::Ongoing, 3));
    assert_eq!(world.init(Some(who(P, 3))), refused(ErrorCode::ConcurrentTransactions));
    assert_eq!(world.durable().last_epoch.0, 3);
    assert_eq!(world.init(Some(who(P, 3))), Ok(who(P, 4)));
}

#[test]
fn the_aborted_producer_is_fenced_before_kip_890() {
    let mut world = World::with(LEGACY, &at(State::Ongoing, 3));
    assert_eq!(world.init(Some(who(P, 3))), refused(ErrorCode::ConcurrentTransactions));
    let durable = world.durable();
    assert_eq!((durable.state, durable.last_epoch.0), (State::CompleteAbort, -1));
    assert_eq!((durable.client_version, durable.producer), (0, who(P, 4)));
    assert_eq!(world.init(Some(who(P, 3))), refused(ErrorCode::ProducerFenced));
    assert_eq!(world.init(None), Ok(who(P, 5)));
}

#[test]
fn aborting_at_the_last_epoch_rotates() {
    // KAFKA-20090: it had been left at an epoch that nobody could end it with.
    let mut world = World::with(RULES, &at(State::Ongoing, 32_766));
    let request = init_request(Some(who(P, 32_766)));
    let verdict = world.coordinator.init_producer_id(PARTITION, &request, None, START_MS);
    assert_eq!(verdict, Verdict::NeedsProducerId);
    let Verdict::AbortFirst(write) = world.ask_init(&request) else { panic!() };
    let completion = world.append(write).markers.expect("an abort has markers");
    assert_eq!(completion.producer, who(P, 32_767));
    world.restart();
    let entry = world.entry(ID).and_then(|entry| entry.pending.as_ref());
    let again = Completion { ticket: entry.expect("a completion").ticket, ..completion };
    world.complete(&again);
    assert_eq!((world.identity(), world.durable().last_epoch.0), ((FRESH, 0), 32_766));
    // The producer that was aborted asks again, and goes on.
    assert_eq!(world.init(Some(who(P, 32_766))), Ok(who(FRESH, 0)));
}

#[test]
fn an_open_transaction_at_the_coordinators_own_epoch_is_aborted_too() {
    let mut world = World::with(RULES, &at(State::Ongoing, 32_767));
    assert_eq!(world.init(None), refused(ErrorCode::ConcurrentTransactions));
    assert_eq!(world.identity(), (FRESH, 0));
    let mut world = World::with(LEGACY, &at(State::Ongoing, 32_767));
    assert_eq!(world.init(None), refused(ErrorCode::ConcurrentTransactions));
    assert_eq!(world.identity(), (P, 32_767));
    assert_eq!(world.init(None), Ok(who(FRESH, 0)));
}

#[test]
fn success_empties_the_transaction() {
    let mut world = World::with(RULES, &at(State::CompleteCommit, 3));
    let request = InitProducerId { timeout_ms: 5_000, ..init_request(None) };
    let verdict = world.ask_init(&request);
    assert_eq!(world.settle(verdict), Ok(who(P, 4)));
    let expected = Metadata {
        producer: who(P, 4),
        state: State::Empty,
        timeout_ms: 5_000,
        start_ms: -1,
        last_update_ms: START_MS,
        ..at(State::CompleteCommit, 3)
    };
    assert_eq!(world.durable(), &expected);
}
