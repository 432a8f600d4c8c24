//! DescribeTransactions and ListTransactions.
//!
//! Owns what an operator sees of the ids. Shows durable state only; of a transaction that is
//! ending, the partitions that are still owed a marker.
//! Source: KIP-664, KIP-994, KIP-1152; Kafka's `listTransactionStates`.

use std::collections::HashSet;

use regex::{Regex, RegexBuilder};

use super::coordinator::{Coordinator, Phase, Transition};
use super::state::{Metadata, State};
use super::{Description, ListFilter, Listed, Listing};
use crate::error_code::ErrorCode;
use crate::ids::{PartitionIndex, ProducerId};
use crate::limits::TRANSACTIONAL_ID_PATTERN_BYTES_MAX;

impl Coordinator {
    /// One id for DescribeTransactions.
    ///
    /// # Errors
    /// INVALID_REQUEST for the empty id, TRANSACTIONAL_ID_NOT_FOUND, and where its partition is
    /// not here or being read.
    pub fn describe(&self, partition: PartitionIndex, id: &str) -> Result<Description, ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let entry = self.active(partition)?.ids.get(id);
        let entry = entry.ok_or(ErrorCode::TransactionalIdNotFound)?;
        let durable = entry.durable.as_ref().ok_or(ErrorCode::TransactionalIdNotFound)?;
        let partitions = match entry.pending.as_ref().map(|pending| &pending.transition) {
            Some(Transition::Complete { owed, .. }) => owed.iter().cloned().collect(),
            _ => durable.partitions.clone(),
        };
        Ok(Description {
            state: durable.state,
            timeout_ms: durable.timeout_ms,
            start_ms: durable.start_ms,
            producer: durable.producer,
            partitions,
        })
    }

    /// The ids for ListTransactions.
    ///
    /// # Errors
    /// COORDINATOR_LOAD_IN_PROGRESS while any partition is being read; INVALID_REGULAR_EXPRESSION
    /// for a pattern that is none, or whose program would be too large.
    pub fn list(&self, filter: &ListFilter, now_ms: i64) -> Result<Listing, ErrorCode> {
        let is_loading = |phase| matches!(phase, Phase::Loading);
        if self.partitions.values().any(|partition| is_loading(partition.phase)) {
            return Err(ErrorCode::CoordinatorLoadInProgress);
        }
        let pattern = match filter.pattern.as_deref() {
            None | Some("") => None,
            Some(pattern) => Some(whole(pattern).map_err(|_| ErrorCode::InvalidRegularExpression)?),
        };
        let mut listing = Listing::default();
        let mut wanted = Wanted {
            any_state: filter.states.is_empty(),
            states: [false; 8],
            producer_ids: filter.producer_ids.iter().copied().collect(),
            started_before_ms: match filter.duration_ms {
                ..0 => None,
                duration_ms => Some(now_ms.saturating_sub(duration_ms)),
            },
        };
        for name in &filter.states {
            match State::from_name(name) {
                Some(state) => wanted.states[state as usize] = true,
                None => listing.unknown_states.push(name.clone()),
            }
        }
        let ids = self.partitions.values().flat_map(|partition| &partition.ids);
        let durable = ids.filter_map(|(id, entry)| Some((id, entry.durable.as_ref()?)));
        for (id, metadata) in durable {
            let matches = |pattern: &Regex| pattern.is_match(id);
            if wanted.has(metadata) && pattern.as_ref().is_none_or(matches) {
                listing.transactions.push(Listed {
                    transactional_id: id.clone(),
                    producer_id: metadata.producer.id,
                    state: metadata.state,
                });
            }
        }
        Ok(listing)
    }
}

/// A filter without its pattern.
struct Wanted {
    any_state: bool,
    states: [bool; 8],
    producer_ids: HashSet<ProducerId>,
    started_before_ms: Option<i64>,
}

impl Wanted {
    fn has(&self, metadata: &Metadata) -> bool {
        (self.any_state || self.states[metadata.state as usize])
            && (self.producer_ids.is_empty() || self.producer_ids.contains(&metadata.producer.id))
            // An id with no transaction yet has a start of -1, and so passes, as in Kafka.
            && self.started_before_ms.is_none_or(|before_ms| metadata.start_ms < before_ms)
    }
}

/// Whether a pattern is refused because its program would be too large.
#[must_use]
pub fn is_pattern_too_large(pattern: &str) -> bool {
    matches!(whole(pattern), Err(regex::Error::CompiledTooBig(_)))
}

/// A pattern that must match all of a text.
fn whole(pattern: &str) -> Result<Regex, regex::Error> {
    let build = |pattern: &str| {
        RegexBuilder::new(pattern)
            .size_limit(TRANSACTIONAL_ID_PATTERN_BYTES_MAX)
            .dfa_size_limit(TRANSACTIONAL_ID_PATTERN_BYTES_MAX)
            .build()
    };
    // By itself first: parentheses that close what is put around it are no pattern.
    build(pattern)?;
    build(&format!(r"\A(?:{pattern})\z"))
}
