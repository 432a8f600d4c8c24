//! AlterUserScramCredentials (key 51), versions 0-0.
//!
//! Behaviour
//! - Any node takes the request; shard 0 checks and writes it ([`crate::metadata::scram`] has the
//!   rules and Kafka's sentences). Each user is answered once, where it stands first.
//! - Keys are derived from the salted password, which is not kept. **deviation**: nobody
//!   authenticates with them yet.
//! - When the catalog cannot be written: 56 for every user.
//!
//! Version notes: 0 of KIP-554.

use std::rc::Rc;

use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
    alter_user_scram_credentials_response,
};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use super::incremental_alter_configs::{altered, told};
use crate::metadata::alter::Alteration;
use crate::metadata::scram::{ScramDeletion, ScramUpsertion, Secret, users};
use crate::metadata::topics::PlanError;
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request once all of it is durable, or refused.
pub async fn handle(
    shard: Rc<Shard>,
    header: RequestHeader,
    request: AlterUserScramCredentialsRequest,
) -> Response {
    let (deletions, upsertions) = asked(&request);
    let named: Vec<String> =
        users(&deletions, &upsertions).into_iter().map(str::to_owned).collect();
    let results = altered(&shard, Alteration::Scram { deletions, upsertions }).await;
    Response::encode(&header, &answer(&named, &results))
}

/// The changes that a request asks for.
#[must_use]
pub fn asked(
    request: &AlterUserScramCredentialsRequest,
) -> (Vec<ScramDeletion>, Vec<ScramUpsertion>) {
    let deletions = request.deletions.iter().map(|deletion| ScramDeletion {
        user: deletion.name.to_string(),
        mechanism: deletion.mechanism,
    });
    let upsertions = request.upsertions.iter().map(|upsertion| ScramUpsertion {
        user: upsertion.name.to_string(),
        mechanism: upsertion.mechanism,
        iterations: upsertion.iterations,
        salt: Secret(upsertion.salt.to_vec()),
        salted_password: Secret(upsertion.salted_password.to_vec()),
    });
    (deletions.collect(), upsertions.collect())
}

/// The answer, given what became of each user.
#[must_use]
pub fn answer(
    named: &[String],
    results: &[Result<(), PlanError>],
) -> AlterUserScramCredentialsResponse {
    let results = named.iter().zip(results).map(|(user, result)| {
        let (code, message) = told(result);
        alter_user_scram_credentials_response::AlterUserScramCredentialsResult::default()
            .with_user(StrBytes::from_string(user.clone()))
            .with_error_code(code)
            .with_error_message(message)
    });
    AlterUserScramCredentialsResponse::default().with_results(results.collect())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages::alter_user_scram_credentials_request::{
        ScramCredentialDeletion, ScramCredentialUpsertion,
    };

    use super::*;
    use crate::api::create_topics::unwritable;
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn every_user_is_answered_once() {
        let text = StrBytes::from_static_str;
        let deletion =
            |name| ScramCredentialDeletion::default().with_name(text(name)).with_mechanism(1);
        let upsertion = ScramCredentialUpsertion::default()
            .with_name(text("ann"))
            .with_mechanism(2)
            .with_iterations(4096)
            .with_salt(Bytes::from_static(b"s"))
            .with_salted_password(Bytes::from_static(b"p"));
        let request = AlterUserScramCredentialsRequest::default()
            .with_deletions(vec![deletion("bob"), deletion("ann")])
            .with_upsertions(vec![upsertion]);
        let (deletions, upsertions) = asked(&request);
        assert_eq!((deletions.len(), upsertions[0].salt.0.as_slice()), (2, &b"s"[..]));
        let named: Vec<String> =
            users(&deletions, &upsertions).into_iter().map(str::to_owned).collect();
        let response = answer(&named, &[Ok(()), Err(unwritable())]);
        let outline: Vec<_> =
            response.results.iter().map(|result| (&*result.user, result.error_code)).collect();
        assert_eq!(outline, [("bob", 0), ("ann", 56)]);
        encode_response(Api::AlterUserScramCredentials, 0, 1, &response).expect("encodes");
    }
}
