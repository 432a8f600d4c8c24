//! What is asked of both sides.

mod cluster;
mod configs;
mod consumer_groups;
mod coordinators;
mod delete_records;
mod fetch;
mod group_offsets;
mod groups;
mod mixed_groups;
mod offsets;
mod produce;
mod quorum;
mod quotas;
pub mod topics;
mod transactions;
mod txn_offsets;

use std::collections::BTreeSet;

use crate::peer::{Answers, Peer};
use crate::support::transactions::{TRANSACTION, find_coordinator};

/// Asks everything; the answers in order, and the keys and versions of what was asked.
pub fn run(mut peer: Peer) -> (Answers, BTreeSet<(i16, i16)>) {
    wait_for_producer_ids(&mut peer);
    wait_for_transactions(&mut peer);
    cluster::ask(&mut peer);
    topics::ask(&mut peer);
    configs::ask(&mut peer);
    quorum::ask(&mut peer);
    quotas::ask(&mut peer);
    produce::ask(&mut peer);
    fetch::ask(&mut peer);
    offsets::ask(&mut peer);
    delete_records::ask(&mut peer);
    coordinators::ask(&mut peer);
    group_offsets::ask(&mut peer);
    txn_offsets::ask(&mut peer);
    coordinators::found(&mut peer);
    transactions::ask(&mut peer);
    groups::ask(&mut peer);
    consumer_groups::ask(&mut peer);
    mixed_groups::ask(&mut peer);
    peer.into_answers()
}

/// Kafka answers 14 until its first block of ids has arrived.
fn wait_for_producer_ids(peer: &mut Peer) {
    let request = crate::support::requests::init_producer_id(None);
    for _ in 0..1000 {
        if peer.call(4, &request).error_code == 0 {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    panic!("{}: no producer ids", peer.name);
}

/// Kafka has no coordinator of transactions until it has made the topic for one.
fn wait_for_transactions(peer: &mut Peer) {
    let request = find_coordinator(TRANSACTION, "any");
    peer.until("the coordinator", |peer| peer.call(4, &request).coordinators[0].error_code == 0);
    let request = crate::support::requests::init_producer_id(Some("any"));
    peer.until("the coordinator, loaded", |peer| peer.call(4, &request).error_code == 0);
}
