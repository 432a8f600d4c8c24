//! ApiVersions, and frames that are none.

use bytes::BufMut;
use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};
use kafka_protocol::protocol::StrBytes;

use crate::calls;
use crate::cluster::Cluster;
use crate::support::batch::Batch;
use crate::support::client::{Client, decode_response, raw_request_frame, request_frame};
use crate::support::requests;

in_every_mode!(
    api_versions_lists_what_is_served,
    features_follow_the_version,
    unknown_versions_of_api_versions_are_answered_in_the_oldest_layout,
    bad_software_names_are_refused,
    client_and_correlation_ids_are_taken_as_they_are,
    frames_may_come_in_pieces,
    malformed_frames_close_one_connection_only,
    requests_before_a_malformed_frame_are_answered,
    half_a_request_is_never_answered,
);

/// Key, oldest advertised and newest version, as on Apache Kafka 4.3.
const RANGES: &[(i16, i16, i16)] = &[
    (0, 0, 13),
    (1, 4, 18),
    (2, 1, 11),
    (3, 0, 13),
    (8, 2, 10),
    (9, 1, 10),
    (10, 0, 6),
    (11, 0, 9),
    (12, 0, 4),
    (13, 0, 5),
    (14, 0, 5),
    (15, 0, 6),
    (16, 0, 5),
    (18, 0, 4),
    (19, 2, 7),
    (20, 1, 6),
    (21, 0, 2),
    (22, 0, 5),
    (23, 2, 4),
    (24, 0, 5),
    (25, 0, 4),
    (26, 0, 5),
    (27, 1, 2),
    (28, 0, 5),
    (29, 1, 3),
    (30, 1, 3),
    (31, 1, 3),
    (32, 1, 4),
    (33, 0, 2),
    (34, 1, 2),
    (35, 1, 5),
    (37, 0, 3),
    (38, 1, 3),
    (39, 1, 2),
    (40, 1, 2),
    (41, 1, 3),
    (42, 0, 2),
    (43, 0, 2),
    (44, 0, 1),
    (45, 0, 1),
    (46, 0, 0),
    (47, 0, 0),
    (48, 0, 1),
    (49, 0, 1),
    (50, 0, 0),
    (51, 0, 0),
    (55, 0, 2),
    (57, 0, 2),
    (60, 0, 2),
    (61, 0, 0),
    (64, 0, 0),
    (65, 0, 0),
    (66, 0, 2),
    (68, 0, 1),
    (69, 0, 1),
    (74, 0, 1),
    (75, 0, 0),
];

fn software(name: &'static str, version: &'static str) -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str(name))
        .with_client_software_version(StrBytes::from_static_str(version))
}

fn is_alive(client: &mut Client) {
    let response = client.call(4, &software("raw-client", "1.0"));
    assert_eq!((response.error_code, response.api_keys.len()), (0, RANGES.len()));
}

fn api_versions_lists_what_is_served(cluster: &Cluster) {
    for mut client in cluster.everywhere() {
        for version in 0..=4 {
            let response = client.call(version, &software("raw-client", "1.0"));
            assert_eq!((response.error_code, response.throttle_time_ms), (0, 0));
            let ranges: Vec<_> = response
                .api_keys
                .iter()
                .map(|range| (range.api_key, range.min_version, range.max_version))
                .collect();
            assert_eq!(ranges, RANGES);
        }
    }
}

fn features_follow_the_version(cluster: &Cluster) {
    let mut client = cluster.connect();
    for version in 0..=4 {
        let response = client.call(version, &software("raw-client", "1.0"));
        let supported: Vec<_> = response
            .supported_features
            .iter()
            .map(|feature| (feature.name.to_string(), feature.min_version, feature.max_version))
            .collect();
        let metadata_version = ("metadata.version".to_owned(), 7, 30);
        let kraft_version = ("kraft.version".to_owned(), 0, 1);
        let transaction_version = ("transaction.version".to_owned(), 0, 2);
        let group_version = ("group.version".to_owned(), 0, 1);
        match version {
            0..=2 => assert_eq!(supported, []),
            3 => assert_eq!(supported, [metadata_version]),
            _ => {
                let all = [metadata_version, kraft_version, transaction_version, group_version];
                assert_eq!(supported, all);
            }
        }
        if version >= 3 {
            let finalized: Vec<_> = response
                .finalized_features
                .iter()
                .map(|f| (f.name.to_string(), f.max_version_level, f.min_version_level))
                .collect();
            let expected = [
                ("metadata.version", 30, 30),
                ("transaction.version", 2, 2),
                ("group.version", 1, 1),
            ];
            assert_eq!(finalized, expected.map(|(name, max, min)| (name.to_owned(), max, min)));
            assert!(response.finalized_features_epoch > 0);
        }
    }
}

fn unknown_versions_of_api_versions_are_answered_in_the_oldest_layout(cluster: &Cluster) {
    let mut client = cluster.connect();
    for (version, body) in [(5, &b""[..]), (99, b"\xff\xff\xff\xff"), (-1, b""), (i16::MAX, b"x")] {
        client.send_frame(&raw_request_frame(18, version, 2, 77, None, body));
        let frame = client.receive_frame();
        let expected = b"\0\0\0\x4d\0\x23\0\0\0\x01\0\x12\0\0\0\x04";
        assert_eq!(frame, &expected[..], "version {version}");
    }
    is_alive(&mut client);
}

fn bad_software_names_are_refused(cluster: &Cluster) {
    let mut client = cluster.connect();
    for (name, version) in [("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a", "1.")] {
        for api_version in 3..=4 {
            let response = client.call(api_version, &software(name, version));
            assert_eq!((response.error_code, response.api_keys.len()), (42, 0), "{name} {version}");
            assert!(response.supported_features.is_empty());
        }
        assert_eq!(client.call(2, &software(name, version)).error_code, 0);
    }
}

fn client_and_correlation_ids_are_taken_as_they_are(cluster: &Cluster) {
    let mut client = cluster.connect();
    for client_id in [None, Some(""), Some("ü"), Some("x".repeat(5000).as_str())] {
        client.set_client_id(client_id);
        for correlation_id in [0, -1, i32::MIN, i32::MAX] {
            client.set_next_correlation_id(correlation_id);
            is_alive(&mut client);
            assert_eq!(client.call(1, &MetadataRequest::default()).controller_id.0, 0);
        }
    }
}

fn frames_may_come_in_pieces(cluster: &Cluster) {
    let mut client = cluster.connect();
    let frame = request_frame(4, 3, Some("slow"), &software("raw-client", "1.0"));
    let mut bytes = Vec::new();
    for _ in 0..3 {
        bytes.put_u32(u32::try_from(frame.len()).expect("small"));
        bytes.put_slice(&frame);
    }
    for piece in bytes.chunks(1) {
        client.send_bytes(piece);
    }
    for _ in 0..3 {
        let response = decode_response::<ApiVersionsRequest>(4, 3, client.receive_frame());
        assert_eq!(response.expect("a response").error_code, 0);
    }
}

/// Frames, with their length prefix, that no broker may answer.
fn malformed() -> Vec<(String, Vec<u8>)> {
    let prefixed = |frame: Vec<u8>| {
        let mut bytes = Vec::new();
        bytes.put_u32(u32::try_from(frame.len()).expect("small"));
        bytes.put_slice(&frame);
        bytes
    };
    let mut all: Vec<(String, Vec<u8>)> = vec![
        ("negative length".into(), vec![0xff; 4]),
        ("smallest length".into(), vec![0x80, 0, 0, 0]),
        ("empty frame".into(), vec![0; 4]),
        ("over the limit".into(), (100 * 1024 * 1024 + 1_u32).to_be_bytes().to_vec()),
        ("2 GiB".into(), vec![0x7f, 0xff, 0xff, 0xff, 1, 2, 3]),
        ("a cut header".into(), prefixed(vec![0, 3, 0, 9, 0])),
        ("a client id beyond the end".into(), prefixed(b"\0\x03\0\x01\0\0\0\x01\x7f\xff".to_vec())),
        ("a client id of length -2".into(), prefixed(b"\0\x03\0\x01\0\0\0\x01\xff\xfe".to_vec())),
        (
            "a client id that is no text".into(),
            prefixed(raw_request_frame(3, 1, 1, 1, Some(b"\xff\xfe"), b"\xff\xff\xff\xff")),
        ),
    ];
    for key in [999, -1, 4, 7, 52, 93, i16::MAX] {
        let frame = raw_request_frame(key, 0, 1, 1, None, b"\0\0\0\0");
        all.push((format!("key {key}"), prefixed(frame)));
    }
    for (key, min, max) in RANGES.iter().copied().filter(|range| range.0 != 18) {
        let min = if key == 0 { 3 } else { min };
        for version in [min - 1, max + 1, -1, i16::MAX] {
            let frame = raw_request_frame(key, version, 2, 1, None, &[0; 64]);
            all.push((format!("key {key} version {version}"), prefixed(frame)));
        }
        // No request of these is valid without a body, DescribeCluster included; ListGroups is.
        // Flexible from the first version on.
        let header = if matches!(key, 27 | 60 | 61 | 65 | 66) { 2 } else { 1 };
        if key != 16 {
            let frame = raw_request_frame(key, min, header, 1, None, b"");
            all.push((format!("key {key} without a body"), prefixed(frame)));
        }
        let frame = raw_request_frame(key, max, 2, 1, None, &[0xff; 40]);
        all.push((format!("key {key} of ones"), prefixed(frame)));
    }
    let counts: [(i16, i16, &[u8]); 4] = [
        (0, 3, b"\xff\xff\xff\xff\0\0\0\0\x7f\xff\xff\xff"),
        (3, 1, b"\x7f\xff\xff\xff"),
        (3, 9, b"\xff\xff\xff\xff\x07"),
        (2, 1, b"\xff\xff\xff\xff\x7f\xff\xff\xfe\0\0"),
    ];
    for (key, version, body) in counts {
        let header = if version == 9 { 2 } else { 1 };
        let frame = raw_request_frame(key, version, header, 1, None, body);
        all.push((format!("key {key} version {version} with a huge array"), prefixed(frame)));
    }
    // Kafka ignores what follows a body; nobody sends it, and here it is refused.
    let mut frame = request_frame(0, 5, None, &ApiVersionsRequest::default());
    frame.put_slice(b"abc");
    all.push(("bytes after a body".into(), prefixed(frame)));
    all
}

fn malformed_frames_close_one_connection_only(cluster: &Cluster) {
    let mut bystander = cluster.connect();
    for (what, bytes) in malformed() {
        let mut client = cluster.connect();
        is_alive(&mut client);
        println!("{what}");
        client.send_bytes(&bytes);
        client.expect_closed();
        is_alive(&mut bystander);
    }
}

fn requests_before_a_malformed_frame_are_answered(cluster: &Cluster) {
    let topic = cluster.topic("before-malformed", 1);
    let mut client = cluster.at(&topic, 0);
    let request = requests::produce(13, &topic, 0, -1, Batch::of_values(["v"]).encode());
    let first = client.send(13, &request);
    let second = client.send(13, &request);
    client.send_frame(&raw_request_frame(999, 0, 1, 1, None, b""));
    assert_eq!(calls::only_produced(client.receive(first), 0).base_offset, 0);
    assert_eq!(calls::only_produced(client.receive(second), 0).base_offset, 1);
    client.expect_closed();
}

fn half_a_request_is_never_answered(cluster: &Cluster) {
    let topic = cluster.topic("half", 1);
    let request = requests::produce(13, &topic, 0, -1, Batch::of_values(["v"]).encode());
    let frame = request_frame(13, 1, None, &request);
    let mut client = cluster.at(&topic, 0);
    let mut bytes = Vec::new();
    bytes.put_u32(u32::try_from(frame.len()).expect("small"));
    bytes.put_slice(&frame[..frame.len() - 1]);
    client.send_bytes(&bytes);
    client.half_close();
    client.expect_closed();
    assert_eq!(calls::end(&mut cluster.at(&topic, 0), &topic, 0), 0);
}
