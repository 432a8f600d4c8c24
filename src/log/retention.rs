//! Retention: where a log should start, from its segments, the topic's settings and the clock.
//!
//! Owns the rules of Kafka's `deleteOldSegments`: whole segments go, oldest first, while the log
//! exceeds its size or their newest record its age; the first that may stay ends the walk. Takes
//! nothing that is not below the high watermark, and never lets the start move back. Does no I/O:
//! it asks for the age of a segment that nobody has looked at yet.
//!
//! Invariant: the start is the base of a segment, the end of the log, or what it was before.
//! Source: Kafka's `UnifiedLog.deleteOldSegments` and `deletableSegments`.

use crate::ids::Offset;

/// What of a topic's configuration decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetentionRules {
    /// Size above which the oldest segments go.
    pub bytes: Option<u64>,
    /// Age above which segments go.
    pub ms: Option<i64>,
}

impl RetentionRules {
    /// Whether nothing ever goes by itself.
    #[must_use]
    pub fn keep_all(&self) -> bool {
        self.bytes.is_none() && self.ms.is_none()
    }
}

/// One segment; the last one is open: it ends with the log, in memory perhaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldSegment {
    /// Its first offset.
    pub base: Offset,
    /// Length of its batches.
    pub bytes: u64,
    /// The timestamp that its age is counted from; `None` if nobody has looked.
    pub newest_ms: Option<i64>,
}

/// The bounds of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Where it starts.
    pub log_start: Offset,
    /// Everything below is durable.
    pub high_watermark: Offset,
    /// The offset that the next record gets.
    pub end: Offset,
}

/// What retention wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// The log should start here; `all` says that even the open segment has to go.
    Start {
        /// The offset.
        offset: Offset,
        /// Nothing of it is kept.
        all: bool,
    },
    /// The age of the segment at this base decides.
    AgeOf(Offset),
}

/// Says where a log should start. `segments` come oldest first, the open one last; all of them
/// together have `total_bytes`.
pub fn wanted_start(
    segments: impl IntoIterator<Item = HeldSegment>,
    total_bytes: u64,
    bounds: &Bounds,
    rules: &RetentionRules,
    now_ms: i64,
) -> Wanted {
    let mut segments = segments.into_iter().peekable();
    let mut bytes_left = total_bytes;
    let mut by_age = false;
    while let Some(segment) = segments.next() {
        let next = segments.peek().map(|next| next.base);
        let stays = Wanted::Start { offset: segment.base.max(bounds.log_start), all: false };
        if next.is_some_and(|next| next <= bounds.log_start) {
            // Gone already, but for its files.
            bytes_left = bytes_left.saturating_sub(segment.bytes);
            continue;
        }
        if next.unwrap_or(bounds.end) > bounds.high_watermark {
            return stays;
        }
        if next.is_none() && segment.bytes == 0 {
            return stays;
        }
        let left = bytes_left.saturating_sub(segment.bytes);
        // Age has its turn once size has nothing more to take.
        by_age |= rules.bytes.is_none_or(|kept| left < kept);
        if by_age {
            let Some(age_max_ms) = rules.ms else { return stays };
            let Some(newest_ms) = segment.newest_ms else { return Wanted::AgeOf(segment.base) };
            if now_ms.saturating_sub(newest_ms) <= age_max_ms {
                return stays;
            }
        }
        bytes_left = left;
    }
    Wanted::Start { offset: bounds.end.max(bounds.log_start), all: true }
}

#[cfg(test)]
mod tests;
