//! The same requests to Ringlog and to a real Apache Kafka 4.3.1, and their answers side by side.
//!
//! Every served API in every version, valid and invalid, against
//! Ringlog as one broker of one shard and as `advertise = single` over two. Answers are decoded,
//! stripped of what no two brokers share (ids, addresses, epochs, the clock), and compared field by
//! field. Every difference that is left is a row of [`differences::EXPECTED`] with its reason: one
//! without a row fails the test, and so does a row that no longer occurs.
//!
//! Needs Java and, on its first use, Maven; `RINGLOG_DIFFERENTIAL=skip` leaves it out.

#[path = "../support/mod.rs"]
mod support;

mod differences;
mod fields;
mod peer;
mod script;

use std::collections::{BTreeMap, BTreeSet};

use differences::EXPECTED;
use peer::{Answers, Peer};
use ringlog::wire::versions::SERVED;
use support::broker::Broker;
use support::kafka::{self, Kafka};

#[test]
fn ringlog_answers_as_kafka_does() {
    if kafka::is_skipped() {
        return;
    }
    let kafka = Kafka::start();
    let delay = "group.initial.rebalance.delay.ms=0";
    let transactions = "transaction.state.log.num.partitions=8";
    // The default, which is told to be from a file where it is in one.
    let creation = "auto.create.topics.enable=true";
    let common = ["--memory", "128MiB", "--set", "num.partitions=4", "--set", delay];
    let common = [&common[..], &["--set", transactions, "--set", creation]].concat();
    let one = Broker::start(&[&common[..], &["--shards", "1"]].concat());
    let many = Broker::start(&[&common[..], &["--advertise", "single", "--shards", "2"]].concat());
    let peers = [
        Peer::new("kafka", kafka.address, 1),
        Peer::new("one shard", one.addresses()[0], 0),
        Peer::new("single", many.addresses()[0], 0),
    ];
    let told: Vec<(Answers, BTreeSet<(i16, i16)>)> = std::thread::scope(|scope| {
        let threads = peers.map(|peer| scope.spawn(|| script::run(peer)));
        threads.map(|thread| thread.join().expect("the script runs to its end")).into()
    });
    assert_eq!(not_asked(&told[0].1), [""; 0], "every served version is compared");
    let answers: Vec<Answers> = told.into_iter().map(|(answers, _)| answers).collect();
    let mut report = String::new();
    let mut used = vec![false; EXPECTED.len()];
    for (name, ringlog) in ["one shard", "single"].into_iter().zip(&answers[1..]) {
        compare(name, &answers[0], ringlog, &mut used, &mut report);
    }
    for (row, _) in EXPECTED.iter().zip(&used).filter(|(_, used)| !**used) {
        report += &format!("no longer different: {} {}: {}\n", row.case, row.field, row.reason);
    }
    println!("{} requests, {} rows of expected differences", answers[0].len(), EXPECTED.len());
    assert!(report.is_empty(), "\n{report}");
}

/// Versions that are served and that the script does not ask for.
fn not_asked(asked: &BTreeSet<(i16, i16)>) -> Vec<String> {
    let served =
        SERVED.iter().flat_map(|row| (row.min..=row.max).map(|version| (row.api, version)));
    served
        .filter(|(api, version)| !asked.contains(&(api.key(), *version)))
        .map(|(api, version)| format!("{api:?} v{version}"))
        .collect()
}

fn compare(name: &str, kafka: &Answers, ringlog: &Answers, used: &mut [bool], report: &mut String) {
    let cases =
        |answers: &Answers| answers.iter().map(|(case, _)| case.clone()).collect::<Vec<_>>();
    assert_eq!(cases(kafka), cases(ringlog), "both took the same path through the script");
    for ((case, theirs), (_, ours)) in kafka.iter().zip(ringlog) {
        let fields: BTreeMap<_, _> = theirs.iter().chain(ours.iter()).collect();
        for field in fields.keys() {
            let (their, our) = (theirs.get(*field), ours.get(*field));
            if their == our {
                continue;
            }
            let mut known = false;
            for (row, used) in EXPECTED.iter().zip(used.iter_mut()) {
                if row.covers(case, field) {
                    known = true;
                    *used = true;
                }
            }
            if !known {
                let show = |value: Option<&String>| value.map_or("absent", |text| text).to_owned();
                *report += &format!(
                    "{name}: {case} | {field} | kafka {} | ringlog {}\n",
                    show(their),
                    show(our)
                );
            }
        }
    }
}
