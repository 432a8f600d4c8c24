//! Producers and consumers that run until the broker is gone.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{FetchRequest, ProduceRequest};
use kafka_protocol::protocol::Request;

use crate::cluster::{Cluster, large_fetch};
use crate::ledger::{Ledger, Place, served};
use crate::random::{Random, batch};
use crate::support::client::{Client, decode_response, request_frame};
use crate::support::requests::Topic;

/// What all threads of a load share.
pub struct Load {
    pub cluster: Cluster,
    pub ledger: Mutex<Ledger>,
    pub numbers: AtomicU64,
    /// The broker has been told to die: broken connections are no fault from here on.
    pub ending: AtomicBool,
}

impl Load {
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no panic while held")
    }

    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Panics unless the broker has been told to die.
    pub fn broken(&self, what: &str, error: &io::Error) {
        let ending = self.ending.load(Ordering::SeqCst);
        assert!(ending, "{what}: the connection broke under a living broker: {error}");
    }
}

/// A client of typed requests that reports broken connections.
pub struct Link {
    client: Client,
    next_correlation_id: i32,
}

impl Link {
    pub fn connect(address: SocketAddr) -> io::Result<Link> {
        Ok(Link { client: Client::try_connect(address)?, next_correlation_id: 1 })
    }

    /// Sends a request; returns its correlation id.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> io::Result<i32> {
        let id = self.next_correlation_id;
        self.next_correlation_id += 1;
        let frame = request_frame(version, id, Some("load"), request);
        let mut bytes = (frame.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(&frame);
        self.client.try_send_bytes(&bytes)?;
        Ok(id)
    }

    /// Receives the answer to a request, which must be the next one.
    pub fn receive<R: Request>(&mut self, version: i16, id: i32) -> io::Result<R::Response> {
        let frame = self.client.try_receive_frame()?;
        let frame = frame.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(decode_response::<R>(version, id, frame).expect("a sound answer"))
    }

    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> io::Result<R::Response> {
        let id = self.send(version, request)?;
        self.receive::<R>(version, id)
    }
}

/// One producer: its identity if it is idempotent, its partitions, how deep it pipelines.
pub struct Producer {
    pub identity: Option<(i64, i16)>,
    pub routes: Vec<Route>,
    pub depth: usize,
    pub random: Random,
}

/// One partition of a producer.
pub struct Route {
    pub topic: String,
    pub partition: i32,
    /// Batches go up to this size.
    pub largest: usize,
    pub next_sequence: i32,
    /// The last five batches: what a broker must recognise.
    pub recent: VecDeque<(u64, Bytes)>,
}

struct Connection {
    link: Link,
    flights: VecDeque<Flight>,
}

struct Flight {
    correlation_id: i32,
    version: i16,
    batches: Vec<(usize, u64)>,
}

impl Producer {
    /// Sends until the broker is gone.
    pub fn run(mut self, load: &Load) -> Producer {
        if let Err(error) = self.send_on(load) {
            load.broken("producer", &error);
        }
        self
    }

    fn send_on(&mut self, load: &Load) -> io::Result<()> {
        let mut connections: HashMap<SocketAddr, Connection> = HashMap::new();
        loop {
            let first = self.random.between(0, self.routes.len());
            let address = self.address(load, first);
            if let Entry::Vacant(place) = connections.entry(address) {
                let link = Link::connect(address)?;
                place.insert(Connection { link, flights: VecDeque::new() });
            }
            let connection = connections.get_mut(&address).expect("just made");
            while connection.flights.len() >= self.depth {
                self.settle(load, connection)?;
            }
            let mut chosen = vec![first];
            for route in 0..self.routes.len() {
                if route != first && self.random.one_in(6) && self.address(load, route) == address {
                    chosen.push(route);
                }
            }
            let batches = chosen.iter().map(|&route| self.next_batch(load, route)).collect();
            self.send(connection, batches)?;
        }
    }

    /// Sends the last batches of every partition again, as a client does that got no answers: each
    /// must be where it was, or be appended now, in order.
    pub fn send_again(&mut self, load: &Load) {
        for route in 0..self.routes.len() {
            let recent: Vec<_> = self.routes[route].recent.iter().cloned().collect();
            let Route { topic, partition, .. } = &self.routes[route];
            if self.identity.is_none() {
                self.routes[route].recent.clear();
                continue;
            }
            let mut lost = None;
            for (number, _) in &recent {
                let place = load.ledger().place(topic, *partition, *number);
                match (place, lost) {
                    (Place::At(_), Some(earlier)) => panic!(
                        "{topic}-{partition}: batch {number} survived and its predecessor \
                         {earlier} did not"
                    ),
                    (Place::At(_), None) => {}
                    _ => lost = Some(*number),
                }
                load.ledger().sending_again(topic, *partition, *number);
            }
            let link = Link::connect(self.address(load, route)).expect("a living broker");
            let mut connection = Connection { link, flights: VecDeque::new() };
            for (number, batch) in recent {
                self.send(&mut connection, vec![(route, number, batch)]).expect("a living broker");
            }
            while !connection.flights.is_empty() {
                self.settle(load, &mut connection).expect("a living broker");
            }
        }
    }

    fn address(&self, load: &Load, route: usize) -> SocketAddr {
        load.cluster.leader(&self.routes[route].topic, self.routes[route].partition)
    }

    /// A new batch for a partition or, now and then, one of the last five again.
    fn next_batch(&mut self, load: &Load, place: usize) -> (usize, u64, Bytes) {
        let random = &mut self.random;
        let route = &mut self.routes[place];
        if self.identity.is_some() && !route.recent.is_empty() && random.one_in(16) {
            let (number, batch) = route.recent[random.between(0, route.recent.len())].clone();
            return (place, number, batch);
        }
        let bytes = match random.between(0, 20) {
            0 if route.largest > 1 << 20 => random.between(1 << 20, route.largest),
            0..=4 => random.between(32 << 10, 200 << 10),
            5..=10 => random.between(2 << 10, 32 << 10),
            _ => random.between(100, 2 << 10),
        };
        let count = random.between(1, 9);
        let number = load.number();
        let sender = self.identity.map(|(id, epoch)| (id, epoch, route.next_sequence));
        let batch = batch(random, number, sender, bytes, count);
        route.next_sequence = sequence_after(route.next_sequence, count as i32);
        load.ledger().sending(&route.topic, route.partition, number, &batch);
        route.recent.push_back((number, batch.clone()));
        if route.recent.len() > 5 {
            route.recent.pop_front();
        }
        (place, number, batch)
    }

    fn send(
        &mut self,
        connection: &mut Connection,
        batches: Vec<(usize, u64, Bytes)>,
    ) -> io::Result<()> {
        let version = self.random.pick(&[8, 9, 11, 12]);
        let mut request = ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000);
        let mut numbers = Vec::new();
        for (route, number, batch) in batches {
            let Route { topic, partition, .. } = &self.routes[route];
            let data =
                PartitionProduceData::default().with_index(*partition).with_records(Some(batch));
            let name = Topic::named(topic).wire_name();
            match request.topic_data.iter_mut().find(|known| known.name == name) {
                Some(known) => known.partition_data.push(data),
                None => request.topic_data.push(
                    TopicProduceData::default().with_name(name).with_partition_data(vec![data]),
                ),
            }
            numbers.push((route, number));
        }
        let correlation_id = connection.link.send(version, &request)?;
        connection.flights.push_back(Flight { correlation_id, version, batches: numbers });
        Ok(())
    }

    fn settle(&mut self, load: &Load, connection: &mut Connection) -> io::Result<()> {
        let flight = connection.flights.pop_front().expect("something under way");
        let answer =
            connection.link.receive::<ProduceRequest>(flight.version, flight.correlation_id)?;
        for (route, number) in flight.batches {
            let Route { topic, partition, .. } = &self.routes[route];
            let topic_answer = answer.responses.iter().find(|entry| entry.name.as_str() == topic);
            let entries = &topic_answer.expect("the topic is answered").partition_responses;
            let entry = entries.iter().find(|entry| entry.index == *partition);
            let entry = entry.expect("the partition is answered");
            assert_eq!(
                (entry.error_code, entry.error_message.as_ref()),
                (0, None),
                "{topic}-{partition}: batch {number} of {:?}",
                self.identity
            );
            load.ledger().acknowledged(topic, *partition, number, entry.base_offset);
        }
        Ok(())
    }
}

/// Reads partitions at random until the broker is gone: what is served must be what was sent, in
/// order.
pub fn consume(load: &Load, topics: &[(String, i32)], random: &mut Random) {
    if let Err(error) = consume_on(load, topics, random) {
        load.broken("consumer", &error);
    }
}

fn consume_on(load: &Load, topics: &[(String, i32)], random: &mut Random) -> io::Result<()> {
    let mut positions: HashMap<usize, i64> = HashMap::new();
    let mut links: HashMap<SocketAddr, Link> = HashMap::new();
    loop {
        let place = random.between(0, topics.len());
        let (topic, partition) = &topics[place];
        let address = load.cluster.leader(topic, *partition);
        if let Entry::Vacant(place) = links.entry(address) {
            place.insert(Link::connect(address)?);
        }
        let link = links.get_mut(&address).expect("just made");
        let position = positions.entry(place).or_insert(0);
        let mut request: FetchRequest = large_fetch(topic, *partition, *position);
        request.max_wait_ms = 5;
        request.min_bytes = 1;
        request.topics[0].partitions[0].partition_max_bytes = random.pick(&[1, 64 << 10, 4 << 20]);
        let answer = link.call(12, &request)?;
        let data = &answer.responses[0].partitions[0];
        assert_eq!(data.error_code, 0, "{topic}-{partition}");
        for served in served(&data.records.clone().unwrap_or_default()) {
            if served.last_offset < *position {
                continue;
            }
            assert_eq!(served.base_offset, *position, "{topic}-{partition}: out of order");
            assert!(served.last_offset < data.high_watermark);
            load.ledger().seen(topic, *partition, &served);
            *position = served.last_offset + 1;
        }
    }
}

/// The sequence number `count` records after `sequence`: 2147483647 is followed by 0.
fn sequence_after(sequence: i32, count: i32) -> i32 {
    sequence.checked_add(count).unwrap_or_else(|| count - (i32::MAX - sequence) - 1)
}
