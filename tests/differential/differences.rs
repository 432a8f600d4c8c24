//! Where Ringlog's answers differ from Apache Kafka's on purpose, or for now, and why.

/// One expected difference. `case` and `field` may contain `*` for any text.
pub struct Difference {
    /// Case and version, as the script names it.
    pub case: &'static str,
    /// Path of the field in the answer.
    pub field: &'static str,
    /// Which of the README's deliberate differences it is.
    pub item: usize,
    /// Why it is so.
    pub reason: &'static str,
}

impl Difference {
    /// Whether this row explains a difference.
    pub fn covers(&self, case: &str, field: &str) -> bool {
        matches(self.case, case) && matches(self.field, field)
    }
}

const fn row(
    item: usize,
    case: &'static str,
    field: &'static str,
    reason: &'static str,
) -> Difference {
    Difference { case, field, item, reason }
}

/// All of them.
pub const EXPECTED: &[Difference] = &[
    row(
        14,
        "ListOffsets at -3 after at -1 *",
        "*",
        "the newest record is one of those that are left; Kafka names one that is deleted",
    ),
    row(
        19,
        "DescribeGroups, downgraded by LeaveGroup v*",
        "groups[\"mixed-leaving\"].members[*].member_assignment",
        "what a member has yet to give up stays with it until it joins again; Kafka tells its \
         target, in which nobody has that partition",
    ),
    row(24, "ApiVersions v*", "api_keys*", "only what is served is advertised"),
    row(24, "ApiVersions v*", "*_features.length", "the three features below"),
    row(24, "ApiVersions v*", "*_features[\"share.version\"]*", "there are no share groups"),
    row(24, "ApiVersions v*", "*_features[\"streams.version\"]*", "there are no streams groups"),
    row(
        24,
        "ApiVersions v*",
        "*_features[\"eligible.leader.replicas.version\"]*",
        "one replica has no others to elect",
    ),
    row(
        16,
        "CreateTopics *",
        "*configs[\"min.insync.replicas\"].config_source",
        "Kafka's format step stores a cluster default for eligible leader replicas; one replica \
         has none",
    ),
    row(16, "DescribeConfigs *", "*min.insync.replicas*", "the same cluster default"),
    row(
        28,
        "IncrementalAlterConfigs of an unknown operation v*",
        "*",
        "an operation that does not exist is 42; Kafka's -1 is an exception that nobody caught",
    ),
    row(
        22,
        "IncrementalAlterConfigs of the default, unknown v*",
        "*",
        "a name that this broker does not know is refused; Kafka keeps what it never heard of",
    ),
    row(
        22,
        "IncrementalAlterConfigs of this node",
        "answer",
        "brokers have one configuration, which is changed as the cluster's default",
    ),
    row(
        28,
        "a consumer joins a group with a malformed assignment v1",
        "*",
        "a count that is no count is malformed too: 69 with a sentence; Kafka's -1 is an exception \
         that nobody caught",
    ),
    row(
        16,
        "DescribeConfigs of a group*",
        "*configs.length",
        "only consumer groups are configured",
    ),
    row(16, "DescribeConfigs of a group*", "*[\"share.*", "there are no share groups"),
    row(16, "DescribeConfigs of a group*", "*[\"streams.*", "there are no streams groups"),
    row(
        24,
        "DescribeConfigs of all keys v4",
        "*[\"group.coordinator.rebalance.protocols\"].value",
        "there are no streams groups",
    ),
    row(
        16,
        "DescribeConfigs of all keys v4",
        "*[\"sasl.enabled.mechanisms\"].read_only",
        "there is no SASL to be set up for a listener",
    ),
    row(
        16,
        "DescribeConfigs of all keys v4",
        "*[\"ssl.client.auth\"].read_only",
        "there is no TLS to be set up for a listener",
    ),
    row(
        28,
        "DescribeTopicPartitions of an empty name v0",
        "topics[*",
        "an empty name is 17 alone; in Kafka it is an exception that fails the request with -1",
    ),
    row(18, "DescribeQuorum v2", "nodes[0].listeners*", "the voter has no listener of its own"),
    row(
        11,
        "Metadata that creates v*",
        "topics[*",
        "the topic is served when it is first told; Kafka answers 3 and creates it behind that",
    ),
    row(
        7,
        "Produce codec *",
        "*.error_code",
        "an unknown codec is 76; Kafka's -1 is an exception that nobody caught, and no client \
         knows what to do with it",
    ),
    row(
        7,
        "Produce codec *",
        "*.log_start_offset",
        "before version 7 Kafka's exception comes before its log is asked",
    ),
    row(
        21,
        "EndTxn, not abort v5",
        "error_code",
        "a commit behind an abort that has raised the epoch is 90 since KAFKA-20785, which 4.3.1 \
         has not",
    ),
    row(
        7,
        "Produce undecodable *",
        "*.error_code",
        "an invalid record (87) in place of Kafka's -1",
    ),
    row(6, "Produce deltas *", "*", "offset deltas that are not consecutive are refused"),
    row(
        9,
        "Produce a batch that cannot be passed over v*",
        "*",
        "a bad batch fails its own partition; in Kafka all partitions of the request",
    ),
];

fn matches(pattern: &str, text: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(before) else { return false };
    (0..=rest.len())
        .filter(|&start| rest.is_char_boundary(start))
        .any(|start| matches(after, &rest[start..]))
}

#[test]
fn stars_stand_for_any_text() {
    assert!(matches("a*c", "abbc") && matches("*", "") && matches("a", "a"));
    assert!(matches("*b*", "abc") && !matches("a*c", "abd") && !matches("a", "ab"));
}

#[test]
fn the_readme_has_every_difference() {
    let readme = include_str!("../../README.md");
    let (_, list) = readme.split_once("\n## Deliberate differences").expect("the section");
    let (list, _) = list.split_once("\n## ").expect("another section");
    let items: Vec<usize> = list
        .lines()
        .filter_map(|line| line.split_once(". "))
        .filter_map(|(number, _)| number.parse().ok())
        .collect();
    assert_eq!(items, (1..=items.len()).collect::<Vec<_>>(), "counted from one on");
    for row in EXPECTED {
        assert!(items.contains(&row.item), "{} {} is item {}", row.case, row.field, row.item);
    }
}
