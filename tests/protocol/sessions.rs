//! Incremental fetch sessions (KIP-227).

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{FetchRequest, FetchResponse};

use crate::calls::{append, fetched};
use crate::cluster::Cluster;
use crate::support::batch::Batch;
use crate::support::client::Client;
use crate::support::requests::{self, Topic};

in_every_mode!(
    a_session_answers_what_changed,
    offsets_given_once_are_remembered,
    forgotten_partitions_are_gone,
    wrong_ids_and_epochs_are_refused,
    sessions_are_replaced_and_closed,
    names_and_ids_do_not_mix,
    other_connections_may_continue_a_session,
);

/// A client at a node that leads several partitions of a topic.
struct Fixture {
    client: Client,
    topic: Topic,
    partitions: Vec<i32>,
}

fn fixture(cluster: &Cluster, stem: &str) -> Fixture {
    let topic = cluster.topic(stem, 4 * i32::try_from(cluster.nodes()).expect("few"));
    let leader = cluster.leader(&topic, 0);
    let response = cluster.describe(&topic.name);
    let led = response.topics[0].partitions.iter().filter(|p| p.leader_id.0 == leader);
    let mut partitions: Vec<i32> = led.map(|partition| partition.partition_index).collect();
    partitions.sort_unstable();
    assert!(partitions.len() >= 4, "{partitions:?}");
    partitions.truncate(4);
    Fixture { client: cluster.connect_to(leader), topic, partitions }
}

impl Fixture {
    fn request(
        &self,
        version: i16,
        session: (i32, i32),
        wanted: &[(i32, i64)],
        forgotten: &[i32],
    ) -> FetchRequest {
        let mut request = requests::fetch(version, &self.topic, 0, 0);
        (request.session_id, request.session_epoch) = session;
        let partitions = wanted.iter().map(|&(partition, offset)| {
            FetchPartition::default()
                .with_partition(partition)
                .with_fetch_offset(offset)
                .with_partition_max_bytes(1 << 20)
        });
        let partitions: Vec<_> = partitions.collect();
        let (mut topic, mut gone) = (FetchTopic::default(), ForgottenTopic::default());
        if version >= 13 {
            (topic.topic_id, gone.topic_id) = (self.topic.id, self.topic.id);
        } else {
            (topic.topic, gone.topic) = (self.topic.wire_name(), self.topic.wire_name());
        }
        request.topics.clear();
        if !partitions.is_empty() {
            request.topics.push(topic.with_partitions(partitions));
        }
        if !forgotten.is_empty() {
            request.forgotten_topics_data.push(gone.with_partitions(forgotten.to_vec()));
        }
        request
    }

    fn call(
        &mut self,
        version: i16,
        session: (i32, i32),
        wanted: &[(i32, i64)],
        forgotten: &[i32],
    ) -> FetchResponse {
        let request = self.request(version, session, wanted, forgotten);
        self.client.call(version, &request)
    }

    fn open(&mut self, version: i16) -> i32 {
        let wanted: Vec<_> = self.partitions.iter().map(|&partition| (partition, 0)).collect();
        let response = self.call(version, (0, 0), &wanted, &[]);
        assert_eq!(response.error_code, 0);
        assert_eq!(fetched(&response).len(), self.partitions.len(), "all are answered");
        assert!(response.session_id > 0);
        response.session_id
    }

    fn append(&mut self, partition: i32) -> i64 {
        append(&mut self.client, &self.topic, partition, &Batch::of_values(["v"]))
    }
}

/// Session, code and partitions of an answer.
fn told(response: &FetchResponse) -> (i32, i16, Vec<(i32, i16, usize)>) {
    (response.session_id, response.error_code, fetched(response))
}

fn a_session_answers_what_changed(cluster: &Cluster) {
    for version in [7, 11, 12, 13, 18] {
        let mut f = fixture(cluster, "session");
        let [a, b, c, d] = f.partitions[..] else { unreachable!("four") };
        let id = f.open(version);
        assert_eq!(told(&f.call(version, (id, 1), &[], &[])), (id, 0, vec![]), "no change");
        f.append(c);
        assert_eq!(told(&f.call(version, (id, 2), &[], &[])), (id, 0, vec![(c, 0, 1)]));
        // The same records again while the offset has not moved.
        f.append(a);
        let both = vec![(a, 0, 1), (c, 0, 1)];
        assert_eq!(told(&f.call(version, (id, 3), &[], &[])), (id, 0, both));
        let moved = [(a, 1), (c, 1)];
        assert_eq!(told(&f.call(version, (id, 4), &moved, &[])), (id, 0, vec![]));
        // An offset beyond the end is told, and told again: errors always are.
        let beyond = vec![(d, 1, 0)];
        assert_eq!(told(&f.call(version, (id, 5), &[(d, 9)], &[])), (id, 0, beyond.clone()));
        assert_eq!(told(&f.call(version, (id, 6), &[], &[])), (id, 0, beyond));
        // Back in range it is told once more, without records.
        assert_eq!(told(&f.call(version, (id, 7), &[(d, 0)], &[])), (id, 0, vec![(d, 0, 0)]));
        assert_eq!(told(&f.call(version, (id, 8), &[], &[])), (id, 0, vec![]));
        f.append(b);
        assert_eq!(told(&f.call(version, (id, 9), &[(b, 1)], &[])), (id, 0, vec![(b, 0, 0)]));
    }
}

fn offsets_given_once_are_remembered(cluster: &Cluster) {
    let mut f = fixture(cluster, "remembered");
    let a = f.partitions[0];
    for _ in 0..3 {
        f.append(a);
    }
    let id = f.open(18);
    let response = f.call(18, (id, 1), &[(a, 2)], &[]);
    assert_eq!(told(&response), (id, 0, vec![(a, 0, 1)]));
    assert_eq!(response.responses[0].partitions[0].high_watermark, 3);
    assert_eq!(told(&f.call(18, (id, 2), &[(a, 1)], &[])), (id, 0, vec![(a, 0, 2)]));
    assert_eq!(told(&f.call(18, (id, 3), &[], &[])), (id, 0, vec![(a, 0, 2)]));
}

fn forgotten_partitions_are_gone(cluster: &Cluster) {
    for version in [7, 12, 13, 18] {
        let mut f = fixture(cluster, "forgotten");
        let [a, b, c, d] = f.partitions[..] else { unreachable!("four") };
        let id = f.open(version);
        f.append(a);
        f.append(b);
        let response = f.call(version, (id, 1), &[], &[a]);
        assert_eq!(told(&response), (id, 0, vec![(b, 0, 1)]));
        f.append(a);
        let response = f.call(version, (id, 2), &[(b, 1)], &[]);
        assert_eq!(told(&response), (id, 0, vec![]), "a stays forgotten");
        let response = f.call(version, (id, 3), &[(a, 0)], &[]);
        assert_eq!(told(&response), (id, 0, vec![(a, 0, 2)]), "and comes back when asked for");
        // With the last partition the session goes.
        let response = f.call(version, (id, 4), &[], &[a, b, c, d]);
        assert_eq!(told(&response), (0, 0, vec![]));
        assert_eq!(told(&f.call(version, (id, 5), &[], &[])), (0, 70, vec![]));
    }
}

fn wrong_ids_and_epochs_are_refused(cluster: &Cluster) {
    for version in [7, 12, 18] {
        let mut f = fixture(cluster, "wrong-epochs");
        let a = f.partitions[0];
        f.append(a);
        let id = f.open(version);
        let wanted = [(a, 0)];
        assert_eq!(told(&f.call(version, (id, 2), &wanted, &[])), (0, 71, vec![]), "a gap");
        assert_eq!(told(&f.call(version, (id, 1), &wanted, &[])), (id, 0, vec![(a, 0, 1)]));
        assert_eq!(told(&f.call(version, (id, 1), &wanted, &[])), (0, 71, vec![]), "a replay");
        assert_eq!(told(&f.call(version, (id, -2), &wanted, &[])), (0, 71, vec![]));
        let unknown = if id == 77 { 78 } else { 77 };
        assert_eq!(told(&f.call(version, (unknown, 1), &wanted, &[])), (0, 70, vec![]));
        assert_eq!(told(&f.call(version, (0, 5), &wanted, &[])), (0, 70, vec![]));
        assert_eq!(told(&f.call(version, (id, 2), &wanted, &[])), (id, 0, vec![(a, 0, 1)]));
    }
}

fn sessions_are_replaced_and_closed(cluster: &Cluster) {
    let mut f = fixture(cluster, "replaced");
    let a = f.partitions[0];
    f.append(a);
    let first = f.open(18);
    // Epoch 0 with an id closes that session and opens another.
    let response = f.call(18, (first, 0), &[(a, 0)], &[]);
    let second = response.session_id;
    assert!(second > 0 && second != first);
    assert_eq!(told(&response), (second, 0, vec![(a, 0, 1)]));
    assert_eq!(told(&f.call(18, (first, 1), &[], &[])), (0, 70, vec![]));
    // Epoch -1 closes it and is answered in full.
    assert_eq!(told(&f.call(18, (second, -1), &[(a, 0)], &[])), (0, 0, vec![(a, 0, 1)]));
    assert_eq!(told(&f.call(18, (second, 1), &[], &[])), (0, 70, vec![]));
    // Old versions know no sessions.
    let mut request = f.request(6, (0, 0), &[(a, 0)], &[]);
    (request.session_id, request.session_epoch) = (0, -1);
    assert_eq!(told(&f.client.call(6, &request)), (0, 0, vec![(a, 0, 1)]));
}

fn names_and_ids_do_not_mix(cluster: &Cluster) {
    let mut f = fixture(cluster, "mixed");
    let by_name = f.open(12);
    assert_eq!(told(&f.call(13, (by_name, 1), &[], &[])), (0, 106, vec![]));
    let by_id = f.open(13);
    assert_eq!(told(&f.call(12, (by_id, 1), &[], &[])), (0, 106, vec![]));
    assert_eq!(told(&f.call(13, (by_id, 1), &[], &[])), (by_id, 0, vec![]));
}

fn other_connections_may_continue_a_session(cluster: &Cluster) {
    // With one listener another connection may land on another shard, which knows nothing of it.
    if cluster.is_single() {
        return;
    }
    let mut f = fixture(cluster, "reconnected");
    let a = f.partitions[0];
    let id = f.open(18);
    f.client = cluster.at(&f.topic, a);
    f.append(a);
    assert_eq!(told(&f.call(18, (id, 1), &[], &[])), (id, 0, vec![(a, 0, 1)]));
}
