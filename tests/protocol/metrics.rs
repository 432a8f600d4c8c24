//! The metrics endpoint: exact counts of what was done, readiness, what slow requests are told
//! about, and clients that do not behave.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use kafka_protocol::messages::InitProducerIdRequest;
use ringlog::limits::{
    CONCURRENT_TRANSACTIONS_RETRY_MS_MAX, METRICS_GROUP_OFFSETS_MAX, SLOW_LINES_MAX,
};
use rustix::process::Signal;

use crate::calls::{append, fetch, outcome};
use crate::cluster::{Cluster, Mode, PER_CORE_1, PER_CORE_2, SINGLE_2};
use crate::support::batch::Batch;
use crate::support::broker::Broker;
use crate::support::client::Client;
use crate::support::requests::{self, Topic, init_producer_id};
use crate::support::transactions::{Identity, Marker, transactional_id, write_markers};
use crate::support::{groups, offsets};
use crate::transactions::{Id, begin, end, ended, init, producer};

const PATIENCE: Duration = Duration::from_secs(20);

/// A broker with a metrics endpoint, and settings of its own.
pub fn start(mode: Mode, more: &[&str]) -> Cluster {
    let shards = mode.shards.to_string();
    let arguments = [
        &["--shards", &shards, "--advertise", mode.advertise, "--memory", "256MiB"][..],
        &["--set", "journal.ring.bytes=16MiB", "--metrics-listen", "127.0.0.1:0"],
        more,
    ];
    Cluster::with(mode, &arguments.concat())
}

/// Where the endpoint listens, as the start says.
fn endpoint(broker: &Broker) -> SocketAddr {
    let text = broker.stdout();
    let line = text.lines().find_map(|line| line.strip_prefix("metrics http://"));
    let address = line.and_then(|line| line.split_once("/metrics")).expect("an address").0;
    address.parse().expect("an address")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    stream
}

/// Status and body of what is answered to `request`; the length must be the one that was told.
fn ask(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = connect(address);
    stream.write_all(request).expect("taken");
    answer(&mut stream)
}

fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a whole response");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    assert_eq!(length.expect("a length").parse(), Ok(body.len()));
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
}

/// What one scrape told: values by name and labels.
pub struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    pub fn of(cluster: &Cluster) -> Scrape {
        let (status, text) = get(endpoint(&cluster.broker), "/metrics");
        assert_eq!(status, 200);
        Scrape(values(&text))
    }

    pub fn value(&self, sample: &str) -> f64 {
        *self.0.get(sample).unwrap_or_else(|| panic!("{sample} is not told: {:#?}", self.0))
    }

    fn is(&self, sample: &str, expected: u64) {
        assert_eq!(self.value(sample), expected as f64, "{sample}");
    }

    /// Of a topic.
    fn topic(&self, topic: &Topic, name: &str, expected: u64) {
        self.is(&format!("{name}{{topic=\"{}\"}}", topic.name), expected);
    }
}

/// Reads the text format as strictly as a parser does: every family has its head once, its samples
/// follow, nothing is told twice, buckets rise to the count.
fn values(text: &str) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    let mut heads = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, _) =
            line.strip_prefix("# HELP ").expect("a head").split_once(' ').expect("help");
        let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).expect("a type");
        let kind = kind.strip_prefix(name).expect("the same name").trim();
        assert!(!heads.contains(&name), "{name} has two heads");
        heads.push(name);
        let mut below = 0.0;
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            let value: f64 = value.parse().expect("a number");
            let bare = sample.split('{').next().expect("a name");
            let suffix = bare.strip_prefix(name).expect("a sample of the family");
            match (kind, suffix) {
                ("counter" | "gauge", "") | ("histogram", "_sum") => {}
                ("histogram", "_bucket") => {
                    assert!(value >= below, "{line}");
                    below = if sample.contains("le=\"+Inf\"") { 0.0 } else { value };
                }
                ("histogram", "_count") => {}
                _ => panic!("{line} in a {kind}"),
            }
            assert!(found.insert(sample.to_owned(), value).is_none(), "{sample} is told twice");
        }
    }
    found
}

const TOPICS: &str = "kafka_server_brokertopicmetrics_";
const REQUESTS: &str = "kafka_network_requestmetrics_";

#[test]
fn produce_and_fetch_are_counted_exactly() {
    for mode in [PER_CORE_1, PER_CORE_2, SINGLE_2] {
        let cluster = start(mode, &[]);
        let topic = cluster.topic("counted", 3);
        let bytes = produce_and_fetch(&cluster, &topic);
        let scrape = Scrape::of(&cluster);
        the_topic_is_told(&scrape, &topic, bytes);
        the_codes_are_told(&scrape);
        the_stages_add_up(&scrape);
        scrape.is("kafka_server_replicamanager_partitioncount", 3);
        scrape.is("kafka_controller_kafkacontroller_globaltopiccount", 1);
        scrape.is("kafka_server_brokerstate", 3);
        scrape.is("kafka_brokers", cluster.nodes() as u64);
        for shard in 0..mode.shards {
            scrape.is(&format!("ringlog_shard_up{{shard=\"{shard}\"}}"), 1);
        }
        assert_eq!(cluster.broker.stderr(), "", "all is well");
    }
}

/// Seven batches, of which three are refused and one is a copy, and two fetches, one of which is
/// refused. Returns the bytes of all batches that are there then.
fn produce_and_fetch(cluster: &Cluster, topic: &Topic) -> u64 {
    let mut client = cluster.at(topic, 1);
    let plain = Batch::of_values(["a", "bc", "d"]);
    assert_eq!(append(&mut client, topic, 1, &plain), 0);
    let id = client.call(5, &init_producer_id(None)).producer_id.0;
    let idempotent =
        |epoch, sequence| Batch::of_values(["x", "y"]).with_producer(id, epoch, sequence);
    assert_eq!(outcome(&mut client, topic, 1, &idempotent(0, 0)), (0, 3));
    assert_eq!(outcome(&mut client, topic, 1, &idempotent(0, 0)), (0, 3), "a copy");
    assert_eq!(outcome(&mut client, topic, 1, &idempotent(0, 7)).0, 45);
    assert_eq!(outcome(&mut client, topic, 1, &idempotent(1, 0)), (0, 5));
    assert_eq!(outcome(&mut client, topic, 1, &idempotent(0, 2)).0, 47);
    let mut damaged = Batch::of_values(["z"]);
    damaged.crc = Some(1);
    assert_eq!(outcome(&mut client, topic, 1, &damaged).0, 2);
    let data = fetch(&mut client, 18, topic, 1, 0);
    assert_eq!(fetch(&mut client, 18, topic, 1, 99).error_code, 1);
    let batches = [&plain, &idempotent(0, 0), &idempotent(1, 0)];
    let bytes = batches.iter().map(|batch| batch.encode().len()).sum::<usize>();
    assert_eq!(data.records.expect("records").len(), bytes);
    bytes as u64
}

fn the_topic_is_told(scrape: &Scrape, topic: &Topic, bytes: u64) {
    for (name, expected) in [
        ("messagesin_total", 7),
        ("bytesin_total", bytes),
        ("bytesout_total", bytes),
        ("totalproducerequests_total", 7),
        ("failedproducerequests_total", 3),
        ("totalfetchrequests_total", 2),
        ("failedfetchrequests_total", 1),
        ("invalidmessagecrcrecords_total", 1),
        ("invalidoffsetorsequencerecords_total", 1),
    ] {
        scrape.topic(topic, &format!("{TOPICS}{name}"), expected);
        scrape.is(&format!("{TOPICS}{name}"), expected);
    }
    scrape.topic(topic, "ringlog_out_of_order_sequence_error_total", 1);
    scrape.topic(topic, "ringlog_producer_fenced_error_total", 1);
    scrape.topic(topic, "ringlog_duplicate_message_count_total", 2);
    let partition = format!("{{topic=\"{}\",partition=\"1\"}}", topic.name);
    for (name, expected) in [
        ("kafka_log_log_logstartoffset", 0),
        ("kafka_log_log_logendoffset", 7),
        ("kafka_log_log_size", bytes),
        ("kafka_topic_partition_current_offset", 7),
        ("kafka_topic_partition_oldest_offset", 0),
        ("kafka_cluster_partition_laststableoffsetlag", 0),
    ] {
        scrape.is(&format!("{name}{partition}"), expected);
    }
}

fn the_codes_are_told(scrape: &Scrape) {
    scrape.is(&format!("{REQUESTS}requests_total{{request=\"Produce\",version=\"13\"}}"), 7);
    for (request, error, expected) in [
        ("Produce", "NONE", 4),
        ("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER", 1),
        ("Produce", "INVALID_PRODUCER_EPOCH", 1),
        ("Produce", "CORRUPT_MESSAGE", 1),
        ("Fetch", "NONE", 1),
        ("Fetch", "OFFSET_OUT_OF_RANGE", 1),
        ("CreateTopics", "NONE", 1),
    ] {
        let labels = format!("{{request=\"{request}\",error=\"{error}\"}}");
        scrape.is(&format!("{REQUESTS}errors_total{labels}"), expected);
    }
}

/// All of the time of the requests is in some stage, and what waited for the journal was at the
/// device.
fn the_stages_add_up(scrape: &Scrape) {
    let whole = scrape.value("kafka_request_duration_seconds_sum{request=\"Produce\"}");
    let count = scrape.value("kafka_request_duration_seconds_count{request=\"Produce\"}");
    let of = |stage: &str| {
        let labels = format!("{{request=\"Produce\",stage=\"{stage}\"}}");
        assert_eq!(scrape.value(&format!("ringlog_request_stage_seconds_count{labels}")), count);
        scrape.value(&format!("ringlog_request_stage_seconds_sum{labels}"))
    };
    let stages = ["receive", "queue", "handle", "hold", "park", "block_wait", "device", "wake"];
    let sum: f64 = stages.iter().map(|stage| of(stage)).sum::<f64>() + of("send");
    // Each is rounded up to a microsecond.
    assert!(sum >= whole && sum - whole <= count * 10e-6, "{sum} for {whole}");
}

/// The first batch of a transaction, in partition 0.
fn write(cluster: &Cluster, topic: &Topic, id: &str, who: Id) {
    let batch = Batch::of_values(["a"]).with_producer(who.0, who.1, 0).transactional();
    let request = requests::produce(13, topic, 0, -1, batch.encode())
        .with_transactional_id(Some(transactional_id(id)));
    let response = cluster.at(topic, 0).call(13, &request);
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
}

#[test]
fn transactions_are_counted_by_how_they_end() {
    let interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms=50";
    let cluster = start(PER_CORE_2, &["--set", interval]);
    let topic = cluster.topic("ends", 1);
    let write = |id: &str, who: Id| write(&cluster, &topic, id, who);
    let (committed, mut client) = producer(&cluster, "committed");
    let who = begin(&mut client, &committed);
    write(&committed, who);
    let partition = format!("{{topic=\"{}\",partition=\"0\"}}", topic.name);
    let lag = format!("kafka_cluster_partition_laststableoffsetlag{partition}");
    let open = Scrape::of(&cluster);
    open.is(&lag, 1);
    open.is("ringlog_transactional_ids{state=\"Ongoing\"}", 1);
    assert_eq!(end(&mut client, 5, &committed, who, true).0, 0);
    ended(&mut client, &committed);
    let (aborted, mut client) = producer(&cluster, "aborted");
    let who = begin(&mut client, &aborted);
    write(&aborted, who);
    assert_eq!(end(&mut client, 5, &aborted, who, false).0, 0);
    ended(&mut client, &aborted);
    let (fenced, mut client) = producer(&cluster, "fenced");
    let who = begin(&mut client, &fenced);
    write(&fenced, who);
    assert_eq!(init(&mut client, 5, &fenced, None).0, 0);
    let (late, mut client) = producer(&cluster, "late");
    let request = init_producer_id(Some(&late)).with_transaction_timeout_ms(100);
    let response = client.call(5, &request as &InitProducerIdRequest);
    write(&late, (response.producer_id.0, response.producer_epoch));
    ended(&mut client, &late);

    let scrape = Scrape::of(&cluster);
    scrape.is(&lag, 0);
    for (sample, expected) in [
        ("ringlog_transaction_commits_total", 1),
        ("ringlog_transaction_aborts_total{cause=\"client\"}", 1),
        ("ringlog_transaction_aborts_total{cause=\"fencing\"}", 1),
        ("ringlog_transaction_aborts_total{cause=\"timeout\"}", 1),
        ("ringlog_transaction_markers_written_total{kind=\"commit\"}", 1),
        ("ringlog_transaction_markers_written_total{kind=\"abort\"}", 3),
        ("ringlog_transaction_markers_pending", 0),
        ("ringlog_transaction_completion_seconds_count", 4),
        ("ringlog_transaction_requests_held", 0),
        ("ringlog_transaction_hold_expiries_total", 0),
        ("ringlog_transactional_ids{state=\"Ongoing\"}", 0),
        ("ringlog_transactional_ids{state=\"Empty\"}", 1),
        ("ringlog_transactional_ids{state=\"CompleteCommit\"}", 1),
        ("ringlog_transactional_ids{state=\"CompleteAbort\"}", 2),
        ("kafka_server_replicamanager_partitionswithlatetransactionscount", 0),
    ] {
        scrape.is(sample, expected);
    }
    assert!(scrape.value("ringlog_transaction_holds_total") >= 1.0, "the fenced one had to wait");
}

/// Decides the end of a transaction whose marker is refused for good, so that it is never complete.
fn never_ends(client: &mut Client, topic: &Topic, id: &str, who: Id) {
    let newer = Marker {
        producer: Identity { id: who.0, epoch: who.1 },
        commit: false,
        coordinator_epoch: 1_000,
        topic: &topic.name,
        partition: 0,
    };
    let marked = client.call(1, &write_markers(&[newer]));
    assert_eq!(marked.markers[0].topics[0].partitions[0].error_code, 0);
    assert_eq!(end(client, 5, id, who, true).0, 0, "decided, though never complete");
}

#[test]
fn slow_requests_beyond_the_bound_are_counted_and_not_written_about() {
    let settings = ["--set", "slow_request_ms=300", "--set", "txn_pending_hold_ms=400"];
    let cluster = start(PER_CORE_1, &settings);
    let topic = cluster.topic("slow", 1);
    let (id, mut client) = producer(&cluster, "slow");
    let who = begin(&mut client, &id);
    write(&cluster, &topic, &id, who);
    never_ends(&mut client, &topic, &id, who);
    let lines = || cluster.broker.stderr().matches("slow request: InitProducerId").count();
    let slow = |count: usize| {
        let mut clients: Vec<Client> = (0..count).map(|_| cluster.connect_to(0)).collect();
        let request = init_producer_id(Some(&id));
        let sent: Vec<_> = clients.iter_mut().map(|client| client.send(5, &request)).collect();
        for (client, sent) in clients.iter_mut().zip(sent) {
            assert_eq!(client.receive(sent).error_code, 51);
        }
    };
    let limit = "ringlog_limit_reached_total{limit=\"slow_lines\"}";
    let most = SLOW_LINES_MAX as usize;
    Scrape::of(&cluster).is(limit, 0);
    slow(most + 3);
    let deadline = Instant::now() + PATIENCE;
    while lines() < most || Scrape::of(&cluster).value(limit) < 3.0 {
        assert!(Instant::now() < deadline, "{}", cluster.broker.stderr());
    }
    assert_eq!(lines(), most);
    Scrape::of(&cluster).is(limit, 3);
}

#[test]
fn without_holds_a_batch_waits_for_the_transaction_before_so_long_only() {
    let cluster = start(PER_CORE_1, &["--set", "txn_pending_hold_ms=0"]);
    let topic = cluster.topic("waits", 1);
    let (id, mut client) = producer(&cluster, "waits");
    let who = begin(&mut client, &id);
    write(&cluster, &topic, &id, who);
    never_ends(&mut client, &topic, &id, who);
    let limit = "ringlog_limit_reached_total{limit=\"concurrent_transactions_retry\"}";
    Scrape::of(&cluster).is(limit, 0);
    // The next transaction's first batch, by the epoch that the end has given.
    let batch = Batch::of_values(["b"]).with_producer(who.0, who.1 + 1, 0).transactional();
    let request = requests::produce(13, &topic, 0, -1, batch.encode())
        .with_transactional_id(Some(transactional_id(&id)));
    let began = Instant::now();
    let response = cluster.at(&topic, 0).call(13, &request);
    let took = began.elapsed();
    assert_eq!(response.responses[0].partition_responses[0].error_code, 51);
    let most = Duration::from_millis(CONCURRENT_TRANSACTIONS_RETRY_MS_MAX);
    assert!(took >= most && took < most + Duration::from_secs(5), "{took:?}");
    Scrape::of(&cluster).is(limit, 1);
}

/// A transaction whose marker is refused for good never ends, so that whoever wants to begin the
/// next one is held for as long as anybody is.
#[test]
fn a_slow_request_is_told_with_the_stage_to_blame() {
    let settings = ["--set", "slow_request_ms=400", "--set", "txn_pending_hold_ms=600"];
    let cluster = start(PER_CORE_1, &settings);
    let topic = cluster.topic("slow", 1);
    let (id, mut client) = producer(&cluster, "slow");
    let who = begin(&mut client, &id);
    write(&cluster, &topic, &id, who);
    never_ends(&mut client, &topic, &id, who);
    assert_eq!(init(&mut client, 5, &id, None).0, 51);
    let told = || {
        let stderr = cluster.broker.stderr();
        let mut lines = stderr.lines().filter(|line| line.contains("slow request: "));
        lines.next().map(str::to_owned)
    };
    let deadline = Instant::now() + PATIENCE;
    let line = loop {
        if let Some(line) = told() {
            break line;
        }
        assert!(Instant::now() < deadline, "{}", cluster.broker.stderr());
        std::thread::yield_now();
    };
    assert!(line.contains("slow request: InitProducerId v5 took 6"), "{line}");
    assert!(line.contains(" ms of it in hold"), "{line}");
    let scrape = Scrape::of(&cluster);
    scrape.is("ringlog_slow_requests_total{stage=\"hold\"}", 1);
    scrape.is("ringlog_transaction_holds_total", 1);
    scrape.is("ringlog_transaction_hold_expiries_total", 1);
    scrape.is("ringlog_limit_reached_total{limit=\"txn_pending_hold\"}", 1);
    scrape.is("ringlog_transactional_ids{state=\"PrepareCommit\"}", 1);
    let held = "ringlog_request_stage_seconds_sum{request=\"InitProducerId\",stage=\"hold\"}";
    assert!(scrape.value(held) >= 0.6);
}

#[test]
fn readiness_follows_the_broker() {
    let mut cluster = start(PER_CORE_2, &[]);
    let address = endpoint(&cluster.broker);
    assert_eq!(get(address, "/ready"), (200, "ready\n".to_owned()));
    let topic = cluster.topic("drained", 1);
    let mut client = cluster.at(&topic, 0);
    let value = "v".repeat(900_000);
    for _ in 0..4 {
        append(&mut client, &topic, 0, &Batch::of_values([value.as_str()]));
    }
    // Answers that nobody takes keep the stop waiting.
    for _ in 0..60 {
        let _unread = client.send(18, &requests::fetch(18, &topic, 0, 0));
    }
    cluster.broker.signal(Signal::TERM);
    let deadline = Instant::now() + PATIENCE;
    loop {
        match get(address, "/ready") {
            (200, _) => assert!(Instant::now() < deadline, "it is asked to stop"),
            other => {
                assert_eq!(other, (503, "stopping\n".to_owned()));
                break;
            }
        }
    }
    let (status, text) = get(address, "/metrics");
    assert_eq!(status, 200);
    assert_eq!(values(&text)["kafka_server_brokerstate"], 6.0);
    drop(client);
    let ended = cluster.broker.wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn clients_of_the_endpoint_that_misbehave_pay_alone() {
    let cluster = start(PER_CORE_1, &[]);
    let address = endpoint(&cluster.broker);
    assert_eq!(ask(address, b"POST /metrics HTTP/1.1\r\n\r\n").0, 405);
    assert_eq!(get(address, "/nothing").0, 404);
    assert_eq!(ask(address, b"nonsense\r\n\r\n").0, 400);
    let mut huge = b"GET /metrics HTTP/1.1\r\nA: ".to_vec();
    huge.resize(8 * 1024, b'a');
    assert_eq!(ask(address, &huge).0, 431);
    // Sixteen say nothing: a seventeenth is turned away, until their time is over.
    let mut silent: Vec<TcpStream> = (0..16).map(|_| connect(address)).collect();
    let mut byte = [0];
    let mut turned_away = connect(address);
    assert_eq!(turned_away.read(&mut byte).expect("an end"), 0);
    for stream in &mut silent {
        assert_eq!(answer(stream).0, 408);
    }
    let scrape = Scrape::of(&cluster);
    for (limit, expected) in
        [("http_connections", 1), ("http_head_bytes", 1), ("http_request_time", 16)]
    {
        scrape.is(&format!("ringlog_limit_reached_total{{limit=\"{limit}\"}}"), expected);
    }
    // The broker itself has seen none of it.
    let mut client: Client = cluster.connect();
    assert_eq!(client.call(12, &requests::metadata(&[])).topics.len(), 0);
}

#[test]
fn the_process_is_told_as_every_exporter_tells_it() {
    let cluster = start(PER_CORE_1, &[]);
    let process = cluster.broker.process_id();
    let first = Scrape::of(&cluster);
    let (bytes, fds) =
        (first.value("process_resident_memory_bytes"), first.value("process_open_fds"));
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak: f64 = kib.trim().trim_end_matches(" kB").parse().expect("a number");
    // The kernel adds up what its threads have counted only now and then.
    assert!(bytes > 1e6 && bytes <= peak * 1024.0 + 2e6, "{bytes} of {peak} KiB");
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count() as f64;
    assert!((fds - open).abs() <= 2.0, "{fds} told, {open} found: the scrape's own comes and goes");
    assert!(first.value("process_max_fds") >= fds);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let age = now.expect("a clock").as_secs_f64() - first.value("process_start_time_seconds");
    assert!((-1.0..120.0).contains(&age), "{age} s old");

    // Connections are descriptors, and work is time.
    let clients: Vec<Client> = (0..20).map(|_| cluster.connect()).collect();
    let mut scrape = Scrape::of(&cluster);
    let deadline = Instant::now() + PATIENCE;
    let spent = first.value("process_cpu_seconds_total");
    while scrape.value("process_cpu_seconds_total") < spent + 0.02 {
        assert!(Instant::now() < deadline, "scrapes cost no time");
        scrape = Scrape::of(&cluster);
    }
    let more = scrape.value("process_open_fds") - fds;
    assert!((20.0..=22.0).contains(&more), "{more} more descriptors");
    assert_eq!(
        scrape.value("process_start_time_seconds"),
        first.value("process_start_time_seconds")
    );
    drop(clients);
}

/// Samples of one family that name this group.
fn of_group(scrape: &Scrape, family: &str, group: &str) -> Vec<(String, f64)> {
    let start = format!("{family}{{consumergroup=\"{group}\"");
    let found = scrape.0.iter().filter(|(sample, _)| sample.starts_with(&start));
    found.map(|(sample, value)| (sample[start.len()..].to_owned(), *value)).collect()
}

#[test]
fn lag_is_told_wherever_group_and_partition_are() {
    for mode in [PER_CORE_1, PER_CORE_2, SINGLE_2] {
        let cluster = start(mode, &[]);
        let topic = cluster.topic("read", 3);
        let gone = cluster.topic("gone", 1);
        for (partition, count) in [(0, 5), (1, 2)] {
            let values = vec!["v"; count];
            let mut client = cluster.at(&topic, partition);
            assert_eq!(append(&mut client, &topic, partition, &Batch::of_values(values)), 0);
        }
        let (group, mut client) = crate::group_offsets::group(&cluster);
        for (topic, partition, offset) in
            [(&topic, 0, 1), (&topic, 1, 2), (&topic, 2, 7), (&gone, 0, 9)]
        {
            let commit = offsets::commit(9, &group, topic, partition, offset);
            let codes = crate::group_offsets::commit(&mut client, 9, &commit);
            assert_eq!(codes, [[(partition, 0)]]);
        }
        let scrape = Scrape::of(&cluster);
        let at = |topic: &Topic, partition| {
            format!(",topic=\"{}\",partition=\"{partition}\"}}", topic.name)
        };
        let all = |topic: &Topic| format!(",topic=\"{}\"}}", topic.name);
        let told =
            |family: &str| of_group(&scrape, &format!("kafka_consumergroup_{family}"), &group);
        let offsets =
            [(at(&gone, 0), 9.0), (at(&topic, 0), 1.0), (at(&topic, 1), 2.0), (at(&topic, 2), 7.0)];
        assert_eq!(told("current_offset"), offsets);
        assert_eq!(told("current_offset_sum"), [(all(&gone), 9.0), (all(&topic), 10.0)]);
        // One ahead of the end, as an administrator may set it, is no lag.
        let lags =
            [(at(&gone, 0), 0.0), (at(&topic, 0), 4.0), (at(&topic, 1), 0.0), (at(&topic, 2), 0.0)];
        assert_eq!(told("lag"), lags);
        assert_eq!(told("lag_sum"), [(all(&gone), 0.0), (all(&topic), 4.0)]);
        assert_eq!(told("members"), [("}".to_owned(), 0.0)]);
        scrape.is("ringlog_consumergroup_offsets_left_out", 0);
        scrape.is("ringlog_limit_reached_total{limit=\"metrics_group_offsets\"}", 0);

        // A member counts, and a topic that is deleted takes offsets and lag along.
        let mut member = cluster.connect_to(crate::group_offsets::node_of(&cluster, &group));
        let joined = member.call(3, &groups::join(3, &group, ""));
        assert_eq!(joined.error_code, 0, "{joined:?}");
        let deleted = cluster.connect_to(0).call(5, &requests::delete_topic(&gone.name));
        assert_eq!(deleted.responses[0].error_code, 0);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let scrape = Scrape::of(&cluster);
            let told = |family: &str| of_group(&scrape, family, &group);
            assert_eq!(told("kafka_consumergroup_members"), [("}".to_owned(), 1.0)]);
            if told("kafka_consumergroup_current_offset").len() == 3 {
                assert_eq!(told("kafka_consumergroup_lag").len(), 3);
                break;
            }
            assert!(Instant::now() < deadline, "the offset of a deleted topic stays");
        }
    }
}

#[test]
fn lag_of_groups_beyond_the_bound_is_left_out_and_counted() {
    let cluster = start(PER_CORE_1, &[]);
    let topic = cluster.topic("wide", 100);
    crate::group_offsets::node_of(&cluster, "any: it makes their topic");
    let mut client = cluster.connect_to(0);
    let mut commit = |number: usize| {
        let mut commit = offsets::commit(9, &format!("group-{number:03}"), &topic, 0, 0);
        let one = commit.0.topics[0].partitions[0].clone();
        commit.0.topics[0].partitions =
            (0..100).map(|index| one.clone().with_partition_index(index)).collect();
        let codes = crate::group_offsets::commit(&mut client, 9, &commit);
        assert!(codes[0].iter().all(|(_, code)| *code == 0), "{codes:?}");
    };
    // A hundred offsets and the group itself: so many groups fit.
    let fit = METRICS_GROUP_OFFSETS_MAX / 101;
    let limit = "ringlog_limit_reached_total{limit=\"metrics_group_offsets\"}";
    let told = |scrape: &Scrape| {
        let family = "kafka_consumergroup_lag{";
        scrape.0.keys().filter(|sample| sample.starts_with(family)).count()
    };
    (0..fit).for_each(&mut commit);
    let scrape = Scrape::of(&cluster);
    scrape.is("ringlog_consumergroup_offsets_left_out", 0);
    scrape.is(limit, 0);
    assert_eq!(told(&scrape), fit * 100);
    commit(fit);
    let scrape = Scrape::of(&cluster);
    scrape.is("ringlog_consumergroup_offsets_left_out", 100);
    assert_eq!(told(&scrape), fit * 100, "by whole groups");
    scrape.is(limit, 1);
}
