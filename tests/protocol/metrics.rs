//! The metrics endpoint: exact counts of what was done, readiness, what slow requests are told
//! about, and clients that do not behave.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use kafka_protocol::messages::InitProducerIdRequest;
use rustix::process::Signal;

use crate::calls::{append, fetch, outcome};
use crate::cluster::{Cluster, Mode, PER_CORE_1, PER_CORE_2, SINGLE_2};
use crate::support::batch::Batch;
use crate::support::broker::Broker;
use crate::support::client::Client;
use crate::support::requests::{self, Topic, init_producer_id};
use crate::support::transactions::{Identity, Marker, transactional_id, write_markers};
use crate::transactions::{Id, begin, end, ended, init, producer};

const PATIENCE: Duration = Duration::from_secs(20);

/// A broker with a metrics endpoint, and settings of its own.
fn start(mode: Mode, more: &[&str]) -> Cluster {
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
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    fn of(cluster: &Cluster) -> Scrape {
        let (status, text) = get(endpoint(&cluster.broker), "/metrics");
        assert_eq!(status, 200);
        Scrape(values(&text))
    }

    fn value(&self, sample: &str) -> f64 {
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
    let bytes = batches.iter().map(|batch| batch.encode().len()).sum();
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
    let newer = Marker {
        producer: Identity { id: who.0, epoch: who.1 },
        commit: false,
        coordinator_epoch: 1_000,
        topic: &topic.name,
        partition: 0,
    };
    let marked = client.call(1, &write_markers(&[newer]));
    assert_eq!(marked.markers[0].topics[0].partitions[0].error_code, 0);
    assert_eq!(end(&mut client, 5, &id, who, true).0, 0, "decided, though never complete");
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
