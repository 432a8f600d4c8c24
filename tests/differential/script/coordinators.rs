//! InitProducerId and FindCoordinator.

use kafka_protocol::messages::{FindCoordinatorRequest, InitProducerIdRequest, ProducerId};
use kafka_protocol::protocol::StrBytes;

use crate::peer::Peer;
use crate::support::requests;

pub fn ask(peer: &mut Peer) {
    for version in 0..=5 {
        producer_ids(peer, version);
    }
    for version in 0..=6 {
        find(peer, version);
    }
}

/// Once there are coordinators.
pub fn found(peer: &mut Peer) {
    for version in 0..=6 {
        peer.ask("FindCoordinator of a group", version, &of(version, 0, &["a-group"]));
        if version >= 1 {
            peer.ask("FindCoordinator of an id", version, &of(version, 1, &["an-id"]));
        }
        if version >= 4 {
            let keys = ["a-group", "", "another", "a-group"];
            peer.ask("FindCoordinator of several", version, &of(version, 0, &keys));
        }
    }
}

fn producer_ids(peer: &mut Peer, version: i16) {
    peer.ask("InitProducerId", version, &requests::init_producer_id(None));
    for timeout in [0, -1, i32::MAX] {
        let request = requests::init_producer_id(None).with_transaction_timeout_ms(timeout);
        peer.ask(&format!("InitProducerId with timeout {timeout}"), version, &request);
    }
    let empty = requests::init_producer_id(Some(""));
    peer.ask("InitProducerId with an empty id", version, &empty);
    if version >= 3 {
        let with = |id: i64, epoch: i16| -> InitProducerIdRequest {
            requests::init_producer_id(None)
                .with_producer_id(ProducerId(id))
                .with_producer_epoch(epoch)
        };
        peer.ask("InitProducerId with a producer", version, &with(5, 3));
        peer.ask("InitProducerId with an id alone", version, &with(5, -1));
        peer.ask("InitProducerId with an epoch alone", version, &with(-1, 3));
    }
}

fn of(version: i16, kind: i8, keys: &[&str]) -> FindCoordinatorRequest {
    let mut request = FindCoordinatorRequest::default();
    if version >= 1 {
        request.key_type = kind;
    }
    let mut keys = keys.iter().map(|key| StrBytes::from_string((*key).to_owned()));
    if version >= 4 {
        request.coordinator_keys = keys.collect();
    } else {
        request.key = keys.next_back().unwrap_or_default();
    }
    request
}

fn find(peer: &mut Peer, version: i16) {
    if version >= 1 {
        for kind in [3, 9, -1] {
            let case = format!("FindCoordinator of kind {kind}");
            peer.ask(&case, version, &of(version, kind, &["key"]));
        }
    }
    if version >= 4 {
        peer.ask("FindCoordinator of no keys", version, &of(version, 0, &[]));
        peer.ask("FindCoordinator of a share group", version, &of(version, 2, &["no-colons"]));
    }
}
