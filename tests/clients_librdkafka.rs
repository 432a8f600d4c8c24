//! librdkafka against the real process: what it writes it reads back, field by field, and its
//! idempotent producer goes on through crashes of the broker.

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};

use support::broker::{Broker, free_ports};
use support::requests::create_topic;

const DEADLINE: Duration = Duration::from_secs(60);

/// A record as it was sent, or as it came back.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Sent {
    partition: i32,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Collects what became of each record, by its number.
#[derive(Clone, Default)]
struct Deliveries(Arc<Mutex<Vec<Delivery>>>);

/// Number of a record, and its partition and offset or what went wrong.
type Delivery = (usize, Result<(i32, i64), String>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, number: Box<usize>) {
        let outcome = match result {
            Ok(message) => Ok((message.partition(), message.offset())),
            Err((error, _)) => Err(error.to_string()),
        };
        self.0.lock().expect("no panic while held").push((*number, outcome));
    }
}

fn arguments(advertise: &str) -> Vec<&str> {
    let mut arguments = vec!["--shards", "3", "--advertise", advertise, "--memory", "256MiB"];
    arguments.extend(["--set", "journal.ring.bytes=32MiB"]);
    arguments
}

fn bootstrap(broker: &Broker) -> String {
    broker.addresses()[0].to_string()
}

fn producer(bootstrap: &str, settings: &[(&str, &str)]) -> (BaseProducer<Deliveries>, Deliveries) {
    let deliveries = Deliveries::default();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("reconnect.backoff.max.ms", "200");
    for (name, value) in settings {
        config.set(*name, *value);
    }
    let producer = config.create_with_context(deliveries.clone()).expect("a producer");
    (producer, deliveries)
}

fn record(number: usize) -> Sent {
    let key = (!number.is_multiple_of(3)).then(|| format!("key {number}").into_bytes());
    let value = (!number.is_multiple_of(7)).then(|| vec![b'a' + (number % 26) as u8; number * 13]);
    let headers = match number % 4 {
        0 => vec![],
        1 => vec![("same".to_owned(), Some(b"1".to_vec())), ("same".to_owned(), None)],
        2 => vec![("same".to_owned(), Some(vec![])), ("same".to_owned(), Some(vec![0, 255]))],
        _ => vec![("h".to_owned(), Some(vec![b'h'; number]))],
    };
    let timestamp = 1_600_000_000_000 + number as i64;
    Sent { partition: (number % 4) as i32, timestamp, key, value, headers }
}

fn send(producer: &BaseProducer<Deliveries>, topic: &str, number: usize, sent: &Sent) {
    let mut headers = OwnedHeaders::new();
    for (name, value) in &sent.headers {
        headers = headers.insert(Header { key: name, value: value.as_ref() });
    }
    let mut record =
        BaseRecord::<Vec<u8>, Vec<u8>, Box<usize>>::with_opaque_to(topic, Box::new(number))
            .partition(sent.partition)
            .timestamp(sent.timestamp)
            .headers(headers);
    if let Some(key) = &sent.key {
        record = record.key(key);
    }
    if let Some(value) = &sent.value {
        record = record.payload(value);
    }
    producer.send(record).map_err(|(error, _)| error).expect("queued");
}

/// Reads `count` records of all four partitions, each in the order of its offsets.
fn read_back(bootstrap: &str, topic: &str, count: usize) -> Vec<(i64, Sent)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "none")
        .set("enable.auto.commit", "false")
        .set("check.crcs", "true")
        .create()
        .expect("a consumer");
    let mut partitions = TopicPartitionList::new();
    for partition in 0..4 {
        partitions.add_partition_offset(topic, partition, Offset::Beginning).expect("an offset");
    }
    consumer.assign(&partitions).expect("assigned");
    let deadline = Instant::now() + DEADLINE;
    let mut found = Vec::with_capacity(count);
    while found.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} records", found.len());
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            found.push(read(&message.expect("a record")));
        }
    }
    let (low, high) = consumer.fetch_watermarks(topic, 0, DEADLINE).expect("watermarks");
    assert_eq!((low, high as usize), (0, count.div_ceil(4)));
    found
}

fn read(message: &BorrowedMessage<'_>) -> (i64, Sent) {
    let headers = message.headers().map_or_else(Vec::new, |headers| {
        let owned =
            |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.map(<[u8]>::to_vec));
        headers.iter().map(owned).collect()
    });
    let sent = Sent {
        partition: message.partition(),
        timestamp: message.timestamp().to_millis().expect("a timestamp"),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers,
    };
    (message.offset(), sent)
}

fn check(mut found: Vec<(i64, Sent)>, expected: &[Sent]) {
    for partition in 0..4 {
        let offsets = found.iter().filter(|(_, sent)| sent.partition == partition);
        let offsets: Vec<i64> = offsets.map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, (0..offsets.len() as i64).collect::<Vec<_>>(), "each once, in order");
    }
    found.sort_by_key(|(offset, sent)| (*offset, sent.partition));
    for (number, ((_, found), expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "record {number}");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn records_come_back_as_they_were_sent_with_every_codec() {
    for advertise in ["per-core", "single"] {
        let broker = Broker::start(&arguments(advertise));
        for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
            for idempotent in ["false", "true"] {
                let topic = format!("{codec}-{idempotent}");
                let created = broker.connect().call(7, &create_topic(&topic, 4));
                assert_eq!(created.topics[0].error_code, 0);
                let settings = [
                    ("compression.codec", codec),
                    ("enable.idempotence", idempotent),
                    ("linger.ms", "5"),
                ];
                let (producer, deliveries) = producer(&bootstrap(&broker), &settings);
                let expected: Vec<Sent> = (0..400).map(record).collect();
                for (number, sent) in expected.iter().enumerate() {
                    send(&producer, &topic, number, sent);
                }
                producer.flush(DEADLINE).expect("all delivered");
                let deliveries = deliveries.0.lock().expect("no panic while held").clone();
                assert_eq!(deliveries.len(), expected.len());
                for (number, outcome) in deliveries {
                    assert_eq!(outcome, Ok(((number % 4) as i32, (number / 4) as i64)));
                }
                check(read_back(&bootstrap(&broker), &topic, expected.len()), &expected);
            }
        }
    }
}

#[test]
fn an_idempotent_producer_goes_on_through_crashes() {
    for advertise in ["per-core", "single"] {
        // The same ports after every start, as a real installation has them.
        let first = free_ports(3);
        let listen = format!("listen=127.0.0.1:{first}");
        let extra = format!("extra_port_first={}", first + 1);
        let ports = ["--set", &listen, "--set", &extra];
        let mut broker = Broker::start(&[&arguments(advertise)[..], &ports].concat());
        let addresses = broker.addresses().to_vec();
        let created = broker.connect().call(7, &create_topic("crashes", 4));
        assert_eq!(created.topics[0].error_code, 0);
        let settings =
            [("enable.idempotence", "true"), ("linger.ms", "1"), ("retry.backoff.ms", "20")];
        let (producer, deliveries) = producer(&bootstrap(&broker), &settings);
        let mut expected = Vec::new();
        for round in 0..6 {
            for _ in 0..300 {
                let sent = record(expected.len());
                send(&producer, "crashes", expected.len(), &sent);
                expected.push(sent);
                producer.poll(Duration::ZERO);
            }
            // At another point of the work each time.
            let until = Instant::now() + Duration::from_millis(round * 3);
            while Instant::now() < until {
                producer.poll(Duration::from_millis(1));
            }
            broker.restart();
            assert_eq!(broker.addresses(), addresses);
        }
        producer.flush(DEADLINE).expect("all delivered");
        assert_eq!(producer.client().fatal_error(), None);
        let deliveries = deliveries.0.lock().expect("no panic while held").clone();
        assert_eq!(deliveries.len(), expected.len());
        for (number, outcome) in deliveries {
            assert_eq!(outcome, Ok(((number % 4) as i32, (number / 4) as i64)));
        }
        check(read_back(&bootstrap(&broker), "crashes", expected.len()), &expected);
    }
}
