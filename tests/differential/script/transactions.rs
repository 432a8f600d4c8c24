//! Transactions, as their coordinator and their partitions answer: each API in every version.
//!
//! A case that could meet the end of another transaction waits for that first: there the two sides
//! part on purpose, one holds the request, the other answers 51.

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTransaction;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, DescribeProducersRequest, FetchResponse, ListTransactionsResponse,
    WriteTxnMarkersRequest,
};

use crate::peer::Peer;
use crate::support::batch::Batch;
use crate::support::requests::{self, Topic};
use crate::support::transactions::{
    Identity, Marker, add_offsets, add_partitions, describe_producers, describe_transactions,
    end_txn, list_transactions, text, write_markers, write_markers_2,
};

const TOPIC: &str = "transacted";

pub fn ask(peer: &mut Peer) {
    peer.make_topic(TOPIC, 3, &[]);
    for version in 0..=5 {
        init(peer, version);
    }
    for version in 0..=3 {
        add_partitions_of_one(peer, version);
    }
    for version in 4..=5 {
        add_partitions_of_several(peer, version);
    }
    for version in 0..=4 {
        add_offsets_of(peer, version);
    }
    for version in 0..=5 {
        ends(peer, version);
    }
    describe(peer);
    for version in 0..=2 {
        list(peer, version);
    }
    for version in 1..=2 {
        markers(peer, version);
    }
    producers(peer);
}

/// A producer with a transactional id, once the coordinator answers.
fn begin(peer: &mut Peer, id: &str) -> Identity {
    let mut who = Identity { id: -1, epoch: -1 };
    peer.until("a producer", |peer| {
        let response = peer.call(4, &requests::init_producer_id(Some(id)));
        who = Identity { id: response.producer_id.0, epoch: response.producer_epoch };
        response.error_code == 0
    });
    who
}

/// Those who are not the producer of an id, each with a word for it.
fn others(who: Identity) -> [(&'static str, Identity); 4] {
    [
        ("another producer", Identity { id: who.id + 1_000_000, ..who }),
        ("an older epoch", Identity { epoch: who.epoch - 1, ..who }),
        ("a newer epoch", Identity { epoch: who.epoch + 5, ..who }),
        ("no producer", Identity { id: -1, epoch: -1 }),
    ]
}

fn init(peer: &mut Peer, version: i16) {
    let id = format!("init-{version}");
    begin(peer, &id);
    let request = requests::init_producer_id(Some(&id));
    let answer = peer.ask("InitProducerId again", version, &request).expect("an answer");
    let who = Identity { id: answer.producer_id.0, epoch: answer.producer_epoch };
    for timeout in [0, -1, 900_001] {
        let request = request.clone().with_transaction_timeout_ms(timeout);
        peer.ask(&format!("InitProducerId of an id, timeout {timeout}"), version, &request);
    }
    if version < 3 {
        return;
    }
    let mut as_it = |case: &str, who: Identity| {
        let request =
            request.clone().with_producer_id(who.id.into()).with_producer_epoch(who.epoch);
        peer.ask(&format!("InitProducerId as {case}"), version, &request);
    };
    for (case, other) in others(who) {
        as_it(case, other);
    }
    // The last of them had it, by having none.
    as_it("it was before", who);
    as_it("the one before it", Identity { epoch: who.epoch - 1, ..who });
}

fn add_partitions_of_one(peer: &mut Peer, version: i16) {
    let id = format!("add-{version}");
    begin(peer, &id);
    let who = begin(peer, &id);
    let mut add = |case: &str, id: &str, who: Identity, places: &[(&str, i32)]| {
        let request = add_partitions(version, id, who, places);
        peer.ask(&format!("AddPartitionsToTxn {case}"), version, &request);
    };
    let places = [(TOPIC, 0), (TOPIC, 2)];
    for (case, other) in others(who) {
        add(&format!("of {case}"), &id, other, &places);
    }
    add("of an unknown id", "nobody's", who, &places);
    add("of the empty id", "", who, &places);
    add("of nothing", &id, who, &[]);
    add("with an unknown topic", &id, who, &[(TOPIC, 0), ("no-such-topic", 0)]);
    add("with an unknown partition", &id, who, &[(TOPIC, 0), (TOPIC, 99), (TOPIC, -1)]);
    add("", &id, who, &places);
    add("again", &id, who, &places);
    add("of one more", &id, who, &[(TOPIC, 1)]);
    peer.ask(&format!("DescribeTransactions after {version}"), 0, &describe_transactions(&[&id]));
    finish(peer, &id, who, true);
}

/// Ends a transaction and waits until all of it is over.
fn finish(peer: &mut Peer, id: &str, who: Identity, commit: bool) {
    peer.until("the end of a transaction", |peer| {
        peer.call(4, &end_txn(id, who, commit)).error_code == 0
    });
    is_over(peer, id);
}

fn is_over(peer: &mut Peer, id: &str) {
    peer.until("the whole end of a transaction", |peer| {
        let found = peer.call(0, &describe_transactions(&[id]));
        !found.transaction_states[0].transaction_state.starts_with("Prepare")
    });
}

/// As brokers ask each other, for several ids at once.
fn add_partitions_of_several(peer: &mut Peer, version: i16) {
    let id = format!("add-{version}");
    begin(peer, &id);
    let who = begin(peer, &id);
    let open = add_partitions(3, &id, who, &[(TOPIC, 1)]);
    peer.until("a partition", |peer| {
        peer.call(3, &open).results_by_topic_v3_and_below[0].results_by_partition[0]
            .partition_error_code
            == 0
    });
    let one = |id: &str, who: Identity, places: &[(&str, i32)], verify: bool| {
        let mut request = add_partitions(version, id, who, places);
        request.transactions[0].verify_only = verify;
        request.transactions.remove(0)
    };
    let mut add = |case: &str, transactions: Vec<AddPartitionsToTxnTransaction>| {
        let request = AddPartitionsToTxnRequest::default().with_transactions(transactions);
        peer.ask(&format!("AddPartitionsToTxn {case}"), version, &request);
    };
    let places = [(TOPIC, 0), (TOPIC, 1)];
    add("to verify", vec![one(&id, who, &places, true)]);
    add("to verify one that is in", vec![one(&id, who, &[(TOPIC, 1)], true)]);
    for (case, other) in others(who) {
        add(&format!("of {case}"), vec![one(&id, other, &places, false)]);
        add(&format!("to verify, of {case}"), vec![one(&id, other, &places, true)]);
    }
    add(
        "of two, one unknown",
        vec![one(&id, who, &[(TOPIC, 2)], false), one("nobody's", who, &places, false)],
    );
    add("to verify what is unknown", vec![one("nobody's", who, &places, true)]);
    add("with an unknown topic", vec![one(&id, who, &[(TOPIC, 0), ("no-such-topic", 0)], false)]);
    add("of all", vec![one(&id, who, &places, false)]);
    finish(peer, &id, who, false);
    peer.ask(
        "AddPartitionsToTxn to verify after the end",
        version,
        &AddPartitionsToTxnRequest::default().with_transactions(vec![one(&id, who, &places, true)]),
    );
}

fn add_offsets_of(peer: &mut Peer, version: i16) {
    let id = format!("offsets-{version}");
    begin(peer, &id);
    let who = begin(peer, &id);
    let mut add = |case: &str, id: &str, who: Identity, group: &str| {
        peer.ask(&format!("AddOffsetsToTxn {case}"), version, &add_offsets(id, who, group));
    };
    for (case, other) in others(who) {
        add(&format!("of {case}"), &id, other, "a-group");
    }
    add("of an unknown id", "nobody's", who, "a-group");
    add("of the empty id", "", who, "a-group");
    add("of the empty group", &id, who, "");
    add("", &id, who, "a-group");
    add("again", &id, who, "a-group");
    finish(peer, &id, who, false);
}

fn ends(peer: &mut Peer, version: i16) {
    let id = format!("end-{version}");
    begin(peer, &id);
    let mut who = begin(peer, &id);
    for (case, other) in others(who) {
        peer.ask(&format!("EndTxn of {case}"), version, &end_txn(&id, other, true));
    }
    peer.ask("EndTxn of an unknown id", version, &end_txn("nobody's", who, true));
    peer.ask("EndTxn of the empty id", version, &end_txn("", who, true));
    for first in [true, false] {
        let word = if first { "commit" } else { "abort" };
        let add = add_partitions(3, &id, who, &[(TOPIC, 0)]);
        peer.until("a partition", |peer| {
            peer.call(3, &add).results_by_topic_v3_and_below[0].results_by_partition[0]
                .partition_error_code
                == 0
        });
        let ended = peer.ask(&format!("EndTxn, {word}"), version, &end_txn(&id, who, first));
        is_over(peer, &id);
        peer.ask(&format!("EndTxn, {word} again"), version, &end_txn(&id, who, first));
        peer.ask(&format!("EndTxn, not {word}"), version, &end_txn(&id, who, !first));
        if version >= 5 {
            let ended = ended.expect("an answer");
            who = Identity { id: ended.producer_id.0, epoch: ended.producer_epoch };
            peer.ask(&format!("EndTxn of nothing, {word}"), version, &end_txn(&id, who, first));
            is_over(peer, &id);
            if !first {
                return;
            }
        }
    }
}

fn describe(peer: &mut Peer) {
    let mut of = |ids: &[&str]| {
        peer.ask(&format!("DescribeTransactions {ids:?}"), 0, &describe_transactions(ids));
    };
    of(&[]);
    of(&["nobody's"]);
    of(&[""]);
    of(&["end-0", "end-5", "end-0", "nobody's"]);
}

fn list(peer: &mut Peer, version: i16) {
    let mut of =
        |case: &str, states: &[&str], ids: &[i64], duration: i64, pattern: Option<&str>| {
            let mut request = list_transactions(states, ids);
            if version >= 1 {
                request.duration_filter = duration;
            }
            if version >= 2 {
                request.transactional_id_pattern = pattern.map(text);
            }
            let mut answer: ListTransactionsResponse = peer.call_to_keep(version, &request);
            answer.transaction_states.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
            peer.keep_answer(&format!("ListTransactions {case} v{version}"), &answer);
        };
    of("of all", &[], &[], -1, None);
    of("that are open", &["Ongoing"], &[], -1, None);
    of("in states that do not exist", &["Ongoing", "Sleeping", ""], &[], -1, None);
    of("of a producer that is none", &[], &[987_654_321], -1, None);
    if version >= 1 {
        of("for an hour", &[], &[], 3_600_000, None);
        of("for no time", &[], &[], 0, None);
    }
    if version >= 2 {
        of("by a pattern", &[], &[], -1, Some("end-.*"));
        of("by an empty pattern", &[], &[], -1, Some(""));
        of("by a pattern that is none", &[], &[], -1, Some("end-(["));
    }
}

fn markers(peer: &mut Peer, version: i16) {
    let name = format!("marked-{version}");
    peer.make_topic(&name, 2, &[]);
    let topic = Topic { id: peer.ids[&name], name: name.clone() };
    let producer = Identity { id: 700_000, epoch: 3 };
    let plain = Marker { producer, commit: true, coordinator_epoch: 5, topic: &name, partition: 0 };
    let mut write = |case: &str, markers: &[Marker<'_>]| {
        let case = format!("WriteTxnMarkers {case}");
        match version {
            1 => _ = peer.ask(&case, 1, &write_markers(markers)),
            // The layout of the answer is that of 1.
            _ => {
                let body = write_markers_2(markers, 2);
                peer.ask_body::<WriteTxnMarkersRequest>(&case, version, 1, &body);
            }
        }
    };
    write("of none", &[]);
    write("of an unknown producer", &[plain]);
    write("again", &[plain]);
    write("of an older coordinator", &[Marker { coordinator_epoch: 4, commit: false, ..plain }]);
    write("of a newer one", &[Marker { coordinator_epoch: 6, commit: false, ..plain }]);
    let older = Identity { epoch: 2, ..producer };
    write("of an older epoch", &[Marker { producer: older, coordinator_epoch: 6, ..plain }]);
    write("to an unknown topic", &[Marker { topic: "no-such-topic", ..plain }]);
    write("to an unknown partition", &[Marker { partition: 9, ..plain }]);
    for partition in [0, 1] {
        let mut fetch = requests::fetch(12, &topic, partition, 0);
        fetch.isolation_level = 1;
        let answer: FetchResponse = peer.call(12, &fetch);
        let data = &answer.responses[0].partitions[0];
        let word = format!("{} {}", data.high_watermark, data.last_stable_offset);
        peer.keep_word(&format!("ends of {name}-{partition}"), &word);
    }
}

fn producers(peer: &mut Peer) {
    let name = "produced-to";
    peer.make_topic(name, 2, &[]);
    let topic = Topic { id: peer.ids[name], name: name.to_owned() };
    for sequence in [0, 3] {
        let batch = Batch::of_values(["a", "b", "c"]).with_producer(8000, 1, sequence);
        peer.ask("Produce by one", 9, &requests::produce(9, &topic, 0, -1, batch.encode()));
    }
    for (name, partition) in
        [(name, 0), (name, 1), (name, 9), (name, -1), ("no-such-topic", 0), ("a b", 0), ("", 0)]
    {
        let request = describe_producers(name, partition);
        peer.ask(&format!("DescribeProducers of {name}-{partition}"), 0, &request);
    }
    peer.ask("DescribeProducers of nothing", 0, &DescribeProducersRequest::default());
}
