//! ListOffsets and OffsetForLeaderEpoch over the topic of the fetches.

use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{BrokerId, OffsetForLeaderEpochRequest};

use crate::peer::Peer;
use crate::support::requests::{self, Topic};

pub fn ask(peer: &mut Peer) {
    for version in 1..=11 {
        list(peer, version);
    }
    for version in [2, 3, 4] {
        epochs(peer, version);
    }
}

fn list(peer: &mut Peer, version: i16) {
    for timestamp in [
        -1,
        -2,
        -3,
        -4,
        -5,
        -6,
        -7,
        0,
        1_699_999_999_999,
        1_700_000_000_000,
        1_700_000_000_001,
        1_700_000_004_000,
        1_700_000_004_001,
        i64::MAX,
    ] {
        let request = requests::list_offsets("fetched", 0, timestamp);
        peer.ask(&format!("ListOffsets at {timestamp}"), version, &request);
        let request = requests::list_offsets("fetched", 1, timestamp);
        peer.ask(&format!("ListOffsets of an empty partition at {timestamp}"), version, &request);
    }
    for (case, topic, partition) in [
        ("an unknown topic", "nowhere", 0),
        ("a bad topic", "a b", 0),
        ("an unknown partition", "fetched", 9),
        ("partition -1", "fetched", -1),
    ] {
        let request = requests::list_offsets(topic, partition, -1);
        peer.ask(&format!("ListOffsets of {case}"), version, &request);
    }
    let mut request = requests::list_offsets("fetched", 0, -1);
    let again = request.topics[0].partitions[0].clone().with_timestamp(-2);
    request.topics[0].partitions.push(again);
    peer.ask("ListOffsets of a partition twice", version, &request);
    let mut request = requests::list_offsets("fetched", 0, -1);
    request.topics.clear();
    peer.ask("ListOffsets of nothing", version, &request);
    if version >= 2 {
        let mut request = requests::list_offsets("fetched", 0, -1);
        request.isolation_level = 1;
        peer.ask("ListOffsets of the committed", version, &request);
    }
    if version >= 4 {
        let mut request = requests::list_offsets("fetched", 0, -1);
        request.topics[0].partitions[0].current_leader_epoch = 1000;
        peer.ask("ListOffsets under a later epoch", version, &request);
    }
}

fn epochs(peer: &mut Peer, version: i16) {
    let answer = peer.call(12, &requests::metadata(&["fetched"]));
    let now = answer.topics[0].partitions[0].leader_epoch;
    for (case, topic, partition, current, epoch) in [
        ("of the current epoch", "fetched", 0, -1, now),
        ("of the current epoch, named", "fetched", 0, now, now),
        ("of an empty partition", "fetched", 1, -1, now),
        ("of a later epoch", "fetched", 0, -1, 1000),
        ("under a later epoch", "fetched", 0, 1000, now),
        ("of epoch -1", "fetched", 0, -1, -1),
        ("of an unknown partition", "fetched", 9, -1, now),
        ("of an unknown topic", "nowhere", 0, -1, now),
    ] {
        let partition = OffsetForLeaderPartition::default()
            .with_partition(partition)
            .with_current_leader_epoch(current)
            .with_leader_epoch(epoch);
        let topic = OffsetForLeaderTopic::default()
            .with_topic(Topic::named(topic).wire_name())
            .with_partitions(vec![partition]);
        let mut request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
        if version >= 3 {
            request.replica_id = BrokerId(-1);
        }
        peer.ask(&format!("OffsetForLeaderEpoch {case}"), version, &request);
    }
    peer.ask("OffsetForLeaderEpoch of nothing", version, &OffsetForLeaderEpochRequest::default());
}
