//! The segment files a shard has open.
//!
//! Owns handles only; a file leaves by least recent use, and closes when its last user is done.

use std::rc::Rc;

use hashbrown::HashMap;

use crate::ids::{Offset, TopicPartition};
use crate::io::File;
use crate::limits::SEGMENT_FILES_OPEN_MAX;

/// Open segment logs by partition and base offset.
pub struct OpenFiles {
    files: HashMap<(TopicPartition, Offset), Open, foldhash::fast::RandomState>,
    clock: u64,
    most: usize,
    evicted: u64,
}

/// A handle and when it was used last, by the count of uses.
type Open = (Rc<dyn File>, u64);

impl Default for OpenFiles {
    fn default() -> OpenFiles {
        let most = SEGMENT_FILES_OPEN_MAX;
        OpenFiles { files: HashMap::default(), clock: 0, most, evicted: 0 }
    }
}

impl OpenFiles {
    /// Keeps no more than so many, where the process has few descriptors.
    pub fn keep_at_most(&mut self, most: usize) {
        self.most = most.min(SEGMENT_FILES_OPEN_MAX);
    }

    /// The handle, if it is open.
    pub fn get(&mut self, partition: TopicPartition, base: Offset) -> Option<Rc<dyn File>> {
        self.clock += 1;
        let entry = self.files.get_mut(&(partition, base))?;
        entry.1 = self.clock;
        Some(Rc::clone(&entry.0))
    }

    /// Remembers an open handle.
    pub fn put(&mut self, partition: TopicPartition, base: Offset, file: Rc<dyn File>) {
        self.clock += 1;
        if self.files.len() >= self.most {
            // A scan, but only once per file opened beyond the bound.
            let oldest = self.files.iter().min_by_key(|(_, entry)| entry.1).map(|(key, _)| *key);
            if let Some(key) = oldest {
                self.files.remove(&key);
                self.evicted += 1;
            }
        }
        self.files.insert((partition, base), (file, self.clock));
    }

    /// How many have closed to make room for others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Forgets one handle.
    pub fn close(&mut self, partition: TopicPartition, base: Offset) {
        self.files.remove(&(partition, base));
    }

    /// Forgets all handles of a partition.
    pub fn close_partition(&mut self, partition: TopicPartition) {
        self.files.retain(|key, _| key.0 != partition);
    }
}
