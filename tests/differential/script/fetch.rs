//! Fetch, with and without sessions.

use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use uuid::Uuid;

use crate::peer::{MADE_UP_ID, Peer};
use crate::support::batch::Batch;
use crate::support::requests::{self, Topic};

pub fn ask(peer: &mut Peer) {
    peer.make_topic("fetched", 3, &[]);
    let topic = Topic { name: "fetched".to_owned(), id: peer.ids["fetched"] };
    for number in 0..5_i64 {
        let values = ["one", "two", "three"].map(|text| format!("{text} {number}"));
        let batch =
            Batch { base_timestamp: 1_700_000_000_000 + number * 1000, ..Batch::of_values(values) };
        peer.call(9, &requests::produce(9, &topic, 0, -1, batch.encode()));
    }
    for version in 4..=18 {
        once(peer, version, &topic);
        if version >= 7 {
            sessions(peer, version, &topic);
        }
    }
}

fn once(peer: &mut Peer, version: i16, topic: &Topic) {
    let unknown = Topic { name: "nowhere".to_owned(), id: MADE_UP_ID };
    let nil = Topic { name: "a b".to_owned(), id: Uuid::nil() };
    for (case, topic, partition, offset) in [
        ("from the start", topic, 0, 0),
        ("from within a batch", topic, 0, 4),
        ("from the last batch", topic, 0, 12),
        ("at the end", topic, 0, 15),
        ("beyond the end", topic, 0, 16),
        ("at -1", topic, 0, -1),
        ("of an empty partition", topic, 1, 0),
        ("beyond an empty partition", topic, 1, 1),
        ("of an unknown partition", topic, 9, 0),
        ("of partition -1", topic, -1, 0),
        ("of an unknown topic", &unknown, 0, 0),
        ("of a bad topic", &nil, 0, 0),
    ] {
        let request = requests::fetch(version, topic, partition, offset);
        peer.ask_fetch(&format!("Fetch {case}"), version, &request);
    }
    let whole = || requests::fetch(version, topic, 0, 0);
    let mut request = whole();
    request.isolation_level = 1;
    peer.ask_fetch("Fetch of the committed", version, &request);
    for bytes in [0, 1, 100, 150, 200, 300] {
        let mut request = whole();
        request.topics[0].partitions[0].partition_max_bytes = bytes;
        peer.ask_fetch(&format!("Fetch of {bytes} bytes of a partition"), version, &request);
        let mut request = whole();
        request.max_bytes = bytes;
        peer.ask_fetch(&format!("Fetch of {bytes} bytes"), version, &request);
    }
    let mut request = whole();
    request.topics[0].partitions.push(partition(0, 3));
    peer.ask_fetch("Fetch of a partition twice", version, &request);
    let mut request = whole();
    request.topics[0].partitions.push(partition(1, 0));
    request.topics[0].partitions.push(partition(9, 0));
    peer.ask_fetch("Fetch of three partitions", version, &request);
    let mut request = whole();
    request.topics.clear();
    peer.ask_fetch("Fetch of nothing", version, &request);
    let mut request = whole();
    request.min_bytes = 1_000_000;
    request.max_wait_ms = 20;
    peer.ask_fetch("Fetch that waits for more", version, &request);
    if version >= 9 {
        let mut request = whole();
        request.topics[0].partitions[0].current_leader_epoch = 1000;
        peer.ask_fetch("Fetch under a later epoch", version, &request);
    }
    if version >= 12 {
        let mut request = whole();
        request.topics[0].partitions[0].last_fetched_epoch = 1000;
        peer.ask_fetch("Fetch after a later epoch", version, &request);
    }
}

fn partition(index: i32, offset: i64) -> FetchPartition {
    FetchPartition::default()
        .with_partition(index)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20)
}

fn sessions(peer: &mut Peer, version: i16, topic: &Topic) {
    let in_session = |id: i32, epoch: i32, partitions: Vec<FetchPartition>| {
        let mut request: FetchRequest = requests::fetch(version, topic, 0, 0);
        request.session_id = id;
        request.session_epoch = epoch;
        let mut entry = FetchTopic::default();
        std::mem::swap(&mut entry, &mut request.topics[0]);
        entry.partitions = partitions;
        request.topics = if entry.partitions.is_empty() { vec![] } else { vec![entry] };
        request
    };
    let mut ask = |case: &str, request: FetchRequest| {
        peer.ask_fetch(&format!("Fetch session {case}"), version, &request).session_id
    };
    let id = ask("that is new", in_session(0, 0, vec![partition(0, 12), partition(1, 0)]));
    ask("with nothing changed", in_session(id, 1, vec![]));
    ask("from another offset", in_session(id, 2, vec![partition(0, 15)]));
    ask("with nothing new", in_session(id, 3, vec![]));
    ask("with one more partition", in_session(id, 4, vec![partition(2, 0)]));
    ask("with an unknown partition", in_session(id, 5, vec![partition(9, 0)]));
    let mut request = in_session(id, 6, vec![partition(0, 0)]);
    let mut forgotten = ForgottenTopic::default().with_partitions(vec![1, 9]);
    if version >= 13 {
        forgotten.topic_id = topic.id;
    } else {
        forgotten.topic = topic.wire_name();
    }
    request.forgotten_topics_data = vec![forgotten];
    ask("that forgets", request);
    ask("of a wrong epoch", in_session(id, 6, vec![]));
    ask("of a later epoch", in_session(id, 99, vec![]));
    ask("that is unknown", in_session(id.wrapping_add(1).max(1), 1, vec![]));
    ask("with id 0 and epoch 5", in_session(0, 5, vec![partition(0, 12)]));
    ask("that is replaced", in_session(id, 0, vec![partition(0, 12)]));
    ask("that is closed", in_session(id, -1, vec![partition(0, 12)]));
    ask("that was closed", in_session(id, 7, vec![]));
}
