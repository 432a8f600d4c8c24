//! How simulated clients ask: at which node, how long they wait, and what becomes of requests on
//! the way.
//!
//! Owns a client's connection. An answer may be lost: the caller stops waiting, while the request
//! goes on. A request may be doubled: a copy of it travels on another connection, and arrives later
//! than the caller thinks. While all is calm neither happens.

use std::cell::Cell;
use std::rc::Rc;

use kafka_protocol::protocol::Request;
use ringlog::api::find_coordinator::partition_of;
use ringlog::ids::{PartitionIndex, ShardId};
use ringlog::io::{Monotonic, Runtime};
use ringlog::sim::{Network, Random};

use crate::machine::Cluster;
use crate::support::client::request_frame;
use crate::wire::Wire;

/// One client's way to the broker.
pub struct Caller {
    pub cluster: Rc<Cluster>,
    pub network: Network,
    pub runtime: Rc<dyn Runtime>,
    pub random: Random,
    /// Nothing is lost or doubled.
    pub calm: Rc<Cell<bool>>,
    /// The node that should know; most of the time it is asked.
    pub aim: Option<ShardId>,
    /// A copy of the last request is under way, or has been.
    pub copied: bool,
    tossed: bool,
    wire: Option<(ShardId, Wire)>,
}

impl Caller {
    /// A client of a cluster.
    pub fn new(
        cluster: &Rc<Cluster>,
        network: &Network,
        runtime: Rc<dyn Runtime>,
        random: Random,
        calm: &Rc<Cell<bool>>,
    ) -> Caller {
        Caller {
            cluster: Rc::clone(cluster),
            network: network.clone(),
            runtime,
            random,
            calm: Rc::clone(calm),
            aim: None,
            copied: false,
            tossed: false,
            wire: None,
        }
    }

    /// Another client of the same cluster.
    pub fn fork(&mut self) -> Caller {
        let (runtime, random) = (Rc::clone(&self.runtime), self.random.fork());
        Caller::new(&self.cluster, &self.network, runtime, random, &self.calm)
    }

    /// The shard that owns a partition, if there is such a partition.
    pub fn owner(&self, topic: &str, partition: i32) -> Option<ShardId> {
        let front = &self.cluster.shards[0];
        let image = front.catalog();
        image.topic(topic)?.owner(PartitionIndex(partition), front.context.shards)
    }

    /// Aims at whoever keeps a key in an internal topic.
    pub fn aim_at_keeper(&mut self, topic: &str, key: &str) {
        let image = self.cluster.shards[0].catalog();
        let partition = image
            .topic(topic)
            .and_then(|topic| partition_of(key, topic.partition_count()))
            .unwrap_or(PartitionIndex(0));
        self.aim = self.owner(topic, partition.0);
    }

    /// Sends a request and waits for its answer, as long as patience lasts.
    pub async fn ask<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        patience_ms: u64,
    ) -> Option<R::Response> {
        if !std::mem::take(&mut self.tossed) {
            self.toss();
            self.tossed = false;
        }
        if self.copied {
            self.send_copy(version, request);
        }
        let patience_us = match !self.calm.get() && self.random.chance(1, 20) {
            true => self.random.below(6_000),
            false => patience_ms * 1_000,
        };
        let deadline = Monotonic(self.runtime.now().0 + patience_us * 1_000);
        let (shard, mut wire) = self.connection();
        let answer = {
            let called = wire.call(version, request);
            let tired = async {
                self.runtime.sleep_until(deadline).await;
                None
            };
            futures_lite::future::or(called, tired).await
        };
        if answer.is_some() {
            self.wire = Some((shard, wire));
        }
        answer
    }

    /// Decides whether the next request is doubled, for whoever has to know before it is sent.
    pub fn toss(&mut self) {
        self.copied = !self.calm.get() && self.random.chance(1, 20);
        self.tossed = true;
    }

    /// The connection to go on with: the one there is, or another.
    fn connection(&mut self) -> (ShardId, Wire) {
        let shards = &self.cluster.shards;
        let anywhere = shards[self.random.index(shards.len())].id;
        let is_single = shards[0].context.is_single();
        // Where there is one node nobody aims; where there are several somebody may be mistaken.
        let wanted = match self.aim {
            Some(aim) if !is_single && (self.calm.get() || !self.random.chance(1, 15)) => aim,
            _ => anywhere,
        };
        let stays = match &self.wire {
            Some(_) if is_single => !self.random.chance(1, 15),
            Some((shard, _)) => *shard == wanted,
            None => false,
        };
        match self.wire.take() {
            Some(wire) if stays => wire,
            _ => {
                let shard = &self.cluster.shards[usize::from(wanted.0)];
                (wanted, Wire::connect(&self.network, shard))
            }
        }
    }

    /// Goes on with a connection of its own next time.
    pub fn hang_up(&mut self) {
        self.wire = None;
    }

    /// The same request, once more and later, on a connection of its own; nobody waits for it.
    fn send_copy<R: Request>(&mut self, version: i16, request: &R) {
        let frame = request_frame(version, 1, Some("copy"), request);
        let longest_ms = [1, 10, 200][self.random.index(3)];
        let due = self.runtime.now().plus_ms(self.random.below(longest_ms));
        let shards = &self.cluster.shards;
        let shard = match self.aim {
            Some(aim) if !shards[0].context.is_single() => Rc::clone(&shards[usize::from(aim.0)]),
            _ => Rc::clone(&shards[self.random.index(shards.len())]),
        };
        let (network, runtime) = (self.network.clone(), Rc::clone(&self.runtime));
        self.runtime.spawn(Box::pin(async move {
            runtime.sleep_until(due).await;
            let mut wire = Wire::connect(&network, &shard);
            if wire.send(&frame).await.is_some() {
                wire.receive().await;
            }
        }));
    }

    /// Waits up to so long.
    pub async fn pause(&mut self, longest_ms: u64) {
        let due = self.runtime.now().plus_ms(self.random.below(longest_ms));
        self.runtime.sleep_until(due).await;
    }
}
