//! Bounds that a client can run into: the answer at each, the one before it, and the metric.

use std::time::Duration;

use kafka_protocol::messages::create_topics_request::CreatableTopicConfig;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    ApiVersionsRequest, FetchRequest, IncrementalAlterConfigsRequest, ListTransactionsRequest,
    MetadataRequest, ProduceResponse,
};
use kafka_protocol::protocol::StrBytes;
use ringlog::limits::{
    CATALOG_RECORDS_PER_REQUEST_MAX, CREATE_PARTITIONS_PER_REQUEST_MAX, FRAME_BYTES_COPIED_MAX,
    HEADERS_PER_RECORD_MAX, INFLATED_BATCH_BYTES_MAX, RECORD_ERRORS_PER_BATCH_MAX,
    REQUEST_ELEMENT_BYTES, REQUEST_ELEMENTS_LARGE_MAX, REQUEST_ELEMENTS_MAX,
    REQUEST_ELEMENTS_SMALL_MAX, REQUEST_UNKNOWN_TAGS_MAX, REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
    RESPONSE_BYTES_UNSENT_MAX, TOPIC_NAME_BYTES_MAX, TRANSACTIONAL_ID_PATTERN_BYTES_MAX,
    ZSTD_WINDOW_LOG_MAX,
};

use crate::bombs::{bomb, zstd_with_window};
use crate::stage::Stage;
use crate::support::batch::{Batch, Record};
use crate::support::client::{Client, raw_request_frame};
use crate::support::requests::{self, Topic};

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn produced(client: &mut Client, topic: &Topic, batch: bytes::Bytes) -> ProduceResponse {
    client.set_timeout(Duration::from_secs(60));
    client.call(8, &requests::produce(8, topic, 0, -1, batch))
}

fn code(response: &ProduceResponse) -> i16 {
    response.responses[0].partition_responses[0].error_code
}

#[test]
fn requests_in_flight_and_unsent_responses() {
    let mut stage = Stage::start(&[]);
    let topic = stage.topic("flights");
    let mut client = stage.broker.connect();
    let mut parked: FetchRequest = requests::fetch(13, &topic, 0, 0);
    (parked.max_wait_ms, parked.min_bytes) = (1_500, 1);
    let first = client.send(13, &parked);
    let most = REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX;
    let mut sent: Vec<_> =
        (0..most - 1).map(|_| client.send(0, &ApiVersionsRequest::default())).collect();
    stage.witness_is_served();
    assert_eq!(stage.reached("requests_in_flight"), 0, "so many are in progress");
    sent.push(client.send(0, &ApiVersionsRequest::default()));
    assert_eq!(client.receive(first).error_code, 0);
    for sent in sent {
        assert_eq!(client.receive(sent).error_code, 0);
    }
    assert_eq!(stage.reached("requests_in_flight"), 1);

    let value = vec![b'r'; RESPONSE_BYTES_UNSENT_MAX / 2];
    for _ in 0..3 {
        let batch = Batch::of_values([&value]).encode();
        assert_eq!(code(&produced(&mut client, &topic, batch)), 0);
    }
    let mut whole = requests::fetch(13, &topic, 0, 0);
    whole.max_bytes = 50_000_000;
    whole.topics[0].partitions[0].partition_max_bytes = 50_000_000;
    let fetches: Vec<_> = (0..20).map(|_| client.send(13, &whole)).collect();
    crate::stage::until(Duration::from_secs(10), "the socket is left unread", || {
        stage.reached("response_bytes_unsent") > 0
    });
    for sent in fetches {
        let records = client.receive(sent).responses[0].partitions[0].records.clone();
        assert!(records.expect("records").len() > value.len(), "whole batches, perhaps not all");
    }
    stage.witness_is_served();
}

#[test]
fn elements_tags_and_lengths_of_a_request() {
    // A request that is decoded to the most that there is may take half of what connections have.
    let settings = ["--set", "socket.request.max.bytes=2000000"];
    let mut stage = Stage::with_memory("512MiB", &settings);
    let closed = |frame: &[u8]| {
        let mut client = stage.broker.connect();
        client.send_frame(frame);
        client.expect_closed();
    };
    // Topics of Metadata v1, each an empty text; ids of ListPartitionReassignments v0 as well, and
    // states of ListTransactions v0.
    let array = |key: i16, version: i16, header: i16, before: &[u8], count: usize, each: usize| {
        let mut body = before.to_vec();
        if header == 2 {
            let mut rest = count + 1;
            while rest >= 0x80 {
                body.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            body.push(rest as u8);
        } else {
            body.extend((count as u32).to_be_bytes());
        }
        body.resize(body.len() + count * each + 64, 0);
        raw_request_frame(key, version, header, 1, None, &body)
    };
    closed(&array(3, 1, 1, &[], REQUEST_ELEMENTS_MAX + 1, 2));
    closed(&array(3, 1, 1, &[], REQUEST_ELEMENTS_LARGE_MAX.max(REQUEST_ELEMENTS_MAX) + 1, 2));
    let mut tags = b"\x01\0\0".to_vec();
    let count = REQUEST_UNKNOWN_TAGS_MAX as u32 + 1;
    tags.extend([count as u8 | 0x80, (count >> 7) as u8]);
    for number in 0..count {
        tags.extend([(number & 0x7f) as u8 | 0x80, (number >> 7) as u8, 0]);
    }
    closed(&raw_request_frame(3, 12, 2, 1, None, &tags));
    let mut client = stage.broker.connect();
    client.send_bytes(&2_000_001_i32.to_be_bytes());
    client.expect_closed();
    assert_eq!(stage.reached("request_elements"), 2);
    assert_eq!(stage.reached("request_unknown_tags"), 1);
    assert_eq!(stage.reached("frame_too_large"), 1);
    // With little memory it is less: 10,321,920 bytes for connections here.
    let small = Stage::start(&[]);
    let most = 10_321_920 / 2 / REQUEST_ELEMENT_BYTES;
    let mut client = small.broker.connect();
    client.send_frame(&array(3, 1, 1, &[], most + 1, 2));
    client.expect_closed();
    assert_eq!(small.reached("request_elements"), 1);
    let names = vec![""; most];
    let answer = small.broker.connect().call(4, &requests::metadata(&names));
    assert!(!answer.topics.is_empty());
    assert_eq!(small.reached("request_elements"), 1);
    small.memory_is_kept(8);
    const { assert!(REQUEST_ELEMENTS_SMALL_MAX < REQUEST_ELEMENTS_LARGE_MAX) };
    // A frame just beyond the size that is copied, and one at it, are requests like any other.
    for length in [FRAME_BYTES_COPIED_MAX, FRAME_BYTES_COPIED_MAX + 1] {
        let mut client = stage.broker.connect();
        let name = "n".repeat(length - 30);
        client.set_client_id(Some(&name));
        let all = MetadataRequest::default().with_topics(None);
        assert!(!client.call(9, &all).topics.is_empty());
    }
    stage.witness_is_served();
}

#[test]
fn topics_and_their_names() {
    let mut stage = Stage::start(&[]);
    let mut client = stage.broker.connect();
    let longest = "n".repeat(TOPIC_NAME_BYTES_MAX);
    let created = client.call(7, &requests::create_topic(&longest, 1));
    assert_eq!(created.topics[0].error_code, 0);
    let created = client.call(7, &requests::create_topic(&format!("{longest}n"), 1));
    assert_eq!(created.topics[0].error_code, 17);
    let count = i32::try_from(CREATE_PARTITIONS_PER_REQUEST_MAX).expect("a small number");
    let created = client.call(7, &requests::create_topic("many", count + 1));
    assert_eq!(created.topics[0].error_code, 44, "{created:?}");
    // Changes of one topic, each a record of the catalog; the last of a key counts in Kafka too,
    // so the keys differ by client-metrics resources.
    let resource = |number: usize| {
        let config = AlterableConfig::default()
            .with_name(text("interval.ms"))
            .with_value(Some(text("5000")));
        AlterConfigsResource::default()
            .with_resource_type(16)
            .with_resource_name(text(&format!("subscription-{number}")))
            .with_configs(vec![config])
    };
    let resources: Vec<_> = (0..=CATALOG_RECORDS_PER_REQUEST_MAX).map(resource).collect();
    let request = IncrementalAlterConfigsRequest::default()
        .with_resources(resources)
        .with_validate_only(true);
    let answer = client.call(1, &request);
    assert!(
        answer.responses.iter().all(|response| response.error_code == 44),
        "{:?}",
        answer.responses[0]
    );
    assert_eq!(stage.reached("topic_name_bytes"), 1);
    assert_eq!(stage.reached("create_partitions_per_request"), 1);
    assert_eq!(stage.reached("catalog_records_per_request"), 1);
    stage.witness_is_served();
}

#[test]
fn batches_and_their_records() {
    let mut stage = Stage::with_memory("128MiB", &[]);
    let mut client = stage.broker.connect();
    let mut request = requests::create_topic("batches", 1);
    request.topics[0].configs = vec![
        CreatableTopicConfig::default()
            .with_name(text("max.message.bytes"))
            .with_value(Some(text("4000000"))),
    ];
    let created = client.call(7, &request);
    assert_eq!(created.topics[0].error_code, 0, "{created:?}");
    let topic = Topic { name: "batches".to_owned(), id: created.topics[0].topic_id };

    // Headers: so many as the limit, and one more; of two bytes each.
    let headers = |count: i32| {
        let header = (Vec::new(), None);
        let mut record = Record::value("v");
        record.headers = vec![header; count as usize];
        Batch::of(vec![record]).encode()
    };
    assert_eq!(code(&produced(&mut client, &topic, headers(HEADERS_PER_RECORD_MAX))), 0);
    assert_eq!(code(&produced(&mut client, &topic, headers(HEADERS_PER_RECORD_MAX + 1))), 87);
    assert_eq!(stage.reached("headers_per_record"), 1);

    // Bad records that are named: those from hundreds of years ahead.
    let mut batch = Batch::of_values(vec!["v"; RECORD_ERRORS_PER_BATCH_MAX + 1]);
    for record in &mut batch.records {
        record.timestamp_delta = 1 << 50;
    }
    let refused = produced(&mut client, &topic, batch.encode());
    assert_eq!(code(&refused), 32, "{refused:?}");
    let named = refused.responses[0].partition_responses[0].record_errors.len();
    assert_eq!(named, RECORD_ERRORS_PER_BATCH_MAX);
    assert_eq!(stage.reached("record_errors_per_batch"), 1);

    let window = bomb(4, zstd_with_window(1, ZSTD_WINDOW_LOG_MAX + 1), 1);
    assert_eq!(code(&produced(&mut client, &topic, window)), 87);
    assert_eq!(stage.reached("inflation_window"), 1);

    let megabytes = INFLATED_BATCH_BYTES_MAX >> 20;
    let inflated = bomb(4, zstd_with_window(megabytes, 20), 1);
    assert_eq!(code(&produced(&mut client, &topic, inflated)), 87);
    assert_eq!(stage.reached("inflated_batch_bytes"), 1);

    let large = Batch::of_values([vec![0; 4_000_000]]).encode();
    assert_eq!(code(&produced(&mut client, &topic, large)), 10);
    assert_eq!(stage.reached("message_bytes"), 1);
    stage.witness_is_served();
    stage.memory_is_kept(8);
}

#[test]
fn patterns_of_transactional_ids() {
    let mut stage = Stage::start(&[]);
    let mut client = stage.broker.connect();
    let list = |pattern: &str| {
        ListTransactionsRequest::default().with_transactional_id_pattern(Some(text(pattern)))
    };
    assert_eq!(client.call(2, &list("a{2,20}")).error_code, 0);
    let greedy = format!("(\\pL{{1,1000}}){{{}}}", TRANSACTIONAL_ID_PATTERN_BYTES_MAX / 1_024);
    assert_eq!(client.call(2, &list(&greedy)).error_code, 128);
    assert_eq!(stage.reached("transactional_id_pattern_bytes"), 1);
    stage.witness_is_served();
}
