//! AddOffsetsToTxn (key 25), versions 0-4.
//!
//! Behaviour
//! - Adds the group's partition of `__consumer_offsets` to the transaction; the group itself is
//!   not looked at. The rules are those of AddPartitionsToTxn, always the legacy ones.
//! - While there is no `__consumer_offsets` its configured number of partitions counts.
//! - Goes to the coordinator of the transactional id; on another node: 16. An empty id: 42.
//! - **deviation**: held while a transition is pending, see EndTxn.
//!
//! Version notes: 2 PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588); 3 flexible;
//! 4 TRANSACTION_ABORTABLE (KIP-890).

use std::rc::Rc;

use kafka_protocol::messages::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};

use super::Response;
use super::find_coordinator::partition_of;
use crate::coordinator::txn::AddPartitions;
use crate::error_code::ErrorCode;
use crate::metadata::Image;
use crate::metadata::image::CONSUMER_OFFSETS;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::transactions;
use crate::wire::header::RequestHeader;

/// Answers a request once the partition is durably part of the transaction.
pub async fn handle(
    shard: Rc<Shard>,
    connection: Rc<Connection>,
    header: RequestHeader,
    request: AddOffsetsToTxnRequest,
) -> Response {
    let asked = asked(&shard.catalog(), &request);
    let codes = transactions::add(&shard, &connection, asked, false).await;
    let code = codes.first().copied().unwrap_or(ErrorCode::UnknownServerError);
    Response::encode(&header, &answer(code, header.api_version))
}

fn asked(image: &Image, request: &AddOffsetsToTxnRequest) -> AddPartitions {
    let partitions = match image.topic(CONSUMER_OFFSETS) {
        Some(topic) => topic.partition_count(),
        None => image.broker().offsets_topic_num_partitions,
    };
    let partition = partition_of(&request.group_id, partitions).unwrap_or_default();
    AddPartitions {
        transactional_id: request.transactional_id.as_str().into(),
        producer: transactions::identity(request.producer_id.0, request.producer_epoch),
        partitions: vec![(CONSUMER_OFFSETS.into(), partition.0)],
        strict: false,
    }
}

fn answer(code: ErrorCode, version: i16) -> AddOffsetsToTxnResponse {
    let code = transactions::fenced_since(code, version, FENCED_SINCE);
    AddOffsetsToTxnResponse::default().with_error_code(code.code())
}

const FENCED_SINCE: i16 = 2;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{GroupId, ProducerId, TransactionalId};
    use kafka_protocol::protocol::StrBytes;

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn the_groups_partition_is_added() {
        let request = AddOffsetsToTxnRequest::default()
            .with_transactional_id(TransactionalId(StrBytes::from_static_str("t")))
            .with_producer_id(ProducerId(7))
            .with_producer_epoch(3)
            .with_group_id(GroupId(StrBytes::from_static_str("g1")));
        let context = context(&[]);
        // "g1" hashes to 3242.
        for (topics, partition) in
            [(&[][..], 3242 % 50), (&[("__consumer_offsets", 1, &[1_u16, 2, 3][..])], 3242 % 3)]
        {
            let expected = AddPartitions {
                transactional_id: "t".into(),
                producer: transactions::identity(7, 3),
                partitions: vec![("__consumer_offsets".into(), partition)],
                strict: false,
            };
            assert_eq!(asked(&catalog(&context, topics), &request), expected);
        }
    }

    #[test]
    fn old_versions_know_no_fenced_producer() {
        for version in 0..=4 {
            let fenced = answer(ErrorCode::ProducerFenced, version);
            assert_eq!(fenced.error_code, if version < 2 { 47 } else { 90 });
            assert_eq!(answer(ErrorCode::None, version).error_code, 0);
            assert_eq!(answer(ErrorCode::ConcurrentTransactions, version).error_code, 51);
            encode_response(Api::AddOffsetsToTxn, version, 1, &fenced).expect("encodes");
        }
    }
}
