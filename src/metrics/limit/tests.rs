//! That no bound is forgotten: each constant of `limits.rs` is counted when it is reached, or
//! stands here with the reason why a running broker cannot reach it.

use std::collections::BTreeSet;

use super::*;
use crate::config::broker::KEYS;

/// Constants that are no bounds a running broker runs into.
const NOT_REACHED: &[(&str, &str)] = &[
    ("BLOCK_ALIGN", "a unit"),
    ("JOURNAL_BLOCK_BYTES_MIN", "where the size of blocks begins"),
    ("JOURNAL_BLOCK_BYTES_COPIED", "where blocks begin to leave when full"),
    ("JOURNAL_SEAL_IDLE_MS", "a time"),
    ("MEMORY_LOOK_MS", "a time"),
    ("INFLATED_ORDINARY_BYTES_MAX", "where another lane begins"),
    ("INFLATION_ORDINARY_PART", "where another lane begins"),
    ("MEMORY_HURRY_BYTES", "where a request is answered early"),
    ("FETCH_BYTES_GRANTED_MIN", "what is granted in any case"),
    ("FRAME_BYTES_COPIED_MAX", "where copying ends"),
    ("KEEPALIVE_IDLE_S", "a time"),
    ("KEEPALIVE_INTERVAL_S", "a time"),
    ("KEEPALIVE_PROBES", "the kernel's, which counts them"),
    ("WRITE_BEHIND_BYTES", "where work begins"),
    ("SEGMENT_WRITE_BYTES_MAX", "the unit of one write"),
    ("SEGMENT_ALLOCATE_BYTES", "a unit"),
    ("PRODUCER_BATCHES_REMEMBERED", "a window that is always full"),
    ("VALIDATE_SLICE_BYTES", "the unit of one turn"),
    ("RETENTION_SLICE", "the unit of one turn"),
    ("READ_BYTES_MAX", "the unit of one read"),
    ("READ_AHEAD_BYTES_MIN", "where reading ahead begins"),
    ("READ_AHEAD_BYTES_MAX", "a window that is always full"),
    ("CLEANER_SLICE_BYTES", "the unit of one turn"),
    ("CLEANER_PIECE_BYTES", "the unit of one read or write"),
    ("CLEANER_PARTITIONS_PER_TURN", "the unit of one turn"),
    ("UNLINK_PIECE_BYTES", "the unit of one cut"),
    ("UNLINK_PAUSE_MS", "a time"),
    ("CHECKPOINT_LOOK_MS", "a time"),
    ("PRODUCER_ID_BLOCK", "a unit"),
    ("TXN_APPEND_RETRY_MS", "a time"),
    ("MARKER_RETRY_MS_MIN", "a time"),
    ("MARKER_RETRY_MS_MAX", "a time"),
    ("COORDINATOR_LOAD_BYTES", "the unit of one read"),
    ("TOMBSTONE_BATCH_BYTES", "the unit of one batch"),
    ("CLIENT_RESPONSE_BYTES_MAX", "of a command, not of the broker"),
    ("FRAME_READ_BYTES_MIN", "the unit of one read"),
    ("FRAME_ROOM_FACTOR", "the unit of one growth"),
    ("JOURNAL_REPLAY_CHUNK_BYTES", "the unit of one read of a start"),
    ("JOURNAL_REPLAY_CHUNKS_AHEAD", "of a start"),
    ("JOURNAL_PROBE_BYTES", "of a start"),
    ("JOURNAL_PROBE_STRIDE_BYTES", "of a start"),
    ("REPLAY_WRITES_AHEAD", "of a start"),
    ("EXECUTOR_MEMLOCK_BYTES_MIN", "of a start"),
    ("STREAM_READ_BYTES_MIN", "the unit of one read"),
    ("STREAM_READ_BYTES_MAX", "the unit of one read"),
    ("STREAM_SLICES_PER_SEND_MAX", "the unit of one system call"),
    ("STREAM_CALLS_PER_TURN_MAX", "the unit of one turn"),
    ("LISTEN_BACKLOG", "the kernel's, which counts it"),
    ("CATALOG_LOG_BYTES_MAX", "where work begins"),
    ("MAILBOX_CONTROL_MAX", "a credit that nobody asks for yet"),
    ("OPEN_FILES_COMFORTABLE", "of a start, which warns"),
    ("REQUEST_ELEMENT_BYTES", "a unit"),
    ("PROCESS_MEMORY_BYTES", "a share of the memory"),
    ("INFLATION_MEMORY_BYTES_MAX", "a share of the memory"),
    ("SMALL_MEMORY_BELOW_BYTES", "of a start"),
    ("SMALL_MEMORY_KEPT_MS", "a time"),
    ("DRAIN_MS", "of a stop, which ends the counters too"),
    ("REGEX_BYTES_MAX", "refused like a malformed expression, and counted by its code"),
    ("REGEX_NAMES_PER_TURN_MAX", "the unit of one turn"),
    ("CONCURRENT_TRANSACTIONS_RETRY_MS", "a time"),
];

#[test]
fn every_constant_is_counted_or_accounted_for() {
    let constants: BTreeSet<&str> = include_str!("../../limits.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split_once(':'))
        .map(|(name, _)| name)
        .collect();
    let keys: BTreeSet<&str> = KEYS.iter().map(|key| key.name).collect();
    let mut accounted: BTreeSet<&str> = BTreeSet::new();
    for limit in Limit::ALL {
        for source in limit.set_by() {
            assert!(constants.contains(source) || keys.contains(source), "{limit:?}: {source}");
            accounted.insert(source);
        }
    }
    for (name, reason) in NOT_REACHED {
        assert!(constants.contains(name), "{name} ({reason}) is no longer there");
        assert!(accounted.insert(name), "{name} is counted, and cannot be reached?");
    }
    let missing: Vec<_> = constants.difference(&accounted).collect();
    assert!(missing.is_empty(), "neither counted nor accounted for: {missing:?}");
}

#[test]
fn labels_are_distinct_words() {
    let labels: BTreeSet<&str> = Limit::ALL.iter().map(|limit| limit.label()).collect();
    assert_eq!(labels.len(), Limit::ALL.len());
    let is_word = |label: &str| label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    assert!(labels.iter().all(|label| is_word(label)), "{labels:?}");
    for (place, limit) in Limit::ALL.iter().enumerate() {
        assert_eq!(*limit as usize, place);
    }
}
