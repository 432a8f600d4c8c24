//! Kafka's error codes: the values a client sees.
//!
//! Owns the numbers and names only. Which code answers which fault is decided where the fault is
//! found; how an operating error becomes a code is decided in one place per shard.
//! Source: the Kafka protocol guide's error table.

macro_rules! error_codes {
    ($(#[doc = $name:literal] $variant:ident = $code:literal,)*) => {
        /// An error code of the Kafka protocol.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(i16)]
        pub enum ErrorCode { $(#[doc = $name] $variant = $code,)* }

        impl ErrorCode {
            /// Every code that is known here.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant),*];

            /// Its name in the protocol.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(ErrorCode::$variant => $name.trim_matches([' ', '`']),)* }
            }
        }
    };
}

error_codes! {
    /// `UNKNOWN_SERVER_ERROR`
    UnknownServerError = -1,
    /// `NONE`
    None = 0,
    /// `OFFSET_OUT_OF_RANGE`
    OffsetOutOfRange = 1,
    /// `CORRUPT_MESSAGE`
    CorruptMessage = 2,
    /// `UNKNOWN_TOPIC_OR_PARTITION`
    UnknownTopicOrPartition = 3,
    /// `INVALID_FETCH_SIZE`
    InvalidFetchSize = 4,
    /// `LEADER_NOT_AVAILABLE`
    LeaderNotAvailable = 5,
    /// `NOT_LEADER_OR_FOLLOWER`
    NotLeaderOrFollower = 6,
    /// `REQUEST_TIMED_OUT`
    RequestTimedOut = 7,
    /// `REPLICA_NOT_AVAILABLE`
    ReplicaNotAvailable = 9,
    /// `MESSAGE_TOO_LARGE`
    MessageTooLarge = 10,
    /// `OFFSET_METADATA_TOO_LARGE`
    OffsetMetadataTooLarge = 12,
    /// `COORDINATOR_LOAD_IN_PROGRESS`
    CoordinatorLoadInProgress = 14,
    /// `COORDINATOR_NOT_AVAILABLE`
    CoordinatorNotAvailable = 15,
    /// `NOT_COORDINATOR`
    NotCoordinator = 16,
    /// `INVALID_TOPIC_EXCEPTION`
    InvalidTopicException = 17,
    /// `RECORD_LIST_TOO_LARGE`
    RecordListTooLarge = 18,
    /// `NOT_ENOUGH_REPLICAS`
    NotEnoughReplicas = 19,
    /// `NOT_ENOUGH_REPLICAS_AFTER_APPEND`
    NotEnoughReplicasAfterAppend = 20,
    /// `INVALID_REQUIRED_ACKS`
    InvalidRequiredAcks = 21,
    /// `ILLEGAL_GENERATION`
    IllegalGeneration = 22,
    /// `INCONSISTENT_GROUP_PROTOCOL`
    InconsistentGroupProtocol = 23,
    /// `INVALID_GROUP_ID`
    InvalidGroupId = 24,
    /// `UNKNOWN_MEMBER_ID`
    UnknownMemberId = 25,
    /// `INVALID_SESSION_TIMEOUT`
    InvalidSessionTimeout = 26,
    /// `REBALANCE_IN_PROGRESS`
    RebalanceInProgress = 27,
    /// `TOPIC_AUTHORIZATION_FAILED`
    TopicAuthorizationFailed = 29,
    /// `GROUP_AUTHORIZATION_FAILED`
    GroupAuthorizationFailed = 30,
    /// `CLUSTER_AUTHORIZATION_FAILED`
    ClusterAuthorizationFailed = 31,
    /// `INVALID_TIMESTAMP`
    InvalidTimestamp = 32,
    /// `UNSUPPORTED_SASL_MECHANISM`
    UnsupportedSaslMechanism = 33,
    /// `ILLEGAL_SASL_STATE`
    IllegalSaslState = 34,
    /// `UNSUPPORTED_VERSION`
    UnsupportedVersion = 35,
    /// `TOPIC_ALREADY_EXISTS`
    TopicAlreadyExists = 36,
    /// `INVALID_PARTITIONS`
    InvalidPartitions = 37,
    /// `INVALID_REPLICATION_FACTOR`
    InvalidReplicationFactor = 38,
    /// `INVALID_REPLICA_ASSIGNMENT`
    InvalidReplicaAssignment = 39,
    /// `INVALID_CONFIG`
    InvalidConfig = 40,
    /// `NOT_CONTROLLER`
    NotController = 41,
    /// `INVALID_REQUEST`
    InvalidRequest = 42,
    /// `UNSUPPORTED_FOR_MESSAGE_FORMAT`
    UnsupportedForMessageFormat = 43,
    /// `POLICY_VIOLATION`
    PolicyViolation = 44,
    /// `OUT_OF_ORDER_SEQUENCE_NUMBER`
    OutOfOrderSequenceNumber = 45,
    /// `DUPLICATE_SEQUENCE_NUMBER`
    DuplicateSequenceNumber = 46,
    /// `INVALID_PRODUCER_EPOCH`
    InvalidProducerEpoch = 47,
    /// `INVALID_TXN_STATE`
    InvalidTxnState = 48,
    /// `INVALID_PRODUCER_ID_MAPPING`
    InvalidProducerIdMapping = 49,
    /// `INVALID_TRANSACTION_TIMEOUT`
    InvalidTransactionTimeout = 50,
    /// `CONCURRENT_TRANSACTIONS`
    ConcurrentTransactions = 51,
    /// `TRANSACTION_COORDINATOR_FENCED`
    TransactionCoordinatorFenced = 52,
    /// `TRANSACTIONAL_ID_AUTHORIZATION_FAILED`
    TransactionalIdAuthorizationFailed = 53,
    /// `SECURITY_DISABLED`
    SecurityDisabled = 54,
    /// `OPERATION_NOT_ATTEMPTED`
    OperationNotAttempted = 55,
    /// `KAFKA_STORAGE_ERROR`
    KafkaStorageError = 56,
    /// `LOG_DIR_NOT_FOUND`
    LogDirNotFound = 57,
    /// `SASL_AUTHENTICATION_FAILED`
    SaslAuthenticationFailed = 58,
    /// `UNKNOWN_PRODUCER_ID`
    UnknownProducerId = 59,
    /// `DELEGATION_TOKEN_AUTH_DISABLED`
    DelegationTokenAuthDisabled = 61,
    /// `DELEGATION_TOKEN_REQUEST_NOT_ALLOWED`
    DelegationTokenRequestNotAllowed = 64,
    /// `NON_EMPTY_GROUP`
    NonEmptyGroup = 68,
    /// `GROUP_ID_NOT_FOUND`
    GroupIdNotFound = 69,
    /// `FETCH_SESSION_ID_NOT_FOUND`
    FetchSessionIdNotFound = 70,
    /// `INVALID_FETCH_SESSION_EPOCH`
    InvalidFetchSessionEpoch = 71,
    /// `LISTENER_NOT_FOUND`
    ListenerNotFound = 72,
    /// `TOPIC_DELETION_DISABLED`
    TopicDeletionDisabled = 73,
    /// `FENCED_LEADER_EPOCH`
    FencedLeaderEpoch = 74,
    /// `UNKNOWN_LEADER_EPOCH`
    UnknownLeaderEpoch = 75,
    /// `UNSUPPORTED_COMPRESSION_TYPE`
    UnsupportedCompressionType = 76,
    /// `STALE_BROKER_EPOCH`
    StaleBrokerEpoch = 77,
    /// `OFFSET_NOT_AVAILABLE`
    OffsetNotAvailable = 78,
    /// `MEMBER_ID_REQUIRED`
    MemberIdRequired = 79,
    /// `PREFERRED_LEADER_NOT_AVAILABLE`
    PreferredLeaderNotAvailable = 80,
    /// `GROUP_MAX_SIZE_REACHED`
    GroupMaxSizeReached = 81,
    /// `FENCED_INSTANCE_ID`
    FencedInstanceId = 82,
    /// `ELECTION_NOT_NEEDED`
    ElectionNotNeeded = 84,
    /// `NO_REASSIGNMENT_IN_PROGRESS`
    NoReassignmentInProgress = 85,
    /// `GROUP_SUBSCRIBED_TO_TOPIC`
    GroupSubscribedToTopic = 86,
    /// `INVALID_RECORD`
    InvalidRecord = 87,
    /// `UNSTABLE_OFFSET_COMMIT`
    UnstableOffsetCommit = 88,
    /// `THROTTLING_QUOTA_EXCEEDED`
    ThrottlingQuotaExceeded = 89,
    /// `PRODUCER_FENCED`
    ProducerFenced = 90,
    /// `RESOURCE_NOT_FOUND`
    ResourceNotFound = 91,
    /// `DUPLICATE_RESOURCE`
    DuplicateResource = 92,
    /// `UNACCEPTABLE_CREDENTIAL`
    UnacceptableCredential = 93,
    /// `INVALID_UPDATE_VERSION`
    InvalidUpdateVersion = 95,
    /// `UNKNOWN_TOPIC_ID`
    UnknownTopicId = 100,
    /// `BROKER_ID_NOT_REGISTERED`
    BrokerIdNotRegistered = 102,
    /// `INCONSISTENT_TOPIC_ID`
    InconsistentTopicId = 103,
    /// `TRANSACTIONAL_ID_NOT_FOUND`
    TransactionalIdNotFound = 105,
    /// `FETCH_SESSION_TOPIC_ID_ERROR`
    FetchSessionTopicIdError = 106,
    /// `OFFSET_MOVED_TO_TIERED_STORAGE`
    OffsetMovedToTieredStorage = 109,
    /// `FENCED_MEMBER_EPOCH`
    FencedMemberEpoch = 110,
    /// `UNRELEASED_INSTANCE_ID`
    UnreleasedInstanceId = 111,
    /// `UNSUPPORTED_ASSIGNOR`
    UnsupportedAssignor = 112,
    /// `STALE_MEMBER_EPOCH`
    StaleMemberEpoch = 113,
    /// `MISMATCHED_ENDPOINT_TYPE`
    MismatchedEndpointType = 114,
    /// `UNSUPPORTED_ENDPOINT_TYPE`
    UnsupportedEndpointType = 115,
    /// `UNKNOWN_SUBSCRIPTION_ID`
    UnknownSubscriptionId = 117,
    /// `TELEMETRY_TOO_LARGE`
    TelemetryTooLarge = 118,
    /// `TRANSACTION_ABORTABLE`
    TransactionAbortable = 120,
    /// `INVALID_REGULAR_EXPRESSION`
    InvalidRegularExpression = 128,
    /// `REBOOTSTRAP_REQUIRED`
    RebootstrapRequired = 129,
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> i16 {
        self as i16
    }

    /// The code of this number, if it is known here.
    #[must_use]
    pub fn from_code(code: i16) -> Option<ErrorCode> {
        ErrorCode::ALL.iter().copied().find(|known| known.code() == code)
    }

    /// Whether this is `NONE`.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == ErrorCode::None
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> i16 {
        code.code()
    }
}
