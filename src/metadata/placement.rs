//! Placement of new partitions on shards.
//!
//! Owns the running sequence of preferred numbers: they run from 0 to 65535 and wrap, and each new
//! partition takes the next number that falls on a least loaded shard. Reduced modulo any other
//! shard count they still spread, so the number of shards may change between starts. Nothing on
//! disk depends on the result.

use crate::config::{Advertise, BrokerConfig};

use super::image::Image;

/// The running placement sequence and the load it evens out.
pub(super) struct Placement {
    next_preferred: u16,
    loads: Vec<u64>,
}

impl Placement {
    /// Continues the catalog's sequence over `shards` with their present loads.
    pub fn new(image: &Image, shards: u16, shard_loads: &[u64]) -> Placement {
        let mut loads = shard_loads.to_vec();
        loads.resize(usize::from(shards.max(1)), 0);
        Placement { next_preferred: image.next_preferred(), loads }
    }

    /// The next number of the sequence, to be recorded with what was placed.
    pub fn next_preferred(&self) -> u16 {
        self.next_preferred
    }

    /// The next number of the sequence that falls on a least loaded shard.
    pub fn next(&mut self) -> u16 {
        let shards = self.loads.len();
        let least = self.loads.iter().copied().min().unwrap_or(0);
        let mut preferred = self.next_preferred;
        // Where the sequence wraps a shard may come up twice, so look a little further than once
        // around.
        for _ in 0..2 * shards {
            if self.loads[usize::from(preferred) % shards] == least {
                break;
            }
            preferred = preferred.wrapping_add(1);
        }
        self.loads[usize::from(preferred) % shards] += 1;
        self.next_preferred = preferred.wrapping_add(1);
        preferred
    }

    /// The number for an explicit assignment to `node`. A single advertised node is an identity,
    /// not a core: its partitions are spread like any others.
    pub fn assigned(&mut self, broker: &BrokerConfig, node: i32) -> u16 {
        if broker.advertise == Advertise::Single {
            return self.next();
        }
        let preferred = u16::try_from(node).unwrap_or(0);
        let shards = self.loads.len();
        self.loads[usize::from(preferred) % shards] += 1;
        preferred
    }
}
