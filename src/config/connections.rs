//! The text of `max.connections.per.ip.overrides`: `address:number`, comma-separated.
//!
//! Owns its reading and the checks between it and `max.connections.per.ip`. **deviation**: an entry
//! names an address or `localhost`; Apache Kafka takes any host name and asks the resolver.
//! Source: Kafka's `SocketServerConfigs`, `CoreUtils.parseCsvMap`, `KafkaConfig.validateValues`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::keys::{invalid, split_list};

const NAME: &str = "max.connections.per.ip.overrides";

/// The exceptions by address. The number follows the last colon, so that IPv6 needs no brackets.
///
/// # Errors
/// A sentence about the first bad entry.
pub fn parse(text: &str) -> Result<BTreeMap<IpAddr, usize>, String> {
    let mut exceptions = BTreeMap::new();
    for entry in split_list(text).into_iter().filter(|entry| !entry.is_empty()) {
        let fault = |reason: &str| Err(invalid(NAME, entry, reason));
        let Some((host, most)) = entry.rsplit_once(':') else {
            return fault("Expected address:number");
        };
        let host = host.trim().trim_start_matches('[').trim_end_matches(']');
        let address = match host {
            "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            host => host.parse::<IpAddr>(),
        };
        match (address, most.trim().parse::<u32>()) {
            (Ok(address), Ok(most)) => {
                exceptions.insert(address.to_canonical(), most as usize);
            }
            (Err(_), _) => return fault("Expected an IP address before the last colon"),
            (_, Err(_)) => return fault("Expected a number after the last colon"),
        }
    }
    Ok(exceptions)
}

/// Checks the two keys together.
///
/// # Errors
/// Kafka's sentence, or that of [`parse`].
pub fn check(per_address: i32, overrides: &str) -> Result<(), String> {
    let exceptions = parse(overrides)?;
    if per_address == 0 && exceptions.is_empty() {
        return Err(
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides \
             property is set."
                .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_addresses_and_numbers() {
        let parsed = parse(" 10.0.0.1:5 ,::1:7,[fe80::2]:9, localhost:1").expect("sound");
        let expected = [("10.0.0.1", 5), ("::1", 7), ("fe80::2", 9), ("127.0.0.1", 1)]
            .map(|(text, most)| (text.parse().expect("an address"), most));
        assert_eq!(parsed, BTreeMap::from(expected));
        assert_eq!(parse(""), Ok(BTreeMap::new()));
    }

    #[test]
    fn bad_entries_and_pairs_are_refused() {
        for (text, reason) in [
            ("10.0.0.1", "Expected address:number"),
            ("10.0.0.1:", "Expected a number after the last colon"),
            ("10.0.0.1:-1", "Expected a number after the last colon"),
            ("example.org:5", "Expected an IP address before the last colon"),
        ] {
            let expected = format!("Invalid value {text} for configuration {NAME}: {reason}");
            assert_eq!(parse(text), Err(expected));
        }
        assert!(check(0, "").expect_err("refused").starts_with("max.connections.per.ip can be"));
        assert_eq!(check(0, "10.0.0.1:1"), Ok(()));
        assert_eq!(check(1, ""), Ok(()));
    }
}
