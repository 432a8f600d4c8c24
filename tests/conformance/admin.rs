//! Cases 42 and 43: what admins are told of transactions.

use std::slice;

use kafka_protocol::messages::{ListTransactionsRequest, ListTransactionsResponse};

use crate::calls::{Producer, describe, producer_state};
use crate::stage::{Stage, await_some, unique};
use crate::support::transactions::{describe_producers, list_transactions, text};

cases!(
    case_42_listing_transactions: Needs::Shared,
    case_43_describing_transactions_and_producers: Needs::Shared,
);

/// Every node is asked, as an admin does it.
fn list(
    stage: &Stage,
    version: i16,
    request: &ListTransactionsRequest,
) -> Vec<(String, i64, String)> {
    let answers = stage.nodes().into_iter().map(|node| listed(stage, node, version, request));
    let all = answers.flat_map(|answer| {
        assert_eq!((answer.error_code, &answer.unknown_state_filters[..]), (0, &[][..]));
        answer.transaction_states
    });
    let mut all: Vec<(String, i64, String)> = all
        .map(|found| {
            let id = found.transactional_id.0.to_string();
            (id, found.producer_id.0, found.transaction_state.to_string())
        })
        .collect();
    all.sort();
    all
}

fn listed(
    stage: &Stage,
    node: i32,
    version: i16,
    request: &ListTransactionsRequest,
) -> ListTransactionsResponse {
    await_some("loaded coordinators", || {
        let response = stage.call(node, version, request);
        (response.error_code != 14).then_some(response)
    })
}

fn case_42_listing_transactions(stage: &Stage) {
    let topic = stage.topic("forty-two", 1);
    let (empty, open) = (Producer::new(stage, "forty-two"), Producer::new(stage, "forty-two"));
    open.added(&topic, 0);
    let row = |producer: &Producer<'_>, state: &str| {
        (producer.id.clone(), producer.who.id, state.to_owned())
    };
    let (of_empty, of_open) = (row(&empty, "Empty"), row(&open, "Ongoing"));
    let both = [empty.who.id, open.who.id];
    let mut rows = vec![of_empty.clone(), of_open.clone()];
    rows.sort();
    for version in 0..=2 {
        assert_eq!(list(stage, version, &list_transactions(&[], &both)), rows, "v{version}");
        let ongoing = list_transactions(&["Ongoing"], &both);
        assert_eq!(list(stage, version, &ongoing), slice::from_ref(&of_open), "v{version}");
    }
    let mut long = list_transactions(&[], &both);
    long.duration_filter = 3_600_000;
    assert_eq!(list(stage, 1, &long), [of_empty]);
    long.duration_filter = 0;
    await_some("it has lasted longer than 0 ms", || (list(stage, 1, &long) == rows).then_some(()));
    for node in stage.nodes() {
        let response = listed(stage, node, 1, &list_transactions(&["Foo"], &[]));
        assert_eq!((response.error_code, response.transaction_states.len()), (0, 0));
        assert_eq!(response.unknown_state_filters, [text("Foo")]);
        let mut pattern = list_transactions(&[], &[]);
        pattern.transactional_id_pattern = Some(text("("));
        assert_eq!(listed(stage, node, 2, &pattern).error_code, 128);
    }
    let by_pattern = |pattern: String| {
        let mut request = list_transactions(&[], &both);
        request.transactional_id_pattern = Some(text(&pattern));
        list(stage, 2, &request)
    };
    assert_eq!(by_pattern("forty-[a-z]+-.*".to_owned()), rows);
    assert_eq!(by_pattern("forty".to_owned()), [], "the whole id has to match");
    assert_eq!(by_pattern(open.id.clone()), [of_open]);
}

fn case_43_describing_transactions_and_producers(stage: &Stage) {
    let unknown = describe(stage, &unique("unknown"));
    assert_eq!((unknown.error_code, &*unknown.transaction_state), (105, ""));
    assert_eq!(describe(stage, "").error_code, 42);

    let topic = stage.topic("forty-three", 2);
    let mut producer = Producer::with_timeout(stage, "forty-three", 12_345);
    let id = producer.who.id;
    assert!(producer_state(stage, &topic, 0, id).is_none());
    assert_eq!(producer.sent(&topic, 0, 0, 3), 0);
    assert_eq!(producer.sent(&topic, 0, 3, 1), 3);
    let state = producer_state(stage, &topic, 0, id).expect("an entry");
    let found = (state.producer_epoch, state.last_sequence, state.current_txn_start_offset);
    assert_eq!(found, (0, 3, 0));
    assert_eq!(state.coordinator_epoch, -1);
    assert!((0..60_000).contains(&(crate::calls::now_ms() - state.last_timestamp)));
    let described = producer.describe();
    assert_eq!((described.error_code, &*described.transaction_state), (0, "Ongoing"));
    assert_eq!((described.producer_id.0, described.producer_epoch), (id, 0));
    assert_eq!(described.transaction_timeout_ms, 12_345);
    let age_ms = crate::calls::now_ms() - described.transaction_start_time_ms;
    assert!((0..60_000).contains(&age_ms), "{age_ms}");
    let topics: Vec<(&str, &[i32])> =
        described.topics.iter().map(|found| (&*found.topic.0, &found.partitions[..])).collect();
    assert_eq!(topics, [(&*topic.name, &[0][..])]);
    producer.ended(5, true);
    let state = producer_state(stage, &topic, 0, id).expect("an entry");
    let found = (state.producer_epoch, state.last_sequence, state.current_txn_start_offset);
    assert_eq!(found, (1, -1, -1));
    assert!(state.coordinator_epoch >= 0);
    let described = producer.describe();
    assert_eq!((&*described.transaction_state, described.topics.len()), ("CompleteCommit", 0));

    let node = stage.leader(&topic.name, 0);
    let response = stage.call(node, 0, &describe_producers(&topic.name, 9));
    assert_eq!(response.topics[0].partitions[0].error_code, 3);
    let response = stage.call(node, 0, &describe_producers("a/b", 0));
    assert_eq!(response.topics[0].partitions[0].error_code, 17);
}
