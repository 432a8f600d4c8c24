//! DeleteRecords, and what ListOffsets, Fetch and OffsetForLeaderEpoch say of a log that begins
//! later.

use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::{DeleteRecordsRequest, DescribeLogDirsRequest};

use crate::peer::Peer;
use crate::support::batch::Batch;
use crate::support::requests::{self, Topic, delete_records};

pub fn ask(peer: &mut Peer) {
    peer.make_topic("only-compacted", 1, &[("cleanup.policy", "compact")]);
    peer.make_topic("keeps-all", 1, &[("cleanup.policy", "")]);
    peer.make_topic("compacted-too", 1, &[("cleanup.policy", "compact,delete")]);
    for version in [0, 1, 2] {
        let name = format!("trimmed-{version}");
        peer.make_topic(&name, 2, &[]);
        let topic = Topic { name: name.clone(), id: peer.ids[&name] };
        for number in 0..5_i64 {
            let values = ["one", "two", "three"].map(|text| format!("{text} {number}"));
            let base_timestamp = 1_700_000_000_000 + (number % 3) * 1000;
            let batch = Batch { base_timestamp, ..Batch::of_values(values) };
            peer.call(9, &requests::produce(9, &topic, 0, -1, batch.encode()));
        }
        refusals(peer, version, &name);
        moves(peer, version, &topic);
    }
}

fn refusals(peer: &mut Peer, version: i16, name: &str) {
    for (case, topic, partition, offset) in [
        ("of an unknown topic", "nowhere", 0, 0),
        ("of a bad topic", "a b", 0, 0),
        ("of an empty name", "", 0, 0),
        ("of an unknown partition", name, 9, 0),
        ("of partition -1", name, -1, 0),
        ("beyond the end", name, 0, 16),
        ("at -2", name, 0, -2),
        ("at the lowest", name, 0, i64::MIN),
        ("at the highest", name, 0, i64::MAX),
        ("of a compacted topic", "only-compacted", 0, 0),
        ("of a compacted topic beyond its end", "only-compacted", 0, 9),
        ("of a compacted topic at -2", "only-compacted", 0, -2),
        ("of a topic without a policy", "keeps-all", 0, 0),
        ("of a topic with both policies", "compacted-too", 0, 0),
    ] {
        let request = delete_records(&[(topic, &[(partition, offset)])]);
        peer.ask(&format!("DeleteRecords {case}"), version, &request);
    }
    peer.ask("DeleteRecords of nothing", version, &delete_records(&[]));
    peer.ask("DeleteRecords of no partition", version, &delete_records(&[(name, &[])]));
    let twice: DeleteRecordsRequest = delete_records(&[(name, &[(1, 0), (1, 7)])]);
    peer.ask("DeleteRecords of a partition twice", version, &twice);
    let twice: DeleteRecordsRequest = delete_records(&[(name, &[(1, 7)]), (name, &[(1, 0)])]);
    peer.ask("DeleteRecords of a topic twice", version, &twice);
}

fn moves(peer: &mut Peer, version: i16, topic: &Topic) {
    let name = topic.name.as_str();
    for (case, offset) in [
        ("at 0", 0),
        ("in a batch", 4),
        ("below", 2),
        ("again", 4),
        ("at a batch", 6),
        ("at -1", -1),
    ] {
        let request = delete_records(&[(name, &[(0, offset)])]);
        peer.ask(&format!("DeleteRecords {case}"), version, &request);
        for time in [-1, -2, -3, -4, 0, 1_700_000_001_000, 1_700_000_002_000] {
            let request = requests::list_offsets(name, 0, time);
            peer.ask(&format!("ListOffsets at {time} after {case} {version}"), 8, &request);
        }
        for at in [0, 3, 4, 5, 6, 14, 15] {
            let request = requests::fetch(18, topic, 0, at);
            peer.ask_fetch(&format!("Fetch at {at} after {case} {version}"), 18, &request);
        }
        let asked = DescribableLogDirTopic::default()
            .with_topic(topic.wire_name())
            .with_partitions(vec![0]);
        let request = DescribeLogDirsRequest::default().with_topics(Some(vec![asked]));
        let answer = peer.log_dirs(4, &request);
        let size = answer.results[0].topics[0].partitions[0].partition_size;
        peer.keep_word(&format!("size after {case} {version}"), &size.to_string());
    }
}
