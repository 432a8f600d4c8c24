//! Cases 1-8, 46, 48 and 54: producer ids and epochs.

use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, InitProducerIdRequest, ProducerId,
};

use crate::calls::{self, Named, Producer, Who, ends, init, now_ms, settled};
use crate::stage::{Stage, Stop, unique};
use crate::support::batch::{Batch, Record};
use crate::support::client::{Client, raw_request_frame};
use crate::support::requests::{self, Topic};
use crate::support::transactions::{
    self as ask, State, TRANSACTION, init_producer_id_6, partition_of, state_key,
};

cases!(
    case_01_ids_without_a_transactional_id: Needs::Shared,
    case_02_a_known_id_gets_the_next_epoch: Needs::Shared,
    case_03_bad_ids_and_timeouts: Needs::Shared,
    case_04_half_an_identity_and_an_unknown_id: Needs::Shared,
    case_05_an_expected_identity_is_checked: Needs::Shared,
    case_06_a_stale_epoch_aborts_before_it_is_told: Needs::Shared,
    case_07_an_exhausted_epoch_gets_a_new_id: Needs::Alone(&[]),
    case_08_a_commit_in_the_last_epoch: Needs::Alone(&[]),
    case_46_features: Needs::Shared,
    case_48_probing_for_used_ids: Needs::Shared,
    case_54_version_6_is_not_served: Needs::Shared,
);

kafka_cases!(
    case_54_version_6_where_it_is_served: Needs::Alone(&[("unstable.api.versions.enable", "true")]),
);

fn case_01_ids_without_a_transactional_id(stage: &Stage) {
    let ask = || {
        let response = stage.call(stage.any_node(), 5, &requests::init_producer_id(None));
        (response.error_code, response.producer_id.0, response.producer_epoch)
    };
    let (first, second) = (settled(stage, ask), settled(stage, ask));
    assert_eq!((first.0, first.2, second.0, second.2), (0, 0, 0, 0));
    assert!(first.1 >= 0 && second.1 >= 0 && first.1 != second.1, "{first:?} {second:?}");
}

fn case_02_a_known_id_gets_the_next_epoch(stage: &Stage) {
    let id = unique("two");
    let first = settled(stage, || init(stage, 5, &id, 60_000, None));
    assert_eq!((first.0, first.2), (0, 0));
    assert_eq!(settled(stage, || init(stage, 5, &id, 60_000, None)), (0, first.1, 1));
}

fn case_03_bad_ids_and_timeouts(stage: &Stage) {
    for version in 0..=5 {
        assert_eq!(init(stage, version, "", 60_000, None), (42, -1, -1), "v{version}");
        for timeout_ms in [0, -1, 900_001] {
            let id = unique("three");
            assert_eq!(init(stage, version, &id, timeout_ms, None), (50, -1, -1), "v{version}");
        }
        let answer = settled(stage, || init(stage, version, &unique("three"), 900_000, None));
        assert_eq!((answer.0, answer.2), (0, 0), "v{version}");
    }
}

fn case_04_half_an_identity_and_an_unknown_id(stage: &Stage) {
    for version in 3..=5 {
        let half = Some(Who { id: 5, epoch: -1 });
        assert_eq!(init(stage, version, &unique("four"), 60_000, half), (42, -1, -1));
        let other = Some(Who { id: -1, epoch: 5 });
        assert_eq!(init(stage, version, &unique("four"), 60_000, other), (42, -1, -1));
        let unknown = Some(Who { id: 999_999, epoch: 7 });
        let id = unique("four");
        let (code, producer_id, epoch) =
            settled(stage, || init(stage, version, &id, 60_000, unknown));
        assert_eq!((code, epoch), (0, 0));
        assert!(producer_id >= 0 && producer_id != 999_999);
    }
}

fn case_05_an_expected_identity_is_checked(stage: &Stage) {
    let producer = Producer::new(stage, "five").at_epoch(3);
    let id = producer.who.id;
    let expected = |epoch| Some(Who { id, epoch });
    assert_eq!(settled(stage, || producer.init(4, expected(3))), (0, id, 4));
    assert_eq!(settled(stage, || producer.init(4, expected(3))), (0, id, 4));
    assert_eq!(settled(stage, || producer.init(4, expected(2))), (90, -1, -1));
    assert_eq!(settled(stage, || producer.init(3, expected(2))), (47, -1, -1));
    assert_eq!(
        settled(stage, || producer.init(5, Some(Who { id: id + 1, epoch: 4 }))),
        (90, -1, -1)
    );
}

fn case_06_a_stale_epoch_aborts_before_it_is_told(stage: &Stage) {
    let topic = stage.topic("six", 1);
    let producer = Producer::new(stage, "six").at_epoch(3);
    producer.added(&topic, 0);
    let id = producer.who.id;
    let stale = Some(Who { id, epoch: 1 });
    let first = producer.init(4, stale);
    // Held instead, until the abort is done: the second answer comes first.
    assert_eq!(first.0, if stage.holds() { 90 } else { 51 });
    assert_eq!(settled(stage, || producer.init(4, stale)), (90, -1, -1));
    assert_eq!(&*producer.describe().transaction_state, "CompleteAbort");
    assert_eq!(ends(stage, &topic, 0), [(0, 4, false)]);
    assert_eq!(settled(stage, || producer.end(4, true)).0, 90);
}

/// Puts a producer that has no transaction into this epoch. No producer gets there in the time of
/// a test, so its record is written as brokers write it, and read by the next start.
fn put_epoch(producer: &mut Producer<'_>, epoch: i16) {
    producer.who.epoch = epoch;
    put_state(producer, 0, &[], -1);
    producer.stage.restart(Stop::Clean);
}

/// Writes a record of `__transaction_state` for this producer: the client id is one that may.
pub fn put_state(
    producer: &Producer<'_>,
    status: i8,
    partitions: &[(&Topic, i32)],
    started_ms: i64,
) {
    let stage = producer.stage;
    let name = "__transaction_state";
    let partition = partition_of(&producer.id, stage.partitions_of(name));
    let partitions = partitions.iter().map(|(topic, partition)| (topic.name.clone(), *partition));
    let state = State {
        producer: producer.who,
        timeout_ms: producer.timeout_ms,
        status,
        partitions: partitions.collect(),
        updated_ms: now_ms(),
        started_ms,
        client_version: 0,
    };
    let record = Record::keyed(state_key(&producer.id), state.encode());
    let batch = Batch { base_timestamp: now_ms(), ..Batch::of(vec![record]) };
    let request = requests::produce(9, &Topic::named(name), partition, -1, batch.encode());
    let mut client = stage.connect(stage.leader(name, partition));
    client.set_client_id(Some("__admin_client"));
    let response = client.call(9, &request);
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
}

fn case_07_an_exhausted_epoch_gets_a_new_id(stage: &Stage) {
    let mut plain = Producer::new(stage, "seven");
    let mut expecting = Producer::new(stage, "seven");
    expecting.who.epoch = 32_766;
    put_state(&expecting, 0, &[], -1);
    put_epoch(&mut plain, 32_765);
    let old = plain.who.id;
    assert_eq!(settled(stage, || plain.init(5, None)), (0, old, 32_766), "the last one");
    let (code, id, epoch) = settled(stage, || plain.init(5, None));
    assert_eq!((code, epoch), (0, 0));
    assert_ne!(id, old);
    let last = Some(expecting.who);
    let (code, id, epoch) = settled(stage, || expecting.init(5, last));
    assert_eq!((code, epoch), (0, 0));
    assert_ne!(id, expecting.who.id);
    assert_eq!(settled(stage, || expecting.init(5, last)), (0, id, 0), "a retry");
    assert_eq!(settled(stage, || expecting.init(5, last)), (90, -1, -1), "and no second one");
}

fn case_08_a_commit_in_the_last_epoch(stage: &Stage) {
    let topic = stage.topic("eight", 1);
    let mut producer = Producer::new(stage, "eight");
    let old = producer.who.id;
    put_epoch(&mut producer, 32_766);
    assert_eq!(producer.sent(&topic, 0, 0, 1), 0);
    let (code, id, epoch) = settled(stage, || producer.end(5, true));
    assert_eq!((code, epoch), (0, 0));
    assert_ne!(id, old);
    producer.await_state("CompleteCommit");
    assert_eq!(ends(stage, &topic, 0), [(1, 32_767, true)]);
    assert_eq!(calls::markers(stage, &topic, 0)[0].producer.id, old);
    assert_eq!(settled(stage, || producer.end(5, true)), (0, id, 0), "a retry");
    let next = producer.with_id(id);
    assert_eq!(next.sent(&topic, 0, 0, 1), 2);
    assert_eq!(settled(stage, || next.end(5, true)), (0, id, 1));
}

fn case_46_features(stage: &Stage) {
    for version in 3..=4 {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(ask::text("raw"))
            .with_client_software_version(ask::text("1"));
        let response: ApiVersionsResponse = stage.call(stage.any_node(), version, &request);
        assert_eq!(response.error_code, 0);
        assert!(response.finalized_features_epoch >= 0);
        let name = "transaction.version";
        let mut finalized = response.finalized_features.iter();
        let found = finalized.find(|feature| &*feature.name == name).expect("finalized");
        assert_eq!((found.min_version_level, found.max_version_level), (2, 2));
        let mut supported = response.supported_features.iter();
        let found = supported.find(|feature| &*feature.name == name);
        let range = found.map(|feature| (feature.min_version, feature.max_version));
        assert_eq!(range, (version == 4).then_some((0, 2)), "v{version}");
        let versions = |key| {
            let mut all = response.api_keys.iter();
            all.find(|api| api.api_key == key).map(|api| (api.min_version, api.max_version))
        };
        let expected = [(22, 5), (24, 5), (25, 4), (26, 5), (28, 5), (0, 13)];
        for (key, most) in expected {
            assert_eq!(versions(key).map(|range| range.1), Some(most), "API {key}");
        }
    }
}

fn case_48_probing_for_used_ids(stage: &Stage) {
    let topic = stage.topic("probing", 1);
    for _ in 0..20 {
        let id = unique("never-used");
        assert_eq!(settled(stage, || init(stage, 4, &id, 60_000, None)).2, 0);
    }
    let producer = Producer::new(stage, "used").at_epoch(1);
    producer.sent(&topic, 0, 0, 1);
    // In Kafka 51 until the abort is done. Held instead.
    let first = producer.init(4, None);
    let answer = if stage.holds() {
        first
    } else {
        assert_eq!(first, (51, -1, -1));
        settled(stage, || producer.init(4, None))
    };
    assert_eq!(answer, (0, producer.who.id, 3));
    assert_eq!(ends(stage, &topic, 0), [(1, 2, false)]);
}

fn case_54_version_6_is_not_served(stage: &Stage) {
    let id = unique("six-is-too-much");
    let mut client = stage.connect(stage.coordinator(TRANSACTION, &id));
    send_version_6(&mut client, &id, false, false);
    client.expect_closed();
}

fn case_54_version_6_where_it_is_served(stage: &Stage) {
    let ask = |two_phase, keep_prepared| -> Named {
        let id = unique("six");
        settled(stage, || {
            let body = init_producer_id_6(&id, two_phase, keep_prepared);
            let node = stage.coordinator(TRANSACTION, &id);
            let response = stage.call_raw::<InitProducerIdRequest>(node, 6, &body);
            let ongoing = (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch);
            assert_eq!(ongoing, (ProducerId(-1), -1));
            (response.error_code, response.producer_id.0, response.producer_epoch)
        })
    };
    assert_eq!(ask(false, true), (35, -1, -1));
    assert_eq!(ask(true, false), (53, -1, -1));
    let plain = ask(false, false);
    assert_eq!((plain.0, plain.2), (0, 0));
}

fn send_version_6(client: &mut Client, id: &str, two_phase: bool, keep_prepared: bool) {
    let body = init_producer_id_6(id, two_phase, keep_prepared);
    client.send_frame(&raw_request_frame(22, 6, 2, 1, Some(b"raw-client"), &body));
}
