//! What may be set, what is refused and how, and which records come of it.

use std::sync::Arc;

use super::*;
use crate::config::BrokerConfig;
use crate::ids::TopicId;

fn image() -> Image {
    let config = BrokerConfig::with_overrides(&[("journal.ring.bytes", "16MiB")]);
    Image::new(Arc::new(config.expect("configuration"))).apply_all(&[
        Record::TopicCreated {
            name: "t".to_owned(),
            id: TopicId([1; 16]),
            preferred: vec![0],
            overrides: BTreeMap::from([("retention.ms".to_owned(), "5".to_owned())]),
            next_preferred: 0,
        },
        set(RESOURCE_BROKER, "", "log.retention.ms", Some("9")),
        set(RESOURCE_CLIENT_METRICS, "m", "metrics", Some("a,b")),
    ])
}

fn set(resource_type: i8, name: &str, key: &str, value: Option<&str>) -> Record {
    Record::ConfigSet {
        resource_type,
        resource_name: name.to_owned(),
        key: key.to_owned(),
        value: value.map(str::to_owned),
    }
}

fn resource(resource_type: i8, name: &str, changes: &[(&str, i8, Option<&str>)]) -> AlterResource {
    let change = |(key, operation, value): &(&str, i8, Option<&str>)| ConfigChange {
        key: (*key).to_owned(),
        operation: *operation,
        value: value.map(str::to_owned),
    };
    let changes = changes.iter().map(change).collect();
    AlterResource { resource_type, name: name.to_owned(), changes, replace: false }
}

/// What becomes of one resource: its records, or code and sentence.
fn planned(resource: AlterResource) -> Result<Vec<Record>, (i16, String)> {
    let mut records = Vec::new();
    match plan(&image(), 3, &[resource], &mut records).remove(0) {
        Ok(()) => Ok(records),
        Err(error) => Err((error.code.code(), error.message.unwrap_or_default())),
    }
}

fn check_refused(resource: AlterResource, code: i16, sentence: &str) {
    assert_eq!(planned(resource.clone()), Err((code, sentence.to_owned())), "{resource:?}");
}

#[test]
fn each_kind_of_change_makes_its_records() {
    type Row<'a> = (i8, &'a str, &'a str, i8, Option<&'a str>, &'a [Record]);
    let rows: &[Row<'_>] = &[
        (
            2,
            "t",
            "segment.bytes",
            SET,
            Some(" 2000000 "),
            &[set(2, "t", "segment.bytes", Some("2000000"))],
        ),
        (2, "t", "retention.ms", SET, Some("5"), &[]),
        (2, "t", "retention.ms", DELETE, None, &[set(2, "t", "retention.ms", None)]),
        (2, "t", "segment.ms", DELETE, None, &[]),
        (2, "t", "no.such", DELETE, Some("x"), &[]),
        // The first value is appended to Kafka's default, and one that is there is not doubled.
        (
            2,
            "t",
            "cleanup.policy",
            APPEND,
            Some("compact"),
            &[set(2, "t", "cleanup.policy", Some("delete,compact"))],
        ),
        (
            2,
            "t",
            "cleanup.policy",
            APPEND,
            Some("delete"),
            &[set(2, "t", "cleanup.policy", Some("delete"))],
        ),
        (
            2,
            "t",
            "cleanup.policy",
            SUBTRACT,
            Some("delete"),
            &[set(2, "t", "cleanup.policy", Some(""))],
        ),
        (4, "", "log.retention.ms", SET, Some("7"), &[set(4, "", "log.retention.ms", Some("7"))]),
        (4, "", "log.retention.ms", DELETE, None, &[set(4, "", "log.retention.ms", None)]),
        (
            4,
            "",
            "log.cleanup.policy",
            APPEND,
            Some("compact"),
            &[set(4, "", "log.cleanup.policy", Some("delete,compact"))],
        ),
        (4, "3", "log.retention.ms", DELETE, None, &[]),
        (16, "m", "metrics", SET, Some("b"), &[set(16, "m", "metrics", Some("b"))]),
        (16, "new", "interval.ms", SET, Some("100"), &[set(16, "new", "interval.ms", Some("100"))]),
        (
            32,
            "g",
            "consumer.session.timeout.ms",
            SET,
            Some("46000"),
            &[set(32, "g", "consumer.session.timeout.ms", Some("46000"))],
        ),
    ];
    for (kind, name, key, operation, value, records) in rows {
        let found = planned(resource(*kind, name, &[(key, *operation, *value)]));
        assert_eq!(found, Ok(records.to_vec()), "{kind} {name} {key} {operation} {value:?}");
    }
}

#[test]
fn replacing_removes_what_is_not_mentioned() {
    let mut all = resource(2, "t", &[("segment.ms", SET, Some("1"))]);
    all.replace = true;
    let expected = [set(2, "t", "retention.ms", None), set(2, "t", "segment.ms", Some("1"))];
    assert_eq!(planned(all), Ok(expected.to_vec()));
    let mut none = resource(4, "", &[]);
    none.replace = true;
    assert_eq!(planned(none), Ok(vec![set(4, "", "log.retention.ms", None)]));
    let mut logger = resource(8, "3", &[]);
    logger.replace = true;
    check_refused(logger, 42, "Unknown resource type 8");
}

#[test]
fn a_resource_is_changed_whole_or_not_at_all() {
    let good = resource(2, "t", &[("retention.ms", SET, Some("6"))]);
    let half = resource(
        32,
        "g",
        &[("consumer.session.timeout.ms", SET, Some("46000")), ("no.such", SET, Some("1"))],
    );
    let mut records = Vec::new();
    let results = plan(&image(), 3, &[half, good], &mut records);
    assert_eq!((results[0].is_ok(), results[1].is_ok()), (false, true));
    assert_eq!(records, [set(2, "t", "retention.ms", Some("6"))]);
}

#[test]
fn malformed_changes_are_refused() {
    let twice = resource(2, "t", &[]);
    let results = plan(&image(), 3, &[twice.clone(), twice], &mut Vec::new());
    let once = "Each resource must appear at most once.";
    assert!(results.iter().all(|result| *result == Err(invalid(once))));
    let double = resource(2, "t", &[("a", DELETE, None), ("a", SET, Some("1"))]);
    check_refused(double, 42, "Error due to duplicate config keys");
    let nulls = resource(2, "t", &[("a", SET, None), ("b", APPEND, None), ("c", DELETE, None)]);
    check_refused(nulls, 42, "Null value not supported for : a, b");
    for kind in [0, 1, 64, -1] {
        check_refused(resource(kind, "x", &[]), 42, &format!("Unknown resource type {kind}"));
    }
    let unknown = resource(2, "t", &[("retention.ms", 4, Some("1"))]);
    check_refused(unknown, 42, "Unknown operations type 4");
    let long = "x".repeat(32_768);
    check_refused(
        resource(16, "m", &[("metrics", SET, Some(&long))]),
        40,
        "The configuration value cannot be added because it exceeds the maximum value size of \
         32767 bytes.",
    );
}

#[test]
fn names_are_checked() {
    check_refused(resource(2, "", &[]), 42, "Default topic resources are not allowed.");
    let sentence = "Topic name is invalid: 'a b' contains one or more characters other than ASCII \
                    alphanumerics, '.', '_' and '-'";
    check_refused(resource(2, "a b", &[]), 17, sentence);
    check_refused(resource(2, "u", &[]), 3, "The topic 'u' does not exist.");
    check_refused(resource(32, "", &[]), 42, "Default group resources are not allowed.");
    check_refused(resource(16, "", &[]), 42, "Subscription name can't be empty");
    let sentence = "Unexpected broker id, expected 3, but received 2";
    check_refused(resource(4, "2", &[]), 42, sentence);
    check_refused(resource(4, "x", &[]), 42, "Node id must be an integer, but it is: x");
    let sentence = "Unexpected node id. Expected 3, but received 2";
    check_refused(resource(8, "2", &[]), 42, sentence);
}

#[test]
fn values_are_checked_in_kafkas_words() {
    let one = |kind: i8, name: &str, key: &str, operation: i8, value: &str| {
        resource(kind, name, &[(key, operation, Some(value))])
    };
    check_refused(one(2, "t", "no.such", SET, "1"), 40, "Unknown topic config name: no.such");
    for operation in [APPEND, SUBTRACT] {
        let word = if operation == APPEND { "APPEND" } else { "SUBTRACT" };
        let sentence = format!("Can't {word} to key retention.ms because its type is not LIST.");
        check_refused(one(2, "t", "retention.ms", operation, "1"), 40, &sentence);
    }
    let sentence = "Config value append is not allowed for config key: log.retention.ms";
    check_refused(one(4, "", "log.retention.ms", APPEND, "1"), 40, sentence);
    let sentence = "Cannot update these configs dynamically: [num.partitions]";
    check_refused(one(4, "", "num.partitions", SET, "2"), 42, sentence);
    let sentence = "Invalid value x for configuration log.retention.ms: Not a number of type LONG";
    check_refused(one(4, "", "log.retention.ms", SET, "x"), 42, sentence);
    let refused = planned(one(4, "3", "log.retention.ms", SET, "5")).expect_err("refused");
    assert_eq!(refused.0, 42);
    check_refused(one(8, "3", "kafka", SET, "INFO"), 40, "Logger kafka does not exist!");
    let sentence = "Can't APPEND to key metrics because its type is not LIST.";
    check_refused(one(16, "m", "metrics", APPEND, "c"), 40, sentence);
    let sentence = "Unknown client metrics configuration: no.such";
    check_refused(one(16, "m", "no.such", SET, "1"), 42, sentence);
    // A quarter of the ring, which is 16 MiB here.
    for (kind, name, key) in [(2, "t", "max.message.bytes"), (4, "", "message.max.bytes")] {
        assert!(planned(one(kind, name, key, SET, "4194304")).is_ok());
        let (code, sentence) = planned(one(kind, name, key, SET, "4194305")).expect_err("refused");
        assert_eq!(code, if kind == 2 { 40 } else { 42 });
        assert!(sentence.contains("4194304"), "{sentence}");
    }
}
