//! AlterClientQuotas (key 49), versions 0-1.
//!
//! Behaviour
//! - Any node takes the request; shard 0 checks and writes it ([`crate::metadata::quotas`] has the
//!   rules and Kafka's sentences). Each entity is changed whole or not at all, and answered once.
//! - **deviation**: quotas are stored and told, and not enforced.
//! - `validate_only` checks all the same. When the catalog cannot be written: 56.
//!
//! Version notes: 0 of KIP-546; 1 flexible.

use std::collections::HashSet;
use std::rc::Rc;

use kafka_protocol::messages::alter_client_quotas_response::{EntityData, EntryData};
use kafka_protocol::messages::{AlterClientQuotasRequest, AlterClientQuotasResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::incremental_alter_configs::{altered, told};
use crate::metadata::alter::Alteration;
use crate::metadata::quotas::{AlterQuotas, QuotaEntity, QuotaOperation};
use crate::metadata::topics::PlanError;
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request once all of it is durable, or refused.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: AlterClientQuotasRequest,
) -> Response {
    let entries = asked(&request);
    let entities: Vec<QuotaEntity> = entries.iter().map(|entry| entry.entity.clone()).collect();
    let alteration = Alteration::Quotas { entries, validate_only: request.validate_only };
    let results = altered(&shard, alteration).await;
    Response::encode(&header, &answer(&entities, &results))
}

/// The changes that a request asks for.
#[must_use]
pub fn asked(request: &AlterClientQuotasRequest) -> Vec<AlterQuotas> {
    let entries = request.entries.iter().map(|entry| {
        let parts = entry.entity.iter().map(|part| {
            (part.entity_type.to_string(), part.entity_name.as_ref().map(StrBytes::to_string))
        });
        let operations = entry.ops.iter().map(|operation| QuotaOperation {
            key: operation.key.to_string(),
            value: (!operation.remove).then_some(operation.value),
        });
        AlterQuotas { entity: parts.collect(), operations: operations.collect() }
    });
    entries.collect()
}

/// The answer, given what became of each entity; one that was given twice is told once.
#[must_use]
pub fn answer(
    entities: &[QuotaEntity],
    results: &[Result<(), PlanError>],
) -> AlterClientQuotasResponse {
    let mut seen = HashSet::new();
    let entries = entities.iter().zip(results).filter(|(entity, _)| seen.insert(*entity));
    let entries = entries.map(|(entity, result)| {
        let (code, message) = told(result);
        let parts = entity.iter().map(|(entity_type, name)| {
            EntityData::default()
                .with_entity_type(StrBytes::from_string(entity_type.clone()))
                .with_entity_name(name.clone().map(StrBytes::from_string))
        });
        EntryData::default()
            .with_error_code(code)
            .with_error_message(message)
            .with_entity(parts.collect())
    });
    AlterClientQuotasResponse::default().with_entries(entries.collect())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::alter_client_quotas_request as asking;

    use super::*;
    use crate::api::create_topics::unwritable;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn entities_are_taken_whole_and_answered_once() {
        let text = StrBytes::from_static_str;
        let part = |name: Option<&'static str>| {
            asking::EntityData::default()
                .with_entity_type(text("user"))
                .with_entity_name(name.map(text))
        };
        let operation = |remove| {
            asking::OpData::default()
                .with_key(text("request_percentage"))
                .with_value(1.5)
                .with_remove(remove)
        };
        let entry = |name, remove| {
            asking::EntryData::default()
                .with_entity(vec![part(name)])
                .with_ops(vec![operation(remove)])
        };
        let request = AlterClientQuotasRequest::default().with_entries(vec![
            entry(Some("ann"), false),
            entry(None, true),
            entry(Some("ann"), true),
        ]);
        let asked = asked(&request);
        let values: Vec<Option<f64>> =
            asked.iter().map(|entry| entry.operations[0].value).collect();
        assert_eq!(values, [Some(1.5), None, None]);
        let entities: Vec<QuotaEntity> = asked.into_iter().map(|entry| entry.entity).collect();
        let response = answer(&entities, &[Err(unwritable()), Ok(()), Err(unwritable())]);
        let outline: Vec<_> = response
            .entries
            .iter()
            .map(|entry| (entry.error_code, entry.entity[0].entity_name.as_deref()))
            .collect();
        assert_eq!(outline, [(56, Some("ann")), (0, None)]);
        for version in 0..=1 {
            encode_response(Api::AlterClientQuotas, version, 1, &response).expect("encodes");
        }
    }
}
