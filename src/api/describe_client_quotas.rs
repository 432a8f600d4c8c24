//! DescribeClientQuotas (key 48), versions 0-1.
//!
//! Behaviour
//! - The entities that fit all filters of the request, by type and name; with `strict` only those
//!   that have no type besides. No filters: all. Filters that contradict each other refuse the
//!   request, 42; a type that does not exist: 35.
//! - Quotas are stored and not enforced.
//!
//! Version notes: 0 of KIP-546; 1 flexible.

use std::rc::Rc;

use kafka_protocol::messages::describe_client_quotas_response::{EntityData, EntryData, ValueData};
use kafka_protocol::messages::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::metadata::Image;
use crate::metadata::quotas::{QuotaEntity, QuotaFilter, Quotas, select};
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &DescribeClientQuotasRequest,
) -> Response {
    Response::encode(header, &answer(&shard.catalog(), request))
}

/// The answer.
#[must_use]
pub fn answer(
    image: &Image,
    request: &DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    let filters: Vec<QuotaFilter> = request
        .components
        .iter()
        .map(|component| QuotaFilter {
            entity_type: component.entity_type.to_string(),
            match_type: component.match_type,
            name: component._match.as_ref().map(StrBytes::to_string),
        })
        .collect();
    match select(image, &filters, request.strict) {
        Ok(found) => {
            let entries = found.into_iter().map(|(entity, quotas)| entry(entity, quotas));
            DescribeClientQuotasResponse::default().with_entries(Some(entries.collect()))
        }
        Err(error) => DescribeClientQuotasResponse::default()
            .with_error_code(error.code.code())
            .with_error_message(error.message.map(StrBytes::from_string))
            .with_entries(None),
    }
}

fn entry(entity: &QuotaEntity, quotas: &Quotas) -> EntryData {
    let entity = entity.iter().map(|(entity_type, name)| {
        EntityData::default()
            .with_entity_type(StrBytes::from_string(entity_type.clone()))
            .with_entity_name(name.clone().map(StrBytes::from_string))
    });
    let values = quotas.iter().map(|(key, value)| {
        ValueData::default()
            .with_key(StrBytes::from_string(key.clone()))
            .with_value(value.parse().unwrap_or_default())
    });
    EntryData::default().with_entity(entity.collect()).with_values(values.collect())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_client_quotas_request::ComponentData;

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::metadata::Record;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn what_is_stored_is_told_as_numbers() {
        let context = context(&[]);
        let set = |name: Option<&str>, key: &str, value: &str| Record::ClientQuotaSet {
            entity: QuotaEntity::from([("user".to_owned(), name.map(str::to_owned))]),
            key: key.to_owned(),
            value: Some(value.to_owned()),
        };
        let image = catalog(&context, &[]).apply_all(&[
            set(Some("ann"), "producer_byte_rate", "1024.0"),
            set(Some("ann"), "request_percentage", "12.5"),
            set(None, "request_percentage", "1e-3"),
        ]);
        let asking = |entity_type| {
            let mut component = ComponentData::default()
                .with_entity_type(StrBytes::from_static_str(entity_type))
                .with_match_type(2);
            component._match = None;
            DescribeClientQuotasRequest::default().with_components(vec![component])
        };
        let response = answer(&image, &asking("user"));
        let entries = response.entries.as_ref().expect("entries");
        let told: Vec<_> = entries
            .iter()
            .map(|entry| {
                let name = entry.entity[0].entity_name.as_deref();
                let values = entry.values.iter().map(|value| (&*value.key, value.value));
                (name, values.collect::<Vec<_>>())
            })
            .collect();
        let ann = vec![("producer_byte_rate", 1024.0), ("request_percentage", 12.5)];
        let others = vec![("request_percentage", 1e-3)];
        assert_eq!(told, [(None, others), (Some("ann"), ann)]);
        let refused = answer(&image, &asking("role"));
        assert_eq!((refused.error_code, &refused.entries), (35, &None));
        for version in 0..=1 {
            for response in [&response, &refused] {
                encode_response(Api::DescribeClientQuotas, version, 1, response).expect("encodes");
            }
        }
    }
}
