//! One side of the comparison: a connection that keeps what it is answered.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use bytes::{BufMut, Bytes};
use kafka_protocol::messages::{
    CreateTopicsRequest, DescribeLogDirsRequest, DescribeLogDirsResponse, FetchResponse,
    ListOffsetsRequest,
};
use kafka_protocol::protocol::Request;
use uuid::Uuid;

use crate::fields::{Fields, of_debug};
use crate::support::client::{Client, decode_response, raw_request_frame, request_frame};
use crate::support::requests;

/// Every case with its answer, in order.
pub type Answers = Vec<(String, Fields)>;

/// One side under the script.
pub struct Peer {
    pub name: &'static str,
    /// Its only node.
    pub node_id: i32,
    /// Ids of the topics that the script made.
    pub ids: HashMap<String, Uuid>,
    address: SocketAddr,
    client: Client,
    answers: Answers,
    /// Key and version of every request whose answer is compared.
    asked: BTreeSet<(i16, i16)>,
    /// What made the member ids of this side differ from the other's, in the order it came.
    uniques: Vec<String>,
}

impl Peer {
    pub fn new(name: &'static str, address: SocketAddr, node_id: i32) -> Peer {
        let client = Client::connect(address);
        Peer {
            name,
            node_id,
            ids: HashMap::new(),
            address,
            client,
            answers: Vec::new(),
            asked: BTreeSet::new(),
            uniques: Vec::new(),
        }
    }

    /// Another connection to the same side.
    pub fn connect(&self) -> Client {
        let mut client = Client::connect(self.address);
        client.set_client_id(Some("differential"));
        client
    }

    pub fn into_answers(self) -> (Answers, BTreeSet<(i16, i16)>) {
        (self.answers, self.asked)
    }

    /// Sends a request and keeps the answer under `case`, with the version added.
    pub fn ask<R: Request>(&mut self, case: &str, version: i16, request: &R) -> Option<R::Response>
    where
        R::Response: Debug,
    {
        self.asked.insert((R::KEY, version));
        let case = format!("{case} v{version}");
        let frame = request_frame(version, CORRELATION_ID, Some("differential"), request);
        let response = self.exchange(&frame).map(|answer| {
            decode_response::<R>(version, CORRELATION_ID, answer)
                .unwrap_or_else(|error| panic!("{}: {case}: {error}", self.name))
        });
        match &response {
            Some(response) => self.keep(&case, &format!("{response:?}")),
            None => self.keep_word(&case, "closed"),
        }
        response
    }

    /// The same for Fetch, whose record sets are compared but for the leader epochs in them.
    pub fn ask_fetch(
        &mut self,
        case: &str,
        version: i16,
        request: &kafka_protocol::messages::FetchRequest,
    ) -> FetchResponse {
        let mut response: FetchResponse = self.call_to_keep(version, request);
        for partition in response.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
            partition.records = partition.records.take().map(|set| without_epochs(&set));
        }
        self.keep(&format!("{case} v{version}"), &format!("{response:?}"));
        response
    }

    /// Sends a frame and keeps the bytes of the answer, after the correlation id.
    pub fn ask_raw(&mut self, case: &str, frame: &[u8]) {
        match self.exchange(frame) {
            Some(answer) => {
                let text: String = answer[4..].iter().map(|byte| format!("{byte:02x}")).collect();
                self.keep_word(case, &text);
            }
            None => self.keep_word(case, "closed"),
        }
    }

    /// Sends a request that has no part in the comparison.
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.client.call(version, request)
    }

    /// Sends a request whose answer the script keeps after it has changed it.
    pub fn call_to_keep<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.asked.insert((R::KEY, version));
        self.call(version, request)
    }

    /// Sends the body of a request in a version that the codec library lacks, with a flexible
    /// header; the answer, read as of `codec_version`.
    pub fn ask_body<R: Request>(
        &mut self,
        case: &str,
        version: i16,
        codec_version: i16,
        body: &[u8],
    ) -> R::Response
    where
        R::Response: Debug,
    {
        self.asked.insert((R::KEY, version));
        let name = Some(&b"differential"[..]);
        let frame = raw_request_frame(R::KEY, version, 2, CORRELATION_ID, name, body);
        let answer = self.exchange(&frame).expect("an answer");
        let response = decode_response::<R>(codec_version, CORRELATION_ID, answer)
            .unwrap_or_else(|error| panic!("{}: {case}: {error}", self.name));
        self.keep_answer(&format!("{case} v{version}"), &response);
        response
    }

    /// DescribeLogDirs, whose version 5 the codec library lacks: it is that of 4 with one byte more
    /// in each directory, which is kept as a case of its own.
    pub fn log_dirs(
        &mut self,
        version: i16,
        request: &DescribeLogDirsRequest,
    ) -> DescribeLogDirsResponse {
        if version < 5 {
            return self.call_to_keep(version, request);
        }
        self.asked.insert((DescribeLogDirsRequest::KEY, version));
        let frame = request_frame(version, CORRELATION_ID, Some("differential"), request);
        let answer = self.exchange(&frame).expect("an answer").to_vec();
        // The one directory is last: the byte, then the tags of the directory and of the response.
        let at = answer.len() - 3;
        self.keep_word("DescribeLogDirs says whether it is cordoned", &answer[at].to_string());
        let answer = [&answer[..at], &answer[at + 1..]].concat();
        decode_response::<DescribeLogDirsRequest>(4, CORRELATION_ID, answer.into())
            .expect("a response of version 4")
    }

    /// Waits until something asked is so: in Kafka it comes later than the answer that promised it.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Peer) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{}: {what} does not come", self.name);
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// Sends a request without waiting; for those that are not answered.
    pub fn send_only<R: Request>(&mut self, version: i16, request: &R) {
        let frame = request_frame(version, CORRELATION_ID, Some("differential"), request);
        self.client.send_frame(&frame);
    }

    /// Keeps an answer that the script has changed under `case`.
    pub fn keep_answer(&mut self, case: &str, answer: &impl Debug) {
        self.keep(case, &format!("{answer:?}"));
    }

    /// Keeps a word under `case`.
    pub fn keep_word(&mut self, case: &str, word: &str) {
        let fields = Fields::from([("answer".to_owned(), word.to_owned())]);
        self.answers.push((case.to_owned(), fields));
    }

    /// Makes a topic and waits until all of it is served: in Kafka that comes later.
    pub fn make_topic(&mut self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut request: CreateTopicsRequest = requests::create_topic(name, partitions);
        request.topics[0].configs = crate::script::topics::settings(settings);
        let answer = self.call(7, &request);
        let topic = &answer.topics[0];
        assert_eq!(topic.error_code, 0, "{}: {name}: {:?}", self.name, topic.error_message);
        self.ids.insert(name.to_owned(), topic.topic_id);
        for partition in 0..partitions {
            let request: ListOffsetsRequest = requests::list_offsets(name, partition, -1);
            let deadline = Instant::now() + Duration::from_secs(20);
            while self.call(5, &request).topics[0].partitions[0].error_code != 0 {
                assert!(Instant::now() < deadline, "{}: {name} is not served", self.name);
                std::thread::park_timeout(Duration::from_millis(10));
            }
        }
    }

    fn keep(&mut self, case: &str, debug: &str) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let now_ms = i64::try_from(now.as_millis()).expect("before the year 292 million");
        let debug = &self.without_uniques(debug);
        // Its node stands in sentences of both sides.
        let debug = debug.replace(&format!(" {} more", self.node_id), " N more");
        let debug = debug.replace(&format!("expected {} or", self.node_id), "expected N or");
        let debug = debug.replace(&format!("xpected {}, but", self.node_id), "xpected N, but");
        let debug = debug.replace(&format!("controller {} ", self.node_id), "controller N ");
        self.answers.push((case.to_owned(), of_debug(&debug, now_ms, &[MADE_UP_ID])));
    }

    /// The next number is this member id's, wherever it first appears.
    pub fn number(&mut self, member_id: &str) {
        self.without_uniques(member_id);
    }

    /// Member ids end in a UUID of the broker's: a number takes its place.
    fn without_uniques(&mut self, debug: &str) -> String {
        let mut shown = String::new();
        let mut rest = debug;
        while let Some(at) = rest.find('-') {
            let (before, after) = rest.split_at(at + 1);
            shown += before;
            rest = after;
            let Some(id) = after.get(..36).filter(|id| id.parse::<Uuid>().is_ok()) else {
                continue;
            };
            let known = self.uniques.iter().position(|known| known == id);
            let place = known.unwrap_or_else(|| {
                self.uniques.push(id.to_owned());
                self.uniques.len() - 1
            });
            shown += &format!("unique {place}");
            rest = &after[36..];
        }
        shown + rest
    }

    /// The answer to a frame; `None` if the connection is closed, and then there is a new one.
    fn exchange(&mut self, frame: &[u8]) -> Option<Bytes> {
        let mut bytes = Vec::with_capacity(4 + frame.len());
        bytes.put_i32(frame.len() as i32);
        bytes.put_slice(frame);
        let answer = match self.client.try_send_bytes(&bytes) {
            Ok(()) => self.client.try_receive_frame(),
            Err(_) => Ok(None),
        };
        match answer {
            Ok(Some(answer)) => Some(answer),
            Err(error) if is_timeout(&error) => {
                panic!("{}: neither an answer nor a close: {frame:02x?}", self.name)
            }
            _ => {
                self.client = Client::connect(self.address);
                None
            }
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// The whole batches of a record set, with the leader epoch of every one set to zero: Kafka cuts
/// the last batch where the limit is, Ringlog does not send it.
fn without_epochs(set: &[u8]) -> Bytes {
    let mut set = set.to_vec();
    let mut at = 0;
    while set.len() - at >= 61 {
        let length = i32::from_be_bytes(set[at + 8..at + 12].try_into().expect("four bytes"));
        if set.len() - at < 12 + length as usize {
            break;
        }
        set[at + 12..at + 16].fill(0);
        at += 12 + length as usize;
    }
    set.truncate(at);
    set.into()
}

/// Correlation id of all requests that are compared.
pub const CORRELATION_ID: i32 = 77;

/// An id that no topic has.
pub const MADE_UP_ID: Uuid = Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def1);
