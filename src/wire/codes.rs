//! The error codes that a response carries, for counting them.
//!
//! Owns which fields of which response are codes: one row per response, so that a response without
//! a row does not compile. Must never change a response. A code above a list counts only if it is
//! an error: the list has the codes of what was asked.
//! Source: Kafka's `AbstractResponse.errorCounts`.

use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, AlterClientQuotasResponse,
    AlterConfigsResponse, AlterPartitionReassignmentsResponse, AlterReplicaLogDirsResponse,
    AlterUserScramCredentialsResponse, ApiVersionsResponse, ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse, CreateAclsResponse, CreateDelegationTokenResponse,
    CreatePartitionsResponse, CreateTopicsResponse, DeleteAclsResponse, DeleteGroupsResponse,
    DeleteRecordsResponse, DeleteTopicsResponse, DescribeAclsResponse,
    DescribeClientQuotasResponse, DescribeClusterResponse, DescribeConfigsResponse,
    DescribeDelegationTokenResponse, DescribeGroupsResponse, DescribeLogDirsResponse,
    DescribeProducersResponse, DescribeQuorumResponse, DescribeTopicPartitionsResponse,
    DescribeTransactionsResponse, DescribeUserScramCredentialsResponse, ElectLeadersResponse,
    EndTxnResponse, ExpireDelegationTokenResponse, FindCoordinatorResponse, HeartbeatResponse,
    IncrementalAlterConfigsResponse, InitProducerIdResponse, JoinGroupResponse, LeaveGroupResponse,
    ListConfigResourcesResponse, ListGroupsResponse, ListOffsetsResponse,
    ListPartitionReassignmentsResponse, ListTransactionsResponse, MetadataResponse,
    OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse, OffsetForLeaderEpochResponse,
    RenewDelegationTokenResponse, SyncGroupResponse, TxnOffsetCommitResponse,
    UnregisterBrokerResponse, UpdateFeaturesResponse, WriteTxnMarkersResponse,
};
use smallvec::SmallVec;

/// Codes, each with how many places of a response carry it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Codes(SmallVec<[(i16, u32); 2]>);

impl Codes {
    /// The codes of a response that carries one.
    #[must_use]
    pub fn one(code: i16) -> Codes {
        let mut codes = Codes::default();
        codes.note(code);
        codes
    }

    /// The codes of a response.
    #[must_use]
    pub fn of(response: &impl Coded) -> Codes {
        let mut codes = Codes::default();
        response.note(&mut codes);
        codes
    }

    /// One more place carries this.
    pub fn note(&mut self, code: i16) {
        match self.0.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => self.0.push((code, 1)),
        }
    }

    /// Every code with its count.
    pub fn iter(&self) -> impl Iterator<Item = (i16, u32)> + '_ {
        self.0.iter().copied()
    }
}

/// A response whose codes are known.
pub trait Coded {
    /// Notes all of them.
    fn note(&self, codes: &mut Codes);
}

/// `code` is a field with a code; `above code` counts only errors; `list [..]` is a list of more.
macro_rules! coded {
    ($($response:ident { $($fields:tt)* })*) => {
        $(impl Coded for $response {
            fn note(&self, codes: &mut Codes) {
                walk!(self, codes, $($fields)*);
            }
        })*
    };
}

macro_rules! walk {
    ($of:expr, $codes:ident,) => {};
    ($of:expr, $codes:ident, above $code:ident $($rest:tt)*) => {
        if $of.$code != 0 {
            $codes.note($of.$code);
        }
        walk!($of, $codes, $($rest)*);
    };
    ($of:expr, $codes:ident, $list:ident [ $($fields:tt)* ] $($rest:tt)*) => {
        for each in &$of.$list {
            walk!(each, $codes, $($fields)*);
        }
        walk!($of, $codes, $($rest)*);
    };
    ($of:expr, $codes:ident, $code:ident $($rest:tt)*) => {
        $codes.note($of.$code);
        walk!($of, $codes, $($rest)*);
    };
}

coded! {
    AddOffsetsToTxnResponse { error_code }
    AddPartitionsToTxnResponse {
        above error_code
        results_by_transaction [ topic_results [ results_by_partition [ partition_error_code ] ] ]
        results_by_topic_v3_and_below [ results_by_partition [ partition_error_code ] ]
    }
    AlterClientQuotasResponse { entries [ error_code ] }
    AlterConfigsResponse { responses [ error_code ] }
    AlterPartitionReassignmentsResponse {
        above error_code responses [ partitions [ error_code ] ]
    }
    AlterReplicaLogDirsResponse { results [ partitions [ error_code ] ] }
    AlterUserScramCredentialsResponse { results [ error_code ] }
    ApiVersionsResponse { error_code }
    ConsumerGroupDescribeResponse { groups [ error_code ] }
    ConsumerGroupHeartbeatResponse { error_code }
    CreateAclsResponse { results [ error_code ] }
    CreateDelegationTokenResponse { error_code }
    CreatePartitionsResponse { results [ error_code ] }
    CreateTopicsResponse { topics [ error_code ] }
    DeleteAclsResponse { filter_results [ error_code ] }
    DeleteGroupsResponse { results [ error_code ] }
    DeleteRecordsResponse { topics [ partitions [ error_code ] ] }
    DeleteTopicsResponse { responses [ error_code ] }
    DescribeAclsResponse { error_code }
    DescribeClientQuotasResponse { error_code }
    DescribeClusterResponse { error_code }
    DescribeConfigsResponse { results [ error_code ] }
    DescribeDelegationTokenResponse { error_code }
    DescribeGroupsResponse { groups [ error_code ] }
    DescribeLogDirsResponse { above error_code results [ error_code ] }
    DescribeProducersResponse { topics [ partitions [ error_code ] ] }
    DescribeQuorumResponse { above error_code topics [ partitions [ error_code ] ] }
    DescribeTopicPartitionsResponse { topics [ error_code ] }
    DescribeTransactionsResponse { transaction_states [ error_code ] }
    DescribeUserScramCredentialsResponse { above error_code results [ error_code ] }
    ElectLeadersResponse {
        above error_code replica_election_results [ partition_result [ error_code ] ]
    }
    EndTxnResponse { error_code }
    ExpireDelegationTokenResponse { error_code }
    FindCoordinatorResponse { above error_code coordinators [ error_code ] }
    HeartbeatResponse { error_code }
    IncrementalAlterConfigsResponse { responses [ error_code ] }
    InitProducerIdResponse { error_code }
    JoinGroupResponse { error_code }
    LeaveGroupResponse { above error_code members [ error_code ] }
    ListConfigResourcesResponse { error_code }
    ListGroupsResponse { error_code }
    ListOffsetsResponse { topics [ partitions [ error_code ] ] }
    ListPartitionReassignmentsResponse { error_code }
    ListTransactionsResponse { error_code }
    MetadataResponse { above error_code topics [ error_code ] }
    OffsetCommitResponse { topics [ partitions [ error_code ] ] }
    OffsetDeleteResponse { above error_code topics [ partitions [ error_code ] ] }
    OffsetFetchResponse {
        above error_code
        topics [ partitions [ error_code ] ]
        groups [ above error_code topics [ partitions [ error_code ] ] ]
    }
    OffsetForLeaderEpochResponse { topics [ partitions [ error_code ] ] }
    RenewDelegationTokenResponse { error_code }
    SyncGroupResponse { error_code }
    TxnOffsetCommitResponse { topics [ partitions [ error_code ] ] }
    UnregisterBrokerResponse { error_code }
    UpdateFeaturesResponse { above error_code results [ error_code ] }
    WriteTxnMarkersResponse { markers [ topics [ partitions [ error_code ] ] ] }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::metadata_response::MetadataResponseTopic;

    use super::*;

    #[test]
    fn every_place_counts_and_a_none_above_a_list_does_not() {
        let topic = |code| MetadataResponseTopic::default().with_error_code(code);
        let topics = [0, 3, 0, 17, 3, 3].map(topic).to_vec();
        let response = MetadataResponse::default().with_topics(topics);
        let codes: Vec<_> = Codes::of(&response).iter().collect();
        assert_eq!(codes, [(0, 2), (3, 3), (17, 1)]);
        let failed = MetadataResponse::default().with_error_code(41);
        assert_eq!(Codes::of(&failed), Codes::one(41));
        assert_eq!(Codes::of(&EndTxnResponse::default()), Codes::one(0));
    }
}
