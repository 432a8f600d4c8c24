//! SCRAM credentials of users: planning of their changes, and what of them is told.
//!
//! Owns the checks of AlterUserScramCredentials and DescribeUserScramCredentials in Kafka's order
//! and wording, and the keys that are kept instead of a password. **Nobody authenticates yet:**
//! credentials are stored and told. Must never keep a salted password, nor show a key in a log.
//! Source: Kafka's `ScramControlManager` and `ScramImage`; RFC 5802, KIP-554.

use std::collections::BTreeMap;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use sha2::{Digest, Sha256, Sha512};

use crate::error_code::ErrorCode;

use super::image::Image;
use super::records::Record;
use super::topics::{PlanError, refuse};

/// Bytes that are not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Vec<u8>);

/// What is kept of one user's password for one mechanism.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ScramCredential {
    /// The salt that the client put into the password.
    pub salt: Secret,
    /// Hash of the client's key: what a client is checked with.
    pub stored_key: Secret,
    /// What the server proves itself with.
    pub server_key: Secret,
    /// Rounds of the salting.
    pub iterations: i32,
}

/// The credentials of all users, by user and mechanism.
pub type Credentials = BTreeMap<String, BTreeMap<i8, ScramCredential>>;

/// A credential to be removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScramDeletion {
    /// Whose.
    pub user: String,
    /// [`SHA_256`] or [`SHA_512`].
    pub mechanism: i8,
}

/// A credential to be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScramUpsertion {
    /// Whose.
    pub user: String,
    /// [`SHA_256`] or [`SHA_512`].
    pub mechanism: i8,
    /// Rounds of the salting.
    pub iterations: i32,
    /// The salt.
    pub salt: Secret,
    /// The password after the salting.
    pub salted_password: Secret,
}

/// The users of a request in the order they are answered, each once.
#[must_use]
pub fn users<'a>(deletions: &'a [ScramDeletion], upsertions: &'a [ScramUpsertion]) -> Vec<&'a str> {
    let mut users = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let deleted = deletions.iter().map(|deletion| deletion.user.as_str());
    for user in deleted.chain(upsertions.iter().map(|upsertion| upsertion.user.as_str())) {
        if seen.insert(user) {
            users.push(user);
        }
    }
    users
}

/// Plans the changes, one result per user of [`users`]; records go to `records`.
pub fn plan(
    image: &Image,
    deletions: &[ScramDeletion],
    upsertions: &[ScramUpsertion],
    records: &mut Vec<Record>,
) -> Vec<Result<(), PlanError>> {
    // A user's first fault stands; a user named twice without one is refused for that.
    let mut planned: BTreeMap<&str, Result<Record, PlanError>> = BTreeMap::new();
    let mut note = |user, outcome: &dyn Fn() -> Result<Record, PlanError>| {
        let next = match planned.get(user) {
            None => outcome(),
            Some(Ok(_)) => Err(refuse(
                ErrorCode::DuplicateResource,
                "A user credential cannot be altered twice in the same request",
            )),
            Some(Err(_)) => return,
        };
        planned.insert(user, next);
    };
    for deletion in deletions {
        note(&deletion.user, &|| remove(image, deletion));
    }
    for upsertion in upsertions {
        note(&upsertion.user, &|| set(upsertion));
    }
    let outcome = |user: &str| planned[user].clone();
    users(deletions, upsertions)
        .into_iter()
        .map(|user| outcome(user).map(|record| records.push(record)))
        .collect()
}

fn remove(image: &Image, deletion: &ScramDeletion) -> Result<Record, PlanError> {
    check_name(&deletion.user, deletion.mechanism)?;
    let known = image.credentials().get(&deletion.user);
    if !known.is_some_and(|of_user| of_user.contains_key(&deletion.mechanism)) {
        return Err(refuse(
            ErrorCode::ResourceNotFound,
            "Attempt to delete a user credential that does not exist",
        ));
    }
    Ok(Record::ScramCredentialSet {
        user: deletion.user.clone(),
        mechanism: deletion.mechanism,
        credential: None,
    })
}

fn set(upsertion: &ScramUpsertion) -> Result<Record, PlanError> {
    check_name(&upsertion.user, upsertion.mechanism)?;
    if upsertion.iterations < ITERATIONS_MIN {
        return Err(refuse(ErrorCode::UnacceptableCredential, "Too few iterations"));
    }
    if upsertion.iterations > ITERATIONS_MAX {
        return Err(refuse(ErrorCode::UnacceptableCredential, "Too many iterations"));
    }
    let (stored_key, server_key) = keys(upsertion.mechanism, &upsertion.salted_password.0);
    Ok(Record::ScramCredentialSet {
        user: upsertion.user.clone(),
        mechanism: upsertion.mechanism,
        credential: Some(ScramCredential {
            salt: upsertion.salt.clone(),
            stored_key: Secret(stored_key),
            server_key: Secret(server_key),
            iterations: upsertion.iterations,
        }),
    })
}

fn check_name(user: &str, mechanism: i8) -> Result<(), PlanError> {
    if user.is_empty() {
        return Err(refuse(ErrorCode::UnacceptableCredential, "Username must not be empty"));
    }
    if !matches!(mechanism, SHA_256 | SHA_512) {
        return Err(refuse(ErrorCode::UnsupportedSaslMechanism, "Unknown SCRAM mechanism"));
    }
    Ok(())
}

/// Stored key and server key of a salted password.
fn keys(mechanism: i8, salted_password: &[u8]) -> (Vec<u8>, Vec<u8>) {
    const ANY_LENGTH: &str = "invariant: a key of any length is taken";
    if mechanism == SHA_256 {
        let of = |text: &[u8]| {
            let mac = Hmac::<Sha256>::new_from_slice(salted_password).expect(ANY_LENGTH);
            mac.chain_update(text).finalize().into_bytes()
        };
        (Sha256::digest(of(b"Client Key")).to_vec(), of(b"Server Key").to_vec())
    } else {
        let of = |text: &[u8]| {
            let mac = Hmac::<Sha512>::new_from_slice(salted_password).expect(ANY_LENGTH);
            mac.chain_update(text).finalize().into_bytes()
        };
        (Sha512::digest(of(b"Client Key")).to_vec(), of(b"Server Key").to_vec())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[hidden]")
    }
}

/// Hexadecimal digits.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let byte = |place| u8::from_str_radix(text.get(place..place + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
        bytes.map(Secret).ok_or_else(|| D::Error::custom("not hexadecimal digits"))
    }
}

/// Number of SCRAM-SHA-256.
pub const SHA_256: i8 = 1;

/// Number of SCRAM-SHA-512.
pub const SHA_512: i8 = 2;

const ITERATIONS_MIN: i32 = 4096;
const ITERATIONS_MAX: i32 = 16_384;

#[cfg(test)]
mod tests;
