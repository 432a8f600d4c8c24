//! The catalog at one moment, immutable and shared by all shards.
//!
//! Owns the meaning of each record: [`Image::apply_all`] is the only way an image changes, both
//! at run time and when the log is read. Cloning is cheap; applying copies only the parts that
//! change. Applying never fails: a record that names what does not exist changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::config::{BrokerConfig, TopicConfig, topic};
use crate::ids::{PartitionIndex, ShardId, TopicId};

use super::quotas::{QuotaEntity, Quotas};
use super::records::Record;
use super::scram::{Credentials, ScramCredential};

/// Kafka's topic of committed offsets and groups.
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";

/// Kafka's topic of transactions.
pub const TRANSACTION_STATE: &str = "__transaction_state";

/// Kafka's topic of share groups' state.
pub const SHARE_GROUP_STATE: &str = "__share_group_state";

/// Kafka's own metadata topic, which does not exist here and whose name is refused.
pub const CLUSTER_METADATA: &str = "__cluster_metadata";

/// One topic.
#[derive(Clone, PartialEq, Debug)]
pub struct Topic {
    /// Its id.
    pub id: TopicId,
    /// Its name.
    pub name: Arc<str>,
    /// Preferred shard of each partition; see [`Topic::owner`].
    pub preferred: Vec<u16>,
    /// Its own configs, in canonical text.
    pub overrides: BTreeMap<String, String>,
    /// Its effective settings.
    pub config: Arc<TopicConfig>,
    /// Whether it is one of Kafka's internal topics.
    pub internal: bool,
}

impl Topic {
    /// Number of partitions.
    #[must_use]
    pub fn partition_count(&self) -> i32 {
        i32::try_from(self.preferred.len()).unwrap_or(i32::MAX)
    }

    /// Replication factor told to clients; every partition has one replica.
    #[must_use]
    pub fn replication_factor(&self) -> i16 {
        1
    }

    /// The shard that owns a partition when there are `shards`; `None` if there is no such
    /// partition.
    #[must_use]
    pub fn owner(&self, partition: PartitionIndex, shards: u16) -> Option<ShardId> {
        let preferred = self.preferred.get(usize::try_from(partition.0).ok()?)?;
        Some(ShardId(preferred % shards.max(1)))
    }
}

/// How far a deletion has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TombstonePhase {
    /// Shards are dropping their partitions; the name is still taken.
    Deleting,
    /// The name is free; journals may still hold entries of the topic.
    NameFreed,
}

/// A deleted topic that something on disk may still name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// Id of the deleted topic.
    pub id: TopicId,
    /// Its name.
    pub name: Arc<str>,
    /// How many partitions it had.
    pub partitions: u32,
    /// How far the deletion has come.
    pub phase: TombstonePhase,
}

/// A resource that carries configs: Kafka's type number and a name.
pub type ConfigResource = (i8, String);

/// The catalog at one moment.
#[derive(Clone, Debug)]
pub struct Image {
    fixed: Arc<BrokerConfig>,
    broker: Arc<BrokerConfig>,
    cluster_id: Arc<str>,
    topics_by_name: Arc<BTreeMap<Arc<str>, Arc<Topic>>>,
    topics_by_id: Arc<HashMap<TopicId, Arc<Topic>>>,
    tombstones: Arc<BTreeMap<TopicId, Tombstone>>,
    configs: Arc<BTreeMap<ConfigResource, BTreeMap<String, String>>>,
    quotas: Arc<BTreeMap<QuotaEntity, Quotas>>,
    credentials: Arc<Credentials>,
    features: Arc<BTreeMap<String, i16>>,
    features_epoch: i64,
    next_producer_id: i64,
    next_preferred: u16,
    extra_ports: Arc<Vec<u16>>,
    changes: i64,
}

impl Image {
    /// An empty catalog under a broker's configuration.
    #[must_use]
    pub fn new(broker: Arc<BrokerConfig>) -> Image {
        Image {
            fixed: Arc::clone(&broker),
            broker,
            cluster_id: Arc::from(""),
            topics_by_name: Arc::default(),
            topics_by_id: Arc::default(),
            tombstones: Arc::default(),
            configs: Arc::default(),
            quotas: Arc::default(),
            credentials: Arc::default(),
            features: Arc::default(),
            features_epoch: 0,
            next_producer_id: 0,
            next_preferred: 0,
            extra_ports: Arc::default(),
            changes: 0,
        }
    }

    /// Id of the cluster: 22 characters; empty before its first record.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// The broker's configuration with the alterations made while running.
    #[must_use]
    pub fn broker(&self) -> &Arc<BrokerConfig> {
        &self.broker
    }

    /// The topic of that name; not while it is being deleted.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics_by_name.get(name)
    }

    /// The topic with that id; not while it is being deleted.
    #[must_use]
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topics_by_id.get(&id)
    }

    /// All topics by name.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<Topic>> {
        self.topics_by_name.values()
    }

    /// Topics from `name` on, by name: for paged answers.
    pub fn topics_from<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Arc<Topic>> {
        let bounds = (std::ops::Bound::Included(name), std::ops::Bound::Unbounded);
        self.topics_by_name.range::<str, _>(bounds).map(|(_, topic)| topic)
    }

    /// The shard that owns a partition when there are `shards`.
    #[must_use]
    pub fn owner(&self, id: TopicId, partition: PartitionIndex, shards: u16) -> Option<ShardId> {
        self.topic_by_id(id)?.owner(partition, shards)
    }

    /// Deleted topics that something on disk may still name.
    pub fn tombstones(&self) -> impl ExactSizeIterator<Item = &Tombstone> {
        self.tombstones.values()
    }

    /// The tombstone of a deleted topic.
    #[must_use]
    pub fn tombstone(&self, id: TopicId) -> Option<&Tombstone> {
        self.tombstones.get(&id)
    }

    /// Whether a new topic may not have this name, by a topic or by one still being deleted.
    #[must_use]
    pub fn is_name_taken(&self, name: &str) -> bool {
        self.topics_by_name.contains_key(name)
            || self.tombstones.values().any(|tombstone| {
                tombstone.phase == TombstonePhase::Deleting && *tombstone.name == *name
            })
    }

    /// Configs set on a resource other than a topic.
    #[must_use]
    pub fn configs(&self, resource_type: i8, name: &str) -> Option<&BTreeMap<String, String>> {
        self.configs.get(&(resource_type, name.to_owned()))
    }

    /// All resources other than topics that carry configs.
    pub fn config_resources(&self) -> impl Iterator<Item = &ConfigResource> {
        self.configs.keys()
    }

    /// Client quotas by whom they are for.
    #[must_use]
    pub fn quotas(&self) -> &BTreeMap<QuotaEntity, Quotas> {
        &self.quotas
    }

    /// SCRAM credentials by user and mechanism.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Finalized feature levels.
    #[must_use]
    pub fn features(&self) -> &BTreeMap<String, i16> {
        &self.features
    }

    /// Counts the changes of feature levels.
    #[must_use]
    pub fn features_epoch(&self) -> i64 {
        self.features_epoch
    }

    /// The first producer id that was never reserved.
    #[must_use]
    pub fn next_producer_id(&self) -> i64 {
        self.next_producer_id
    }

    /// The next number of the placement sequence.
    #[must_use]
    pub fn next_preferred(&self) -> u16 {
        self.next_preferred
    }

    /// Ports of shards 1 and up at the last start.
    #[must_use]
    pub fn extra_ports(&self) -> &[u16] {
        &self.extra_ports
    }

    /// Counts all changes of the catalog, over restarts too.
    #[must_use]
    pub fn changes(&self) -> i64 {
        self.changes
    }

    /// Partitions owned by each of `shards`.
    #[must_use]
    pub fn partitions_per_shard(&self, shards: u16) -> Vec<u64> {
        let mut counts = vec![0; usize::from(shards.max(1))];
        for topic in self.topics() {
            for preferred in &topic.preferred {
                counts[usize::from(preferred % shards.max(1))] += 1;
            }
        }
        counts
    }

    /// Whether every topic's largest batch fits the ring and the memory of this start.
    ///
    /// # Errors
    /// One sentence naming the topic and the bound.
    pub fn check_fits(&self) -> Result<(), String> {
        for topic in self.topics() {
            topic::check_fits(&topic.overrides, &self.broker)
                .map_err(|reason| format!("topic {}: {reason}", topic.name))?;
        }
        Ok(())
    }

    /// The image after one record.
    #[must_use]
    pub fn apply(&self, record: &Record) -> Image {
        self.apply_all(std::slice::from_ref(record))
    }

    /// The image after several records; cheaper than one by one.
    #[must_use]
    pub fn apply_all(&self, records: &[Record]) -> Image {
        let mut next = self.clone();
        for record in records {
            next.change(record);
        }
        next
    }

    /// Records that make this image out of an empty one: the content of a snapshot.
    #[must_use]
    pub fn to_records(&self) -> Vec<Record> {
        let mut records = vec![Record::ClusterCreated { cluster_id: self.cluster_id.to_string() }];
        for ((resource_type, resource_name), values) in self.configs.iter() {
            for (key, value) in values {
                records.push(Record::ConfigSet {
                    resource_type: *resource_type,
                    resource_name: resource_name.clone(),
                    key: key.clone(),
                    value: Some(value.clone()),
                });
            }
        }
        for (entity, quotas) in self.quotas.iter() {
            for (key, value) in quotas {
                let (entity, key, value) = (entity.clone(), key.clone(), Some(value.clone()));
                records.push(Record::ClientQuotaSet { entity, key, value });
            }
        }
        for (user, credentials) in self.credentials.iter() {
            for (mechanism, credential) in credentials {
                let (user, credential) = (user.clone(), Some(credential.clone()));
                let mechanism = *mechanism;
                records.push(Record::ScramCredentialSet { user, mechanism, credential });
            }
        }
        for topic in self.topics() {
            records.push(Record::TopicCreated {
                name: topic.name.to_string(),
                id: topic.id,
                preferred: topic.preferred.clone(),
                overrides: topic.overrides.clone(),
                next_preferred: self.next_preferred,
            });
        }
        for tombstone in self.tombstones() {
            records.push(Record::TombstoneKept {
                id: tombstone.id,
                name: tombstone.name.to_string(),
                partitions: tombstone.partitions,
                name_freed: tombstone.phase == TombstonePhase::NameFreed,
            });
        }
        records.push(Record::PlacementSet { next_preferred: self.next_preferred });
        records.push(Record::ProducerIdsReserved { next: self.next_producer_id });
        records.push(Record::BrokerPortsChosen { ports: self.extra_ports.to_vec() });
        records.push(Record::FeaturesKept {
            levels: (*self.features).clone(),
            epoch: self.features_epoch,
        });
        records.push(Record::ChangesCounted { count: self.changes });
        records
    }

    fn change(&mut self, record: &Record) {
        self.changes = self.changes.saturating_add(1);
        match record {
            Record::ChangesCounted { count } => self.changes = *count,
            Record::ClusterCreated { cluster_id } => self.cluster_id = Arc::from(&**cluster_id),
            Record::TopicCreated { name, id, preferred, overrides, next_preferred } => {
                self.next_preferred = *next_preferred;
                self.put_topic(Topic {
                    id: *id,
                    name: Arc::from(&**name),
                    preferred: preferred.clone(),
                    overrides: overrides.clone(),
                    config: Arc::new(topic::resolve(overrides, &self.broker)),
                    internal: is_internal(name),
                });
            }
            Record::PartitionsAdded { id, preferred, next_preferred } => {
                self.next_preferred = *next_preferred;
                if let Some(topic) = self.topic_by_id(*id) {
                    let mut topic = Topic::clone(topic);
                    topic.preferred.extend_from_slice(preferred);
                    self.put_topic(topic);
                }
            }
            Record::TopicDeleting { id } => self.begin_delete(*id),
            Record::TopicNameFreed { id } => {
                if let Some(tombstone) = Arc::make_mut(&mut self.tombstones).get_mut(id) {
                    tombstone.phase = TombstonePhase::NameFreed;
                }
            }
            Record::TombstoneGone { id } => {
                Arc::make_mut(&mut self.tombstones).remove(id);
            }
            Record::ConfigSet { resource_type, resource_name, key, value } => {
                self.set_config(*resource_type, resource_name, key, value.as_deref());
            }
            Record::ClientQuotaSet { entity, key, value } => {
                let all = Arc::make_mut(&mut self.quotas);
                let quotas = all.entry(entity.clone()).or_default();
                set(quotas, key, value.as_deref());
                if quotas.is_empty() {
                    all.remove(entity);
                }
            }
            Record::ScramCredentialSet { user, mechanism, credential } => {
                self.set_credential(user, *mechanism, credential.as_ref());
            }
            Record::ProducerIdsReserved { next } => {
                self.next_producer_id = self.next_producer_id.max(*next);
            }
            Record::BrokerPortsChosen { ports } => self.extra_ports = Arc::new(ports.clone()),
            Record::FeatureLevelSet { name, level } => self.set_feature(name, *level),
            Record::FeaturesKept { levels, epoch } => {
                self.features = Arc::new(levels.clone());
                self.features_epoch = *epoch;
            }
            Record::LogFollows { .. } => {}
            Record::PlacementSet { next_preferred } => self.next_preferred = *next_preferred,
            Record::TombstoneKept { id, name, partitions, name_freed } => {
                self.keep_tombstone(*id, name, *partitions, *name_freed)
            }
        }
    }

    fn set_credential(&mut self, user: &str, mechanism: i8, credential: Option<&ScramCredential>) {
        let all = Arc::make_mut(&mut self.credentials);
        let of_user = all.entry(user.to_owned()).or_default();
        match credential {
            Some(credential) => drop(of_user.insert(mechanism, credential.clone())),
            None => drop(of_user.remove(&mechanism)),
        }
        if of_user.is_empty() {
            all.remove(user);
        }
    }

    fn set_feature(&mut self, name: &str, level: i16) {
        let features = Arc::make_mut(&mut self.features);
        if level == 0 {
            features.remove(name);
        } else {
            features.insert(name.to_owned(), level);
        }
        self.features_epoch = self.features_epoch.saturating_add(1);
    }

    fn keep_tombstone(&mut self, id: TopicId, name: &str, partitions: u32, name_freed: bool) {
        let tombstone = Tombstone {
            id,
            name: Arc::from(name),
            partitions,
            phase: if name_freed { TombstonePhase::NameFreed } else { TombstonePhase::Deleting },
        };
        Arc::make_mut(&mut self.tombstones).insert(id, tombstone);
    }

    fn put_topic(&mut self, topic: Topic) {
        let topic = Arc::new(topic);
        Arc::make_mut(&mut self.topics_by_id).insert(topic.id, Arc::clone(&topic));
        Arc::make_mut(&mut self.topics_by_name).insert(Arc::clone(&topic.name), topic);
    }

    fn begin_delete(&mut self, id: TopicId) {
        let Some(topic) = Arc::make_mut(&mut self.topics_by_id).remove(&id) else {
            return;
        };
        Arc::make_mut(&mut self.topics_by_name).remove(&topic.name);
        let tombstone = Tombstone {
            id,
            name: Arc::clone(&topic.name),
            partitions: u32::try_from(topic.preferred.len()).unwrap_or(u32::MAX),
            phase: TombstonePhase::Deleting,
        };
        Arc::make_mut(&mut self.tombstones).insert(id, tombstone);
    }

    fn set_config(&mut self, resource_type: i8, name: &str, key: &str, value: Option<&str>) {
        if resource_type == RESOURCE_TOPIC {
            let Some(topic) = self.topic(name) else {
                return;
            };
            let mut topic = Topic::clone(topic);
            set(&mut topic.overrides, key, value);
            topic.config = Arc::new(topic::resolve(&topic.overrides, &self.broker));
            self.put_topic(topic);
            return;
        }
        let configs = Arc::make_mut(&mut self.configs);
        let resource = (resource_type, name.to_owned());
        let values = configs.entry(resource.clone()).or_default();
        set(values, key, value);
        if values.is_empty() {
            configs.remove(&resource);
        }
        if resource_type == RESOURCE_BROKER && name.is_empty() {
            self.resolve_again();
        }
    }

    /// Computes the effective broker configuration and every topic's anew. A stored alteration
    /// that no longer fits is passed over.
    fn resolve_again(&mut self) {
        let cluster = (RESOURCE_BROKER, String::new());
        let mut broker = BrokerConfig::clone(&self.fixed);
        let mut accepted = BTreeMap::new();
        for (key, value) in self.configs.get(&cluster).into_iter().flatten() {
            accepted.insert(key.clone(), value.clone());
            match self.fixed.with_dynamic(&accepted) {
                Ok(changed) => broker = changed,
                Err(_) => drop(accepted.remove(key)),
            }
        }
        self.broker = Arc::new(broker);
        let topics: Vec<Arc<Topic>> = self.topics().cloned().collect();
        for topic in topics {
            let mut topic = Topic::clone(&topic);
            topic.config = Arc::new(topic::resolve(&topic.overrides, &self.broker));
            self.put_topic(topic);
        }
    }
}

/// Whether a name is one of Kafka's internal topics.
#[must_use]
pub fn is_internal(name: &str) -> bool {
    matches!(name, CONSUMER_OFFSETS | TRANSACTION_STATE | SHARE_GROUP_STATE)
}

fn set(values: &mut BTreeMap<String, String>, key: &str, value: Option<&str>) {
    match value {
        Some(value) => drop(values.insert(key.to_owned(), value.to_owned())),
        None => drop(values.remove(key)),
    }
}

/// Kafka's resource type of topics.
pub const RESOURCE_TOPIC: i8 = 2;

/// Kafka's resource type of brokers.
pub const RESOURCE_BROKER: i8 = 4;

/// Kafka's resource type of a broker's loggers.
pub const RESOURCE_BROKER_LOGGER: i8 = 8;

/// Kafka's resource type of client metrics subscriptions.
pub const RESOURCE_CLIENT_METRICS: i8 = 16;

/// Kafka's resource type of groups.
pub const RESOURCE_GROUP: i8 = 32;

#[cfg(test)]
mod tests;
