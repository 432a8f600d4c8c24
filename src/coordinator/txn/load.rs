//! Reading a partition of `__transaction_state`, and letting it go.
//!
//! Owns the replay: the last record of an id counts, a tombstone removes it, and what stands in a
//! Prepare state gets its markers again, to every partition of its record: which of them were
//! written before is not known. Cost is that of the records, in order.
//! Source: Kafka's `TransactionStateManager.loadTransactionMetadata`.

use std::sync::Arc;

use super::Completion;
use super::coordinator::{Coordinator, Partition, Phase};
use crate::coordinator::record::RecordFault;
use crate::coordinator::record::transaction::{read_key, read_value};
use crate::ids::PartitionIndex;

use hashbrown::HashMap;

impl Coordinator {
    /// A partition of `__transaction_state` is being read: its ids answer
    /// COORDINATOR_LOAD_IN_PROGRESS. Whatever was known of it is forgotten.
    pub fn begin_load(&mut self, partition: PartitionIndex) {
        self.forget(partition);
        let empty = Partition { phase: Phase::Loading, ids: HashMap::new() };
        self.partitions.insert(partition, empty);
    }

    /// One record of a partition that is being read, in log order.
    ///
    /// # Errors
    /// A record that means nothing; nothing has changed then, and the next may follow.
    pub fn load_record(
        &mut self,
        partition: PartitionIndex,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), RecordFault> {
        let found = self.partitions.get(&partition);
        let is_loading = found.is_some_and(|found| matches!(found.phase, Phase::Loading));
        assert!(is_loading, "records are read between begin_load and finish_load");
        let id: Arc<str> = read_key(key)?.into();
        let metadata = value.map(read_value).transpose()?;
        self.apply(partition, &id, metadata);
        Ok(())
    }

    /// The partition has been read. Transactions found in a Prepare state are to get their markers
    /// now. One that has been open for too long is found by the next [`Coordinator::timed_out`].
    pub fn finish_load(
        &mut self,
        partition: PartitionIndex,
        coordinator_epoch: i32,
        now_ms: i64,
    ) -> Vec<Completion> {
        let found = self.partitions.get_mut(&partition);
        let found = found.expect("invariant: begin_load comes before finish_load");
        assert!(matches!(found.phase, Phase::Loading), "a partition is loaded once");
        found.phase = Phase::Active { coordinator_epoch };
        let mut prepared = Vec::new();
        for (id, entry) in &found.ids {
            let durable = entry.durable.as_ref().expect("invariant: what was read is durable");
            self.timers.moved(partition, id, None, Some(durable));
            if durable.state.is_prepare() {
                prepared.push(Arc::clone(id));
            }
        }
        prepared.iter().map(|id| self.begin_marking(partition, id, now_ms)).collect()
    }

    /// The partition is no longer here: its ids are forgotten.
    pub fn unload(&mut self, partition: PartitionIndex) {
        self.forget(partition);
    }
}
