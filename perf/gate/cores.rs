//! Instructions of the cores: what a request passes through that has no I/O, counted by callgrind.
//!
//! Owns the list of cores and how they are fed. A core runs in a child of its own below valgrind,
//! which collects only while [`counted_work`] is on the stack: setting up costs nothing. The counts
//! are those of the processor that valgrind knows, so they are the same on every machine of one
//! kind; a checksum may take another path there than outside.

use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use ringlog::batch::{ValidateRules, validate};
use ringlog::error_code::ErrorCode;
use ringlog::ids::{
    JournalSequence, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId,
};
use ringlog::log::epochs::EpochHistory;
use ringlog::log::producers::Producers;
use ringlog::log::tail::TailBatch;
use ringlog::log::{AppendCheck, BatchFacts, Log, ProducerFacts};
use ringlog::wire::decode::decode;
use ringlog::wire::frame::FrameSplitter;
use ringlog::wire::gather::{FetchAnswer, FetchPartitionAnswer, FetchTopicAnswer, encode_fetch};
use ringlog::wire::header;
use ringlog::wire::produce::{
    ProduceAnswer, ProducePartitionAnswer, ProduceTopicAnswer, encode_produce,
};

use super::counters::Counter;
use crate::client::{Fault, frame_of};
use crate::load::{self, Load};

/// A core: its name and what runs it so many times.
type Core = (&'static str, fn(u64));

const CORES: &[Core] = &[
    ("split_and_decode_of_produce", split_and_decode),
    ("validate_of_1kib", |count| validate_batches(1, count)),
    ("validate_of_64_records", |count| validate_batches(64, count)),
    ("check_and_append", check_and_append),
    ("encode_of_produce", encode_produce_answers),
    ("encode_of_fetch", encode_fetch_answers),
];

/// Instructions of each core per step.
pub fn instructions(perf: &Path) -> Result<Vec<Counter>, Fault> {
    let mut counters = Vec::new();
    for (core, _) in CORES {
        let name = format!("instructions_per_{core}");
        let count = STEPS.to_string();
        let all = collected(perf, &["core", core, &count])?;
        let value = all.map(|all| all as f64 / STEPS as f64);
        let by = "callgrind".to_owned();
        counters.push(Counter { name, value, by, detail: String::new() });
    }
    Ok(counters)
}

/// Instructions of a program within [`counted_work`]; `None` without valgrind.
fn collected(program: &Path, arguments: &[&str]) -> Result<Option<u64>, Fault> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=*counted_work*"])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else { return Ok(None) };
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected :"));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok());
    match count {
        Some(count) if output.status.success() && count > 0 => Ok(Some(count)),
        _ => Err(format!("callgrind does not count {arguments:?}: {text}").into()),
    }
}

/// Runs a core in this process.
pub fn run(name: &str, count: u64) -> Result<(), Fault> {
    let core = CORES.iter().find(|(core, _)| *core == name).ok_or("there is no such core")?;
    (core.1)(count);
    Ok(())
}

/// What is counted while it is on the stack.
#[inline(never)]
fn counted_work(work: impl FnOnce()) {
    black_box(work)();
}

fn split_and_decode(count: u64) {
    let data = PartitionProduceData::default()
        .with_index(0)
        .with_records(Some(Bytes::from(load::batch(&Load::one(TOPIC, 0)))));
    let topic = TopicProduceData::default()
        .with_name(TopicName(StrBytes::from_static_str(TOPIC)))
        .with_partition_data(vec![data]);
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic]);
    let frame = frame_of(9, &request).unwrap_or_default();
    let mut buffer = BytesMut::from(&frame.repeat(count as usize)[..]);
    counted_work(|| {
        let mut splitter = FrameSplitter::new(1 << 20);
        while let Ok(Some(frame)) = splitter.next(&mut buffer) {
            let (header, body) = header::parse(frame).expect("a good header");
            let request = decode(header.api, header.api_version, body).expect("a good body");
            black_box(&request);
        }
    });
}

fn validate_batches(records: usize, count: u64) {
    let batch = Bytes::from(load::batch(&Load { records, ..Load::one(TOPIC, 0) }));
    counted_work(|| {
        for _ in 0..count {
            let valid =
                validate(Some(black_box(&batch).clone()), &ValidateRules::DEFAULT, i64::MAX / 2);
            assert!(black_box(valid).is_ok());
        }
    });
}

fn check_and_append(count: u64) {
    let producers = Producers::new(i64::MAX);
    let mut log = Log::recovered(Offset(0), Offset(0), EpochHistory::default(), producers);
    log.start_epoch(LeaderEpoch(0));
    counted_work(|| {
        for number in 0..count {
            append(&mut log, number);
        }
    });
}

/// Appends a batch of one of sixteen producers, which is durable and written at once.
fn append(log: &mut Log, number: u64) {
    let facts = BatchFacts {
        last_offset_delta: 0,
        max_timestamp_ms: 0,
        bytes: 100,
        producer: Some(ProducerFacts {
            id: ProducerId((number % 16) as i64),
            epoch: ProducerEpoch(0),
            base_sequence: (number / 16) as i32,
        }),
        transactional: false,
        guard: None,
    };
    let base_offset = log.next_offset();
    assert_eq!(log.check(&facts, 0), Ok(AppendCheck::Append(base_offset)));
    let batch = TailBatch {
        base_offset,
        last_offset: base_offset,
        max_timestamp_ms: 0,
        append_ms: 0,
        bytes: facts.bytes,
        sequence: JournalSequence(1),
        parts: Default::default(),
    };
    log.append(&facts, batch, 0);
    let end = log.next_offset();
    log.advance_high_watermark(end);
    log.written_through(end);
}

fn encode_produce_answers(count: u64) {
    let partition = ProducePartitionAnswer {
        base_offset: Offset(7),
        log_start_offset: Offset(0),
        ..ProducePartitionAnswer::failed(PartitionIndex(0), ErrorCode::None)
    };
    let topic = ProduceTopicAnswer {
        name: StrBytes::from_static_str(TOPIC),
        id: TopicId::default(),
        partitions: vec![partition],
    };
    let answer =
        ProduceAnswer { topics: vec![topic], throttle_time_ms: 0, node_endpoints: Vec::new() };
    counted_work(|| {
        for _ in 0..count {
            assert!(black_box(encode_produce(9, 7, black_box(&answer))).is_ok());
        }
    });
}

fn encode_fetch_answers(count: u64) {
    let records = Bytes::from(load::batch(&Load::one(TOPIC, 0)));
    let answer = || {
        let partition = FetchPartitionAnswer {
            records: vec![records.clone(); 4],
            ..FetchPartitionAnswer::failed(PartitionIndex(0), ErrorCode::None)
        };
        let name = StrBytes::from_static_str(TOPIC);
        let topic = FetchTopicAnswer { name, id: TopicId::default(), partitions: vec![partition] };
        FetchAnswer {
            throttle_time_ms: 0,
            error: ErrorCode::None,
            session_id: 0,
            topics: vec![topic],
            node_endpoints: Vec::new(),
        }
    };
    let mut answers: Vec<FetchAnswer> = (0..count).map(|_| answer()).collect();
    counted_work(|| {
        for answer in answers.drain(..) {
            assert!(black_box(encode_fetch(12, 7, answer)).is_ok());
        }
    });
}

const TOPIC: &str = "core";
const STEPS: u64 = 500;
