//! How many connections the broker has: in all, and from one address.
//!
//! Owns the counts of all shards together, which is why they are behind a lock: it is taken when a
//! connection comes or goes, never by a request. Must never give away a place beyond a limit that
//! holds at that moment; a limit lowered later closes nobody. Invariant: a [`Place`] that is
//! dropped gives its share of both counts back.
//!
//! As Apache Kafka: beyond `max.connections` nobody is admitted until somebody leaves, so that
//! newcomers wait; beyond the limit of its own address a connection is closed at once.
//! Source: Kafka's `ConnectionQuotas`.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;

use crate::config::BrokerConfig;

/// The limits that hold now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Most connections of the broker (`max.connections`).
    pub all: usize,
    /// Most connections from one address (`max.connections.per.ip`).
    pub per_address: usize,
    /// Exceptions to it (`max.connections.per.ip.overrides`).
    pub overrides: BTreeMap<IpAddr, usize>,
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The broker is full: whoever wants in waits.
    Full,
    /// The address has all it may have: the connection is closed.
    Address {
        /// How many those are.
        most: usize,
    },
}

/// The connections there are.
#[derive(Debug, Default)]
pub struct ConnectionQuota {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One connection's share of the counts.
#[derive(Debug)]
pub struct Place {
    quota: Arc<ConnectionQuota>,
    address: IpAddr,
}

impl ConnectionLimits {
    /// The limits in a configuration; its overrides were checked when it was loaded.
    #[must_use]
    pub fn of(config: &BrokerConfig) -> ConnectionLimits {
        let most = |count: i32| usize::try_from(count).unwrap_or(0);
        let overrides = crate::config::connections::parse(&config.max_connections_per_ip_overrides);
        ConnectionLimits {
            all: most(config.max_connections),
            per_address: most(config.max_connections_per_ip),
            overrides: overrides.unwrap_or_default(),
        }
    }

    fn of_address(&self, address: IpAddr) -> usize {
        self.overrides.get(&address).copied().unwrap_or(self.per_address)
    }
}

impl ConnectionQuota {
    /// Takes a place for a connection from `address`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn take(
        self: &Arc<Self>,
        address: IpAddr,
        limits: &ConnectionLimits,
    ) -> Result<Place, Refusal> {
        let address = address.to_canonical();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.all >= limits.all {
            return Err(Refusal::Full);
        }
        let most = limits.of_address(address);
        let of_address = counts.by_address.entry(address).or_default();
        if *of_address >= most {
            let none = *of_address == 0;
            if none {
                counts.by_address.remove(&address);
            }
            return Err(Refusal::Address { most });
        }
        *of_address += 1;
        counts.all += 1;
        Ok(Place { quota: Arc::clone(self), address })
    }

    /// Connections in all.
    #[must_use]
    pub fn count(&self) -> usize {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).all
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.quota.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all -= 1;
        let left = counts.by_address.get_mut(&self.address).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            counts.by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn limits(all: usize, per_address: usize, overrides: &[(&str, usize)]) -> ConnectionLimits {
        let overrides = overrides.iter().map(|(text, most)| (address(text), *most)).collect();
        ConnectionLimits { all, per_address, overrides }
    }

    #[test]
    fn places_are_counted_in_all_and_by_address_and_come_back() {
        let quota = Arc::new(ConnectionQuota::default());
        let limits = limits(4, 2, &[("10.0.0.9", 3), ("10.0.0.0", 0)]);
        let take = |text: &str| quota.take(address(text), &limits);
        let first = take("10.0.0.1").expect("a place");
        let second = take("10.0.0.1").expect("a place");
        assert_eq!(take("10.0.0.1").err(), Some(Refusal::Address { most: 2 }));
        assert_eq!(take("::ffff:10.0.0.1").err(), Some(Refusal::Address { most: 2 }), "the same");
        assert_eq!(take("10.0.0.0").err(), Some(Refusal::Address { most: 0 }));
        let others: Vec<Place> = (0..2).map(|_| take("10.0.0.9").expect("a place")).collect();
        assert_eq!(take("10.0.0.9").err(), Some(Refusal::Full));
        drop(first);
        let third = take("10.0.0.9").expect("its exception is 3");
        assert_eq!(quota.count(), 4);
        drop((second, third, others));
        assert_eq!(quota.count(), 0);
        assert!(quota.counts.lock().expect("no panic").by_address.is_empty());
    }

    #[test]
    fn limits_are_those_of_the_configuration() {
        let config = BrokerConfig::with_overrides(&[
            ("max.connections", "7"),
            ("max.connections.per.ip", "0"),
            ("max.connections.per.ip.overrides", "127.0.0.1:200, ::1:3"),
        ]);
        let found = ConnectionLimits::of(&config.expect("sound"));
        assert_eq!(found, limits(7, 0, &[("127.0.0.1", 200), ("::1", 3)]));
        let unlimited = ConnectionLimits::of(&BrokerConfig::with_overrides(&[]).expect("sound"));
        assert_eq!(unlimited, limits(i32::MAX as usize, i32::MAX as usize, &[]));
    }
}
