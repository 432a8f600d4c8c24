//! DescribeTransactions and ListTransactions.

use super::*;

fn everything() -> ListFilter {
    ListFilter { states: vec![], producer_ids: vec![], duration_ms: -1, pattern: None }
}

/// Ids in three states, at producer ids 7, 8 and 9.
fn three() -> World {
    let mut world = World::new(RULES);
    let ids = [
        ("app-open", 7, State::Ongoing),
        ("app-done", 8, State::CompleteCommit),
        ("other", 9, State::Empty),
    ];
    for (id, producer_id, state) in ids {
        let metadata = Metadata { producer: who(producer_id, 3), ..at(state, 3) };
        world.log.push((key_bytes(id), Some(value_bytes(&metadata, 1))));
    }
    world.restart();
    world
}

fn check(change: impl FnOnce(&mut ListFilter), expected: &[&str]) {
    let mut filter = everything();
    change(&mut filter);
    let world = three();
    let listing = world.coordinator.list(&filter, START_MS).expect("a listing");
    let mut found: Vec<&str> =
        listing.transactions.iter().map(|listed| &*listed.transactional_id).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(listing.unknown_states, Vec::<String>::new());
}

#[test]
fn everything_is_listed_with_producer_and_state() {
    check(|_| {}, &["app-done", "app-open", "other"]);
    let listing = three().coordinator.list(&everything(), START_MS).expect("a listing");
    let listed = Listed {
        transactional_id: "app-open".into(),
        producer_id: ProducerId(7),
        state: State::Ongoing,
    };
    assert!(listing.transactions.contains(&listed));
}

#[test]
fn states_filter_by_their_exact_names() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    check(|filter| filter.states = names(&["Ongoing"]), &["app-open"]);
    check(|filter| filter.states = names(&["Empty", "CompleteCommit"]), &["app-done", "other"]);
    check(|filter| filter.states = names(&["Dead", "PrepareEpochFence"]), &[]);
    let filter = ListFilter { states: names(&["Foo", "empty"]), ..everything() };
    let listing = three().coordinator.list(&filter, START_MS).expect("a listing");
    assert_eq!(listing.transactions, []);
    assert_eq!(listing.unknown_states, ["Foo", "empty"]);
}

#[test]
fn producer_ids_filter() {
    check(|filter| filter.producer_ids = vec![ProducerId(9)], &["other"]);
    let ids = vec![ProducerId(7), ProducerId(8), ProducerId(99)];
    check(|filter| filter.producer_ids = ids, &["app-done", "app-open"]);
}

#[test]
fn durations_filter_what_began_too_late_and_nothing_that_did_not_begin() {
    // The two began a second ago.
    check(|filter| filter.duration_ms = 999, &["app-done", "app-open", "other"]);
    check(|filter| filter.duration_ms = 1_000, &["other"]);
    check(|filter| filter.duration_ms = 0, &["app-done", "app-open", "other"]);
    check(|filter| filter.duration_ms = 3_600_000, &[]);
    check(|filter| filter.duration_ms = START_MS, &["other"]);
    check(|filter| filter.duration_ms = i64::MIN, &["app-done", "app-open", "other"]);
}

#[test]
fn an_id_without_a_transaction_passes_any_real_duration() {
    let filter = ListFilter { duration_ms: 3_600_000, ..everything() };
    let world = three();
    let listing = world.coordinator.list(&filter, 1_764_000_000_000).expect("a listing");
    assert_eq!(listing.transactions.len(), 3);
    let filter = ListFilter { duration_ms: i64::MAX, ..everything() };
    let listing = world.coordinator.list(&filter, 1_764_000_000_000).expect("a listing");
    assert_eq!(listing.transactions, []);
}

#[test]
fn a_pattern_matches_the_whole_id() {
    let pattern = |pattern: &'static str| {
        move |filter: &mut ListFilter| filter.pattern = Some(pattern.to_owned())
    };
    check(pattern("app-.*"), &["app-done", "app-open"]);
    check(pattern("app"), &[]);
    check(pattern("other"), &["other"]);
    check(pattern("othe|other"), &["other"]);
    check(pattern("^other$"), &["other"]);
    check(pattern(r"\w+-\w{4}"), &["app-done", "app-open"]);
    check(pattern("(?i)OTHER"), &["other"]);
    check(pattern(""), &["app-done", "app-open", "other"]);
}

#[test]
fn a_bad_pattern_is_told() {
    let nested = "(".repeat(5_000) + "a" + &")".repeat(5_000);
    let large = "(?:a{1000}){1000}";
    for pattern in ["(", "a)(b", "[", "*", "a{2,1}", "(?<=a)b", r"(a)\1", large, &nested] {
        let filter = ListFilter { pattern: Some(pattern.to_owned()), ..everything() };
        let answer = three().coordinator.list(&filter, START_MS);
        assert_eq!(answer, Err(ErrorCode::InvalidRegularExpression));
    }
}

#[test]
fn filters_are_joined() {
    check(
        |filter| {
            filter.states = vec!["Ongoing".to_owned(), "Empty".to_owned()];
            filter.pattern = Some("app.*".to_owned());
        },
        &["app-open"],
    );
}

#[test]
fn nothing_is_listed_while_any_partition_is_read() {
    let mut world = three();
    world.coordinator.begin_load(PartitionIndex(9));
    let answer = world.coordinator.list(&everything(), START_MS);
    assert_eq!(answer, Err(ErrorCode::CoordinatorLoadInProgress));
    world.coordinator.finish_load(PartitionIndex(9), 5, START_MS);
    assert!(world.coordinator.list(&everything(), START_MS).is_ok());
}

#[test]
fn an_id_is_described() {
    let world = three();
    let described = world.coordinator.describe(PARTITION, "app-open");
    let expected = Description {
        state: State::Ongoing,
        timeout_ms: 60_000,
        start_ms: START_MS - 1_000,
        producer: who(7, 3),
        partitions: partitions(),
    };
    assert_eq!(described, Ok(expected));
    let empty = world.coordinator.describe(PARTITION, "other").expect("known");
    assert_eq!((empty.state, empty.start_ms, empty.partitions), (State::Empty, -1, vec![]));
}

#[test]
fn what_cannot_be_described() {
    let mut world = three();
    let describe = |world: &World, index, id| {
        world.coordinator.describe(PartitionIndex(index), id).map(|_| ())
    };
    assert_eq!(describe(&world, 3, ""), Err(ErrorCode::InvalidRequest));
    assert_eq!(describe(&world, 3, "none"), Err(ErrorCode::TransactionalIdNotFound));
    assert_eq!(describe(&world, 4, "other"), Err(ErrorCode::NotCoordinator));
    world.coordinator.begin_load(PartitionIndex(4));
    assert_eq!(describe(&world, 4, "other"), Err(ErrorCode::CoordinatorLoadInProgress));
    // An id whose first record is pending is nowhere yet.
    let Verdict::Write { .. } = world.ask_init(&init_request(None)) else { panic!() };
    assert_eq!(describe(&world, 3, ID), Err(ErrorCode::TransactionalIdNotFound));
}

#[test]
fn states_have_kafkas_names_and_numbers() {
    for (number, state) in State::ALL.into_iter().enumerate() {
        assert_eq!((state as usize, State::from_name(state.name())), (number, Some(state)));
    }
    assert_eq!(State::from_logged(5), Some(State::CompleteAbort));
    assert_eq!(State::from_logged(6), None);
}
