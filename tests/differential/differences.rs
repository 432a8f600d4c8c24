//! Where Ringlog's answers differ from Apache Kafka's on purpose, or for now, and why.

/// One expected difference. `case` and `field` may contain `*` for any text.
pub struct Difference {
    /// Case and version, as the script names it.
    pub case: &'static str,
    /// Path of the field in the answer.
    pub field: &'static str,
    /// Why it is so.
    pub reason: &'static str,
}

impl Difference {
    /// Whether this row explains a difference.
    pub fn covers(&self, case: &str, field: &str) -> bool {
        matches(self.case, case) && matches(self.field, field)
    }
}

const fn row(case: &'static str, field: &'static str, reason: &'static str) -> Difference {
    Difference { case, field, reason }
}

/// All of them.
pub const EXPECTED: &[Difference] = &[
    row(
        "ListOffsets at -3 after at -1 *",
        "*",
        "the newest record is one of those that are left; Kafka names one that is deleted",
    ),
    row(
        "DescribeGroups, downgraded by LeaveGroup v*",
        "groups[\"mixed-leaving\"].members[*].member_assignment",
        "what a member has yet to give up stays with it until it joins again; Kafka tells its \
         target, in which nobody has that partition",
    ),
    row("ApiVersions v*", "api_keys*", "only what is served is advertised"),
    row("ApiVersions v*", "*_features.length", "the three features below"),
    row("ApiVersions v*", "*_features[\"share.version\"]*", "there are no share groups"),
    row("ApiVersions v*", "*_features[\"streams.version\"]*", "there are no streams groups"),
    row(
        "ApiVersions v*",
        "*_features[\"eligible.leader.replicas.version\"]*",
        "one replica has no others to elect",
    ),
    row(
        "CreateTopics *",
        "*configs[\"min.insync.replicas\"].config_source",
        "Kafka's format step stores a cluster default for eligible leader replicas; one replica \
         has none",
    ),
    row("DescribeConfigs *", "*min.insync.replicas*", "the same cluster default"),
    row(
        "DescribeConfigs of the broker v*",
        "*auto.create.topics.enable*",
        "the Kafka side has this default in its file, and tells so",
    ),
    row(
        "IncrementalAlterConfigs of an unknown operation v*",
        "*",
        "an operation that does not exist is 42; Kafka's -1 is an exception that nobody caught",
    ),
    row(
        "IncrementalAlterConfigs of the default, unknown v*",
        "*",
        "a name that this broker does not know is refused; Kafka keeps what it never heard of",
    ),
    row(
        "IncrementalAlterConfigs of this node",
        "answer",
        "brokers have one configuration, which is changed as the cluster's default",
    ),
    row(
        "a consumer joins a group with a malformed assignment v1",
        "*",
        "a count that is no count is malformed too: 69 with a sentence; Kafka's -1 is an exception \
         that nobody caught",
    ),
    row("DescribeConfigs of a group*", "*configs.length", "only consumer groups are configured"),
    row("DescribeConfigs of a group*", "*[\"share.*", "there are no share groups"),
    row("DescribeConfigs of a group*", "*[\"streams.*", "there are no streams groups"),
    row("DescribeConfigs of all keys v4", "*configs.length", "the four keys below"),
    row("DescribeConfigs of all keys v4", "*[\"allow.everyone*", "told although it is not set"),
    row("DescribeConfigs of all keys v4", "*[\"super.users*", "told although it is not set"),
    row(
        "DescribeConfigs of all keys v4",
        "*[\"group.consumer.regex.refresh.interval.ms\"*",
        "a setting that Kafka has and does not tell",
    ),
    row(
        "DescribeConfigs of all keys v4",
        "*[\"producer.id.expiration.check.interval.ms\"*",
        "a setting that Kafka has and does not tell",
    ),
    row(
        "DescribeConfigs of all keys v4",
        "*[\"group.coordinator.rebalance.protocols\"].value",
        "there are no streams groups",
    ),
    row(
        "DescribeConfigs of all keys v4",
        "*[\"sasl.enabled.mechanisms\"].read_only",
        "there is no SASL to be set up for a listener",
    ),
    row(
        "DescribeConfigs of all keys v4",
        "*[\"ssl.client.auth\"].read_only",
        "there is no TLS to be set up for a listener",
    ),
    row(
        "DescribeTopicPartitions of an empty name v0",
        "topics[*",
        "an empty name is 17 alone; in Kafka it is an exception that fails the request with -1",
    ),
    row("DescribeQuorum v2", "nodes[0].listeners*", "the voter has no listener of its own"),
    row(
        "Metadata that creates v*",
        "topics[*",
        "the topic is served when it is first told; Kafka answers 3 and creates it behind that",
    ),
    row(
        "Produce codec *",
        "*.error_code",
        "an unknown codec is 76; Kafka's -1 is an exception that nobody caught, and no client \
         knows what to do with it",
    ),
    row(
        "Produce codec *",
        "*.log_start_offset",
        "before version 7 Kafka's exception comes before its log is asked",
    ),
    row(
        "EndTxn, not abort v5",
        "error_code",
        "a commit behind an abort that has raised the epoch is 90 since KAFKA-20785, which 4.3.1 \
         has not",
    ),
    row("Produce undecodable *", "*.error_code", "an invalid record (87) in place of Kafka's -1"),
    row("Produce deltas *", "*", "offset deltas that are not consecutive are refused"),
    row(
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
