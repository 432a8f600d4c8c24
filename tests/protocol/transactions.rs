//! Transactions at their coordinator: identities, what is in a transaction, how it ends, and who
//! may ask. What a transaction leaves in partitions is read back where it shows that markers came.

use std::time::{Duration, Instant};

use kafka_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction,
};
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest,
    FindCoordinatorRequest, GroupId, ListTransactionsRequest, ProducerId, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;

use crate::calls::{only_fetched, only_produced, waiting};
use crate::cluster::{self, Cluster, Mode};
use crate::support::batch::{Batch, ReadBatch, read_batches};
use crate::support::client::Client;
use crate::support::requests::{self, Topic, delete_topic_state, init_producer_id};

in_every_mode!(
    identities_follow_each_other,
    identities_are_refused,
    other_nodes_are_no_coordinators,
    partitions_are_added_before_they_are_written,
    one_missing_partition_keeps_all_out,
    several_transactions_are_asked_at_once,
    legacy_transactions_end,
    strict_transactions_end,
    both_protocols_mix,
    an_open_transaction_is_aborted_by_the_next_producer,
    a_deleted_topic_holds_nothing_up,
    groups_are_added_by_their_partition,
    ids_are_described_and_listed,
    many_partitions_on_many_shards,
    an_operator_is_told_who_holds_readers_back,
);

pub type Id = (i64, i16);

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn unique(stem: &str) -> String {
    cluster::unique(stem)
}

/// The node that coordinates a transactional id.
pub fn coordinator(cluster: &Cluster, id: &str) -> i32 {
    let request =
        FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text(id)]);
    let response = cluster.connect().call(4, &request);
    assert_eq!(response.coordinators[0].error_code, 0);
    response.coordinators[0].node_id.0
}

/// A transactional id nobody else has, and a connection to its coordinator.
pub fn producer(cluster: &Cluster, stem: &str) -> (String, Client) {
    let id = unique(stem);
    let client = cluster.connect_to(coordinator(cluster, &id));
    (id, client)
}

/// Code and identity.
pub fn init(client: &mut Client, version: i16, id: &str, expected: Option<Id>) -> (i16, i64, i16) {
    let mut request = init_producer_id(Some(id));
    if let Some((producer, epoch)) = expected {
        (request.producer_id, request.producer_epoch) = (ProducerId(producer), epoch);
    }
    let response = client.call(version, &request);
    (response.error_code, response.producer_id.0, response.producer_epoch)
}

/// An identity that must be given.
pub fn begin(client: &mut Client, id: &str) -> Id {
    let (code, producer, epoch) = init(client, 5, id, None);
    assert_eq!(code, 0);
    (producer, epoch)
}

fn transaction(id: &str, who: Id, topics: &[(&Topic, &[i32])]) -> AddPartitionsToTxnTransaction {
    let topics = topics.iter().map(|(topic, partitions)| {
        AddPartitionsToTxnTopic::default()
            .with_name(topic.wire_name())
            .with_partitions(partitions.to_vec())
    });
    AddPartitionsToTxnTransaction::default()
        .with_transactional_id(TransactionalId(text(id)))
        .with_producer_id(ProducerId(who.0))
        .with_producer_epoch(who.1)
        .with_topics(topics.collect())
}

/// AddPartitionsToTxn up to v3: the codes in the order of the request.
fn add(
    client: &mut Client,
    version: i16,
    id: &str,
    who: Id,
    topics: &[(&Topic, &[i32])],
) -> Vec<i16> {
    let transaction = transaction(id, who, topics);
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transaction.transactional_id)
        .with_v3_and_below_producer_id(transaction.producer_id)
        .with_v3_and_below_producer_epoch(transaction.producer_epoch)
        .with_v3_and_below_topics(transaction.topics);
    let response = client.call(version, &request);
    let topics = response.results_by_topic_v3_and_below;
    topics
        .iter()
        .flat_map(|topic| &topic.results_by_partition)
        .map(|partition| partition.partition_error_code)
        .collect()
}

/// Code and identity of an EndTxn.
pub fn end(client: &mut Client, version: i16, id: &str, who: Id, commit: bool) -> (i16, i64, i16) {
    let request = EndTxnRequest::default()
        .with_transactional_id(TransactionalId(text(id)))
        .with_producer_id(ProducerId(who.0))
        .with_producer_epoch(who.1)
        .with_committed(commit);
    let response = client.call(version, &request);
    (response.error_code, response.producer_id.0, response.producer_epoch)
}

pub fn describe(client: &mut Client, id: &str) -> TransactionState {
    let request = DescribeTransactionsRequest::default()
        .with_transactional_ids(vec![TransactionalId(text(id))]);
    client.call(0, &request).transaction_states[0].clone()
}

/// Waits until a transaction has ended, asking again and again.
pub fn ended(client: &mut Client, id: &str) -> TransactionState {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let state = describe(client, id);
        if state.transaction_state.starts_with("Complete") {
            return state;
        }
        assert!(Instant::now() < deadline, "{state:?}");
        std::thread::yield_now();
    }
}

/// Produces one transactional batch; its code.
fn write(
    cluster: &Cluster,
    version: i16,
    id: &str,
    who: Id,
    topic: &Topic,
    partition: i32,
    sequence: i32,
) -> i16 {
    let batch = Batch::of_values(["a"]).with_producer(who.0, who.1, sequence).transactional();
    let request = requests::produce(version, topic, partition, -1, batch.encode())
        .with_transactional_id(Some(TransactionalId(text(id))));
    let mut client = cluster.at(topic, partition);
    only_produced(client.call(version, &request), partition).error_code
}

/// What a reader of committed records finds from `offset` on, waiting until there is something:
/// the batches, and the aborted transactions.
fn committed(
    cluster: &Cluster,
    topic: &Topic,
    partition: i32,
    offset: i64,
) -> (Vec<ReadBatch>, Vec<Id64>) {
    let mut request = waiting(requests::fetch(18, topic, partition, offset), 15_000, 1);
    request.isolation_level = 1;
    let mut client = cluster.at(topic, partition);
    let data = only_fetched(client.call(18, &request), partition);
    assert_eq!(data.error_code, 0);
    let aborted = data.aborted_transactions.unwrap_or_default();
    let aborted = aborted.iter().map(|a| (a.producer_id.0, a.first_offset)).collect();
    let mut batches = read_batches(data.records.unwrap_or_default());
    // A response may hold less than there is, if memory is short.
    while let Some(next) =
        batches.last().map(|batch| batch.base_offset + i64::from(batch.last_offset_delta) + 1)
        && next < data.last_stable_offset
    {
        let mut request = requests::fetch(18, topic, partition, next);
        request.isolation_level = 1;
        let more = only_fetched(client.call(18, &request), partition);
        let more = read_batches(more.records.unwrap_or_default());
        assert!(!more.is_empty(), "stable to {}, nothing at {next}", data.last_stable_offset);
        batches.extend(more);
    }
    (batches, aborted)
}

type Id64 = (i64, i64);

/// Offset, producer and whether it is a marker, of every batch.
fn outline(batches: &[ReadBatch]) -> Vec<(i64, Id, bool)> {
    batches
        .iter()
        .map(|b| (b.base_offset, (b.producer_id, b.producer_epoch), b.attributes & 0x20 != 0))
        .collect()
}

fn identities_follow_each_other(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "identities");
    let client = &mut client;
    let (producer, epoch) = begin(client, &id);
    assert_eq!(epoch, 0);
    assert_eq!(init(client, 0, &id, None), (0, producer, 1));
    assert_eq!(init(client, 3, &id, Some((producer, 1))), (0, producer, 2));
    assert_eq!(init(client, 5, &id, Some((producer, 2))), (0, producer, 3));
    assert_eq!(init(client, 5, &id, Some((producer, 2))), (0, producer, 3), "a retry");
    assert_eq!(init(client, 5, &id, Some((producer, 1))), (90, -1, -1));
    assert_eq!(init(client, 3, &id, Some((producer, 1))), (47, -1, -1));
    assert_eq!(init(client, 5, &id, Some((producer + 1_000_000, 3))), (90, -1, -1));
    let other = unique("identities");
    let mut client = cluster.connect_to(coordinator(cluster, &other));
    let (code, fresh, epoch) = init(&mut client, 4, &other, Some((999, 7)));
    assert_eq!((code, epoch), (0, 0), "an unknown id forgives everything");
    assert_ne!(fresh, producer);
}

fn identities_are_refused(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "refused");
    for (producer, epoch) in [(5, -1), (-1, 0)] {
        assert_eq!(init(&mut client, 3, &id, Some((producer, epoch))), (42, -1, -1));
    }
    for timeout_ms in [0, -1, 900_001] {
        let mut request = init_producer_id(Some(&id));
        request.transaction_timeout_ms = timeout_ms;
        assert_eq!(client.call(5, &request).error_code, 50);
    }
    let topic = cluster.topic("refused", 1);
    for (version, code) in [(0, 49), (3, 49)] {
        assert_eq!(add(&mut client, version, &id, (5, 0), &[(&topic, &[0])]), [code]);
        assert_eq!(end(&mut client, version, &id, (5, 0), true), (code, -1, -1));
    }
    let who = begin(&mut client, &id);
    for (other, codes) in [((who.0, who.1 + 1), [47, 90]), ((who.0 + 1_000_000, who.1), [49, 49])] {
        for (version, code) in [1, 3].into_iter().zip(codes) {
            assert_eq!(add(&mut client, version, &id, other, &[(&topic, &[0])]), [code]);
            assert_eq!(end(&mut client, version, &id, other, true).0, code);
        }
    }
    assert_eq!(add(&mut client, 3, "", who, &[(&topic, &[0])]), [42]);
    assert_eq!(end(&mut client, 5, "", who, true), (42, -1, -1));
}

fn other_nodes_are_no_coordinators(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "anywhere");
    let who = begin(&mut client, &id);
    let topic = cluster.topic("anywhere", 1);
    let home = coordinator(cluster, &id);
    let mut epoch = who.1;
    for (node, mut client) in (0..).zip(cluster.everywhere()) {
        let served = cluster.is_single() || node == home;
        let or = |code: i16| if served { code } else { 16 };
        assert_eq!(init(&mut client, 5, &id, None).0, or(0));
        epoch += i16::from(served);
        let now = (who.0, epoch);
        assert_eq!(add(&mut client, 3, &id, now, &[(&topic, &[0])]), [or(0)]);
        assert_eq!(end(&mut client, 3, &id, now, false).0, or(0));
        assert_eq!(describe(&mut client, &id).error_code, or(0));
        if served {
            ended(&mut client, &id);
        }
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(TransactionalId(text(&id)))
            .with_producer_id(ProducerId(who.0))
            .with_producer_epoch(i16::MAX)
            .with_group_id(GroupId(text("g")));
        assert_eq!(client.call(4, &request).error_code, or(90));
    }
}

fn partitions_are_added_before_they_are_written(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "added");
    let topic = cluster.topic("added", 2);
    let who = begin(&mut client, &id);
    assert_eq!(write(cluster, 9, &id, who, &topic, 0, 0), 48);
    assert_eq!(write(cluster, 11, &id, who, &topic, 0, 0), 120);
    assert_eq!(add(&mut client, 3, &id, who, &[(&topic, &[0])]), [0]);
    assert_eq!(write(cluster, 9, &id, who, &topic, 0, 0), 0);
    assert_eq!(write(cluster, 11, &id, who, &topic, 0, 1), 0);
    assert_eq!(write(cluster, 11, &id, who, &topic, 1, 0), 120);
    let state = describe(&mut client, &id);
    assert_eq!((state.error_code, state.transaction_state.as_str()), (0, "Ongoing"));
    assert_eq!(write(cluster, 12, &id, who, &topic, 1, 0), 0, "added by the way");
    let state = describe(&mut client, &id);
    assert_eq!((state.topics.len(), &state.topics[0].partitions[..]), (1, &[0, 1][..]));
    assert_eq!((state.producer_id.0, state.producer_epoch), who);
    assert!(state.transaction_start_time_ms > 0);
    assert_eq!(state.transaction_timeout_ms, 60_000);
}

fn one_missing_partition_keeps_all_out(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "missing");
    let topic = cluster.topic("missing", 2);
    let nowhere = Topic::named("there-is-no-such-topic");
    let who = begin(&mut client, &id);
    for version in 0..=3 {
        let codes = add(&mut client, version, &id, who, &[(&nowhere, &[0]), (&topic, &[1, 2])]);
        assert_eq!(codes, [3, 55, 3]);
    }
    assert_eq!(end(&mut client, 4, &id, who, true).0, 48, "nothing was begun");
}

fn several_transactions_are_asked_at_once(cluster: &Cluster) {
    let topic = cluster.topic("batched", 2);
    let (first, mut client) = producer(cluster, "batched");
    let who = begin(&mut client, &first);
    let home = coordinator(cluster, &first);
    // Another id of the same coordinator.
    let second = std::iter::repeat_with(|| unique("batched"))
        .find(|id| coordinator(cluster, id) == home)
        .expect("one of many");
    let other = begin(&mut client, &second);
    for version in 4..=5 {
        let mut adding = transaction(&first, who, &[(&topic, &[0])]);
        adding.verify_only = false;
        let mut asking = transaction(&second, other, &[(&topic, &[0, 1])]);
        asking.verify_only = true;
        let stale = transaction(&second, (other.0, other.1 + 1), &[(&topic, &[0])]);
        let nowhere = Topic::named("there-is-no-such-topic");
        let missing = transaction(&second, other, &[(&nowhere, &[0]), (&topic, &[0])]);
        let request = AddPartitionsToTxnRequest::default()
            .with_transactions(vec![adding, asking, stale, missing]);
        let response = client.call(version, &request);
        assert_eq!(response.error_code, 0);
        let codes: Vec<(&str, Vec<i16>)> = response
            .results_by_transaction
            .iter()
            .map(|result| {
                let partitions = result.topic_results.iter().flat_map(|t| &t.results_by_partition);
                let codes = partitions.map(|partition| partition.partition_error_code).collect();
                (result.transactional_id.as_str(), codes)
            })
            .collect();
        let expected = [
            (first.as_str(), vec![0]),
            (second.as_str(), vec![120, 120]),
            (second.as_str(), vec![90]),
            (second.as_str(), vec![3, 55]),
        ];
        assert_eq!(codes, expected);
    }
}

fn legacy_transactions_end(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "legacy");
    let topic = cluster.topic("legacy", 1);
    let who = begin(&mut client, &id);
    for commit in [true, false] {
        assert_eq!(end(&mut client, 4, &id, who, commit).0, 48, "it is empty");
    }
    let mut offset = 0;
    for (round, commit) in [(0, true), (1, false)] {
        assert_eq!(add(&mut client, 0, &id, who, &[(&topic, &[0])]), [0]);
        assert_eq!(write(cluster, 9, &id, who, &topic, 0, round), 0);
        assert_eq!(end(&mut client, 1, &id, who, commit).0, 0);
        let (batches, aborted) = committed(cluster, &topic, 0, offset);
        assert_eq!(outline(&batches), [(offset, who, false), (offset + 1, who, true)]);
        assert_eq!(aborted, if commit { vec![] } else { vec![(who.0, offset)] });
        assert_eq!(ended(&mut client, &id).producer_epoch, who.1);
        assert_eq!(end(&mut client, 4, &id, who, commit).0, 0, "the same again");
        assert_eq!(end(&mut client, 4, &id, who, !commit).0, 48);
        offset += 2;
    }
}

fn strict_transactions_end(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "strict");
    let topic = cluster.topic("strict", 1);
    let who = begin(&mut client, &id);
    assert_eq!(end(&mut client, 5, &id, who, true), (48, -1, -1), "it is empty");
    let mut now = who;
    let mut offset = 0;
    for commit in [true, false, true] {
        let next = (now.0, now.1 + 1);
        assert_eq!(write(cluster, 12, &id, now, &topic, 0, 0), 0);
        assert_eq!(end(&mut client, 5, &id, now, commit), (0, next.0, next.1));
        let (batches, aborted) = committed(cluster, &topic, 0, offset);
        assert_eq!(outline(&batches), [(offset, now, false), (offset + 1, next, true)]);
        assert_eq!(aborted, if commit { vec![] } else { vec![(now.0, offset)] });
        ended(&mut client, &id);
        assert_eq!(end(&mut client, 5, &id, now, commit), (0, next.0, next.1), "again");
        assert_eq!(end(&mut client, 5, &id, next, true).0, 48, "nothing to commit");
        now = next;
        offset += 2;
    }
    // Aborting nothing is allowed, and raises the epoch.
    assert_eq!(end(&mut client, 5, &id, now, false), (0, now.0, now.1 + 1));
    assert_eq!(ended(&mut client, &id).producer_epoch, now.1 + 1);
    assert_eq!(write(cluster, 12, &id, now, &topic, 0, 0), 47, "an old epoch");
}

fn both_protocols_mix(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "mixed");
    let topic = cluster.topic("mixed", 1);
    let who = begin(&mut client, &id);
    assert_eq!(add(&mut client, 3, &id, who, &[(&topic, &[0])]), [0]);
    assert_eq!(write(cluster, 11, &id, who, &topic, 0, 0), 0);
    assert_eq!(end(&mut client, 5, &id, who, true), (0, who.0, who.1 + 1));
    let next = (who.0, who.1 + 1);
    assert_eq!(write(cluster, 12, &id, next, &topic, 0, 0), 0);
    // On another connection, which has never seen this producer.
    let mut other = cluster.connect_to(coordinator(cluster, &id));
    assert_eq!(end(&mut other, 4, &id, next, true).0, 0);
    let (batches, _) = committed(cluster, &topic, 0, 0);
    assert_eq!(outline(&batches)[..2], [(0, who, false), (1, next, true)]);
    let (batches, _) = committed(cluster, &topic, 0, 2);
    assert_eq!(outline(&batches), [(2, next, false), (3, next, true)]);
}

fn an_open_transaction_is_aborted_by_the_next_producer(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "fenced");
    let topic = cluster.topic("fenced", 1);
    let who = begin(&mut client, &id);
    assert_eq!(write(cluster, 12, &id, who, &topic, 0, 0), 0);
    let mut other = cluster.connect_to(coordinator(cluster, &id));
    assert_eq!(init(&mut other, 5, &id, None), (0, who.0, who.1 + 2));
    let (batches, aborted) = committed(cluster, &topic, 0, 0);
    assert_eq!(outline(&batches), [(0, who, false), (1, (who.0, who.1 + 1), true)]);
    assert_eq!(aborted, [(who.0, 0)]);
    assert_eq!(write(cluster, 12, &id, who, &topic, 0, 1), 47);
    for version in [4, 5] {
        assert_eq!(end(&mut client, version, &id, who, true).0, 90);
    }
    assert_eq!(init(&mut client, 5, &id, Some(who)), (90, -1, -1));
}

fn a_deleted_topic_holds_nothing_up(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "gone");
    let [gone, kept] = ["gone", "kept"].map(|stem| cluster.topic(stem, 1));
    let who = begin(&mut client, &id);
    for topic in [&gone, &kept] {
        assert_eq!(write(cluster, 12, &id, who, topic, 0, 0), 0);
    }
    let response = cluster.connect().call(6, &delete_topic_state(&gone.name));
    assert_eq!(response.responses[0].error_code, 0);
    assert_eq!(end(&mut client, 5, &id, who, true).0, 0);
    assert_eq!(ended(&mut client, &id).transaction_state.as_str(), "CompleteCommit");
    assert_eq!(committed(cluster, &kept, 0, 0).0.len(), 2);
}

fn groups_are_added_by_their_partition(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "offsets");
    let who = begin(&mut client, &id);
    for version in 0..=4 {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(TransactionalId(text(&id)))
            .with_producer_id(ProducerId(who.0))
            .with_producer_epoch(who.1)
            .with_group_id(GroupId(text("g1")));
        assert_eq!(client.call(version, &request).error_code, 0);
    }
    let state = describe(&mut client, &id);
    let topics: Vec<(&str, &[i32])> =
        state.topics.iter().map(|t| (t.topic.as_str(), &t.partitions[..])).collect();
    // "g1" hashes to 3242.
    assert_eq!(topics, [("__consumer_offsets", &[3242 % 50][..])]);
    assert_eq!(end(&mut client, 3, &id, who, true).0, 0);
    ended(&mut client, &id);
}

fn ids_are_described_and_listed(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "listed");
    assert_eq!(describe(&mut client, &id).error_code, 105);
    assert_eq!(describe(&mut client, "").error_code, 42);
    let who = begin(&mut client, &id);
    let state = describe(&mut client, &id);
    assert_eq!((state.error_code, state.transaction_state.as_str()), (0, "Empty"));
    assert_eq!((state.transaction_start_time_ms, state.topics.len()), (-1, 0));
    let mut list = |version: i16, change: &dyn Fn(&mut ListTransactionsRequest)| {
        let mut request =
            ListTransactionsRequest::default().with_producer_id_filters(vec![ProducerId(who.0)]);
        change(&mut request);
        let response = client.call(version, &request);
        let listed = response.transaction_states.iter().map(|s| {
            (s.transactional_id.to_string(), s.producer_id.0, s.transaction_state.to_string())
        });
        let unknown: Vec<String> =
            response.unknown_state_filters.iter().map(ToString::to_string).collect();
        (response.error_code, listed.collect::<Vec<_>>(), unknown)
    };
    let mine = |state: &str| vec![(id.clone(), who.0, state.to_owned())];
    for version in 0..=2 {
        assert_eq!(list(version, &|_| {}), (0, mine("Empty"), vec![]));
    }
    let states = |names: &[&str]| names.iter().map(|name| text(name)).collect::<Vec<_>>();
    let found = list(2, &|request| request.state_filters = states(&["Empty"]));
    assert_eq!(found, (0, mine("Empty"), vec![]));
    let found = list(2, &|request| request.state_filters = states(&["Ongoing", "Foo"]));
    assert_eq!(found, (0, vec![], vec!["Foo".to_owned()]));
    let found = list(2, &|request| request.duration_filter = 3_600_000);
    assert_eq!(found, (0, mine("Empty"), vec![]), "no transaction passes every duration");
    let found = list(2, &|request| request.transactional_id_pattern = Some(text("listed.*")));
    assert_eq!(found, (0, mine("Empty"), vec![]));
    let found = list(2, &|request| request.transactional_id_pattern = Some(text("isted.*")));
    assert_eq!(found, (0, vec![], vec![]));
    let found = list(2, &|request| request.transactional_id_pattern = Some(text("(")));
    assert_eq!(found, (128, vec![], vec![]));
}

fn many_partitions_on_many_shards(cluster: &Cluster) {
    let (id, mut client) = producer(cluster, "wide");
    let topic = cluster.topic("wide", 12);
    let mut now = begin(&mut client, &id);
    for round in 0..5 {
        for partition in 0..12 {
            assert_eq!(write(cluster, 12, &id, now, &topic, partition, 0), 0, "round {round}");
        }
        let (code, producer, epoch) = end(&mut client, 5, &id, now, round % 2 == 0);
        assert_eq!(code, 0);
        now = (producer, epoch);
    }
    for partition in 0..12 {
        let (batches, aborted) = committed(cluster, &topic, partition, 8);
        assert_eq!((batches.len(), aborted), (2, vec![]));
    }
}

fn an_operator_is_told_who_holds_readers_back(cluster: &Cluster) {
    let ask = |arguments: &[&str]| {
        let bootstrap = cluster.address(0).to_string();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_ringlog"))
            .args([&["txn"], arguments, &["--bootstrap", &bootstrap]].concat())
            .output()
            .expect("the command runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (id, mut client) = producer(cluster, "explained");
    let topic = cluster.topic("explained", 2);
    let who = begin(&mut client, &id);
    assert_eq!(write(cluster, 12, &id, who, &topic, 1, 0), 0);
    assert_eq!(write(cluster, 12, &id, who, &topic, 1, 1), 0);
    let place = format!("{}:1", topic.name);
    let (code, told, complaint) = ask(&["explain", &place]);
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    let lines: Vec<&str> = told.lines().collect();
    let stop =
        format!("{place}: readers of committed records stop at offset 0, 2 before the end at 2");
    assert_eq!((lines.len(), lines[0]), (5, stop.as_str()));
    let holder = format!("  held by producer {} epoch 0, whose transaction began here at", who.0);
    assert!(lines[1].starts_with(&holder), "{told}");
    let owner = format!("  transactional id {id}, state Ongoing, open since ");
    assert!(lines[2].starts_with(&owner), "{told}");
    assert!(lines[3].starts_with("  its timeout of 1m 0s ends it at "), "{told}");
    let way = format!("forceTerminateTransaction --transactional-id {id}");
    assert!(lines[4].ends_with(&way), "{told}");
    let (code, told, _) = ask(&["list"]);
    let listed = format!("{id} Ongoing, producer {} epoch 0, coordinator ", who.0);
    assert_eq!(code, Some(0));
    assert!(told.lines().any(|line| line.starts_with(&listed)), "{told}");
    assert_eq!(end(&mut client, 5, &id, who, true).0, 0);
    ended(&mut client, &id);
    let (code, told, _) = ask(&["explain", &topic.name]);
    let free = |partition: i32, end: i64| {
        format!("{}:{partition}: nothing is held back, all up to {end} is readable\n", topic.name)
    };
    assert_eq!((code, told), (Some(0), free(0, 0) + &free(1, 3)));
    let (code, _, complaint) = ask(&["explain", "there-is-no-such-topic"]);
    assert_eq!(code, Some(2));
    assert_eq!(complaint, "ringlog: there is no topic there-is-no-such-topic\n");
}

#[test]
fn a_restart_goes_on_with_every_transaction_per_core_2() {
    a_restart_goes_on_with_every_transaction(cluster::PER_CORE_2);
}

#[test]
fn a_restart_goes_on_with_every_transaction_single_5() {
    a_restart_goes_on_with_every_transaction(cluster::SINGLE_5);
}

fn a_restart_goes_on_with_every_transaction(mode: Mode) {
    let mut cluster = Cluster::own(mode);
    let topic = cluster.topic("resumed", 4);
    let open = producer(&cluster, "open").0;
    let decided = producer(&cluster, "decided").0;
    let connect = |cluster: &Cluster, id: &str| cluster.connect_to(coordinator(cluster, id));
    let mut whos = [begin(&mut connect(&cluster, &open), &open), (0, 0)];
    whos[1] = begin(&mut connect(&cluster, &decided), &decided);
    for partition in 0..4 {
        assert_eq!(write(&cluster, 12, &open, whos[0], &topic, partition, 0), 0);
        assert_eq!(write(&cluster, 12, &decided, whos[1], &topic, partition, 0), 0);
    }
    // Killed while markers may be on their way, or may not.
    let (code, _, epoch) = end(&mut connect(&cluster, &decided), 5, &decided, whos[1], true);
    assert_eq!((code, epoch), (0, whos[1].1 + 1));
    cluster.broker.restart();
    let client = &mut connect(&cluster, &decided);
    assert_eq!(loaded(client, &decided).producer_epoch, epoch);
    assert_eq!(ended(client, &decided).transaction_state.as_str(), "CompleteCommit");
    let again = end(client, 5, &decided, whos[1], true);
    assert_eq!(again, (0, whos[1].0, epoch));
    let client = &mut connect(&cluster, &open);
    assert_eq!(loaded(client, &open).transaction_state.as_str(), "Ongoing");
    assert_eq!(write(&cluster, 12, &open, whos[0], &topic, 1, 1), 0, "it is still open");
    let next = (whos[0].0, whos[0].1 + 1);
    assert_eq!(end(client, 5, &open, whos[0], false), (0, next.0, next.1));
    for partition in 0..4 {
        let (batches, aborted) = committed(&cluster, &topic, partition, 0);
        assert_eq!(aborted, [(whos[0].0, 0)]);
        assert_eq!(outline(&batches)[..2], [(0, whos[0], false), (1, whos[1], false)]);
    }
    // A clean stop keeps all of it as well.
    assert_eq!(ended(client, &open).transaction_state.as_str(), "CompleteAbort");
    assert_eq!(cluster.broker.terminate().code, Some(0));
    cluster.broker.restart();
    let client = &mut connect(&cluster, &open);
    let state = loaded(client, &open);
    assert_eq!((state.transaction_state.as_str(), state.producer_epoch), ("CompleteAbort", next.1));
    assert_eq!(init(client, 5, &open, None), (0, next.0, next.1 + 1));
}

/// An id's state once its partition is loaded.
pub fn loaded(client: &mut Client, id: &str) -> TransactionState {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let state = describe(client, id);
        if state.error_code != 14 {
            assert_eq!(state.error_code, 0);
            return state;
        }
        assert!(Instant::now() < deadline, "still loading");
        std::thread::yield_now();
    }
}

/// With `txn_pending_hold_ms = 0` nothing is held, as in Kafka.
#[test]
fn nothing_is_held_when_it_is_told_so() {
    let arguments = ["--shards", "2", "--memory", "256MiB", "--set", "journal.ring.bytes=16MiB"];
    let arguments = [&arguments[..], &["--set", "txn_pending_hold_ms=0"]].concat();
    let cluster = Cluster::with(cluster::PER_CORE_2, &arguments);
    let (id, mut client) = producer(&cluster, "bounced");
    let topic = cluster.topic("bounced", 1);
    let who = begin(&mut client, &id);
    assert_eq!(write(&cluster, 12, &id, who, &topic, 0, 0), 0);
    assert_eq!(init(&mut client, 5, &id, None), (51, -1, -1));
    ended(&mut client, &id);
    assert_eq!(init(&mut client, 5, &id, None), (0, who.0, who.1 + 2));
}

#[test]
fn transactions_time_out_and_ids_expire() {
    let arguments = ["--shards", "2", "--memory", "256MiB", "--set", "journal.ring.bytes=16MiB"];
    let sweeps = [
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=50",
        "transaction.remove.expired.transaction.cleanup.interval.ms=50",
        "transactional.id.expiration.ms=3000",
    ];
    let sweeps: Vec<&str> = sweeps.iter().flat_map(|sweep| ["--set", sweep]).collect();
    let cluster = Cluster::with(cluster::PER_CORE_2, &[&arguments[..], &sweeps].concat());
    let (id, mut client) = producer(&cluster, "late");
    let topic = cluster.topic("late", 1);
    let mut request = init_producer_id(Some(&id));
    request.transaction_timeout_ms = 200;
    let response = client.call(5, &request);
    let who = (response.producer_id.0, response.producer_epoch);
    assert_eq!(write(&cluster, 12, &id, who, &topic, 0, 0), 0);
    let (batches, aborted) = committed(&cluster, &topic, 0, 0);
    assert_eq!(outline(&batches), [(0, who, false), (1, (who.0, who.1 + 1), true)]);
    assert_eq!(aborted, [(who.0, 0)]);
    let state = ended(&mut client, &id);
    assert_eq!(state.transaction_state.as_str(), "CompleteAbort");
    assert_eq!(state.producer_epoch, who.1 + 1);
    let deadline = Instant::now() + Duration::from_secs(20);
    while describe(&mut client, &id).error_code != 105 {
        assert!(Instant::now() < deadline, "it does not expire");
        std::thread::yield_now();
    }
    let (code, fresh, epoch) = init(&mut client, 5, &id, Some((who.0, who.1 + 1)));
    assert_eq!((code, epoch), (0, 0));
    assert_ne!(fresh, who.0);
}
