//! How far partitions are cleaned, remembered over a restart: Kafka's `cleaner-offset-checkpoint`.
//!
//! Owns the file, which shard 0 writes for all: others report to it. Losing it costs a longer next
//! pass, nothing else, so that an error is only said. An entry goes by name; it is believed for a
//! partition that exists when the shard starts, and goes with its topic.
//! Source: Kafka's `OffsetCheckpointFile`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use crate::ids::{Offset, PartitionIndex, ShardId};
use crate::log::layout;
use crate::shard::Shard;
use crate::shard::event::Event;
use crate::shard::message::Operation;
use crate::shard::partition::Partition;

/// A partition by name.
type Name = (Arc<str>, PartitionIndex);

/// What all shards have reported.
#[derive(Default)]
pub(super) struct Progress {
    ends: RefCell<BTreeMap<Name, Offset>>,
    writing: Cell<bool>,
    written: Event,
}

/// A partition is cleaned up to an offset, or a topic is gone.
#[derive(Clone, Debug)]
pub enum Report {
    /// Everything below `end` has been through a pass.
    Cleaned {
        /// The topic's name.
        topic: Arc<str>,
        /// The partition.
        partition: PartitionIndex,
        /// The end.
        end: Offset,
    },
    /// The topic of this name is deleted.
    Deleted(Arc<str>),
}

/// Takes over what the file says.
pub(super) async fn load(shard: &Rc<Shard>) {
    let path =
        layout::topics_directory(&shard.context.data_dir).join(layout::CLEANER_OFFSET_CHECKPOINT);
    let Ok(content) = shard.disk.read(&path).await else { return };
    let ends = decode(&content).unwrap_or_else(|| {
        tracing::warn!("{}: it cannot be read; partitions are cleaned anew", path.display());
        BTreeMap::new()
    });
    {
        let mut cleaned = shard.cleaner.cleaned.borrow_mut();
        for partition in shard.all_partitions().iter() {
            let name = (Arc::clone(&partition.topic.borrow().name), partition.index());
            if let Some(&end) = ends.get(&name) {
                cleaned.entry(partition.id).or_insert(end);
            }
        }
    }
    if shard.id == ShardId(0) {
        let mut all = shard.cleaner.progress.ends.borrow_mut();
        for (name, end) in ends {
            all.entry(name).or_insert(end);
        }
    }
}

/// Reports how far a partition is cleaned.
pub(super) async fn report(shard: &Rc<Shard>, partition: &Rc<Partition>, end: Offset) {
    let topic = Arc::clone(&partition.topic.borrow().name);
    let report = Report::Cleaned { topic, partition: partition.index(), end };
    let told = async {
        shard.ask(ShardId(0), Operation::CleanerProgress(report)).await;
    };
    // Shard 0 may have ended by then.
    futures_lite::future::or(told, shard.stopped()).await;
}

/// Takes a report in, on shard 0, and has it written.
pub async fn take_in(shard: &Rc<Shard>, report: Report) {
    let progress = &shard.cleaner.progress;
    {
        let mut ends = progress.ends.borrow_mut();
        match report {
            Report::Cleaned { topic, partition, end } => {
                ends.insert((topic, partition), end);
            }
            Report::Deleted(topic) => {
                let before = ends.len();
                ends.retain(|(name, _), _| *name != topic);
                if ends.len() == before {
                    return;
                }
            }
        }
    }
    loop {
        let seen = progress.written.generation();
        if !progress.writing.replace(true) {
            break;
        }
        progress.written.wait(seen).await;
    }
    let content = encode(&progress.ends.borrow());
    let path =
        layout::topics_directory(&shard.context.data_dir).join(layout::CLEANER_OFFSET_CHECKPOINT);
    if let Err(error) = shard.disk.replace(&path, content.as_bytes()).await {
        tracing::warn!("{}: {error}; after a restart more is cleaned anew", path.display());
    }
    progress.writing.set(false);
    progress.written.notify();
}

/// Text of the file: version, count, then a line per partition.
fn encode(ends: &BTreeMap<Name, Offset>) -> String {
    let mut text = format!("0\n{}\n", ends.len());
    for ((topic, partition), end) in ends {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{topic} {partition} {end}");
    }
    text
}

/// What such a text says; `None` if it is none.
fn decode(content: &[u8]) -> Option<BTreeMap<Name, Offset>> {
    let text = std::str::from_utf8(content).ok()?;
    let mut lines = text.lines();
    if lines.next()? != "0" {
        return None;
    }
    let count: usize = lines.next()?.parse().ok()?;
    let mut ends = BTreeMap::new();
    for line in lines {
        let mut fields = line.split(' ');
        let topic: Arc<str> = fields.next()?.into();
        let partition = PartitionIndex(fields.next()?.parse().ok()?);
        let end = Offset(fields.next()?.parse().ok()?);
        ends.insert((topic, partition), end);
    }
    (ends.len() == count).then_some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_kafkas_text() {
        let name = |topic: &str, index| (Arc::from(topic), PartitionIndex(index));
        let ends = BTreeMap::from([(name("b", 0), Offset(7)), (name("a-b", 12), Offset(1 << 40))]);
        let text = encode(&ends);
        assert_eq!(text, "0\n2\na-b 12 1099511627776\nb 0 7\n");
        assert_eq!(decode(text.as_bytes()), Some(ends));
        assert_eq!(decode(b"0\n0\n"), Some(BTreeMap::new()));
        for bad in ["", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 x\n"] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
