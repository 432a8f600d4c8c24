//! Topics that come and go while the broker is under load.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::SocketAddr;

use kafka_protocol::messages::CreateTopicsRequest;

use crate::cluster::create;
use crate::ledger::Fate;
use crate::load::{Link, Load};
use crate::random::{Random, batch};
use crate::support::requests::{self, Topic};

/// Creates and deletes topics, under few names, with some records in between, until the broker is
/// gone.
pub fn churn(load: &Load, address: SocketAddr, random: &mut Random) {
    if let Err(error) = churn_on(load, address, random) {
        load.broken("topics", &error);
    }
}

fn churn_on(load: &Load, address: SocketAddr, random: &mut Random) -> io::Result<()> {
    let mut link = Link::connect(address)?;
    let mut leaders: HashMap<SocketAddr, Link> = HashMap::new();
    loop {
        let name = format!("{CHURN}{}", random.between(0, 6));
        let fate = load.ledger().topics.get(&name).map_or(Fate::Deleted, |topic| topic.fate);
        match fate {
            Fate::Deleted => create_one(load, &mut link, &name, random)?,
            Fate::Exists if random.one_in(3) => delete_one(load, &mut link, &name)?,
            Fate::Exists => produce_some(load, &mut link, &mut leaders, &name, random)?,
            Fate::Creating | Fate::Deleting => panic!("{name}: a request without an answer"),
        }
    }
}

fn create_one(load: &Load, link: &mut Link, name: &str, random: &mut Random) -> io::Result<()> {
    let partitions = random.between(1, 5);
    load.ledger().creating(name, partitions);
    let settings = [("segment.bytes", "1048576"), ("retention.ms", "-1")];
    let request: CreateTopicsRequest = create(name, partitions as i32, &settings);
    let answer = link.call(7, &request)?;
    assert_eq!(answer.topics[0].error_code, 0, "{name}: {:?}", answer.topics[0].error_message);
    load.ledger().set_fate(name, Fate::Exists);
    Ok(())
}

fn delete_one(load: &Load, link: &mut Link, name: &str) -> io::Result<()> {
    load.ledger().set_fate(name, Fate::Deleting);
    let answer = link.call(6, &requests::delete_topic_state(name))?;
    assert_eq!(answer.responses[0].error_code, 0, "{name}");
    load.ledger().set_fate(name, Fate::Deleted);
    Ok(())
}

fn produce_some(
    load: &Load,
    link: &mut Link,
    leaders: &mut HashMap<SocketAddr, Link>,
    name: &str,
    random: &mut Random,
) -> io::Result<()> {
    let answer = link.call(12, &requests::metadata(&[name]))?;
    let topic = &answer.topics[0];
    assert_eq!(topic.error_code, 0, "{name}");
    for partition in &topic.partitions {
        let leader = answer.brokers.iter().find(|broker| broker.node_id == partition.leader_id);
        let leader = leader.expect("a leader");
        let address: SocketAddr =
            format!("{}:{}", leader.host.as_str(), leader.port).parse().expect("an address");
        if let Entry::Vacant(place) = leaders.entry(address) {
            place.insert(Link::connect(address)?);
        }
        let number = load.number();
        let bytes = random.between(100, 20_000);
        let batch = batch(random, number, None, bytes, 2);
        let index = partition.partition_index;
        load.ledger().sending(name, index, number, &batch);
        let request = requests::produce(9, &Topic::named(name), index, -1, batch);
        let answer = leaders.get_mut(&address).expect("just made").call(9, &request)?;
        let entry = &answer.responses[0].partition_responses[0];
        assert_eq!(entry.error_code, 0, "{name}-{index}");
        load.ledger().acknowledged(name, index, number, entry.base_offset);
    }
    Ok(())
}

/// How the names of these topics begin.
pub const CHURN: &str = "churn-";
