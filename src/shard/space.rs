//! A full disk: recoverable, and different from a failing one.
//!
//! Owns the `reserve` file, as large as all journal rings together, and the broker-wide flag that
//! refuses new records while the disk is full. When an allocation meets a full disk the reserve is
//! given up, so that checkpoints and deletions can finish; records are taken again once it has
//! been restored. Must never treat any other error as a full disk.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Shard;
use crate::io::{File, OpenMode};
use crate::limits::SPACE_CHECK_INTERVAL_MS;

/// What all shards know of their one file system: whether it is full, and whether a sync of it
/// has failed, which tells of everybody's writes.
#[derive(Clone, Default)]
pub struct DiskFull {
    full: Arc<AtomicBool>,
    syncing: Arc<AtomicBool>,
    sync_failed: Arc<AtomicBool>,
}

impl DiskFull {
    /// Whether records are refused now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Sets or clears the flag.
    pub fn set(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }
}

/// One shard's view of the disk's space.
pub struct SpaceWatch {
    full: DiskFull,
    reserve_path: PathBuf,
    reserve_bytes: u64,
    stopping: Cell<bool>,
}

impl SpaceWatch {
    /// A view on the reserve file at `reserve_path`; 0 bytes means there is none.
    #[must_use]
    pub fn new(full: DiskFull, reserve_path: PathBuf, reserve_bytes: u64) -> SpaceWatch {
        SpaceWatch { full, reserve_path, reserve_bytes, stopping: Cell::new(false) }
    }

    /// Whether records are refused now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.is_full()
    }

    /// Whether a sync of the file system has failed, by whichever shard.
    #[must_use]
    pub fn sync_has_failed(&self) -> bool {
        self.full.sync_failed.load(Ordering::Acquire)
    }

    /// Makes everything durable that was written before, one shard at a time: a sync that succeeds
    /// after another has failed says nothing about the writes that the failed one was told of, so
    /// nobody may begin one before the outcome of the last is known to all.
    ///
    /// # Errors
    /// What the disk says, now or at any sync before.
    pub async fn sync(&self, shard: &Rc<Shard>) -> io::Result<()> {
        self.take_turn(shard).await;
        let outcome = match self.check_synced() {
            Ok(()) => shard.disk.sync_filesystem().await,
            failed => failed,
        };
        if outcome.is_err() {
            self.full.sync_failed.store(true, Ordering::Release);
        }
        self.full.syncing.store(false, Ordering::Release);
        outcome
    }

    /// Syncs one file that was written without, and waits for the outcome of a sync of the file
    /// system that is under way: one that failed was told of this file's writes too, and then the
    /// file's own sync, though it succeeds, says nothing about them.
    ///
    /// # Errors
    /// What the disk says, now or at any sync of the file system before.
    pub async fn sync_file(&self, shard: &Rc<Shard>, file: &Rc<dyn File>) -> io::Result<()> {
        file.sync_data().await?;
        self.take_turn(shard).await;
        let outcome = self.check_synced();
        self.full.syncing.store(false, Ordering::Release);
        outcome
    }

    async fn take_turn(&self, shard: &Rc<Shard>) {
        while self.full.syncing.swap(true, Ordering::AcqRel) {
            let next = shard.runtime.now().plus_ms(1);
            shard.runtime.sleep_until(next).await;
        }
    }

    fn check_synced(&self) -> io::Result<()> {
        match self.sync_has_failed() {
            true => Err(io::Error::other("a sync of the file system has failed before")),
            false => Ok(()),
        }
    }

    /// From now on a full disk is an error: a stop must not wait for space for ever.
    pub fn stop_waiting(&self) {
        self.stopping.set(true);
    }

    /// Called when the disk was full: gives up the reserve, refuses records, and waits a little.
    ///
    /// # Errors
    /// `error` itself, when the shard is stopping and there was no reserve left to give up.
    pub async fn wait_for_space(&self, shard: &Rc<Shard>, error: &io::Error) -> io::Result<()> {
        self.refuse();
        // Appends that wait for room are refused now.
        shard.journal.memory_changed();
        let released = shard.disk.remove(&self.reserve_path).await.is_ok();
        if self.stopping.get() && !released {
            return Err(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(libc::ENOSPC)));
        }
        if !released {
            let next = shard.runtime.now().plus_ms(SPACE_CHECK_INTERVAL_MS);
            shard.runtime.sleep_until(next).await;
        }
        Ok(())
    }

    /// Makes the reserve file if it is missing and there is room, and takes records again; refuses
    /// them as long as there is none.
    pub async fn restore_reserve(&self, shard: &Rc<Shard>) {
        if self.reserve_bytes > 0 && !self.has_reserve(shard).await {
            let Ok(space) = shard.disk.space().await else { return };
            let room = space.available_bytes >= self.reserve_bytes.saturating_mul(2);
            if !room || self.allocate_reserve(shard).await.is_err() {
                self.refuse();
                return;
            }
        }
        if self.full.full.swap(false, Ordering::Relaxed) {
            tracing::warn!("space has returned: records are taken again");
        }
    }

    fn refuse(&self) {
        if !self.full.full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the disk is full: records are refused until space returns; free some space \
                 or lower retention"
            );
        }
    }

    async fn has_reserve(&self, shard: &Rc<Shard>) -> bool {
        let Ok(file) = shard.disk.open(&self.reserve_path, OpenMode::default()).await else {
            return false;
        };
        file.length().await.is_ok_and(|length| length >= self.reserve_bytes)
    }

    async fn allocate_reserve(&self, shard: &Rc<Shard>) -> io::Result<()> {
        let mode = OpenMode { write: true, create: true, ..OpenMode::default() };
        let file = shard.disk.open(&self.reserve_path, mode).await?;
        let mut allocated = file.allocate(0, self.reserve_bytes).await;
        if allocated.is_ok() {
            // The length tells a later start that all of it is there.
            allocated = file.set_length(self.reserve_bytes).await;
        }
        file.close().await?;
        if allocated.is_err() {
            shard.disk.remove(&self.reserve_path).await?;
        }
        allocated
    }
}

/// Starts the task (on one shard) that keeps the reserve.
pub fn start(shard: &Rc<Shard>) {
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        loop {
            if shard.space.is_full() {
                shard.space.restore_reserve(&shard).await;
            }
            let next = shard.runtime.now().plus_ms(SPACE_CHECK_INTERVAL_MS);
            shard.runtime.sleep_until(next).await;
        }
    }));
}
