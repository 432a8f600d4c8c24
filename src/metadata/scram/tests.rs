//! What is kept of a password, what is refused and how.

use std::sync::Arc;

use super::*;
use crate::config::BrokerConfig;

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let text = format!("\"{hexadecimal}\"");
    serde_json::from_str::<Secret>(&text).expect("digits").0
}

fn upsertion(user: &str, mechanism: i8, iterations: i32) -> ScramUpsertion {
    ScramUpsertion {
        user: user.to_owned(),
        mechanism,
        iterations,
        salt: Secret(b"salt".to_vec()),
        salted_password: Secret(b"salted".to_vec()),
    }
}

fn deletion(user: &str, mechanism: i8) -> ScramDeletion {
    ScramDeletion { user: user.to_owned(), mechanism }
}

/// A catalog where `ann` has a password for the first mechanism.
fn image() -> Image {
    let broker = BrokerConfig::with_overrides(&[]).expect("configuration");
    let image = Image::new(Arc::new(broker));
    let mut records = Vec::new();
    let results = plan(&image, &[], &[upsertion("ann", SHA_256, 4096)], &mut records);
    assert_eq!(results, [Ok(())]);
    image.apply_all(&records)
}

/// The outcome for each user, and how many records there are.
fn planned(
    deletions: &[ScramDeletion],
    upsertions: &[ScramUpsertion],
) -> (Vec<(String, i16)>, usize) {
    let mut records = Vec::new();
    let results = plan(&image(), deletions, upsertions, &mut records);
    let users = users(deletions, upsertions);
    let code = |result: &Result<(), PlanError>| match result {
        Ok(()) => 0,
        Err(error) => error.code.code(),
    };
    let outcomes =
        users.iter().zip(&results).map(|(user, result)| ((*user).to_owned(), code(result)));
    (outcomes.collect(), records.len())
}

#[test]
fn the_keys_are_those_of_the_rfcs() {
    // RFC 7677's example: password "pencil", 4096 rounds; the keys by Python's hashlib.
    let salted = bytes("c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d");
    let (stored, server) = keys(SHA_256, &salted);
    assert_eq!(stored, bytes("586e5df283e6dceb5c3e791d8b8528ec191e664045ce971792e2e6b5bb13e2a6"));
    assert_eq!(server, bytes("c1f3cbc1c13a9d35a14c0990eed97629ea225863e566a4314ab99f3f00e5d9d5"));
    // The same password with the salt "salt".
    let salted = bytes(
        "2cfe3a1c151662b1ea49d13f595674a1c666add70df15d3d02254e9905993878\
         261da7407fd11c2fee4b0a30df5154b1a752f86a13380ddd4bdd9a7c958ec769",
    );
    let (stored, server) = keys(SHA_512, &salted);
    assert_eq!(
        stored,
        bytes(
            "ff41e86c08f2e525a87285eda3d634d669bae8ab6c2e5b3e09ad0014a691fab9\
             eb26557062ff978ee011d9b23e6b87437df366cf7cd4c8747df9277d067fd330"
        )
    );
    assert_eq!(
        server,
        bytes(
            "a20870894973d9c760b240b7a95060f1e63512b5f21b81f15ecfe996c163b648\
             d1af4132eaa2e63b3e89b46bb1592beee5f536c2e1005954521cf37278199629"
        )
    );
}

#[test]
fn credentials_come_and_go() {
    let image = image();
    let of_ann = &image.credentials()["ann"];
    assert_eq!(
        (of_ann[&SHA_256].iterations, of_ann[&SHA_256].salt.0.as_slice()),
        (4096, &b"salt"[..])
    );
    assert_eq!(
        planned(&[], &[upsertion("ann", SHA_512, 16_384)]),
        (vec![("ann".to_owned(), 0)], 1)
    );
    let mut records = Vec::new();
    assert_eq!(plan(&image, &[deletion("ann", SHA_256)], &[], &mut records), [Ok(())]);
    assert!(image.apply_all(&records).credentials().is_empty());
}

#[test]
fn bad_changes_are_refused_user_by_user() {
    let outcome = |user: &str, code: i16| (user.to_owned(), code);
    for (change, code) in [
        (upsertion("", SHA_256, 4096), 93),
        (upsertion("bob", SHA_256, 4095), 93),
        (upsertion("bob", SHA_512, 16_385), 93),
        (upsertion("bob", 0, 4096), 33),
        (upsertion("bob", 3, 4096), 33),
    ] {
        let expected = (vec![outcome(&change.user, code)], 0);
        assert_eq!(planned(&[], std::slice::from_ref(&change)), expected, "{change:?}");
    }
    assert_eq!(planned(&[deletion("ann", SHA_512)], &[]), (vec![outcome("ann", 91)], 0));
    assert_eq!(planned(&[deletion("ann", 9)], &[]), (vec![outcome("ann", 33)], 0));
    // Twice is refused, unless something else was wrong before.
    let twice = planned(&[deletion("ann", SHA_256)], &[upsertion("ann", SHA_256, 4096)]);
    assert_eq!(twice, (vec![outcome("ann", 92)], 0));
    let wrong = planned(
        &[deletion("bob", SHA_256)],
        &[upsertion("bob", SHA_256, 4096), upsertion("eve", SHA_256, 5000)],
    );
    assert_eq!(wrong, (vec![outcome("bob", 91), outcome("eve", 0)], 1));
}

#[test]
fn keys_are_not_shown() {
    let record = Record::ScramCredentialSet {
        user: "ann".to_owned(),
        mechanism: SHA_256,
        credential: Some(image().credentials()["ann"][&SHA_256].clone()),
    };
    let shown = format!("{record:?}");
    assert!(shown.contains("[hidden]") && !shown.contains("73616c74"), "{shown}");
    let text = serde_json::to_string(&record).expect("plain data");
    assert!(text.contains("\"salt\":\"73616c74\""), "{text}");
    assert_eq!(serde_json::from_str::<Record>(&text).expect("reads back"), record);
    for bad in ["\"7\"", "\"zz\"", "\"ä\"", "5"] {
        assert!(serde_json::from_str::<Secret>(bad).is_err(), "{bad}");
    }
}
