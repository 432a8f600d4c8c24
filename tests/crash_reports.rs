//! A frame that crashed the broker twice closes its connection before it is looked at, whatever
//! its correlation id; everything else is served.

mod support;

use std::fs;

use kafka_protocol::messages::ApiKey;
use support::broker::Broker;
use support::client::request_frame;
use support::requests::metadata;
use xxhash_rust::xxh3::Xxh3;

#[test]
fn a_frame_with_two_reports_is_refused() {
    let poison =
        |correlation_id| request_frame(12, correlation_id, Some("client"), &metadata(&["poison"]));
    let frame = poison(1);
    assert_eq!(frame[..2], (ApiKey::Metadata as i16).to_be_bytes());
    let mut hasher = Xxh3::new();
    hasher.update(&frame[..4]);
    hasher.update(&frame[8..]);
    let hash = hasher.digest();

    let mut broker = Broker::prepare(&["--shards", "1", "--set", "journal.ring.bytes=16MiB"]);
    let reports = broker.data_directory().join("crash");
    fs::create_dir_all(&reports).expect("a directory");
    fs::write(reports.join(format!("{hash:016x}.1.txt")), "").expect("a report");
    broker.restart();
    let mut client = broker.connect();
    client.send_frame(&poison(2));
    assert_eq!(client.receive_frame()[..4], 2i32.to_be_bytes(), "one report is not enough");

    assert_eq!(broker.terminate().code, Some(0));
    fs::write(reports.join(format!("{hash:016x}.2.txt")), "").expect("a report");
    broker.restart();
    assert!(broker.stderr().contains(&format!("{hash:016x}.frame")), "{}", broker.stderr());
    let mut client = broker.connect();
    let answer = client.call(12, &metadata(&["other"]));
    assert_eq!(answer.topics.len(), 1);
    client.send_frame(&poison(3));
    client.expect_closed();
    assert!(broker.is_running());
}
