//! UpdateFeatures (key 57), versions 0-2.
//!
//! Behaviour
//! - A broker runs its features at one level each: those of the table in
//!   [`crate::wire::versions`]. Asking for that level succeeds. Anything else is 95, in Kafka's
//!   words where Kafka refuses it too. **deviation**: other levels of the supported range are
//!   refused as well.
//! - All features of a request fail together: the sentence names the first that had an error.
//! - `validate_only` (v1+) makes no difference, as nothing ever changes.
//!
//! Version notes: 0 of KIP-584; 1 upgrade types, validation (KIP-778); 2 no results per feature
//! (KIP-1022).

use std::rc::Rc;

use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::update_features_response::UpdatableFeatureResult;
use kafka_protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::error_code::ErrorCode;
use crate::shard::{Context, Shard};
use crate::wire::header::RequestHeader;
use crate::wire::versions::FEATURES;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &UpdateFeaturesRequest,
) -> Response {
    Response::encode(header, &answer(&shard.context, shard.id.0, request, header.api_version))
}

/// The answer.
#[must_use]
pub fn answer(
    context: &Context,
    shard: u16,
    request: &UpdateFeaturesRequest,
    version: i16,
) -> UpdateFeaturesResponse {
    let node = context.node_of(crate::ids::ShardId(shard));
    let failed = request.feature_updates.iter().find_map(|update| {
        let reason = check(update, node).err()?;
        Some(format!(
            "The update failed for all features since the following feature had an error: Invalid \
             update version {} for feature {}. {reason}",
            update.max_version_level,
            update.feature.as_str()
        ))
    });
    if let Some(message) = failed {
        return UpdateFeaturesResponse::default()
            .with_error_code(ErrorCode::InvalidUpdateVersion.code())
            .with_error_message(Some(StrBytes::from_string(message)));
    }
    let results = request.feature_updates.iter().filter(|_| version < WITHOUT_RESULTS_SINCE);
    let results = results.map(|update| {
        UpdatableFeatureResult::default()
            .with_feature(update.feature.clone())
            .with_error_message(Some(StrBytes::from_static_str("NONE")))
    });
    UpdateFeaturesResponse::default().with_error_message(None).with_results(results.collect())
}

fn check(update: &FeatureUpdateKey, node: i32) -> Result<(), String> {
    let level = update.max_version_level;
    if !(UPGRADE..=UNSAFE_DOWNGRADE).contains(&update.upgrade_type) {
        return Err("The controller does not support the given upgrade type.".to_owned());
    }
    if level < 0 {
        return Err("A feature version cannot be less than 0.".to_owned());
    }
    let feature = FEATURES.iter().find(|feature| feature.name == update.feature.as_str());
    let Some(feature) = feature else {
        let name = update.feature.as_str();
        return Err(match level {
            0 => format!("Feature {name} not found."),
            _ => format!("Local controller {node} does not support this feature."),
        });
    };
    let is_upgrade = update.upgrade_type == UPGRADE;
    if level < feature.min || level > feature.max {
        let (least, most) = (feature.min, feature.max);
        return Err(format!("Local controller {node} only supports versions {least}-{most}"));
    }
    if level < feature.finalized && is_upgrade {
        return Err(
            "Can't downgrade the version of this feature without setting the upgrade type \
                    to either safe or unsafe\x20downgrade."
                .to_owned(),
        );
    }
    if level > feature.finalized && !is_upgrade {
        return Err("Can't downgrade to a newer version.".to_owned());
    }
    if level == feature.finalized {
        return Ok(());
    }
    Err(format!("This broker runs {} at level {} only.", feature.name, feature.finalized))
}

const UPGRADE: i8 = 1;
const UNSAFE_DOWNGRADE: i8 = 3;
const WITHOUT_RESULTS_SINCE: i16 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::metadata::tests::context;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    /// Code, last sentence, and number of results.
    fn updated(updates: &[(&'static str, i16, i8)], version: i16) -> (i16, Option<String>, usize) {
        let update = |(name, level, kind): &(&'static str, i16, i8)| {
            FeatureUpdateKey::default()
                .with_feature(StrBytes::from_static_str(name))
                .with_max_version_level(*level)
                .with_upgrade_type(*kind)
        };
        let request = UpdateFeaturesRequest::default()
            .with_feature_updates(updates.iter().map(update).collect());
        let response = answer(&context(&[]), 2, &request, version);
        encode_response(Api::UpdateFeatures, version, 1, &response).expect("encodes");
        let message = response.error_message.map(|text| text.to_string());
        let reason = message.map(|text| match text.split_once(". ") {
            Some((_, reason)) => reason.to_owned(),
            None => text,
        });
        (response.error_code, reason, response.results.len())
    }

    #[test]
    fn the_level_in_force_is_the_only_one() {
        let current = ("metadata.version", 30, 1);
        assert_eq!(updated(&[current], 1), (0, None, 1));
        assert_eq!(updated(&[current], 2), (0, None, 0));
        assert_eq!(updated(&[], 0), (0, None, 0));
        let rows: &[((&'static str, i16, i8), &str)] = &[
            (("metadata.version", 31, 1), "Local controller 2 only supports versions 7-30"),
            (("metadata.version", 6, 2), "Local controller 2 only supports versions 7-30"),
            (("no.such", 1, 1), "Local controller 2 does not support this feature."),
            (("no.such", 0, 1), "Feature no.such not found."),
            (("metadata.version", -1, 1), "A feature version cannot be less than 0."),
            (
                ("metadata.version", 29, 0),
                "The controller does not support the given upgrade type.",
            ),
            (
                ("metadata.version", 29, 1),
                "Can't downgrade the version of this feature without setting the upgrade type to \
                 either safe or unsafe downgrade.",
            ),
            (("metadata.version", 29, 2), "This broker runs metadata.version at level 30 only."),
            (("kraft.version", 1, 3), "Can't downgrade to a newer version."),
        ];
        for (update, reason) in rows {
            let expected = (95, Some((*reason).to_owned()), 0);
            assert_eq!(updated(&[current, *update], 1), expected, "{update:?}");
        }
    }
}
