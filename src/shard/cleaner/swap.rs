//! A cleaned segment takes the place of those it was made of.
//!
//! Owns the order. Its files are complete and synced; its indexes become `.swap`, durably, then its
//! log: from there on it counts, and a start completes what is missing. The old segments go but
//! for the first, whose names the new files take, the log last. Each step is durable before the
//! next. Readers wait while names and the list of segments disagree. Must never leave both the old
//! and the new in place: what overlaps would be read twice. Must never undo anything once the log
//! may count: a failure then takes the partition offline, as it is.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::Stop;
use super::pass::Source;
use super::segment::{CleanedSegment, INDEXES};
use crate::ids::Offset;
use crate::io::File;
use crate::log::layout::{SegmentFile, Stage};
use crate::shard::partition::Partition;
use crate::shard::{Shard, unlink, write_behind};

/// Replaces `old` by `cleaned`.
pub(super) async fn swap(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    old: &[Source],
    cleaned: CleanedSegment,
) -> Result<(), Stop> {
    write_behind::hold(partition).await;
    let sealed = |source: &Source| partition.segments.borrow().sealed.contains_key(&source.base);
    let announced = match partition.is_online() && old.iter().all(sealed) {
        true => announce(shard, &cleaned).await.map_err(Stop::from),
        false => Err(Stop::Abandoned),
    };
    if let Err(stop) = announced {
        write_behind::release(partition);
        cleaned.remove(shard, partition).await;
        return Err(stop);
    }
    // The first one's name is taken by the new one. What it held is given back by pieces.
    let first = write_behind::segment_path(shard, partition, SegmentFile::Log, old[0].base);
    let first = unlink::open_large(shard, &first).await;
    // From here on it may count, whatever the disk says: nothing is undone.
    let replaced = replace(shard, partition, old, &cleaned).await;
    write_behind::release(partition);
    if let Err(error) = replaced {
        let base = cleaned.segment.base;
        let why = format!("segment {base} was being replaced: {error}; the next start goes on");
        shard.take_offline(partition, &why);
        return Err(Stop::Failed(why));
    }
    let bases = old[1..].iter().map(|source| source.base).collect();
    remove_later(shard, partition, bases, first);
    Ok(())
}

/// The new indexes get the names under which they are found once their log counts.
async fn announce(shard: &Rc<Shard>, cleaned: &CleanedSegment) -> io::Result<()> {
    for kind in INDEXES {
        let from = cleaned.path(kind, Stage::Cleaned);
        shard.disk.rename(&from, &cleaned.path(kind, Stage::Swap)).await?;
    }
    sync_names(shard, cleaned).await
}

async fn sync_names(shard: &Rc<Shard>, cleaned: &CleanedSegment) -> io::Result<()> {
    let path = cleaned.path(SegmentFile::Log, Stage::Swap);
    match path.parent() {
        Some(directory) => {
            write_behind::retry_when_full(shard, || shard.disk.sync_directory(directory)).await
        }
        None => Ok(()),
    }
}

async fn replace(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    old: &[Source],
    cleaned: &CleanedSegment,
) -> io::Result<()> {
    let base = cleaned.segment.base;
    let log = cleaned.path(SegmentFile::Log, Stage::Swap);
    rename(shard, &cleaned.path(SegmentFile::Log, Stage::Cleaned), &log).await?;
    sync_names(shard, cleaned).await?;
    let _alone = partition.segment_use.alone().await;
    for source in &old[1..] {
        for kind in SegmentFile::ALL {
            let from = write_behind::segment_path(shard, partition, kind, source.base);
            let to = replaced_path(shard, partition, kind, source.base);
            match rename(shard, &from, &to).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    sync_names(shard, cleaned).await?;
    for kind in INDEXES {
        let to = write_behind::segment_path(shard, partition, kind, base);
        rename(shard, &cleaned.path(kind, Stage::Swap), &to).await?;
    }
    sync_names(shard, cleaned).await?;
    let to = write_behind::segment_path(shard, partition, SegmentFile::Log, base);
    rename(shard, &log, &to).await?;
    sync_names(shard, cleaned).await?;
    let mut segments = partition.segments.borrow_mut();
    for source in old {
        shard.files.borrow_mut().close(partition.id, source.base);
        shard.cache.borrow_mut().forget_segment(&(partition.id, source.base));
    }
    let bytes = cleaned.segment.placed_bytes;
    segments.replace(old.iter().map(|source| source.base), base, bytes);
    Ok(())
}

/// Where a replaced segment waits for its removal.
fn replaced_path(shard: &Shard, partition: &Partition, kind: SegmentFile, base: Offset) -> PathBuf {
    let path = write_behind::segment_path(shard, partition, kind, base);
    path.with_file_name(kind.staged_name(base, Stage::Deleted))
}

async fn rename(shard: &Rc<Shard>, from: &Path, to: &Path) -> io::Result<()> {
    write_behind::retry_when_full(shard, || shard.disk.rename(from, to)).await
}

/// Removes replaced segments after the topic's delay; a start does so at once. The first has lost
/// its name already.
fn remove_later(
    shard: &Rc<Shard>,
    partition: &Rc<Partition>,
    bases: Vec<Offset>,
    first: Option<Rc<dyn File>>,
) {
    let delay_ms = partition.topic.borrow().config.file_delete_delay_ms;
    let due = shard.runtime.now().plus_ms(u64::try_from(delay_ms).unwrap_or(0));
    let (shard, partition) = (Rc::clone(shard), Rc::clone(partition));
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        unlink::shorten(&shard, first).await;
        if bases.is_empty() {
            return;
        }
        futures_lite::future::or(shard.runtime.sleep_until(due), shard.stopped()).await;
        for &base in &bases {
            write_behind::hold(&partition).await;
            let path = replaced_path(&shard, &partition, SegmentFile::Log, base);
            let large = match partition.is_online() {
                true => unlink::open_large(&shard, &path).await,
                false => None,
            };
            write_behind::release(&partition);
            unlink::shorten(&shard, large).await;
        }
        write_behind::hold(&partition).await;
        for (base, kind) in bases
            .iter()
            .flat_map(|&base| SegmentFile::ALL.into_iter().map(move |kind| (base, kind)))
        {
            if !partition.is_online() {
                break;
            }
            let path = replaced_path(&shard, &partition, kind, base);
            match shard.disk.remove(&path).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!("{}: {error}; removed at the next start", path.display());
                }
                _ => {}
            }
        }
        write_behind::release(&partition);
    }));
}
