//! DescribeUserScramCredentials (key 50), versions 0-0.
//!
//! Behaviour
//! - Mechanisms and iterations of each user, never a key. No users in the request: all that have
//!   credentials, by name. Unknown: 91. Named twice: 92, once.
//! - Credentials are stored; nobody authenticates with them yet.
//!
//! Version notes: 0 of KIP-554.

use std::collections::BTreeMap;
use std::rc::Rc;

use kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use kafka_protocol::messages::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::Response;
use crate::error_code::ErrorCode;
use crate::metadata::Image;
use crate::shard::Shard;
use crate::wire::header::RequestHeader;

/// Answers a request.
#[must_use]
pub fn handle(
    shard: &Rc<Shard>,
    header: &RequestHeader,
    request: &DescribeUserScramCredentialsRequest,
) -> Response {
    Response::encode(header, &answer(&shard.catalog(), request))
}

/// The answer.
#[must_use]
pub fn answer(
    image: &Image,
    request: &DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    match request.users.as_deref() {
        None | Some([]) => times.extend(image.credentials().keys().map(|user| (user.as_str(), 1))),
        Some(users) => {
            for user in users {
                *times.entry(user.name.as_str()).or_default() += 1;
            }
        }
    }
    let results = times.into_iter().map(|(user, times)| result(image, user, times));
    DescribeUserScramCredentialsResponse::default().with_results(results.collect())
}

fn result(image: &Image, user: &str, times: usize) -> DescribeUserScramCredentialsResult {
    let of_user = DescribeUserScramCredentialsResult::default()
        .with_user(StrBytes::from_string(user.to_owned()));
    let refused = |code: ErrorCode, message: &str| {
        of_user
            .clone()
            .with_error_code(code.code())
            .with_error_message(Some(StrBytes::from_string(format!("{message}{user}"))))
    };
    if times > 1 {
        let message =
            "Cannot describe SCRAM credentials for the same user twice in a single request: ";
        return refused(ErrorCode::DuplicateResource, message);
    }
    let Some(credentials) = image.credentials().get(user) else {
        let message = "Attempt to describe a user credential that does not exist: ";
        return refused(ErrorCode::ResourceNotFound, message);
    };
    let infos = credentials.iter().map(|(mechanism, credential)| {
        CredentialInfo::default().with_mechanism(*mechanism).with_iterations(credential.iterations)
    });
    of_user.with_credential_infos(infos.collect())
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_user_scram_credentials_request::UserName;

    use super::*;
    use crate::api::metadata::tests::{catalog, context};
    use crate::metadata::Record;
    use crate::metadata::scram::{ScramCredential, Secret};
    use crate::wire::encode::encode_response;
    use crate::wire::versions::Api;

    #[test]
    fn users_are_told_by_name_without_keys() {
        let context = context(&[]);
        let set = |user: &str, mechanism, iterations| Record::ScramCredentialSet {
            user: user.to_owned(),
            mechanism,
            credential: Some(ScramCredential {
                salt: Secret(vec![1]),
                stored_key: Secret(vec![2]),
                server_key: Secret(vec![3]),
                iterations,
            }),
        };
        let image = catalog(&context, &[]).apply_all(&[
            set("bob", 2, 5000),
            set("ann", 2, 4096),
            set("ann", 1, 8192),
        ]);
        let told = |users: Option<&[&'static str]>| {
            let name = |name: &&'static str| {
                UserName::default().with_name(StrBytes::from_static_str(name))
            };
            let users = users.map(|users| users.iter().map(name).collect());
            let request = DescribeUserScramCredentialsRequest::default().with_users(users);
            let response = answer(&image, &request);
            encode_response(Api::DescribeUserScramCredentials, 0, 1, &response).expect("encodes");
            let results = response.results.iter().map(|result| {
                let infos = result.credential_infos.iter();
                let infos = infos.map(|info| (info.mechanism, info.iterations)).collect();
                (result.user.to_string(), result.error_code, infos)
            });
            results.collect::<Vec<(String, i16, Vec<(i8, i32)>)>>()
        };
        let ann = ("ann".to_owned(), 0, vec![(1, 8192), (2, 4096)]);
        let bob = ("bob".to_owned(), 0, vec![(2, 5000)]);
        for all in [None, Some(&[][..])] {
            assert_eq!(told(all), [ann.clone(), bob.clone()]);
        }
        let eve = ("eve".to_owned(), 91, vec![]);
        assert_eq!(told(Some(&["eve", "bob"])), [bob, eve]);
        assert_eq!(told(Some(&["ann", "ann"])), [("ann".to_owned(), 92, vec![])]);
    }
}
