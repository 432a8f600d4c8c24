//! The one table of served APIs and feature levels, and the ApiVersions answers built from it.
//!
//! Owns which key and version is accepted, what is advertised, and where each API turns flexible.
//! Must never list a version that is not both decoded and encoded here: clients trust the range.
//! A new API is one variant, one row, one shape (`shapes.rs`) and one `Request` variant.
//! Source: the message definitions of Apache Kafka 4.3; KIP-896, KIP-511, KIP-584.

use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use kafka_protocol::protocol::StrBytes;

use crate::error_code::ErrorCode;

/// An API this broker serves; the number is its key on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i16)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub enum Api {
    Produce = 0,
    Fetch = 1,
    ListOffsets = 2,
    Metadata = 3,
    OffsetCommit = 8,
    OffsetFetch = 9,
    FindCoordinator = 10,
    JoinGroup = 11,
    Heartbeat = 12,
    LeaveGroup = 13,
    SyncGroup = 14,
    DescribeGroups = 15,
    ListGroups = 16,
    ApiVersions = 18,
    CreateTopics = 19,
    DeleteTopics = 20,
    DeleteRecords = 21,
    InitProducerId = 22,
    OffsetForLeaderEpoch = 23,
    AddPartitionsToTxn = 24,
    AddOffsetsToTxn = 25,
    EndTxn = 26,
    WriteTxnMarkers = 27,
    TxnOffsetCommit = 28,
    DescribeAcls = 29,
    CreateAcls = 30,
    DeleteAcls = 31,
    DescribeConfigs = 32,
    AlterConfigs = 33,
    AlterReplicaLogDirs = 34,
    DescribeLogDirs = 35,
    CreatePartitions = 37,
    CreateDelegationToken = 38,
    RenewDelegationToken = 39,
    ExpireDelegationToken = 40,
    DescribeDelegationToken = 41,
    DeleteGroups = 42,
    ElectLeaders = 43,
    IncrementalAlterConfigs = 44,
    AlterPartitionReassignments = 45,
    ListPartitionReassignments = 46,
    OffsetDelete = 47,
    DescribeClientQuotas = 48,
    AlterClientQuotas = 49,
    DescribeUserScramCredentials = 50,
    AlterUserScramCredentials = 51,
    DescribeQuorum = 55,
    UpdateFeatures = 57,
    DescribeCluster = 60,
    DescribeProducers = 61,
    UnregisterBroker = 64,
    DescribeTransactions = 65,
    ListTransactions = 66,
    ConsumerGroupHeartbeat = 68,
    ConsumerGroupDescribe = 69,
    ListConfigResources = 74,
    DescribeTopicPartitions = 75,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct ApiRow {
    /// The API.
    pub api: Api,
    /// Oldest version accepted.
    pub min: i16,
    /// Newest version accepted.
    pub max: i16,
    /// Oldest version told to clients.
    pub advertised_min: i16,
    /// First flexible version; above `max` if none is.
    pub flexible_from: i16,
    /// Newest version the codec library knows. A later one up to `max` has the same layout and
    /// is coded as this one.
    pub codec_max: i16,
}

/// A feature level of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// Name as in Kafka.
    pub name: &'static str,
    /// Lowest level supported.
    pub min: i16,
    /// Highest level supported.
    pub max: i16,
    /// Level in force; 0 is not shown.
    pub finalized: i16,
}

/// Every API served, by rising key.
pub const SERVED: &[ApiRow] = &[
    // Clients that probe compression support want to see 0 (KAFKA-18659); 0-2 are refused.
    ApiRow { advertised_min: 0, ..row(Api::Produce, 3, 13, 9) },
    row(Api::Fetch, 4, 18, 12),
    // 11 only adds a timestamp with a meaning (-6); the layout is that of 10.
    ApiRow { codec_max: 10, ..row(Api::ListOffsets, 1, 11, 6) },
    row(Api::Metadata, 0, 13, 9),
    row(Api::OffsetCommit, 2, 10, 8),
    row(Api::OffsetFetch, 1, 10, 6),
    row(Api::FindCoordinator, 0, 6, 3),
    row(Api::JoinGroup, 0, 9, 6),
    row(Api::Heartbeat, 0, 4, 4),
    row(Api::LeaveGroup, 0, 5, 4),
    row(Api::SyncGroup, 0, 5, 4),
    row(Api::DescribeGroups, 0, 6, 5),
    row(Api::ListGroups, 0, 5, 3),
    row(Api::ApiVersions, 0, 4, 3),
    row(Api::CreateTopics, 2, 7, 5),
    row(Api::DeleteTopics, 1, 6, 4),
    row(Api::DeleteRecords, 0, 2, 2),
    row(Api::InitProducerId, 0, 5, 2),
    row(Api::OffsetForLeaderEpoch, 2, 4, 4),
    row(Api::AddPartitionsToTxn, 0, 5, 3),
    row(Api::AddOffsetsToTxn, 0, 4, 3),
    row(Api::EndTxn, 0, 5, 3),
    // 2 adds a field to the request, which is decoded here; the response stays.
    ApiRow { codec_max: 1, ..row(Api::WriteTxnMarkers, 1, 2, 1) },
    row(Api::TxnOffsetCommit, 0, 5, 3),
    row(Api::DescribeAcls, 1, 3, 2),
    row(Api::CreateAcls, 1, 3, 2),
    row(Api::DeleteAcls, 1, 3, 2),
    row(Api::DescribeConfigs, 1, 4, 4),
    row(Api::AlterConfigs, 0, 2, 2),
    row(Api::AlterReplicaLogDirs, 1, 2, 2),
    // 5 only adds whether a directory is cordoned, and is written by hand.
    ApiRow { codec_max: 4, ..row(Api::DescribeLogDirs, 1, 5, 2) },
    row(Api::CreatePartitions, 0, 3, 2),
    row(Api::CreateDelegationToken, 1, 3, 2),
    row(Api::RenewDelegationToken, 1, 2, 2),
    row(Api::ExpireDelegationToken, 1, 2, 2),
    row(Api::DescribeDelegationToken, 1, 3, 2),
    row(Api::DeleteGroups, 0, 2, 2),
    row(Api::ElectLeaders, 0, 2, 2),
    row(Api::IncrementalAlterConfigs, 0, 1, 1),
    row(Api::AlterPartitionReassignments, 0, 1, 0),
    row(Api::ListPartitionReassignments, 0, 0, 0),
    row(Api::OffsetDelete, 0, 0, 1),
    row(Api::DescribeClientQuotas, 0, 1, 1),
    row(Api::AlterClientQuotas, 0, 1, 1),
    row(Api::DescribeUserScramCredentials, 0, 0, 0),
    row(Api::AlterUserScramCredentials, 0, 0, 0),
    row(Api::DescribeQuorum, 0, 2, 0),
    row(Api::UpdateFeatures, 0, 2, 0),
    row(Api::DescribeCluster, 0, 2, 0),
    row(Api::DescribeProducers, 0, 0, 0),
    row(Api::UnregisterBroker, 0, 0, 0),
    row(Api::DescribeTransactions, 0, 0, 0),
    row(Api::ListTransactions, 0, 2, 0),
    row(Api::ConsumerGroupHeartbeat, 0, 1, 0),
    row(Api::ConsumerGroupDescribe, 0, 1, 0),
    row(Api::ListConfigResources, 0, 1, 0),
    row(Api::DescribeTopicPartitions, 0, 0, 0),
];

/// Every feature that is implemented; one row each.
pub const FEATURES: &[Feature] = &[
    Feature { name: "metadata.version", min: 7, max: 30, finalized: 30 },
    Feature {
        name: "kraft.version",
        min: 0,
        max: 1,
        // Known to a broker, but told as finalized only by controllers.
        finalized: 0,
    },
    Feature { name: "transaction.version", min: 0, max: 2, finalized: 2 },
    Feature { name: "group.version", min: 0, max: 1, finalized: 1 },
];

/// The level in force of a feature; 0 if there is none of that name.
#[must_use]
pub fn finalized_level(name: &str) -> i16 {
    FEATURES.iter().find(|feature| feature.name == name).map_or(0, |feature| feature.finalized)
}

impl Api {
    /// The API with this key, if served.
    #[must_use]
    pub fn from_key(key: i16) -> Option<Api> {
        let place = BY_KEY.get(usize::try_from(key).ok()?)?;
        SERVED.get(usize::from(*place)).map(|row| row.api)
    }

    /// Its key on the wire.
    #[must_use]
    pub fn key(self) -> i16 {
        self as i16
    }

    /// Its place in [`SERVED`].
    #[must_use]
    pub fn place(self) -> usize {
        BY_KEY.get(self as usize).map_or(0, |place| usize::from(*place))
    }

    /// Its row of the table.
    #[must_use]
    pub fn row(self) -> &'static ApiRow {
        let place = BY_KEY.get(self as usize).copied().unwrap_or(ABSENT);
        SERVED.get(usize::from(place)).expect("invariant: every API has a row")
    }

    /// Whether this version is accepted.
    #[must_use]
    pub fn serves(self, version: i16) -> bool {
        let row = self.row();
        (row.min..=row.max).contains(&version)
    }

    /// Whether bodies of this version are flexible; so are then the request's header (v2) and,
    /// but for ApiVersions, the response's (v1).
    #[must_use]
    pub fn is_flexible(self, version: i16) -> bool {
        version >= self.row().flexible_from
    }

    /// Whether the response header of this version ends in tagged fields (v1). Never so for
    /// ApiVersions: its reader does not know yet what the broker speaks.
    #[must_use]
    pub fn has_flexible_response_header(self, version: i16) -> bool {
        self != Api::ApiVersions && self.is_flexible(version)
    }

    /// The version under which the codec library knows this layout.
    #[must_use]
    pub fn codec_version(self, version: i16) -> i16 {
        version.min(self.row().codec_max)
    }
}

/// The answer to a served ApiVersions request of `version`. `finalized_epoch` counts changes of
/// the finalized features, from 0; `throttle_ms` is shown from v1 on.
#[must_use]
pub fn api_versions(version: i16, finalized_epoch: i64, throttle_ms: i32) -> ApiVersionsResponse {
    let keys = SERVED.iter().map(advertised).collect();
    let response =
        ApiVersionsResponse::default().with_api_keys(keys).with_throttle_time_ms(throttle_ms);
    if version < FEATURES_SINCE {
        return response;
    }
    // Old Java clients cannot parse a supported feature whose lowest level is 0 (KAFKA-17011).
    let supported = FEATURES
        .iter()
        .filter(|feature| version >= ZERO_LEVELS_SINCE || feature.min > 0)
        .map(|feature| {
            SupportedFeatureKey::default()
                .with_name(StrBytes::from_static_str(feature.name))
                .with_min_version(feature.min)
                .with_max_version(feature.max)
        })
        .collect();
    let finalized = FEATURES
        .iter()
        .filter(|feature| feature.finalized > 0)
        .map(|feature| {
            FinalizedFeatureKey::default()
                .with_name(StrBytes::from_static_str(feature.name))
                .with_max_version_level(feature.finalized)
                .with_min_version_level(feature.finalized)
        })
        .collect();
    response
        .with_supported_features(supported)
        .with_finalized_features_epoch(finalized_epoch)
        .with_finalized_features(finalized)
}

/// The answer to an ApiVersions request of a version that is not served, to be encoded as v0:
/// error 35 and the range of ApiVersions itself, from which the client picks one (KIP-511).
#[must_use]
pub fn api_versions_unsupported() -> ApiVersionsResponse {
    ApiVersionsResponse::default()
        .with_error_code(ErrorCode::UnsupportedVersion.code())
        .with_api_keys(vec![advertised(Api::ApiVersions.row())])
}

fn advertised(row: &ApiRow) -> ApiVersion {
    ApiVersion::default()
        .with_api_key(row.api.key())
        .with_min_version(row.advertised_min)
        .with_max_version(row.max)
}

const fn row(api: Api, min: i16, max: i16, flexible_from: i16) -> ApiRow {
    ApiRow { api, min, max, advertised_min: min, flexible_from, codec_max: max }
}

/// Place in [`SERVED`] by key.
static BY_KEY: [u8; KEYS] = {
    let mut places = [ABSENT; KEYS];
    let mut place = 0;
    while place < SERVED.len() {
        #[allow(clippy::indexing_slicing, reason = "evaluated at compile time")]
        let key = SERVED[place].api as usize;
        #[allow(clippy::indexing_slicing, reason = "evaluated at compile time")]
        {
            places[key] = place as u8;
        }
        place += 1;
    }
    places
};

const KEYS: usize = 128;
const ABSENT: u8 = u8::MAX;
const FEATURES_SINCE: i16 = 3;
const ZERO_LEVELS_SINCE: i16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_and_found_by_key() {
        assert!(SERVED.is_sorted_by(|row, next| row.api.key() < next.api.key()));
        for row in SERVED {
            assert_eq!(Api::from_key(row.api.key()), Some(row.api));
            assert_eq!(row.api.row().api, row.api);
            assert!(row.advertised_min <= row.min && row.min <= row.codec_max);
            assert!(row.codec_max <= row.max);
        }
        for key in [4, 7, 59, 127, 128, 999, i16::MAX, -1, i16::MIN] {
            assert_eq!(Api::from_key(key), None, "key {key}");
        }
    }

    #[test]
    fn ranges_are_those_of_kafka_4_3() {
        let of = |row: &ApiRow| (row.api.key(), row.min, row.max, row.flexible_from);
        let ranges: Vec<(i16, i16, i16, i16)> = SERVED.iter().map(of).collect();
        // Key, oldest, newest, first flexible.
        assert_eq!(
            ranges,
            [
                (0, 3, 13, 9),
                (1, 4, 18, 12),
                (2, 1, 11, 6),
                (3, 0, 13, 9),
                (8, 2, 10, 8),
                (9, 1, 10, 6),
                (10, 0, 6, 3),
                (11, 0, 9, 6),
                (12, 0, 4, 4),
                (13, 0, 5, 4),
                (14, 0, 5, 4),
                (15, 0, 6, 5),
                (16, 0, 5, 3),
                (18, 0, 4, 3),
                (19, 2, 7, 5),
                (20, 1, 6, 4),
                (21, 0, 2, 2),
                (22, 0, 5, 2),
                (23, 2, 4, 4),
                (24, 0, 5, 3),
                (25, 0, 4, 3),
                (26, 0, 5, 3),
                (27, 1, 2, 1),
                (28, 0, 5, 3),
                (29, 1, 3, 2),
                (30, 1, 3, 2),
                (31, 1, 3, 2),
                (32, 1, 4, 4),
                (33, 0, 2, 2),
                (34, 1, 2, 2),
                (35, 1, 5, 2),
                (37, 0, 3, 2),
                (38, 1, 3, 2),
                (39, 1, 2, 2),
                (40, 1, 2, 2),
                (41, 1, 3, 2),
                (42, 0, 2, 2),
                (43, 0, 2, 2),
                (44, 0, 1, 1),
                (45, 0, 1, 0),
                (46, 0, 0, 0),
                (47, 0, 0, 1),
                (48, 0, 1, 1),
                (49, 0, 1, 1),
                (50, 0, 0, 0),
                (51, 0, 0, 0),
                (55, 0, 2, 0),
                (57, 0, 2, 0),
                (60, 0, 2, 0),
                (61, 0, 0, 0),
                (64, 0, 0, 0),
                (65, 0, 0, 0),
                (66, 0, 2, 0),
                (68, 0, 1, 0),
                (69, 0, 1, 0),
                (74, 0, 1, 0),
                (75, 0, 0, 0),
            ]
        );
    }

    #[test]
    fn versions_are_served_and_coded_as_the_table_says() {
        assert!(!Api::Produce.serves(2) && Api::Produce.serves(3));
        assert!(Api::Produce.serves(13) && !Api::Produce.serves(14));
        assert!(!Api::ApiVersions.serves(-1));
        assert_eq!(Api::ListOffsets.codec_version(11), 10);
        assert_eq!(Api::ListOffsets.codec_version(9), 9);
    }

    #[test]
    fn only_what_is_served_is_advertised() {
        let answer = api_versions(4, 0, 0);
        let keys: Vec<(i16, i16, i16)> = answer
            .api_keys
            .iter()
            .map(|key| (key.api_key, key.min_version, key.max_version))
            .collect();
        assert_eq!(keys[0], (0, 0, 13), "Produce from 0");
        assert_eq!(keys[2], (2, 1, 11));
        assert_eq!(keys.len(), SERVED.len());
        assert_eq!(answer.finalized_features_epoch, 0);
        let supported: Vec<&str> =
            answer.supported_features.iter().map(|f| f.name.as_str()).collect();
        let features = ["metadata.version", "kraft.version", "transaction.version"];
        assert_eq!(supported[..3], features);
        assert_eq!(supported[3..], ["group.version"]);
        let older = api_versions(3, 7, 0);
        assert_eq!(older.supported_features.len(), 1, "levels from 0 dropped");
        let finalized: Vec<(&str, i16, i16)> = older
            .finalized_features
            .iter()
            .map(|f| (f.name.as_str(), f.min_version_level, f.max_version_level))
            .collect();
        let expected = [("metadata.version", 30, 30), ("transaction.version", 2, 2)];
        assert_eq!(finalized[..2], expected);
        assert_eq!(finalized[2..], [("group.version", 1, 1)]);
        assert_eq!(older.finalized_features_epoch, 7);
        let oldest = api_versions(0, 7, 0);
        assert!(oldest.supported_features.is_empty() && oldest.finalized_features.is_empty());
        assert_eq!(oldest.finalized_features_epoch, -1);
    }
}
