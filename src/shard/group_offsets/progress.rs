//! How far the groups of this shard are, for a scrape.
//!
//! Owns the walk over them, in slices between which others run. What it tells may be newer than
//! what is durable: it is shown to nobody who acts on it. Partitions that are being loaded, or
//! cannot be, tell nothing.

use std::rc::Rc;

use crate::limits::GROUPS_PER_TURN_MAX;
use crate::metrics::Limit;
use crate::metrics::lag::Lag;
use crate::shard::Shard;

/// Adds the groups of all partitions.
pub async fn take(shard: &Rc<Shard>, lag: &mut Lag) {
    let kept: Vec<_> = shard.group_offsets.kept.borrow().values().cloned().collect();
    for kept in kept {
        let mut last = None;
        loop {
            let slice = kept.with(|groups| {
                let ids = groups.after(last.as_ref(), GROUPS_PER_TURN_MAX);
                for id in &ids {
                    if lag.has_room(groups.position_count(id)) {
                        lag.add_group(id, groups.member_count(id), groups.progress(id));
                    }
                }
                ids
            });
            last = slice.unwrap_or_default().pop();
            if last.is_none() {
                break;
            }
            shard.runtime.yield_now().await;
        }
    }
    if lag.left_out() > 0 {
        shard.metrics.limit_reached(Limit::MetricsGroupOffsets);
    }
}
