//! The 54 conformance cases of transactions, each told once and run against Ringlog in every setup
//! and against a real Apache Kafka 4.3.1.
//!
//! Ringlog runs with one shard, with two as two nodes, and with two as one node; each with requests
//! held while a transition is pending (its default), and not (`txn_pending_hold_ms=0`: "exact").
//! Expected codes, offsets and bytes are what the real broker answers; where Ringlog differs on
//! purpose both values stand in the case with the reason. `RINGLOG_DIFFERENTIAL=skip` leaves the
//! real broker out.
//!
//! Every case runs against both brokers but 24, and `every_case_runs_against_both_brokers` holds
//! the list to that. What cannot be provoked from outside, and what is done instead:
//!
//! - 24, markers held back in Kafka: with one replica nothing makes a marker wait. Ringlog only:
//!   a partition is taken offline, and its marker waits.
//! - 34, a crash between Prepare and the markers: the Prepare record is written by a client that
//!   may write internal topics, then the broker is killed.
//! - 35, the answer 14 while the coordinator loads: the moment is too short to be met, so only the
//!   answers after it are asserted.
//! - 46, a Java client's EndTxn v5 on the wire: in the suite of real clients.
//! - 52, holding the coordinator's answer: a race of many rounds, and what must be true after them.
//! - 54, unstable versions that are switched on: Kafka only, Ringlog has no such switch.
//!
//! Where the real broker answers otherwise than the cases were first written, it has won:
//!
//! - 15: after a crash Kafka remembers no more than after a clean stop, one batch of each producer:
//!   what it reads back goes into a snapshot first.
//! - 34, 35: a Kafka that has just started may take partitions that nobody leads yet for deleted.
//!   The transaction completes, and its markers there are missing for good.
//! - 49: a batch sent again opens no transaction, but its verification is remembered with its
//!   sequence, and the next batch is refused (45).
//!
//! Where Ringlog differs on purpose:
//!
//! - 6, 24, 48: what meets a pending transition is held, and not answered with 51.
//! - 15: all five batches are remembered over every restart.
//! - 27: a late commit is answered with 90, as Kafka does it after 4.3.1 (KAFKA-20785).
//! - 50: a producer's time is that of its last append, whatever its records say.

#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;

/// Makes the tests of cases: one per setup of Ringlog, and one against Kafka.
macro_rules! cases {
    ($($name:ident: $needs:expr),* $(,)?) => {$(
        mod $name {
            use crate::stage::{self, Needs, on_kafka, on_ringlog};

            const NEEDS: Needs = $needs;

            #[test]
            fn kafka() {
                on_kafka(NEEDS, super::$name);
            }

            ringlog_setups!(super::$name);
        }
    )*};
}

/// The same without Kafka.
macro_rules! ringlog_cases {
    ($($name:ident: $needs:expr),* $(,)?) => {$(
        mod $name {
            use crate::stage::{self, Needs, on_ringlog};

            const NEEDS: Needs = $needs;

            ringlog_setups!(super::$name);
        }
    )*};
}

/// The same without Ringlog.
macro_rules! kafka_cases {
    ($($name:ident: $needs:expr),* $(,)?) => {$(
        mod $name {
            use crate::stage::{Needs, on_kafka};

            const NEEDS: Needs = $needs;

            #[test]
            fn kafka() {
                on_kafka(NEEDS, super::$name);
            }
        }
    )*};
}

macro_rules! ringlog_setups {
    ($case:path) => {
        #[test]
        fn one_shard() {
            on_ringlog(stage::ONE_SHARD, NEEDS, $case);
        }

        #[test]
        fn two_shards() {
            on_ringlog(stage::TWO_SHARDS, NEEDS, $case);
        }

        #[test]
        fn single() {
            on_ringlog(stage::SINGLE, NEEDS, $case);
        }

        #[test]
        fn one_shard_exact() {
            on_ringlog(stage::ONE_SHARD_EXACT, NEEDS, $case);
        }

        #[test]
        fn two_shards_exact() {
            on_ringlog(stage::TWO_SHARDS_EXACT, NEEDS, $case);
        }

        #[test]
        fn single_exact() {
            on_ringlog(stage::SINGLE_EXACT, NEEDS, $case);
        }
    };
}

mod calls;
mod stage;

mod admin;
mod compaction;
mod crashes;
mod ending;
mod identities;
mod legacy;
mod markers;
mod offsets;
mod reading;
mod sequences;
mod timeouts;

/// Numbers of the cases that one of the macros above makes tests of.
fn numbers_of(list: &str) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    for file in FILES {
        let lists = file.split('\n').skip_while(|line| *line != list);
        let names = lists.take_while(|line| *line != ");").map(str::trim_start);
        let digits = names.filter_map(|name| name.strip_prefix("case_")?.get(..2));
        numbers.extend(digits.map(|digits| digits.parse::<u32>().expect("a number")));
    }
    numbers
}

#[test]
fn every_case_runs_against_both_brokers() {
    let with_kafka = numbers_of("cases!(");
    let missing: Vec<u32> = (1..=CASES).filter(|case| !with_kafka.contains(case)).collect();
    assert_eq!(missing, [24]);
    assert_eq!(numbers_of("ringlog_cases!("), BTreeSet::from([24]));
    assert_eq!(with_kafka.last(), Some(&CASES));
}

const CASES: u32 = 54;

const FILES: [&str; 11] = [
    include_str!("admin.rs"),
    include_str!("compaction.rs"),
    include_str!("crashes.rs"),
    include_str!("ending.rs"),
    include_str!("identities.rs"),
    include_str!("legacy.rs"),
    include_str!("markers.rs"),
    include_str!("offsets.rs"),
    include_str!("reading.rs"),
    include_str!("sequences.rs"),
    include_str!("timeouts.rs"),
];
