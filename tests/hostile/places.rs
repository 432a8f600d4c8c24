//! How many connections there may be, of whom, and for how long they may be silent.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{ApiVersionsRequest, IncrementalAlterConfigsRequest};
use kafka_protocol::protocol::StrBytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::stage::{Stage, until};
use crate::support::client::Client;

const BROKER_RESOURCE: i8 = 4;

/// Sets a broker key for the whole cluster.
fn alter(client: &mut Client, name: &str, value: &str) {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let config = AlterableConfig::default().with_name(text(name)).with_value(Some(text(value)));
    let resource = AlterConfigsResource::default()
        .with_resource_type(BROKER_RESOURCE)
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let answer = client.call(1, &request);
    assert_eq!(answer.responses[0].error_code, 0, "{answer:?}");
}

fn is_served(client: &mut Client) -> bool {
    client.set_timeout(Duration::from_secs(5));
    client.call(0, &ApiVersionsRequest::default()).error_code == 0
}

/// A connection to the broker from another loopback address.
fn connect_from(last: u8, to: SocketAddr) -> std::net::TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0);
    socket.bind(&from.into()).expect("a loopback address");
    socket.connect(&to.into()).expect("the broker listens");
    let stream = std::net::TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    stream
}

/// Whether ApiVersions is answered on it; `false` if the broker closes it.
fn answers(stream: &mut std::net::TcpStream) -> bool {
    use std::io::{Read, Write};
    let asked = stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 9, 0xff, 0xff]);
    let mut answer = [0; 8];
    let read = asked.and_then(|()| stream.read_exact(&mut answer));
    match read {
        Ok(()) => {
            assert_eq!(answer[4..], [0, 0, 0, 9]);
            // The rest of it stays unread.
            true
        }
        Err(error) => {
            assert!(
                !matches!(error.kind(), std::io::ErrorKind::WouldBlock),
                "neither answered nor closed"
            );
            false
        }
    }
}

#[test]
fn beyond_the_limit_of_its_address_a_connection_is_closed_at_once() {
    // Two shards with a listener each: the limit is the broker's, not a shard's.
    let arguments = ["--shards", "2", "--memory", "64MiB", "--set", "journal.ring.bytes=16MiB"];
    let overrides = "max.connections.per.ip.overrides=127.0.0.7:1";
    let more = ["--set", "max.connections.per.ip=9", "--set", overrides];
    let broker = crate::support::broker::Broker::start(&[&arguments[..], &more].concat());
    let mut stage = Stage::of(broker, 64 << 20);
    let addresses = stage.broker.addresses().to_vec();
    // The stage has five of the nine, and needs one more now and then.
    let mut others: Vec<Client> =
        (0..4).map(|number| stage.broker.connect_to(number % 2)).collect();
    assert!(others.iter_mut().all(is_served));
    for address in &addresses {
        let mut refused = Client::connect(*address);
        refused.expect_closed();
    }
    // Other addresses have their own limits.
    let mut seventh = connect_from(7, addresses[0]);
    assert!(answers(&mut seventh));
    assert!(!answers(&mut connect_from(7, addresses[1])));
    let mut eighth: Vec<_> = (0..9).map(|_| connect_from(8, addresses[1])).collect();
    assert!(eighth.iter_mut().all(answers));
    assert!(!answers(&mut connect_from(8, addresses[0])));
    // A place that is given back is there again.
    drop(seventh);
    until(Duration::from_secs(5), "the place is free", || {
        answers(&mut connect_from(7, addresses[1]))
    });
    assert!(others.iter_mut().all(is_served), "exactly the new ones were closed");
    others.pop();
    until(Duration::from_secs(5), "the place is free", || {
        let mut fresh = connect_from(1, addresses[0]);
        answers(&mut fresh)
    });
    stage.witness_is_served();
}

#[test]
fn beyond_the_limit_of_the_broker_newcomers_wait_until_somebody_leaves() {
    let mut stage = Stage::start(&["--set", "max.connections=8"]);
    let mut others: Vec<Client> = (0..3).map(|_| stage.broker.connect()).collect();
    assert!(others.iter_mut().all(is_served));
    let mut waiting = stage.broker.connect();
    let sent = waiting.send(0, &ApiVersionsRequest::default());
    waiting.expect_silence(Duration::from_millis(300));
    stage.old_witness_is_served();
    others.pop();
    assert_eq!(waiting.receive(sent).error_code, 0);
    assert_eq!(stage.said("new ones wait (max.connections)"), 1, "once, not per attempt");
    assert_eq!(stage.reached("connections"), 1);
    // Raised while it runs, it holds at once.
    let mut another = stage.broker.connect();
    let sent = another.send(0, &ApiVersionsRequest::default());
    another.expect_silence(Duration::from_millis(150));
    alter(&mut waiting, "max.connections", "20");
    assert_eq!(another.receive(sent).error_code, 0);
    assert!(others.iter_mut().all(is_served));
    stage.witness_is_served();
}

#[test]
fn ten_thousand_silent_connections_cost_little_and_are_closed_when_idle() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("up to the maximum");
    let possible = maximum.unwrap_or(u64::MAX).saturating_sub(1_500);
    let count = possible.min(10_000) as usize;
    let mut stage = Stage::start(&["--set", "connections.max.idle.ms=30000"]);
    let address = stage.broker.addresses()[0];
    let before = stage.resident_bytes();
    let began = Instant::now();
    let mut silent = Vec::with_capacity(count);
    for number in 0..count {
        silent.push(std::net::TcpStream::connect(address).expect("the broker accepts"));
        if number % 2_500 == 0 {
            stage.witness_is_served();
        }
    }
    stage.witness_is_served();
    let cost = stage.resident_bytes().saturating_sub(before) / count as u64;
    println!("{count} silent connections in {:?}, {cost} bytes each", began.elapsed());
    stage.memory_is_kept(count as u64);
    // Those that ask something now and then stay; the others are closed.
    let mut last = silent.pop().expect("many");
    last.set_read_timeout(Some(Duration::from_secs(15))).expect("a timeout");
    while began.elapsed() < Duration::from_secs(120) {
        stage.old_witness_is_served();
        last.set_nonblocking(true).expect("an option");
        let mut byte = [0];
        match std::io::Read::read(&mut last, &mut byte) {
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            other => panic!("{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut closed = 0;
    for (number, mut stream) in silent.into_iter().enumerate() {
        // On a busy machine all this takes longer than anybody may be idle.
        if number % 100 == 0 {
            stage.old_witness_is_served();
        }
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        closed += usize::from(matches!(std::io::Read::read(&mut stream, &mut [0]), Ok(0)));
    }
    assert_eq!(closed, count - 1, "all of them were idle");
    assert!(stage.reached("connection_idle") >= count as u64);
    stage.witness_is_served();
}
