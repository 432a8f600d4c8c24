//! The checks of creations and deletions, their order and their sentences.

use proptest::prelude::*;

use super::*;

fn image(broker_set: &[(&str, &str)]) -> Image {
    let broker = BrokerConfig::with_overrides(broker_set).expect("configuration");
    Image::new(Arc::new(broker))
}

fn request(name: &str, num_partitions: i32, replication_factor: i16) -> CreateTopic {
    CreateTopic { name: name.to_owned(), num_partitions, replication_factor, ..Default::default() }
}

fn assigned(name: &str, assignments: &[(i32, &[i32])]) -> CreateTopic {
    let assignments =
        assignments.iter().map(|(partition, nodes)| (*partition, nodes.to_vec())).collect();
    CreateTopic { assignments, ..request(name, -1, -1) }
}

fn configured(name: &str, configs: &[(&str, Option<&str>)]) -> CreateTopic {
    let configs =
        configs.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect();
    CreateTopic { configs, ..request(name, 1, 1) }
}

/// A repeatable source of bits.
fn bits() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn plan(image: &Image, requests: &[CreateTopic]) -> CreatePlan {
    let shards = image.broker().shards;
    let loads = image.partitions_per_shard(shards);
    let mut random = bits();
    let mut context = PlanContext { image, shards, shard_loads: &loads, random: &mut random };
    plan_create(&mut context, requests, false)
}

fn apply(image: &Image, requests: &[CreateTopic]) -> Image {
    let plan = plan(image, requests);
    assert!(plan.results.iter().all(Result::is_ok), "{:?}", plan.results);
    image.apply_all(&plan.records)
}

fn check_refused(image: &Image, request: CreateTopic, code: i16, message: &str) {
    let plan = plan(image, std::slice::from_ref(&request));
    let refusal = plan.results[0].clone().map(|_| ()).expect_err(message);
    assert_eq!((refusal.code.code(), refusal.message.as_deref()), (code, Some(message)));
    assert!(plan.records.is_empty());
}

#[test]
fn a_plain_topic_gets_the_defaults() {
    let image = image(&[("num.partitions", "3")]);
    let plan = plan(&image, &[request("orders", -1, -1)]);
    let topic = plan.results[0].as_ref().expect("orders");
    assert_eq!(topic.preferred, [0, 1, 2]);
    assert_eq!(topic.overrides, BTreeMap::new());
    assert_eq!(
        plan.records,
        [Record::TopicCreated {
            name: "orders".to_owned(),
            id: topic.id,
            preferred: vec![0, 1, 2],
            overrides: BTreeMap::new(),
            next_preferred: 3,
        }]
    );
}

#[test]
fn validating_only_answers_without_records() {
    let image = image(&[]);
    let mut random = bits();
    let mut context =
        PlanContext { image: &image, shards: 2, shard_loads: &[0, 0], random: &mut random };
    let requests = [request("orders", 4, 2), request("orders.", 0, 1)];
    let plan = plan_create(&mut context, &requests, true);
    assert_eq!(plan.results[0].as_ref().expect("orders").preferred.len(), 4);
    assert_eq!(plan.results[1].as_ref().map(|_| ()).expect_err("partitions").code.code(), 37);
    assert!(plan.records.is_empty());
}

#[test]
fn names_are_refused_in_kafkas_words() {
    let image = apply(&image(&[]), &[request("a.b", 1, 1), request("plain", 1, 1)]);
    for (name, code, message) in [
        ("", 17, "Topic name is invalid: the empty string is not allowed".to_owned()),
        (".", 17, "Topic name is invalid: '.' is not allowed".to_owned()),
        ("..", 17, "Topic name is invalid: '..' is not allowed".to_owned()),
        (
            "a b",
            17,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII \
             alphanumerics, '.', '_' and '-'"
                .to_owned(),
        ),
        (
            &"x".repeat(250),
            17,
            format!(
                "Topic name is invalid: the length of '{}' is longer than the max allowed length \
                 249",
                "x".repeat(250)
            ),
        ),
        ("a_b", 17, "Topic 'a_b' collides with existing topic: a.b".to_owned()),
        ("a.b", 36, "Topic 'a.b' already exists.".to_owned()),
        ("plain", 36, "Topic 'plain' already exists.".to_owned()),
        (
            "__cluster_metadata",
            42,
            "Creation of internal topic __cluster_metadata is prohibited.".to_owned(),
        ),
    ] {
        check_refused(&image, request(name, 1, 1), code, &message);
    }
    assert!(plan(&image, &[request(&"x".repeat(249), 1, 1)]).results[0].is_ok());
    assert!(plan(&image, &[request("a-b", 1, 1)]).results[0].is_ok());
}

#[test]
fn a_name_is_taken_until_its_deletion_has_finished() {
    let image = apply(&image(&[]), &[request("t", 1, 1)]);
    let id = image.topic("t").expect("t").id;
    let deleting = image.apply(&Record::TopicDeleting { id });
    check_refused(&deleting, request("t", 1, 1), 36, "Topic 't' already exists.");
    let freed = deleting.apply(&Record::TopicNameFreed { id });
    let again = apply(&freed, &[request("t", 1, 1)]);
    assert_ne!(again.topic("t").expect("t").id, id);
}

#[test]
fn duplicates_are_all_refused_and_others_are_not() {
    let requests = [request("t", 1, 1), request("u", 1, 1), request("t", 2, 1)];
    let plan = plan(&image(&[]), &requests);
    let codes: Vec<i16> = plan
        .results
        .iter()
        .map(|result| result.as_ref().map_or_else(|refusal| refusal.code.code(), |_| 0))
        .collect();
    assert_eq!(codes, [42, 0, 42]);
    assert_eq!(
        plan.results[2].as_ref().map(|_| ()).expect_err("duplicate").message.as_deref(),
        Some("Duplicate topic name.")
    );
    assert_eq!(plan.records.len(), 1);
}

#[test]
fn too_many_partitions_refuse_the_whole_request() {
    let image = image(&[("num.partitions", "9999")]);
    let refused = plan(&image, &[request("a", -1, 1), request("b", 1, 1), request("c", 1, 1)]);
    for result in &refused.results {
        let refusal = result.as_ref().map(|_| ()).expect_err("too many");
        assert_eq!(refusal.code.code(), 44);
        assert_eq!(
            refusal.message.as_deref(),
            Some("Excessively large number of partitions per request.")
        );
    }
    assert!(refused.records.is_empty());
    let fits = plan(&image, &[request("a", -1, 1), request("b", 1, 1)]);
    assert!(fits.results.iter().all(Result::is_ok));
    let huge = plan(&image, &[request("a", i32::MAX, 1), request("b", i32::MAX, 1)]);
    assert_eq!(huge.results[0].as_ref().map(|_| ()).expect_err("huge").code.code(), 44);
}

#[test]
fn configs_are_checked_before_partitions() {
    let image = image(&[]);
    check_refused(
        &image,
        configured("t", &[("retention.ms", None), ("x", None)]),
        40,
        "Null value not supported for topic configs: retention.ms,x",
    );
    check_refused(
        &image,
        configured("t", &[("retention", Some("1"))]),
        40,
        "Unknown topic config name: retention",
    );
    check_refused(
        &image,
        CreateTopic { num_partitions: 0, ..configured("t", &[("retention.ms", Some("-2"))]) },
        40,
        "Invalid value -2 for configuration retention.ms: Value must be at least -1",
    );
    let created = apply(&image, &[configured("t", &[("cleanup.policy", Some("compact, delete"))])]);
    let topic = created.topic("t").expect("t");
    assert_eq!(topic.overrides["cleanup.policy"], "compact,delete");
    assert!(topic.config.cleanup.compact && topic.config.cleanup.delete);
}

#[test]
fn factors_and_counts_are_checked_in_kafkas_order() {
    let image = image(&[("shards", "2")]);
    let factor = "Replication factor must be larger than 0, or -1 to use the default value.";
    let count = "Number of partitions was set to an invalid non-positive value.";
    check_refused(&image, request("t", 1, 0), 38, factor);
    check_refused(&image, request("t", 0, -2), 38, factor);
    check_refused(&image, request("t", 0, 1), 37, count);
    check_refused(&image, request("t", -2, 3), 37, count);
    check_refused(
        &image,
        request("t", 1, 3),
        38,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot \
         be reached because only 2 broker(s) are registered or some brokers have all their log \
         directories cordoned.",
    );
    let two = apply(&image, &[request("t", 1, 2)]);
    assert_eq!(two.topic("t").expect("t").replication_factor(), 1);
}

#[test]
fn the_factor_counts_advertised_brokers_or_is_clamped() {
    let single = image(&[("advertise", "single"), ("shards", "4")]);
    check_refused(
        &single,
        request("t", 1, 2),
        38,
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot \
         be reached because only 1 broker(s) are registered or some brokers have all their log \
         directories cordoned.",
    );
    let clamped = image(&[("replication_factor_clamp", "true"), ("shards", "1")]);
    assert!(plan(&clamped, &[request("t", 1, 3)]).results[0].is_ok());
    let by_default = image(&[("default.replication.factor", "3"), ("shards", "2")]);
    check_refused(
        &by_default,
        request("t", 1, -1),
        38,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot \
         be reached because only 2 broker(s) are registered or some brokers have all their log \
         directories cordoned.",
    );
}

#[test]
fn assignments_are_checked_in_kafkas_words() {
    let image = image(&[("shards", "2")]);
    let prefix = "The manual partition assignment includes";
    for (request, code, message) in [
        (
            CreateTopic { replication_factor: 1, ..assigned("t", &[(0, &[0])]) },
            42,
            "A manual partition assignment was specified, but replication factor was not set to \
             -1."
            .to_owned(),
        ),
        (
            CreateTopic { num_partitions: 1, ..assigned("t", &[(0, &[0])]) },
            42,
            "A manual partition assignment was specified, but numPartitions was not set to -1."
                .to_owned(),
        ),
        (
            assigned("t", &[(0, &[0]), (0, &[1])]),
            39,
            "Found multiple manual partition assignments for partition 0".to_owned(),
        ),
        (assigned("t", &[(0, &[])]), 39, format!("{prefix} an empty replica list.")),
        (
            assigned("t", &[(0, &[2])]),
            39,
            format!("{prefix} broker 2, but no such broker is registered."),
        ),
        (
            assigned("t", &[(0, &[-1])]),
            39,
            format!("{prefix} broker -1, but no such broker is registered."),
        ),
        (assigned("t", &[(0, &[1, 1])]), 39, format!("{prefix} the broker 1 more than once.")),
        (
            assigned("t", &[(0, &[0, 1]), (1, &[0])]),
            39,
            format!(
                "{prefix} a partition with 1 replica(s), but this is not consistent with previous \
                 partitions, which have 2 replica(s)."
            ),
        ),
        (
            assigned("t", &[(0, &[0]), (2, &[0])]),
            39,
            "partitions should be a consecutive 0-based integer sequence".to_owned(),
        ),
    ] {
        check_refused(&image, request, code, &message);
    }
    let created = apply(&image, &[assigned("t", &[(1, &[0, 1]), (0, &[1, 0])])]);
    assert_eq!(created.topic("t").expect("t").preferred, [1, 0]);
    assert_eq!(created.next_preferred(), 0, "explicit numbers are not of the sequence");
}

#[test]
fn a_single_advertised_node_spreads_its_assignments() {
    let image = image(&[("advertise", "single"), ("shards", "2")]);
    let created = apply(&image, &[assigned("t", &[(0, &[0]), (1, &[0])])]);
    assert_eq!(created.topic("t").expect("t").preferred, [0, 1]);
}

#[test]
fn placement_goes_to_the_least_loaded_shard() {
    let image = image(&[("shards", "4")]);
    let mut random = bits();
    let mut context =
        PlanContext { image: &image, shards: 4, shard_loads: &[5, 0, 5, 1], random: &mut random };
    let plan = plan_create(&mut context, &[request("t", 4, 1)], false);
    // Loads 5 0 5 1: shard 1, then 1 or 3 (next in the sequence: 3), then 1, then 3.
    let preferred = &plan.results[0].as_ref().expect("t").preferred;
    assert_eq!(preferred, &[1, 3, 5, 7]);
}

#[test]
fn the_sequence_wraps() {
    let image = image(&[("shards", "3")]).apply(&Record::PlacementSet { next_preferred: 65_534 });
    let created = apply(&image, &[request("t", 4, 1)]);
    // 65534 % 3 = 2, 65535 % 3 = 0, then 0 % 3 = 0 is passed over for 1.
    assert_eq!(created.topic("t").expect("t").preferred, [65_534, 65_535, 1, 2]);
    assert_eq!(created.next_preferred(), 3);
}

proptest! {
    #[test]
    fn any_other_number_of_shards_is_spread_too(
        counts in proptest::collection::vec(1..20_i32, 1..20),
        shards in 1..9_u16,
    ) {
        let mut image = image(&[("shards", &shards.to_string())]);
        for (index, count) in counts.iter().enumerate() {
            image = apply(&image, &[request(&format!("t{index}"), *count, 1)]);
            let loads = image.partitions_per_shard(shards);
            let (least, most) = (loads.iter().min(), loads.iter().max());
            prop_assert!(most.expect("one") - least.expect("one") <= 1, "{loads:?}");
        }
        // Without deletions the sequence has no gaps, so every other count is even as well.
        for other in 1..9 {
            let loads = image.partitions_per_shard(other);
            let (least, most) = (loads.iter().min(), loads.iter().max());
            prop_assert!(most.expect("one") - least.expect("one") <= 1, "{loads:?}");
        }
    }
}

#[test]
fn internal_topics_have_kafkas_configs() {
    let image = image(&[]);
    let requests =
        [automatic(CONSUMER_OFFSETS, image.broker()), automatic(TRANSACTION_STATE, image.broker())];
    let created = apply(&image, &requests);
    let offsets = created.topic(CONSUMER_OFFSETS).expect("offsets");
    assert_eq!((offsets.partition_count(), offsets.internal), (50, true));
    assert_eq!(
        offsets.config.cleanup,
        crate::config::topic::CleanupPolicy { compact: true, delete: false }
    );
    assert_eq!(offsets.config.segment_bytes, 104_857_600);
    let transactions = created.topic(TRANSACTION_STATE).expect("transactions");
    assert_eq!((transactions.partition_count(), transactions.internal), (50, true));
    assert_eq!(
        transactions.overrides,
        BTreeMap::from(
            [
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", "1"),
                ("segment.bytes", "104857600"),
                ("unclean.leader.election.enable", "false"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
        )
    );
    assert_eq!(automatic("other", image.broker()), request("other", -1, -1));
    let three = image_with_three();
    assert!(plan(&three, &[automatic(CONSUMER_OFFSETS, three.broker())]).results[0].is_ok());
}

fn image_with_three() -> Image {
    image(&[("offsets.topic.replication.factor", "3"), ("shards", "1")])
}

#[test]
fn ids_are_random_version_four_and_safe_to_type() {
    let mut random = bits();
    let mut seen = HashSet::new();
    for _ in 0..1000 {
        let id = new_topic_id(&mut random);
        assert_eq!(id.0[6] >> 4, 4);
        assert_eq!(id.0[8] >> 6, 2);
        assert!(!id.to_text().contains('-'));
        assert!(seen.insert(id));
    }
    assert_eq!(new_cluster_id(&mut random).len(), 22);
}

fn plan_more(image: &Image, requests: &[CreatePartitions]) -> PartitionsPlan {
    let shards = image.broker().shards;
    let loads = image.partitions_per_shard(shards);
    let mut random = bits();
    let mut context = PlanContext { image, shards, shard_loads: &loads, random: &mut random };
    plan_create_partitions(&mut context, requests, false)
}

#[test]
fn partitions_are_added_in_kafkas_rules() {
    let image = apply(&image(&[("shards", "2")]), &[request("t", 2, 1)]);
    let more = |name: &str, count: i32, assignments: Option<&[&[i32]]>| CreatePartitions {
        name: name.to_owned(),
        count,
        assignments: assignments
            .map(|partitions| partitions.iter().map(|nodes| nodes.to_vec()).collect()),
    };
    for (request, code, message) in [
        // Kafka sends no sentence with this one.
        (more("u", 3, None), 3, ""),
        (more("t", 2, None), 37, "Topic already has 2 partition(s)."),
        (
            more("t", 1, None),
            37,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            more("t", 4, Some(&[&[0]])),
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            more("t", 3, Some(&[&[9]])),
            39,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (more("t", i32::MAX, None), 44, "Excessively large number of partitions per request."),
    ] {
        let plan = plan_more(&image, &[request]);
        let refusal = plan.results[0].clone().expect_err(message);
        let told = refusal.message.as_deref().unwrap_or_default();
        assert_eq!((refusal.code.code(), told), (code, message));
        assert!(plan.records.is_empty());
    }
    let placed = plan_more(&image, &[more("t", 5, None)]);
    assert_eq!(placed.results, [Ok(())]);
    let larger = image.apply_all(&placed.records);
    assert_eq!(larger.topic("t").expect("t").preferred, [0, 1, 2, 3, 4]);
    let assigned = plan_more(&image, &[more("t", 3, Some(&[&[1]]))]);
    let larger = image.apply_all(&assigned.records);
    assert_eq!(larger.topic("t").expect("t").preferred, [0, 1, 1]);
    let twice = plan_more(&image, &[more("t", 3, None), more("t", 4, None)]);
    assert!(twice.results.iter().all(|r| r.as_ref().is_err_and(|e| e.code.code() == 42)));
}

fn deletions(image: &Image, requests: &[(Option<&str>, TopicId)]) -> Vec<(String, i16, String)> {
    let requests: Vec<DeleteTopic> = requests
        .iter()
        .map(|(name, id)| DeleteTopic { name: name.map(str::to_owned), id: *id })
        .collect();
    plan_delete(image, &requests, 6)
        .into_iter()
        .map(|result| {
            let name = result.name.unwrap_or_else(|| "null".to_owned());
            match result.outcome {
                Ok(topic) => (name, 0, topic.name.to_string()),
                Err(refusal) => (name, refusal.code.code(), refusal.message.unwrap_or_default()),
            }
        })
        .collect()
}

#[test]
fn deletions_are_checked_in_kafkas_words() {
    let image = apply(&image(&[]), &[request("t", 1, 1), request("u", 1, 1)]);
    let id = |name: &str| image.topic(name).expect(name).id;
    let row = |name: &str, code: i16, message: &str| (name.to_owned(), code, message.to_owned());
    let zero = TopicId::ZERO;
    assert_eq!(
        deletions(&image, &[(Some("t"), zero), (None, id("u"))]),
        [row("u", 0, "u"), row("t", 0, "t")]
    );
    assert_eq!(
        deletions(&image, &[(Some("x"), zero), (None, TopicId([7; 16]))]),
        [
            row("null", 100, "This server does not host this topic ID."),
            row("x", 3, "This server does not host this topic-partition."),
        ]
    );
    assert_eq!(
        deletions(&image, &[(None, zero), (Some("t"), id("t"))]),
        [
            row("null", 42, "Neither topic name nor id were specified."),
            row("t", 42, "You may not specify both topic name and topic id."),
        ]
    );
    assert_eq!(
        deletions(&image, &[(Some("t"), zero), (Some("t"), zero), (Some("u"), zero)]),
        [row("t", 42, "Duplicate topic name."), row("u", 0, "u")]
    );
    assert_eq!(
        deletions(&image, &[(None, id("t")), (None, id("t"))]),
        [row("null", 42, "Duplicate topic id.")]
    );
    assert_eq!(
        deletions(&image, &[(None, id("t")), (Some("t"), zero)]),
        [row("t", 42, "The provided topic name maps to an ID that was already supplied.")]
    );
}

#[test]
fn deletion_can_be_switched_off() {
    let image = apply(&image(&[("delete.topic.enable", "false")]), &[request("t", 1, 1)]);
    let requests = [DeleteTopic { name: Some("t".to_owned()), id: TopicId::ZERO }];
    for (version, code) in [(1, 42), (2, 42), (3, 73), (6, 73)] {
        let refusal = plan_delete(&image, &requests, version)[0].outcome.clone();
        let refusal = refusal.map(|_| ()).expect_err("off");
        assert_eq!(
            (refusal.code.code(), refusal.message.as_deref()),
            (code, Some("Topic deletion is disabled."))
        );
    }
}
