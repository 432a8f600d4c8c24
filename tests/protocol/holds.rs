//! A Produce that meets the end of the transaction before: how long it is held, and what it is
//! told. The transaction never ends, as the marker of one of its partitions is refused for good.

use std::time::Duration;

use crate::calls::{self, only_produced};
use crate::cluster::{self, Cluster, Mode, unique};
use crate::support::batch::Batch;
use crate::support::client::{Client, Sent};
use crate::support::requests::{self, Topic};
use crate::support::transactions::{Identity, Marker, transactional_id, write_markers};
use crate::transactions::{Id, begin, coordinator, end};
use kafka_protocol::messages::ProduceRequest;

#[test]
fn a_held_produce_is_answered_in_its_own_time_per_core_1() {
    a_held_produce_is_answered_in_its_own_time(cluster::PER_CORE_1);
}

#[test]
fn a_held_produce_is_answered_in_its_own_time_per_core_2() {
    a_held_produce_is_answered_in_its_own_time(cluster::PER_CORE_2);
}

#[test]
fn a_held_produce_is_answered_in_its_own_time_single_5() {
    a_held_produce_is_answered_in_its_own_time(cluster::SINGLE_5);
}

/// Whoever is held shorter than the broker would hold it is told that its time is over (7), in
/// every version, and nobody else is the worse for it.
fn a_held_produce_is_answered_in_its_own_time(mode: Mode) {
    let stuck = Stuck::new(mode, "600000ms");
    for version in [9, 11, 12, 13] {
        for partition in 1..PARTITIONS {
            assert_eq!(stuck.produce(version, partition, 0), 7, "no time: version {version}");
            assert_eq!(stuck.produce(version, partition, 30), 7, "a while: version {version}");
        }
    }
    let (mut patient, sent) = stuck.send(12, 1, 300_000);
    for partition in 1..PARTITIONS {
        assert_eq!(stuck.produce(12, partition, 30), 7, "behind one that waits");
    }
    patient.expect_silence(Duration::from_millis(50));
    drop((patient, sent));
    for partition in 1..PARTITIONS {
        let mut client = stuck.cluster.at(&stuck.topic, partition);
        assert_eq!(calls::end(&mut client, &stuck.topic, partition), 0, "nothing was appended");
    }
}

/// Whoever would wait longer than the broker holds anybody is told of the transaction.
#[test]
fn a_held_produce_is_told_of_the_transaction_when_the_hold_is_over() {
    for hold in ["100ms", "0"] {
        let stuck = Stuck::new(cluster::PER_CORE_2, hold);
        for (version, code) in [(9, 19), (11, 19), (12, 51), (13, 51)] {
            for partition in 1..PARTITIONS {
                assert_eq!(stuck.produce(version, partition, 60_000), code, "version {version}");
            }
        }
    }
    // Where nothing is held nothing is late either: it is told at once.
    let stuck = Stuck::new(cluster::PER_CORE_2, "0");
    assert_eq!([9, 11, 12, 13].map(|version| stuck.produce(version, 1, 0)), [19, 19, 51, 51]);
}

/// Two transactions that are decided and never end, one of each protocol level.
struct Stuck {
    cluster: Cluster,
    topic: Topic,
    legacy: (String, Id),
    strict: (String, Id),
}

impl Stuck {
    fn new(mode: Mode, hold: &str) -> Stuck {
        let (shards, hold) = (mode.shards.to_string(), format!("txn_pending_hold_ms={hold}"));
        let arguments = [
            &["--shards", &shards, "--advertise", mode.advertise][..],
            &["--memory", "256MiB", "--set", "journal.ring.bytes=16MiB", "--set", &hold],
        ];
        let cluster = Cluster::with(mode, &arguments.concat());
        let topic = cluster.topic("stuck", PARTITIONS);
        let strict = stuck(&cluster, &topic, 5);
        let legacy = stuck(&cluster, &topic, 4);
        Stuck { cluster, topic, legacy, strict }
    }

    /// Sends a batch of the next transaction.
    fn send(
        &self,
        version: i16,
        partition: i32,
        timeout_ms: i32,
    ) -> (Client, Sent<ProduceRequest>) {
        let (id, who) = if version >= 12 { &self.strict } else { &self.legacy };
        let request = batch_of(id, *who, version, &self.topic, partition);
        let mut client = self.cluster.at(&self.topic, partition);
        let sent = client.send(version, &request.with_timeout_ms(timeout_ms));
        (client, sent)
    }

    /// The code of one.
    fn produce(&self, version: i16, partition: i32, timeout_ms: i32) -> i16 {
        let (mut client, sent) = self.send(version, partition, timeout_ms);
        only_produced(client.receive(sent), partition).error_code
    }
}

/// Commits a transaction in partition 0 whose marker is fenced there; who goes on after it.
fn stuck(cluster: &Cluster, topic: &Topic, end_version: i16) -> (String, Id) {
    let id = unique("stuck");
    let mut client = cluster.connect_to(coordinator(cluster, &id));
    let who = begin(&mut client, &id);
    let mut at = cluster.at(topic, 0);
    let produced = at.call(12, &batch_of(&id, who, 12, topic, 0));
    assert_eq!(only_produced(produced, 0).error_code, 0);
    let newer = Marker {
        producer: Identity { id: who.0, epoch: who.1 },
        commit: false,
        coordinator_epoch: 1_000,
        topic: &topic.name,
        partition: 0,
    };
    let marked = at.call(1, &write_markers(&[newer]));
    assert_eq!(marked.markers[0].topics[0].partitions[0].error_code, 0);
    let (code, producer, epoch) = end(&mut client, end_version, &id, who, true);
    assert_eq!(code, 0, "decided, though never complete");
    (id, if end_version >= 5 { (producer, epoch) } else { who })
}

fn batch_of(id: &str, who: Id, version: i16, topic: &Topic, partition: i32) -> ProduceRequest {
    let batch = Batch::of_values(["a"]).with_producer(who.0, who.1, 0).transactional();
    requests::produce(version, topic, partition, -1, batch.encode())
        .with_transactional_id(Some(transactional_id(id)))
}

const PARTITIONS: i32 = 4;
