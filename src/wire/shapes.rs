//! What each API's request body looks like, version by version.
//!
//! Owns the descriptions that [`super::shape`] walks. Must agree with the codec library on every
//! served version: a property test encodes random requests of all of them and requires that they
//! are accepted and consumed exactly. Where Kafka's definitions are stricter than the codec
//! (a null in a version that does not allow it), these are as strict as Kafka.
//! Source: the request definitions of Apache Kafka 4.3.

use super::shape::{Field, Kind, Shape, Structure};
use super::versions::Api;
use crate::limits::{REQUEST_ELEMENTS_LARGE_MAX, REQUEST_ELEMENTS_MAX, REQUEST_ELEMENTS_SMALL_MAX};

mod groups;

/// The shape of `api`'s requests.
#[must_use]
pub fn shape_of(api: Api) -> &'static Shape {
    match api {
        Api::Produce => &PRODUCE,
        Api::Fetch => &FETCH,
        Api::ListOffsets => &LIST_OFFSETS,
        Api::Metadata => &METADATA,
        Api::OffsetCommit => &OFFSET_COMMIT,
        Api::OffsetFetch => &OFFSET_FETCH,
        Api::FindCoordinator => &groups::FIND_COORDINATOR,
        Api::JoinGroup => &groups::JOIN_GROUP,
        Api::Heartbeat => &groups::HEARTBEAT,
        Api::LeaveGroup => &groups::LEAVE_GROUP,
        Api::SyncGroup => &groups::SYNC_GROUP,
        Api::DescribeGroups => &groups::DESCRIBE_GROUPS,
        Api::ListGroups => &groups::LIST_GROUPS,
        Api::ApiVersions => &API_VERSIONS,
        Api::CreateTopics => &CREATE_TOPICS,
        Api::DeleteTopics => &DELETE_TOPICS,
        Api::DeleteRecords => &DELETE_RECORDS,
        Api::InitProducerId => &INIT_PRODUCER_ID,
        Api::OffsetForLeaderEpoch => &OFFSET_FOR_LEADER_EPOCH,
        Api::AddPartitionsToTxn => &ADD_PARTITIONS_TO_TXN,
        Api::AddOffsetsToTxn => &ADD_OFFSETS_TO_TXN,
        Api::EndTxn => &END_TXN,
        Api::WriteTxnMarkers => &WRITE_TXN_MARKERS,
        Api::TxnOffsetCommit => &TXN_OFFSET_COMMIT,
        Api::DescribeAcls => &DESCRIBE_ACLS,
        Api::CreateAcls => &CREATE_ACLS,
        Api::DeleteAcls => &DELETE_ACLS,
        Api::DescribeConfigs => &DESCRIBE_CONFIGS,
        Api::AlterConfigs => &ALTER_CONFIGS,
        Api::AlterReplicaLogDirs => &ALTER_REPLICA_LOG_DIRS,
        Api::DescribeLogDirs => &DESCRIBE_LOG_DIRS,
        Api::CreatePartitions => &CREATE_PARTITIONS,
        Api::CreateDelegationToken => &CREATE_DELEGATION_TOKEN,
        Api::RenewDelegationToken => &RENEW_DELEGATION_TOKEN,
        Api::ExpireDelegationToken => &EXPIRE_DELEGATION_TOKEN,
        Api::DescribeDelegationToken => &DESCRIBE_DELEGATION_TOKEN,
        Api::DeleteGroups => &groups::DELETE_GROUPS,
        Api::ConsumerGroupHeartbeat => &groups::CONSUMER_GROUP_HEARTBEAT,
        Api::ConsumerGroupDescribe => &groups::CONSUMER_GROUP_DESCRIBE,
        Api::ElectLeaders => &ELECT_LEADERS,
        Api::IncrementalAlterConfigs => &INCREMENTAL_ALTER_CONFIGS,
        Api::AlterPartitionReassignments => &ALTER_PARTITION_REASSIGNMENTS,
        Api::ListPartitionReassignments => &LIST_PARTITION_REASSIGNMENTS,
        Api::OffsetDelete => &groups::OFFSET_DELETE,
        Api::DescribeClientQuotas => &DESCRIBE_CLIENT_QUOTAS,
        Api::AlterClientQuotas => &ALTER_CLIENT_QUOTAS,
        Api::DescribeUserScramCredentials => &DESCRIBE_USER_SCRAM_CREDENTIALS,
        Api::AlterUserScramCredentials => &ALTER_USER_SCRAM_CREDENTIALS,
        Api::DescribeQuorum => &DESCRIBE_QUORUM,
        Api::UpdateFeatures => &UPDATE_FEATURES,
        Api::DescribeCluster => &DESCRIBE_CLUSTER,
        Api::DescribeProducers => &DESCRIBE_PRODUCERS,
        Api::UnregisterBroker => &UNREGISTER_BROKER,
        Api::DescribeTransactions => &DESCRIBE_TRANSACTIONS,
        Api::ListTransactions => &LIST_TRANSACTIONS,
        Api::ListConfigResources => &LIST_CONFIG_RESOURCES,
        Api::DescribeTopicPartitions => &DESCRIBE_TOPIC_PARTITIONS,
    }
}

static PRODUCE: Shape = Shape {
    body: structure(&[
        text().nullable(3), // transactional id
        INT16,              // acks
        INT32,              // timeout
        array(&Kind::Nested(&structure(&[
            text().until(12), // topic name
            UUID.since(13),   // topic id
            array(&Kind::Nested(&structure(&[
                INT32,                     // partition
                Field::blob().nullable(0), // records
            ]))),
        ]))),
    ]),
    flexible_from: 9,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static FETCH: Shape = Shape {
    body: Structure {
        fields: &[
            INT32.until(14), // replica id
            INT32,           // longest wait
            INT32,           // fewest bytes
            INT32,           // most bytes
            INT8,            // isolation level
            INT32.since(7),  // session id
            INT32.since(7),  // session epoch
            array(&Kind::Nested(&structure(&[
                text().until(12), // topic name
                UUID.since(13),   // topic id
                array(&Kind::Nested(&Structure {
                    fields: &[
                        INT32,           // partition
                        INT32.since(9),  // current leader epoch
                        INT64,           // fetch offset
                        INT32.since(12), // last fetched epoch
                        INT64.since(5),  // log start offset
                        INT32,           // most bytes
                    ],
                    tags: &[
                        UUID.since(17).tagged(0),  // replica directory id
                        INT64.since(18).tagged(1), // high watermark
                    ],
                })),
            ]))),
            array(&Kind::Nested(&structure(&[
                text().until(12),       // forgotten topic name
                UUID.since(13),         // forgotten topic id
                array(&Kind::Fixed(4)), // partitions
            ])))
            .since(7),
            text().since(11), // rack id
        ],
        tags: &[
            text().nullable(12).tagged(0), // cluster id
            Field::nested(&structure(&[
                INT32, // replica id
                INT64, // replica epoch
            ]))
            .since(15)
            .tagged(1),
        ],
    },
    flexible_from: 12,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static LIST_OFFSETS: Shape = Shape {
    body: structure(&[
        INT32,         // replica id
        INT8.since(2), // isolation level
        array(&Kind::Nested(&structure(&[
            text(), // topic name
            array(&Kind::Nested(&structure(&[
                INT32,          // partition
                INT32.since(4), // current leader epoch
                INT64,          // timestamp
            ]))),
        ]))),
        INT32.since(10), // timeout
    ]),
    flexible_from: 6,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static METADATA: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            UUID.since(10),      // topic id
            text().nullable(10), // topic name
        ])))
        .nullable(1),
        BOOLEAN.since(4),           // allow auto topic creation
        BOOLEAN.since(8).until(10), // include cluster authorized operations
        BOOLEAN.since(8),           // include topic authorized operations
    ]),
    flexible_from: 9,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static OFFSET_COMMIT: Shape = Shape {
    body: structure(&[
        text(),                      // group id
        INT32,                       // generation or member epoch
        text(),                      // member id
        text().since(7).nullable(7), // group instance id
        INT64.since(2).until(4),     // retention time
        array(&Kind::Nested(&structure(&[
            text().until(9), // topic name
            UUID.since(10),  // topic id
            array(&Kind::Nested(&structure(&[
                INT32,              // partition
                INT64,              // committed offset
                INT32.since(6),     // committed leader epoch
                text().nullable(0), // metadata
            ]))),
        ]))),
    ]),
    flexible_from: 8,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static OFFSET_FETCH: Shape = Shape {
    body: structure(&[
        text().until(7), // group id
        array(&Kind::Nested(&structure(&[
            text(),                 // topic name
            array(&Kind::Fixed(4)), // partitions
        ])))
        .until(7)
        .nullable(2),
        array(&Kind::Nested(&structure(&[
            text(),                      // group id
            text().since(9).nullable(9), // member id
            INT32.since(9),              // member epoch
            array(&Kind::Nested(&structure(&[
                text().until(9),        // topic name
                UUID.since(10),         // topic id
                array(&Kind::Fixed(4)), // partitions
            ])))
            .nullable(8),
        ])))
        .since(8),
        BOOLEAN.since(7), // require stable
    ]),
    flexible_from: 6,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static API_VERSIONS: Shape = Shape {
    body: structure(&[
        text().since(3), // client software name
        text().since(3), // client software version
    ]),
    flexible_from: 3,
    elements_max: REQUEST_ELEMENTS_SMALL_MAX,
};

static CREATE_TOPICS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            text(), // topic name
            INT32,  // partitions
            INT16,  // replication factor
            array(&Kind::Nested(&structure(&[
                INT32,                  // partition
                array(&Kind::Fixed(4)), // broker ids
            ]))),
            array(&Kind::Nested(&structure(&[
                text(),             // configuration key
                text().nullable(0), // value
            ]))),
        ]))),
        INT32,   // timeout
        BOOLEAN, // validate only
    ]),
    flexible_from: 5,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static CREATE_PARTITIONS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            text(), // topic name
            INT32,  // partitions afterwards
            array(&Kind::Nested(&structure(&[
                array(&Kind::Fixed(4)), // broker ids
            ])))
            .nullable(0),
        ]))),
        INT32,   // timeout
        BOOLEAN, // validate only
    ]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static DELETE_TOPICS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            text().nullable(6), // topic name
            UUID,               // topic id
        ])))
        .since(6),
        array(&Kind::Text).until(5), // topic names
        INT32,                       // timeout
    ]),
    flexible_from: 4,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static DELETE_RECORDS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            text(), // topic name
            array(&Kind::Nested(&structure(&[
                INT32, // partition
                INT64, // first offset to keep
            ]))),
        ]))),
        INT32, // timeout
    ]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static INIT_PRODUCER_ID: Shape = Shape {
    body: structure(&[
        text().nullable(0), // transactional id
        INT32,              // transaction timeout
        INT64.since(3),     // producer id
        INT16.since(3),     // producer epoch
    ]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_SMALL_MAX,
};

static OFFSET_FOR_LEADER_EPOCH: Shape = Shape {
    body: structure(&[
        INT32.since(3), // replica id
        array(&Kind::Nested(&structure(&[
            text(), // topic name
            array(&Kind::Nested(&structure(&[
                INT32, // partition
                INT32, // current leader epoch
                INT32, // epoch asked for
            ]))),
        ]))),
    ]),
    flexible_from: 4,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static TXN_OFFSET_COMMIT: Shape = Shape {
    body: structure(&[
        text(),                      // transactional id
        text(),                      // group id
        INT64,                       // producer id
        INT16,                       // producer epoch
        INT32.since(3),              // generation or member epoch
        text().since(3),             // member id
        text().since(3).nullable(3), // group instance id
        array(&Kind::Nested(&structure(&[
            text(), // topic name
            array(&Kind::Nested(&structure(&[
                INT32,              // partition
                INT64,              // committed offset
                INT32.since(2),     // committed leader epoch
                text().nullable(0), // metadata
            ]))),
        ]))),
    ]),
    flexible_from: 3,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static WRITE_TXN_MARKERS: Shape = Shape {
    body: structure(&[array(&Kind::Nested(&structure(&[
        INT64,   // producer id
        INT16,   // producer epoch
        BOOLEAN, // commit
        array(&Kind::Nested(&structure(&[
            text(),                 // topic name
            array(&Kind::Fixed(4)), // partitions
        ]))),
        INT32,         // coordinator epoch
        INT8.since(2), // transaction version
    ])))]),
    flexible_from: 1,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static DESCRIBE_PRODUCERS: Shape = Shape {
    body: structure(&[array(&Kind::Nested(&structure(&[
        text(),                 // topic name
        array(&Kind::Fixed(4)), // partitions
    ])))]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static DESCRIBE_CONFIGS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            INT8,                           // resource type
            text(),                         // resource name
            array(&Kind::Text).nullable(0), // configuration keys
        ]))),
        BOOLEAN,          // include synonyms
        BOOLEAN.since(3), // include documentation
    ]),
    flexible_from: 4,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static DESCRIBE_CLUSTER: Shape = Shape {
    body: structure(&[
        BOOLEAN,          // include cluster authorized operations
        INT8.since(1),    // endpoint type
        BOOLEAN.since(2), // include fenced brokers
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_SMALL_MAX,
};

static ADD_PARTITIONS_TO_TXN: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            text(),                                // transactional id
            INT64,                                 // producer id
            INT16,                                 // producer epoch
            BOOLEAN,                               // verify only
            array(&Kind::Nested(&TXN_PARTITIONS)), // topics
        ])))
        .since(4),
        text().until(3),                                // transactional id
        INT64.until(3),                                 // producer id
        INT16.until(3),                                 // producer epoch
        array(&Kind::Nested(&TXN_PARTITIONS)).until(3), // topics
    ]),
    flexible_from: 3,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static TXN_PARTITIONS: Structure = structure(&[
    text(),                 // topic name
    array(&Kind::Fixed(4)), // partitions
]);

static ADD_OFFSETS_TO_TXN: Shape = Shape {
    body: structure(&[
        text(), // transactional id
        INT64,  // producer id
        INT16,  // producer epoch
        text(), // group id
    ]),
    flexible_from: 3,
    elements_max: REQUEST_ELEMENTS_SMALL_MAX,
};

static END_TXN: Shape = Shape {
    body: structure(&[
        text(),  // transactional id
        INT64,   // producer id
        INT16,   // producer epoch
        BOOLEAN, // committed
    ]),
    flexible_from: 3,
    elements_max: REQUEST_ELEMENTS_SMALL_MAX,
};

static DESCRIBE_TRANSACTIONS: Shape = Shape {
    body: structure(&[
        array(&Kind::Text), // transactional ids
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static LIST_TRANSACTIONS: Shape = Shape {
    body: structure(&[
        array(&Kind::Text),          // states
        array(&Kind::Fixed(8)),      // producer ids
        INT64.since(1),              // duration
        text().nullable(2).since(2), // transactional id pattern
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static ALTER_CONFIGS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            INT8,   // resource type
            text(), // resource name
            array(&Kind::Nested(&structure(&[
                text(),             // configuration key
                text().nullable(0), // value
            ]))),
        ]))),
        BOOLEAN, // validate only
    ]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static INCREMENTAL_ALTER_CONFIGS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            INT8,   // resource type
            text(), // resource name
            array(&Kind::Nested(&structure(&[
                text(),             // configuration key
                INT8,               // operation
                text().nullable(0), // value
            ]))),
        ]))),
        BOOLEAN, // validate only
    ]),
    flexible_from: 1,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static LIST_CONFIG_RESOURCES: Shape = Shape {
    body: structure(&[
        array(&Kind::Fixed(1)).since(1), // resource types
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static DESCRIBE_TOPIC_PARTITIONS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            text(), // topic name
        ]))),
        INT32, // most partitions
        Field::nested(&structure(&[
            text(), // first topic
            INT32,  // its first partition
        ]))
        .nullable(0),
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static DESCRIBE_QUORUM: Shape = Shape {
    body: structure(&[array(&Kind::Nested(&structure(&[
        text(), // topic name
        array(&Kind::Nested(&structure(&[
            INT32, // partition
        ]))),
    ])))]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static UPDATE_FEATURES: Shape = Shape {
    body: structure(&[
        INT32, // timeout
        array(&Kind::Nested(&structure(&[
            text(),           // feature
            INT16,            // highest level
            BOOLEAN.until(0), // allow a downgrade
            INT8.since(1),    // upgrade type
        ]))),
        BOOLEAN.since(1), // validate only
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static LIST_PARTITION_REASSIGNMENTS: Shape = Shape {
    body: structure(&[
        INT32, // timeout
        array(&Kind::Nested(&structure(&[
            text(),                 // topic name
            array(&Kind::Fixed(4)), // partitions
        ])))
        .nullable(0),
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static ALTER_PARTITION_REASSIGNMENTS: Shape = Shape {
    body: structure(&[
        INT32,            // timeout
        BOOLEAN.since(1), // allow another replication factor
        array(&Kind::Nested(&structure(&[
            text(), // topic name
            array(&Kind::Nested(&structure(&[
                INT32,                              // partition
                array(&Kind::Fixed(4)).nullable(0), // broker ids
            ]))),
        ]))),
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static ELECT_LEADERS: Shape = Shape {
    body: structure(&[
        INT8.since(1), // election type
        array(&Kind::Nested(&structure(&[
            text(),                 // topic name
            array(&Kind::Fixed(4)), // partitions
        ])))
        .nullable(0),
        INT32, // timeout
    ]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static DESCRIBE_LOG_DIRS: Shape = Shape {
    body: structure(&[array(&Kind::Nested(&structure(&[
        text(),                 // topic name
        array(&Kind::Fixed(4)), // partitions
    ])))
    .nullable(0)]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static ALTER_REPLICA_LOG_DIRS: Shape = Shape {
    body: structure(&[array(&Kind::Nested(&structure(&[
        text(), // path
        array(&Kind::Nested(&structure(&[
            text(),                 // topic name
            array(&Kind::Fixed(4)), // partitions
        ]))),
    ])))]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static UNREGISTER_BROKER: Shape = Shape {
    body: structure(&[
        INT32, // broker id
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_SMALL_MAX,
};

static DESCRIBE_ACLS: Shape = Shape {
    body: structure(&[
        INT8,               // resource type
        text().nullable(0), // resource name
        INT8.since(1),      // pattern type
        text().nullable(0), // principal
        text().nullable(0), // host
        INT8,               // operation
        INT8,               // permission type
    ]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_SMALL_MAX,
};

static CREATE_ACLS: Shape = Shape {
    body: structure(&[array(&Kind::Nested(&structure(&[
        INT8,          // resource type
        text(),        // resource name
        INT8.since(1), // pattern type
        text(),        // principal
        text(),        // host
        INT8,          // operation
        INT8,          // permission type
    ])))]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_LARGE_MAX,
};

static DELETE_ACLS: Shape = Shape {
    body: structure(&[array(&Kind::Nested(&structure(&[
        INT8,               // resource type
        text().nullable(0), // resource name
        INT8.since(1),      // pattern type
        text().nullable(0), // principal
        text().nullable(0), // host
        INT8,               // operation
        INT8,               // permission type
    ])))]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_LARGE_MAX,
};

static CREATE_DELEGATION_TOKEN: Shape = Shape {
    body: structure(&[
        text().nullable(3).since(3), // owner's principal type
        text().nullable(3).since(3), // owner's principal name
        array(&Kind::Nested(&structure(&[
            text(), // renewer's principal type
            text(), // renewer's principal name
        ]))),
        INT64, // longest life
    ]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static RENEW_DELEGATION_TOKEN: Shape = Shape {
    body: structure(&[
        Field::blob(), // HMAC
        INT64,         // renew period
    ]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_SMALL_MAX,
};

static EXPIRE_DELEGATION_TOKEN: Shape = Shape {
    body: structure(&[
        Field::blob(), // HMAC
        INT64,         // expiry period
    ]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_SMALL_MAX,
};

static DESCRIBE_DELEGATION_TOKEN: Shape = Shape {
    body: structure(&[array(&Kind::Nested(&structure(&[
        text(), // owner's principal type
        text(), // owner's principal name
    ])))
    .nullable(0)]),
    flexible_from: 2,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static DESCRIBE_CLIENT_QUOTAS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            text(),             // entity type
            INT8,               // match type
            text().nullable(0), // match
        ]))),
        BOOLEAN, // strict
    ]),
    flexible_from: 1,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static ALTER_CLIENT_QUOTAS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            array(&Kind::Nested(&structure(&[
                text(),             // entity type
                text().nullable(0), // entity name
            ]))),
            array(&Kind::Nested(&structure(&[
                text(),  // quota
                INT64,   // value, a double
                BOOLEAN, // remove
            ]))),
        ]))),
        BOOLEAN, // validate only
    ]),
    flexible_from: 1,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static DESCRIBE_USER_SCRAM_CREDENTIALS: Shape = Shape {
    body: structure(&[array(&Kind::Nested(&structure(&[
        text(), // user
    ])))
    .nullable(0)]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_MAX,
};

static ALTER_USER_SCRAM_CREDENTIALS: Shape = Shape {
    body: structure(&[
        array(&Kind::Nested(&structure(&[
            text(), // user
            INT8,   // mechanism
        ]))),
        array(&Kind::Nested(&structure(&[
            text(),        // user
            INT8,          // mechanism
            INT32,         // iterations
            Field::blob(), // salt
            Field::blob(), // salted password
        ]))),
    ]),
    flexible_from: 0,
    elements_max: REQUEST_ELEMENTS_LARGE_MAX,
};

const fn structure(fields: &'static [Field]) -> Structure {
    Structure { fields, tags: &[] }
}

const fn text() -> Field {
    Field::text()
}

const fn array(element: &'static Kind) -> Field {
    Field::array(element)
}

const BOOLEAN: Field = Field::fixed(1);
const INT8: Field = Field::fixed(1);
const INT16: Field = Field::fixed(2);
const INT32: Field = Field::fixed(4);
const INT64: Field = Field::fixed(8);
const UUID: Field = Field::fixed(16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::versions::SERVED;

    #[test]
    fn the_table_and_the_shapes_agree_where_bodies_turn_flexible() {
        for row in SERVED {
            assert_eq!(shape_of(row.api).flexible_from, row.flexible_from, "{:?}", row.api);
        }
    }
}
