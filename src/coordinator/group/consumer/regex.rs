//! Regular expressions that members subscribe to, resolved by the broker.
//!
//! Owns when a group's expressions are resolved: when one is new, when the catalog has changed,
//! and now and then; at most every 10 seconds, and never in the turn of a request. The syntax is
//! that of RE2, as in Kafka; an expression matches whole names. Matching takes linear time, and
//! compiled expressions are bounded. Source: KIP-848, Kafka's `TopicRegexResolver`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use super::{
    Alarm, ConsumerChange, ConsumerGroup, GroupEpoch, Member, MemberMetadata, Plan, Refusal,
    ResolvedRegex, Rules, Timer, hash, real_regex, refusal,
};
use crate::error_code::ErrorCode;
use crate::limits::REGEX_BYTES_MAX;

/// What a change of a member's expression means for the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegexChange {
    /// It is the same.
    None,
    /// It is another, of which nothing is known yet.
    Unresolved,
    /// It is another, or none any more, and its topics are known.
    Resolved,
}

/// Compiles an expression that is to match whole names.
///
/// # Errors
/// What is wrong with it.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let whole = format!("\\A(?:{})\\z", translate(pattern)?);
    let built = RegexBuilder::new(&whole).size_limit(REGEX_BYTES_MAX).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "expression is too large".to_owned(),
        other => other.to_string().lines().last().unwrap_or("malformed").trim().to_owned(),
    })
}

/// The topics of these names that an expression stands for.
#[must_use]
pub fn matching(regex: &Regex, names: &[Arc<str>]) -> BTreeSet<Arc<str>> {
    names.iter().filter(|name| regex.is_match(name)).map(Arc::clone).collect()
}

/// RE2 in the words of the `regex` crate: quoted text, and no operators inside classes.
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("\\Q") {
            let (text, after) = after.split_once("\\E").unwrap_or((after, ""));
            out.push_str(&regex::escape(text));
            rest = after;
            continue;
        }
        let width = if first == '\\' {
            let escaped = rest.chars().nth(1).ok_or("trailing backslash at end of expression")?;
            1 + escaped.len_utf8()
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(width);
        match token {
            "[" if in_class && !after.starts_with(':') => out.push_str("\\["),
            "&" | "~" if in_class => {
                out.push('\\');
                out.push_str(token);
            }
            "[" if !in_class => {
                in_class = true;
                out.push('[');
                let (negation, after) =
                    after.strip_prefix('^').map_or(("", after), |after| ("^", after));
                out.push_str(negation);
                // A bracket that comes first is one of the class.
                let bracket = after.strip_prefix(']');
                out.push_str(if bracket.is_some() { "\\]" } else { "" });
                rest = bracket.unwrap_or(after);
                continue;
            }
            "[" => {
                // A named class: it ends with ":]".
                let end = after.find(":]").map_or(after.len(), |at| at + 2);
                out.push('[');
                out.push_str(&after[..end]);
                rest = &after[end..];
                continue;
            }
            "]" if in_class => {
                in_class = false;
                out.push(']');
            }
            _ => out.push_str(token),
        }
        rest = after;
    }
    Ok(out)
}

impl ConsumerGroup {
    /// What a member's new expression means, with the tombstone of one that nobody has any more,
    /// and with the timer if expressions are to be resolved.
    pub(super) fn change_regex(
        &self,
        old: &MemberMetadata,
        new: &MemberMetadata,
        rules: &Rules<'_>,
        plan: &mut Plan<()>,
    ) -> Result<RegexChange, Refusal> {
        let mut change = RegexChange::None;
        let mut is_new = false;
        let members = |regex: &Arc<str>| self.derived.regexes.get(regex).copied().unwrap_or(0);
        let (before, after) = (real_regex(old), real_regex(new));
        if before != after {
            change = RegexChange::Unresolved;
            if let Some(before) = before.filter(|before| members(before) == 1) {
                plan.changes.push(ConsumerChange::Regex(Arc::clone(before), None));
            }
            match after {
                Some(after) if members(after) == 0 => {
                    compile(after).map_err(|what| {
                        let text = format!(
                            "SubscribedTopicRegex `{after}` is not a valid regular expression: \
                             {what}."
                        );
                        refusal(ErrorCode::InvalidRegularExpression, text)
                    })?;
                    is_new = true;
                }
                Some(after) if self.regexes.contains_key(after) => {
                    change = RegexChange::Resolved;
                }
                None if before.is_some() => change = RegexChange::Resolved,
                _ => {}
            }
        }
        if (is_new || !self.derived.regexes.is_empty()) && self.is_refresh_due(is_new, rules) {
            self.soft.resolving_since_ms.set(Some(rules.now.wall_ms));
            plan.timers.push((Timer::Regexes, Alarm::At(rules.now.ms)));
        }
        Ok(change)
    }

    fn is_refresh_due(&self, is_new: bool, rules: &Rules<'_>) -> bool {
        let resolving = self.soft.resolving_since_ms.get();
        let now_ms = rules.now.wall_ms;
        // A clock that has been put back keeps nobody waiting until it has come round.
        let is_soon = |after_ms: i64| {
            let until_ms = after_ms.saturating_add(REFRESH_MIN_MS);
            (after_ms..=until_ms).contains(&now_ms)
        };
        if resolving.is_some_and(is_soon) {
            return false;
        }
        let (mut last_ms, mut version) = (i64::MIN, i64::MIN);
        if let Some(resolved) = self.regexes.values().next() {
            let (soft_ms, soft_version) = self.soft.refreshed.get();
            last_ms = resolved.at_ms.max(soft_ms);
            version = resolved.version.max(soft_version);
        }
        !is_soon(last_ms)
            && (is_new
                || self.derived.regexes.len() != self.regexes.len()
                || version < rules.topics.version()
                || now_ms > last_ms.saturating_add(rules.regex_refresh_ms))
    }

    /// The expressions that are to be resolved now.
    #[must_use]
    pub fn unresolved(&self) -> Vec<Arc<str>> {
        self.derived.regexes.keys().map(Arc::clone).collect()
    }

    /// Takes over what expressions stand for in a version of the catalog.
    #[must_use]
    pub fn regexes_resolved(
        &self,
        resolved: Vec<(Arc<str>, BTreeSet<Arc<str>>)>,
        version: i64,
        rules: &Rules<'_>,
    ) -> Plan<()> {
        self.soft.resolving_since_ms.set(None);
        self.soft.refreshed.set((rules.now.wall_ms, version));
        let mut plan = Plan::new(());
        let mut names: BTreeMap<&str, ()> =
            self.derived.names.keys().map(|name| (&**name, ())).collect();
        let mut is_changed = false;
        let wanted = |regex: &Arc<str>| self.derived.regexes.contains_key(regex);
        for (regex, old) in self.regexes.iter().filter(|(regex, _)| wanted(regex)) {
            if !resolved.iter().any(|(new, _)| new == regex) {
                names.extend(old.topics.iter().map(|topic| (&**topic, ())));
            }
        }
        for (regex, topics) in resolved.iter().filter(|(regex, _)| wanted(regex)) {
            names.extend(topics.iter().map(|topic| (&**topic, ())));
            let old = self.regexes.get(regex);
            let is_same = old.is_some_and(|old| old.topics == *topics);
            is_changed |= !is_same && (old.is_some() || !topics.is_empty());
            if !is_same {
                let value =
                    ResolvedRegex { topics: topics.clone(), version, at_ms: rules.now.wall_ms };
                let value = Some(Arc::new(value));
                plan.changes.push(ConsumerChange::Regex(Arc::clone(regex), value));
            }
        }
        let metadata_hash = hash::metadata_hash(names.keys().copied(), rules.topics);
        if is_changed || metadata_hash != self.metadata_hash {
            let epoch = self.epoch + 1;
            plan.changes.push(ConsumerChange::Epoch(Some(GroupEpoch { epoch, metadata_hash })));
        }
        plan
    }

    /// Tombstones of the expressions that nobody has once these members are gone.
    pub(super) fn forget_regexes(&self, gone: &[&Member]) -> Vec<ConsumerChange> {
        let mut counts: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for regex in gone.iter().filter_map(|member| real_regex(&member.metadata)) {
            *counts.entry(regex).or_default() += 1;
        }
        let last = counts.into_iter().filter(|(regex, count)| {
            self.derived.regexes.get(*regex).is_some_and(|members| members == count)
        });
        last.map(|(regex, _)| ConsumerChange::Regex(Arc::clone(regex), None)).collect()
    }
}

/// Least time between two resolutions, as in Kafka.
const REFRESH_MIN_MS: i64 = 10_000;
