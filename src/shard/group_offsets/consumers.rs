//! Consumer groups of this shard: heartbeats, timers, expressions, descriptions.
//!
//! Owns what their rules are told of the machine: clocks, configuration of broker and group, the
//! catalog. A heartbeat that changes nothing takes the partition's turn and no more; one that is
//! written is written to its end also when its client goes away. Expressions are resolved without
//! the turn, a few names at a time, against one version of the catalog.

use std::rc::Rc;
use std::sync::Arc;

use super::members::{Held, carry_out, now};
use super::{Kept, find, newest_of, wait_durable};
use crate::coordinator::group::assignor::Assignor;
use crate::coordinator::group::consumer::{
    DescribedGroup, Heartbeat, MigrationPolicy, Planned, Refusal, Rules, SessionRules, Timer,
    TopicFacts, Topics, regex,
};
use crate::coordinator::group::outcome::{Answer, Outcome, TimerKey};
use crate::error_code::ErrorCode;
use crate::ids::TopicId;
use crate::limits::REGEX_NAMES_PER_TURN_MAX;
use crate::metadata::Image;
use crate::metadata::image::RESOURCE_GROUP;
use crate::shard::Shard;

/// The catalog, as the rules see it.
struct Catalog<'a>(&'a Image);

impl Topics for Catalog<'_> {
    fn by_name(&self, name: &str) -> Option<TopicFacts> {
        let topic = self.0.topic(name)?;
        Some(TopicFacts { id: topic.id, partitions: topic.partition_count() })
    }

    fn name_of(&self, id: TopicId) -> Option<Arc<str>> {
        self.0.topic_by_id(id).map(|topic| Arc::clone(&topic.name))
    }

    fn names(&self) -> Vec<Arc<str>> {
        self.0.topics().map(|topic| Arc::clone(&topic.name)).collect()
    }

    fn version(&self) -> i64 {
        self.0.changes()
    }
}

/// Has something done with the rules for a group.
pub(super) fn with_rules<T>(shard: &Shard, group: &str, act: impl FnOnce(&Rules<'_>) -> T) -> T {
    let image = shard.catalog();
    let config = image.broker();
    let of_group = |name: &str, otherwise: i32| group_config(&image, group, name, otherwise);
    let members_max = |count: i32| usize::try_from(count).unwrap_or(usize::MAX);
    let assignors: smallvec::SmallVec<[Assignor; 2]> =
        config.group_consumer_assignors.iter().filter_map(|name| Assignor::of(name)).collect();
    let rules = Rules {
        now: now(shard),
        session_timeout_ms: session_timeout_ms(&image, group),
        heartbeat_interval_ms: of_group(
            "consumer.heartbeat.interval.ms",
            config.group_consumer_heartbeat_interval_ms,
        ),
        assignment_interval_ms: of_group(
            "consumer.assignment.interval.ms",
            config.group_consumer_assignment_interval_ms,
        ),
        members_max: members_max(config.group_consumer_max_size),
        classic_members_max: members_max(config.group_max_size),
        assignors: &assignors,
        regex_refresh_ms: i64::from(config.group_consumer_regex_refresh_interval_ms),
        policy: MigrationPolicy::of(&config.group_consumer_migration_policy).unwrap_or_default(),
        topics: &Catalog(&image),
    };
    act(&rules)
}

fn group_config(image: &Image, group: &str, name: &str, otherwise: i32) -> i32 {
    let set = image.configs(RESOURCE_GROUP, group).and_then(|set| set.get(name));
    set.and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn session_timeout_ms(image: &Image, group: &str) -> i32 {
    let otherwise = image.broker().group_consumer_session_timeout_ms;
    group_config(image, group, "consumer.session.timeout.ms", otherwise)
}

/// What sessions of a group that has just been read depend on.
pub(super) fn session_rules(shard: &Shard, group: &str) -> SessionRules {
    let session_timeout_ms = session_timeout_ms(&shard.catalog(), group);
    SessionRules { now_ms: now(shard).ms, session_timeout_ms }
}

/// Does a heartbeat on this shard.
///
/// # Errors
/// What the coordinator says for all groups.
pub(super) async fn heartbeat(
    shard: &Rc<Shard>,
    request: Box<Heartbeat>,
) -> Result<Answer, ErrorCode> {
    let kept = find(shard, &request.group)?;
    let turn = kept.turn().await;
    let planned = with_rules(shard, &request.group, |rules| {
        kept.with_mut(|groups| groups.consumer_heartbeat(&request, rules))
    });
    let Planned { records, answer, timers, conversion } = planned?;
    if records.is_empty() {
        shard.group_offsets.timers.set_all(kept.id.partition, &request.group, timers);
        drop(turn);
        wait_durable(shard, newest_of(shard, kept.id)).await?;
        return Ok(Answer::Consumer(answer));
    }
    let held = Held::of(&kept.tickets);
    let answers = vec![(held.ticket(), Answer::Consumer(answer))];
    let outcome = Outcome { records, answers, timers, conversion };
    let (doing, writing) = (Rc::clone(shard), Rc::clone(&kept));
    shard.runtime.spawn(Box::pin(async move {
        carry_out(&doing, &writing, &request.group, outcome).await;
        drop(turn);
    }));
    held.answered(shard).await
}

/// A timer of a consumer group has come; the caller has no turn.
pub(super) async fn fire(shard: &Rc<Shard>, kept: &Rc<Kept>, group: &Arc<str>, timer: &Timer) {
    if *timer == Timer::Regexes {
        let (shard, kept, group) = (Rc::clone(shard), Rc::clone(kept), Arc::clone(group));
        let runtime = Rc::clone(&shard.runtime);
        runtime.spawn(Box::pin(async move { resolve(&shard, &kept, &group).await }));
        return;
    }
    let turn = kept.turn().await;
    let planned = with_rules(shard, group, |rules| {
        kept.with_mut(|groups| groups.consumer_timer(group, timer, rules))
    });
    if let Ok(planned) = planned
        && !carry_out(shard, kept, group, planned.into()).await
        && let Ok(again) =
            kept.with_mut(|groups| groups.timer_not_written(group, timer, now(shard)))
    {
        shard.group_offsets.timers.set_all(kept.id.partition, group, again);
    }
    drop(turn);
}

/// Finds what a group's expressions stand for.
async fn resolve(shard: &Rc<Shard>, kept: &Rc<Kept>, group: &Arc<str>) {
    let Ok(patterns) = kept.with_mut(|groups| groups.consumer_regexes(group)) else { return };
    let image = shard.catalog();
    let names = Catalog(&image).names();
    let mut resolved = Vec::with_capacity(patterns.len());
    for pattern in patterns {
        let mut topics = std::collections::BTreeSet::new();
        // One that was accepted by another broker may be none here: it stands for nothing.
        if let Ok(compiled) = regex::compile(&pattern) {
            for some in names.chunks(REGEX_NAMES_PER_TURN_MAX) {
                topics.extend(regex::matching(&compiled, some));
                shard.runtime.yield_now().await;
            }
        }
        resolved.push((pattern, topics));
    }
    let turn = kept.turn().await;
    let planned = with_rules(shard, group, |rules| {
        kept.with_mut(|groups| groups.consumer_resolved(group, resolved, image.changes(), rules))
    });
    if let Ok(planned) = planned {
        carry_out(shard, kept, group, planned.into()).await;
    }
    drop(turn);
}

/// Describes a group of this shard.
///
/// # Errors
/// What the coordinator says for all groups.
pub(super) fn describe(
    shard: &Shard,
    kept: &Kept,
    group: &str,
) -> Result<Result<DescribedGroup, Refusal>, ErrorCode> {
    with_rules(shard, group, |rules| kept.with(|groups| groups.describe_consumer(group, rules)))
}

/// Whether a timer is one of a consumer group.
pub(super) fn timer_of(key: &TimerKey) -> Option<&Timer> {
    match key {
        TimerKey::Consumer(timer) => Some(timer),
        _ => None,
    }
}
