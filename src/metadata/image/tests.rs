//! What each record changes in the catalog, and that a snapshot says the same as its history.

use super::*;

fn id(number: u8) -> TopicId {
    TopicId([number; 16])
}

fn broker() -> Arc<BrokerConfig> {
    Arc::new(BrokerConfig::with_overrides(&[]).expect("configuration"))
}

fn created(name: &str, number: u8, preferred: &[u16]) -> Record {
    Record::TopicCreated {
        name: name.to_owned(),
        id: id(number),
        preferred: preferred.to_vec(),
        overrides: BTreeMap::new(),
        next_preferred: preferred.last().map_or(0, |last| last.wrapping_add(1)),
    }
}

fn config_set(resource_type: i8, name: &str, key: &str, value: Option<&str>) -> Record {
    Record::ConfigSet {
        resource_type,
        resource_name: name.to_owned(),
        key: key.to_owned(),
        value: value.map(str::to_owned),
    }
}

/// Everything an image says but for how often it changed, for comparison.
fn contents(image: &Image) -> (Vec<Record>, i64) {
    let mut records = image.to_records();
    records.retain(|record| !matches!(record, Record::ChangesCounted { .. }));
    (records, image.features_epoch())
}

#[test]
fn changes_are_counted_over_snapshots() {
    let image = Image::new(broker());
    assert_eq!(image.changes(), 0);
    let image = image.apply_all(&[created("a", 1, &[0]), created("b", 2, &[0])]);
    assert_eq!(image.changes(), 2);
    let image = image.apply(&Record::TopicDeleting { id: id(9) });
    assert_eq!(image.changes(), 3, "also one that changes nothing");
    let again = Image::new(broker()).apply_all(&image.to_records());
    assert_eq!(again.changes(), 3);
    assert_eq!(again.apply(&created("c", 3, &[0])).changes(), 4);
}

#[test]
fn the_image_is_shared_between_threads() {
    fn check<T: Send + Sync + Clone>() {}
    check::<Image>();
}

#[test]
fn a_topic_lives_and_dies_in_steps() {
    let empty = Image::new(broker());
    let image = empty.apply(&created("orders", 1, &[0, 1, 2]));
    assert!(empty.topic("orders").is_none(), "the old image is unchanged");
    let topic = image.topic("orders").expect("orders");
    assert_eq!((topic.id, topic.partition_count()), (id(1), 3));
    assert_eq!((topic.internal, topic.replication_factor()), (false, 1));
    assert_eq!(image.topic_by_id(id(1)).map(|topic| &*topic.name), Some("orders"));
    assert_eq!(image.next_preferred(), 3);

    let image =
        image.apply(&Record::PartitionsAdded { id: id(1), preferred: vec![7], next_preferred: 8 });
    assert_eq!(image.topic("orders").expect("orders").preferred, [0, 1, 2, 7]);

    let image = image.apply(&Record::TopicDeleting { id: id(1) });
    assert!(image.topic("orders").is_none() && image.topic_by_id(id(1)).is_none());
    assert!(image.is_name_taken("orders"));
    let tombstone = image.tombstone(id(1)).expect("tombstone");
    assert_eq!(
        (&*tombstone.name, tombstone.partitions, tombstone.phase),
        ("orders", 4, TombstonePhase::Deleting)
    );

    let image = image.apply(&Record::TopicNameFreed { id: id(1) });
    assert!(!image.is_name_taken("orders"));
    assert_eq!(image.tombstone(id(1)).map(|t| t.phase), Some(TombstonePhase::NameFreed));

    let again = image.apply(&created("orders", 2, &[9]));
    assert_eq!(again.topic("orders").map(|topic| topic.id), Some(id(2)));
    assert_eq!(again.tombstones().len(), 1);
    let gone = again.apply(&Record::TombstoneGone { id: id(1) });
    assert_eq!(gone.tombstones().len(), 0);
    assert!(gone.topic("orders").is_some());
}

#[test]
fn the_owner_is_the_preferred_number_modulo_the_shards() {
    let image = Image::new(broker()).apply(&created("t", 1, &[0, 5, 65_535]));
    let owner = |partition, shards| image.owner(id(1), PartitionIndex(partition), shards);
    assert_eq!(owner(1, 4), Some(ShardId(1)));
    assert_eq!(owner(1, 3), Some(ShardId(2)));
    assert_eq!(owner(2, 8), Some(ShardId(7)));
    assert_eq!(owner(2, 1), Some(ShardId(0)));
    assert_eq!(owner(3, 4), None);
    assert_eq!(owner(-1, 4), None);
    assert_eq!(image.owner(id(9), PartitionIndex(0), 4), None);
    assert_eq!(image.partitions_per_shard(4), [1, 1, 0, 1]);
}

#[test]
fn topic_configs_change_the_resolved_settings() {
    let image = Image::new(broker()).apply(&created("t", 1, &[0]));
    let set = image.apply(&config_set(RESOURCE_TOPIC, "t", "retention.ms", Some("5")));
    assert_eq!(image.topic("t").expect("t").config.retention_ms, Some(604_800_000));
    assert_eq!(set.topic("t").expect("t").config.retention_ms, Some(5));
    assert_eq!(set.topic_by_id(id(1)).expect("t").config.retention_ms, Some(5));
    let unset = set.apply(&config_set(RESOURCE_TOPIC, "t", "retention.ms", None));
    assert_eq!(contents(&unset), contents(&image));
}

#[test]
fn cluster_wide_alterations_reach_every_topic() {
    let image = Image::new(broker()).apply_all(&[
        created("plain", 1, &[0]),
        created("own", 2, &[1]),
        config_set(RESOURCE_TOPIC, "own", "retention.ms", Some("5")),
        config_set(RESOURCE_BROKER, "", "log.retention.ms", Some("9")),
        // What no longer fits is kept, but passed over.
        config_set(RESOURCE_BROKER, "", "message.max.bytes", Some("999999999")),
    ]);
    let retention = |image: &Image, name: &str| image.topic(name).expect(name).config.retention_ms;
    assert_eq!(image.broker().log_retention_ms, Some(9));
    assert_eq!(image.broker().message_max_bytes, 1_048_588);
    assert_eq!(retention(&image, "plain"), Some(9));
    assert_eq!(retention(&image, "own"), Some(5));
    assert_eq!(image.configs(RESOURCE_BROKER, "").map(BTreeMap::len), Some(2));
    let image = image.apply(&config_set(RESOURCE_BROKER, "", "log.retention.ms", None));
    assert_eq!(retention(&image, "plain"), Some(604_800_000));
    let image = image.apply(&config_set(RESOURCE_BROKER, "", "message.max.bytes", None));
    assert_eq!(image.config_resources().count(), 0);
}

#[test]
fn records_about_what_does_not_exist_change_nothing() {
    let image = Image::new(broker()).apply(&created("t", 1, &[0]));
    let same = image.apply_all(&[
        Record::TopicDeleting { id: id(9) },
        Record::TopicNameFreed { id: id(9) },
        Record::TombstoneGone { id: id(9) },
        Record::PartitionsAdded { id: id(9), preferred: vec![1], next_preferred: 1 },
        config_set(RESOURCE_TOPIC, "nothing", "retention.ms", Some("1")),
    ]);
    assert_eq!(contents(&same), contents(&image));
}

#[test]
fn numbers_and_features_are_kept() {
    let image = Image::new(broker()).apply_all(&[
        Record::ClusterCreated { cluster_id: "MTIzNDU2Nzg5MGFiY2RlZg".to_owned() },
        Record::ProducerIdsReserved { next: 2000 },
        Record::ProducerIdsReserved { next: 1000 },
        Record::BrokerPortsChosen { ports: vec![19_192, 19_193] },
        Record::FeatureLevelSet { name: "transaction.version".to_owned(), level: 2 },
        Record::FeatureLevelSet { name: "group.version".to_owned(), level: 1 },
        Record::FeatureLevelSet { name: "group.version".to_owned(), level: 0 },
    ]);
    assert_eq!(image.cluster_id(), "MTIzNDU2Nzg5MGFiY2RlZg");
    assert_eq!(image.next_producer_id(), 2000, "ids are never given twice");
    assert_eq!(image.extra_ports(), [19_192, 19_193]);
    assert_eq!(image.features().get("transaction.version"), Some(&2));
    assert_eq!((image.features().len(), image.features_epoch()), (1, 3));
}

#[test]
fn a_snapshot_makes_the_same_image() {
    let image = Image::new(broker()).apply_all(&[
        Record::ClusterCreated { cluster_id: "MTIzNDU2Nzg5MGFiY2RlZg".to_owned() },
        created(CONSUMER_OFFSETS, 1, &[0, 1]),
        created("deleting", 2, &[2]),
        created("freed", 3, &[3]),
        created("last", 4, &[4]),
        Record::TopicDeleting { id: id(2) },
        Record::TopicDeleting { id: id(3) },
        Record::TopicNameFreed { id: id(3) },
        config_set(RESOURCE_TOPIC, "last", "retention.ms", Some("5")),
        config_set(RESOURCE_BROKER, "", "log.retention.ms", Some("9")),
        config_set(32, "group", "consumer.session.timeout.ms", Some("46000")),
        Record::ProducerIdsReserved { next: 7 },
        Record::BrokerPortsChosen { ports: vec![1] },
        Record::FeatureLevelSet { name: "group.version".to_owned(), level: 1 },
    ]);
    let copy = Image::new(broker()).apply_all(&image.to_records());
    assert_eq!(contents(&copy), contents(&image));
    let topics = |image: &Image| image.topics().map(|t| Topic::clone(t)).collect::<Vec<_>>();
    assert_eq!(topics(&copy), topics(&image));
    assert_eq!(
        copy.tombstones().cloned().collect::<Vec<_>>(),
        image.tombstones().cloned().collect::<Vec<_>>()
    );
    assert_eq!(copy.next_preferred(), 5);
    assert!(copy.topic(CONSUMER_OFFSETS).expect("internal").internal);
}

#[test]
fn topics_come_by_name_from_anywhere() {
    let image = Image::new(broker()).apply_all(&[
        created("c", 3, &[0]),
        created("a", 1, &[0]),
        created("b", 2, &[0]),
    ]);
    let names = |from: &str| {
        image.topics_from(from).map(|topic| topic.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(""), ["a", "b", "c"]);
    assert_eq!(names("aa"), ["b", "c"]);
    assert_eq!(names("d"), [""; 0]);
}

#[test]
fn a_smaller_ring_is_noticed() {
    let large = Record::TopicCreated {
        name: "large".to_owned(),
        id: id(1),
        preferred: vec![0],
        overrides: BTreeMap::from([("max.message.bytes".to_owned(), "50000000".to_owned())]),
        next_preferred: 1,
    };
    assert_eq!(Image::new(broker()).apply(&large).check_fits(), Ok(()));
    let small = BrokerConfig::with_overrides(&[("memory", "64MiB")]).expect("configuration");
    assert_eq!(
        Image::new(Arc::new(small)).apply(&large).check_fits(),
        Err("topic large: Invalid value 50000000 for configuration max.message.bytes: Value must \
             be no more than 1505280, a quarter of the broker's journal ring or of a shard's tail \
             memory"
            .to_owned())
    );
}
