//! A minimal blocking Kafka client: one connection, requests in flight, answers in order.
//!
//! Owns hand-made frames for the hot requests, so that the load costs little. All others go through
//! the codec.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, FindCoordinatorRequest, ListOffsetsRequest,
    MetadataRequest, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Errors of the client, for people.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// One connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects to `address`.
    pub fn connect(address: &str) -> Result<Client, Fault> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Client { stream, buffer: Vec::new() })
    }

    /// Sends a prepared frame.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Fault> {
        Ok(self.stream.write_all(frame)?)
    }

    /// Receives one frame without its length.
    pub fn receive(&mut self) -> Result<&[u8], Fault> {
        let mut length = [0u8; 4];
        self.stream.read_exact(&mut length)?;
        self.buffer.resize(u32::from_be_bytes(length) as usize, 0);
        self.stream.read_exact(&mut self.buffer)?;
        Ok(&self.buffer)
    }

    /// One request of any kind and its answer.
    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, Fault> {
        self.send(&frame_of(version, request)?)?;
        self.answer::<R>(version)
    }

    /// The answer to a request that was sent before.
    pub fn answer<R: Request>(&mut self, version: i16) -> Result<R::Response, Fault> {
        let mut answer = Bytes::copy_from_slice(self.receive()?);
        ResponseHeader::decode(&mut answer, R::Response::header_version(version))?;
        Ok(R::Response::decode(&mut answer, version)?)
    }

    /// Waits no longer than this for an answer.
    pub fn wait_at_most(&self, time: Duration) -> Result<(), Fault> {
        Ok(self.stream.set_read_timeout(Some(time))?)
    }

    /// Whether an answer begins to arrive before `due`.
    pub fn readable_before(&self, due: Instant) -> Result<bool, Fault> {
        let left = due.saturating_duration_since(Instant::now());
        let mut waited = [PollFd::new(&self.stream, PollFlags::IN)];
        let left = Timespec::try_from(left)?;
        Ok(poll(&mut waited, Some(&left))? > 0)
    }

    /// Creates the topic unless it exists, and returns each partition's leader address.
    pub fn leaders(&mut self, topic: &str, partitions: i32) -> Result<Vec<String>, Fault> {
        let name = TopicName(StrBytes::from_string(topic.to_owned()));
        let create = CreateTopicsRequest::default().with_timeout_ms(30_000).with_topics(vec![
            CreatableTopic::default()
                .with_name(name.clone())
                .with_num_partitions(partitions)
                .with_replication_factor(1),
        ]);
        self.ask(4, &create)?;
        let asked = MetadataRequestTopic::default().with_name(Some(name.clone()));
        let ask = MetadataRequest::default().with_topics(Some(vec![asked]));
        for _ in 0..100 {
            let metadata = self.ask(5, &ask)?;
            let Some(topic) = metadata.topics.first() else { continue };
            let address = |leader: i32| {
                let broker = metadata.brokers.iter().find(|broker| broker.node_id.0 == leader);
                broker.map(|broker| format!("{}:{}", broker.host, broker.port))
            };
            let mut leaders = vec![None; topic.partitions.len()];
            for partition in &topic.partitions {
                let index = partition.partition_index as usize;
                leaders[index] = address(partition.leader_id.0);
            }
            if !leaders.is_empty() && leaders.iter().all(Option::is_some) {
                let leaders: Vec<String> = leaders.into_iter().flatten().collect();
                wait_until_they_lead(&name, &leaders)?;
                return Ok(leaders);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err("the topic has no leaders".into())
    }

    /// Deletes a topic.
    pub fn delete_topic(&mut self, topic: &str) -> Result<(), Fault> {
        let name = TopicName(StrBytes::from_string(topic.to_owned()));
        let delete = DeleteTopicsRequest::default().with_timeout_ms(30_000);
        let deleted = self.ask(4, &delete.with_topic_names(vec![name]))?;
        accept("DeleteTopics", deleted.responses.first().map_or(-1, |topic| topic.error_code))
    }

    /// A connection to the coordinator of a group or of a transactional id.
    pub fn coordinator(&mut self, kind: Coordinator, key: &str) -> Result<Client, Fault> {
        let ask = FindCoordinatorRequest::default()
            .with_key(StrBytes::from_string(key.to_owned()))
            .with_key_type(kind as i8);
        let found = self.ask_loaded(3, &ask, |answer| answer.error_code)?;
        accept("FindCoordinator", found.error_code)?;
        Client::connect(&format!("{}:{}", found.host.as_str(), found.port))
    }

    /// Asks until the coordinator is loaded: its topic may be new.
    pub fn ask_loaded<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        code_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, Fault> {
        let deadline = Instant::now() + LOADED_TIMEOUT;
        loop {
            let answer = self.ask(version, request)?;
            if !LOADING.contains(&code_of(&answer)) || Instant::now() > deadline {
                return Ok(answer);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A node of Apache Kafka is named as the leader of a new partition before it leads it.
fn wait_until_they_lead(topic: &TopicName, leaders: &[String]) -> Result<(), Fault> {
    let deadline = Instant::now() + LOADED_TIMEOUT;
    for (partition, leader) in leaders.iter().enumerate() {
        let index = partition as i32;
        let partition = ListOffsetsPartition::default().with_partition_index(index);
        let partition = partition.with_current_leader_epoch(-1).with_timestamp(-1);
        let of =
            ListOffsetsTopic::default().with_name(topic.clone()).with_partitions(vec![partition]);
        let ask = ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![of]);
        let mut client = Client::connect(leader)?;
        loop {
            let answer = client.ask(4, &ask)?;
            let first = answer.topics.first().and_then(|topic| topic.partitions.first());
            match first.map(|partition| partition.error_code) {
                Some(0) => break,
                Some(code) if Instant::now() > deadline => accept("ListOffsets", code)?,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
    Ok(())
}

/// What is coordinated.
#[derive(Clone, Copy, Debug)]
pub enum Coordinator {
    /// A group.
    Group = 0,
    /// A transactional id.
    Transaction = 1,
}

/// A frame with a request of any kind.
pub fn frame_of<R: Request>(version: i16, request: &R) -> Result<Vec<u8>, Fault> {
    let mut body = BytesMut::new();
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_client_id(Some(StrBytes::from_static_str("ringlog-perf")));
    header.encode(&mut body, R::header_version(version))?;
    request.encode(&mut body, version)?;
    Ok(framed(body.to_vec()))
}

/// An error unless the code is none.
pub fn accept(api: &str, code: i16) -> Result<(), Fault> {
    if code == 0 { Ok(()) } else { Err(format!("{api} was answered with error {code}").into()) }
}

/// A Produce v7 request for one batch.
#[must_use]
pub fn produce_frame(topic: &str, partition: i32, acks: i16, batch: &[u8]) -> Vec<u8> {
    let mut body = header(0, 7);
    body.extend_from_slice(&(-1i16).to_be_bytes());
    body.extend_from_slice(&acks.to_be_bytes());
    body.extend_from_slice(&30_000i32.to_be_bytes());
    body.extend_from_slice(&1i32.to_be_bytes());
    put_text(&mut body, topic);
    body.extend_from_slice(&1i32.to_be_bytes());
    body.extend_from_slice(&partition.to_be_bytes());
    body.extend_from_slice(&(batch.len() as i32).to_be_bytes());
    body.extend_from_slice(batch);
    framed(body)
}

/// A Fetch v11 request for one partition, without a session.
#[must_use]
pub fn fetch_frame(topic: &str, partition: i32, offset: i64, bytes_max: i32) -> Vec<u8> {
    // Nothing is waited for: an empty answer says that the end is reached.
    waiting_fetch_frame(topic, partition, offset, (bytes_max, 0))
}

/// The same, answered when there is something or after so many milliseconds.
#[must_use]
pub fn waiting_fetch_frame(
    topic: &str,
    partition: i32,
    offset: i64,
    (bytes_max, wait_ms): (i32, i32),
) -> Vec<u8> {
    let mut body = header(1, 11);
    for number in [-1, wait_ms, 1, bytes_max] {
        body.extend_from_slice(&i32::to_be_bytes(number));
    }
    body.push(0);
    body.extend_from_slice(&0i32.to_be_bytes());
    body.extend_from_slice(&(-1i32).to_be_bytes());
    body.extend_from_slice(&1i32.to_be_bytes());
    put_text(&mut body, topic);
    body.extend_from_slice(&1i32.to_be_bytes());
    body.extend_from_slice(&partition.to_be_bytes());
    body.extend_from_slice(&(-1i32).to_be_bytes());
    body.extend_from_slice(&offset.to_be_bytes());
    body.extend_from_slice(&(-1i64).to_be_bytes());
    body.extend_from_slice(&bytes_max.to_be_bytes());
    body.extend_from_slice(&0i32.to_be_bytes());
    put_text(&mut body, "");
    framed(body)
}

/// The error code of a Produce v7 answer to one batch.
#[must_use]
pub fn produce_error(answer: &[u8], topic: &str) -> i16 {
    let at = 4 + 4 + 2 + topic.len() + 4 + 4;
    answer.get(at..at + 2).map_or(-1, |code| i16::from_be_bytes([code[0], code[1]]))
}

/// Error code and records of a Fetch v11 answer for one partition.
#[must_use]
pub fn fetch_records<'a>(answer: &'a [u8], topic: &str) -> (i16, &'a [u8]) {
    let at = 4 + 4 + 2 + 4 + 4 + 2 + topic.len() + 4 + 4;
    let Some(code) = answer.get(at..at + 2) else { return (-1, &[]) };
    let code = i16::from_be_bytes([code[0], code[1]]);
    // high watermark, last stable offset, log start, aborted transactions, preferred replica
    let records = at + 2 + 8 + 8 + 8 + 4 + 4;
    let length = answer.get(records..records + 4);
    let length = length.map_or(0, |l| i32::from_be_bytes([l[0], l[1], l[2], l[3]]).max(0));
    (code, answer.get(records + 4..records + 4 + length as usize).unwrap_or(&[]))
}

/// The offset after the last batch of some records.
#[must_use]
pub fn next_offset(mut records: &[u8]) -> Option<i64> {
    let mut next = None;
    while records.len() >= 61 {
        let base = i64::from_be_bytes(records[..8].try_into().ok()?);
        let length = i32::from_be_bytes(records[8..12].try_into().ok()?) as usize + 12;
        let delta = i32::from_be_bytes(records[23..27].try_into().ok()?);
        if records.len() < length {
            break;
        }
        next = Some(base + i64::from(delta) + 1);
        records = &records[length..];
    }
    next
}

fn header(key: i16, version: i16) -> Vec<u8> {
    let mut body = Vec::with_capacity(128);
    body.extend_from_slice(&key.to_be_bytes());
    body.extend_from_slice(&version.to_be_bytes());
    body.extend_from_slice(&1i32.to_be_bytes());
    put_text(&mut body, "ringlog-perf");
    body
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as i16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn framed(body: Vec<u8>) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    frame
}

/// The coordinator is being loaded, its topic is new, or it ends the transaction before.
const LOADING: &[i16] = &[14, 15, 16, 51];
const LOADED_TIMEOUT: Duration = Duration::from_secs(60);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
