//! Files that go, a piece at a time.
//!
//! Owns the pace. What a large file held is given back by the file system in one go, and to the
//! device as well where it is mounted with `discard`: tens of milliseconds in which the journal
//! waits. So a large file is cut from its end on, each piece durably before the next, with a pause
//! after each. A crash leaves a shorter file, of which nobody expects anything: only what a start
//! would remove is given here. Must never be given a file that is still read. A shard that stops
//! takes no pauses.

use std::io;
use std::path::Path;
use std::rc::Rc;

use super::Shard;
use crate::io::{File, OpenMode};
use crate::limits::{UNLINK_PAUSE_MS, UNLINK_PIECE_BYTES};

/// Opens what will be removed; `None` if it is small, or cannot be opened.
pub async fn open_large(shard: &Rc<Shard>, path: &Path) -> Option<Rc<dyn File>> {
    let mode = OpenMode { write: true, ..OpenMode::default() };
    let file = shard.disk.open(path, mode).await.ok()?;
    file.length().await.is_ok_and(|length| length > UNLINK_PIECE_BYTES).then_some(file)
}

/// Cuts a file until it is small, whatever its name is by now. What fails is left to its removal.
pub async fn shorten(shard: &Rc<Shard>, file: Option<Rc<dyn File>>) {
    let Some(file) = file else { return };
    // Without an error to be told: whoever removes it is told.
    let _ = cut(shard, &file).await;
    let _ = file.close().await;
}

async fn cut(shard: &Rc<Shard>, file: &Rc<dyn File>) -> io::Result<()> {
    let mut left = file.length().await?;
    while left > UNLINK_PIECE_BYTES && !shard.is_stopping() {
        left -= UNLINK_PIECE_BYTES;
        file.set_length(left).await?;
        file.sync_data().await?;
        let next = shard.runtime.now().plus_ms(UNLINK_PAUSE_MS);
        futures_lite::future::or(shard.runtime.sleep_until(next), shard.stopped()).await;
    }
    Ok(())
}

/// Removes a directory and what is in it.
///
/// # Errors
/// What the disk says.
pub async fn remove_tree(shard: &Rc<Shard>, path: &Path) -> io::Result<()> {
    for entry in shard.disk.list(path, false, &[]).await.unwrap_or_default() {
        if entry.length > UNLINK_PIECE_BYTES {
            let file = open_large(shard, &path.join(entry.path)).await;
            shorten(shard, file).await;
        }
    }
    shard.disk.remove_tree(path).await
}
