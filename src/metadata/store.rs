//! The durable log of the catalog, with snapshots.
//!
//! Owns the directory `catalog/`: one `snapshot` and one `log-<n>`, where the snapshot names the
//! log that follows it. Both hold frames of [`super::records`]. Shard 0 is the only writer.
//!
//! Invariants: a change is durable before [`CatalogStore::append`] returns, whole or not at all;
//! replacing `snapshot` is the one commit point of a rotation, and the log it names exists,
//! durably, before it; after any failed append nothing is added to that log again. A log that is
//! missing or damaged before its torn tail is an error, never an empty catalog.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::config::BrokerConfig;
use crate::io::Disk;
use crate::limits::CATALOG_LOG_BYTES_MAX;

use super::image::Image;
use super::records::{Decoded, FrameError, Record, decode, encode};

/// Why the catalog cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk refused.
    #[error("catalog {}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The bytes are not what was acknowledged.
    #[error("catalog {}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl StoreError {
    /// Whether the disk was full: the only failure that may pass by itself.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, StoreError::Io { error, .. } if error.kind() == io::ErrorKind::StorageFull)
    }
}

/// The open catalog of a data directory.
pub struct CatalogStore {
    disk: Rc<dyn Disk>,
    directory: PathBuf,
    sequence: u64,
    log_bytes: u64,
    log_bytes_max: u64,
    image: Image,
    /// An append failed: the end of the log is unknown, so a new one is begun first.
    log_is_suspect: bool,
}

impl CatalogStore {
    /// Opens `directory` (made if missing) and returns the store with the catalog it holds.
    /// `new_cluster_id` is used once, when there is no catalog yet.
    ///
    /// # Errors
    /// A failing disk, or damage to acknowledged changes.
    pub async fn open(
        disk: Rc<dyn Disk>,
        directory: &Path,
        broker: Arc<BrokerConfig>,
        new_cluster_id: &str,
    ) -> Result<(CatalogStore, Image), StoreError> {
        let mut store = CatalogStore {
            disk,
            directory: directory.to_owned(),
            sequence: 0,
            log_bytes: 0,
            log_bytes_max: CATALOG_LOG_BYTES_MAX,
            image: Image::new(broker),
            log_is_suspect: false,
        };
        store.make_directory().await?;
        let found = store.entries().await?;
        if found.iter().any(|name| name == SNAPSHOT) {
            store.load().await?;
        } else {
            store.refuse_orphaned_logs(&found).await?;
            let created = Record::ClusterCreated { cluster_id: new_cluster_id.to_owned() };
            store.image = store.image.apply(&created);
            store.sequence = found.iter().filter_map(|name| log_sequence(name)).max().unwrap_or(0);
            store.rotate().await?;
        }
        store.remove_leftovers().await?;
        let image = store.image.clone();
        Ok((store, image))
    }

    /// The catalog after every change appended so far.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Makes `records` durable as one change and returns the catalog after it.
    ///
    /// # Errors
    /// A failing disk; then nothing has changed in memory, and on disk nothing unless the process
    /// ends before the next append: an append that failed may still have reached the medium.
    pub async fn append(&mut self, records: &[Record]) -> Result<Image, StoreError> {
        if records.is_empty() {
            return Ok(self.image.clone());
        }
        if self.log_is_suspect || self.log_bytes >= self.log_bytes_max {
            self.rotate().await?;
        }
        let frame = encode(records);
        let path = self.log_path(self.sequence);
        // Held true over the await: a future dropped half-way leaves an unknown end as well.
        self.log_is_suspect = true;
        self.disk.append(&path, &frame).await.map_err(|error| StoreError::Io { path, error })?;
        self.log_is_suspect = false;
        self.log_bytes += frame.len() as u64;
        self.image = self.image.apply_all(records);
        Ok(self.image.clone())
    }

    /// Writes a snapshot and begins a new log, for a clean stop.
    ///
    /// # Errors
    /// A failing disk; the old snapshot and log stay valid.
    pub async fn compact(&mut self) -> Result<(), StoreError> {
        self.rotate().await
    }

    /// Begins log `sequence + 1` and makes the snapshot that names it.
    async fn rotate(&mut self) -> Result<(), StoreError> {
        let next = self.sequence + 1;
        let log = self.log_path(next);
        self.disk.write(&log, &[]).await.map_err(|error| StoreError::Io { path: log, error })?;
        self.sync_directory(&self.directory).await?;
        let mut snapshot = encode(&[Record::LogFollows { sequence: next }]);
        snapshot.extend_from_slice(&encode(&self.image.to_records()));
        let path = self.directory.join(SNAPSHOT);
        let old = self.log_path(self.sequence);
        // Until the replacement is known to be done nothing may go to either log; a future
        // dropped half-way leaves it at that.
        self.sequence = next;
        self.log_is_suspect = true;
        self.disk
            .replace(&path, &snapshot)
            .await
            .map_err(|error| StoreError::Io { path, error })?;
        self.log_bytes = 0;
        self.log_is_suspect = false;
        // A leftover is harmless and removed at the next start.
        let _ = self.disk.remove(&old).await;
        Ok(())
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        let stored = read_catalog(&*self.disk, &self.directory).await?;
        self.sequence = stored.sequence;
        for group in &stored.groups {
            self.image = self.image.apply_all(group);
        }
        self.log_bytes = stored.log_bytes;
        // Bytes of a torn tail would turn into damage once something follows them.
        self.log_is_suspect = stored.torn_bytes > 0;
        Ok(())
    }

    /// Without a snapshot only a first start that was cut short is legitimate.
    async fn refuse_orphaned_logs(&self, found: &[String]) -> Result<(), StoreError> {
        for name in found.iter().filter(|name| log_sequence(name).is_some()) {
            let path = self.directory.join(name);
            if !decode_log(&path, &self.read(&path).await?)?.groups.is_empty() {
                return Err(StoreError::Damaged {
                    path: self.directory.join(SNAPSHOT),
                    reason: format!("missing, although {name} holds changes that follow it"),
                });
            }
        }
        Ok(())
    }

    async fn make_directory(&self) -> Result<(), StoreError> {
        let path = self.directory.clone();
        self.disk
            .create_directory(&self.directory)
            .await
            .map_err(|error| StoreError::Io { path, error })?;
        match self.directory.parent() {
            Some(parent) => self.sync_directory(parent).await,
            None => Ok(()),
        }
    }

    /// Removes temporary files and logs that the snapshot does not name.
    async fn remove_leftovers(&self) -> Result<(), StoreError> {
        let keep = log_name(self.sequence);
        let mut removed = false;
        for name in self.entries().await? {
            let is_old_log = log_sequence(&name).is_some() && name != keep;
            if is_old_log || name.ends_with(".tmp") {
                let path = self.directory.join(&name);
                self.disk.remove(&path).await.map_err(|error| StoreError::Io { path, error })?;
                removed = true;
            }
        }
        if removed { self.sync_directory(&self.directory).await } else { Ok(()) }
    }

    async fn entries(&self) -> Result<Vec<String>, StoreError> {
        let listed = self
            .disk
            .list(&self.directory, false, &[])
            .await
            .map_err(|error| StoreError::Io { path: self.directory.clone(), error })?;
        Ok(listed
            .into_iter()
            .filter(|entry| !entry.is_directory)
            .filter_map(|entry| entry.path.to_str().map(str::to_owned))
            .collect())
    }

    async fn read(&self, path: &Path) -> Result<Vec<u8>, StoreError> {
        self.disk.read(path).await.map_err(|error| StoreError::Io { path: path.to_owned(), error })
    }

    async fn sync_directory(&self, path: &Path) -> Result<(), StoreError> {
        self.disk
            .sync_directory(path)
            .await
            .map_err(|error| StoreError::Io { path: path.to_owned(), error })
    }

    fn log_path(&self, sequence: u64) -> PathBuf {
        self.directory.join(log_name(sequence))
    }
}

/// The catalog as it is on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredCatalog {
    /// Number of the log that follows the snapshot.
    pub sequence: u64,
    /// The changes, those of the snapshot first.
    pub groups: Vec<Vec<Record>>,
    /// Length of the log.
    pub log_bytes: u64,
    /// Bytes at its end that were never acknowledged.
    pub torn_bytes: u64,
}

/// Reads a catalog that has a snapshot, and changes nothing.
///
/// # Errors
/// A failing disk, or damage to acknowledged changes.
pub async fn read_catalog(disk: &dyn Disk, directory: &Path) -> Result<StoredCatalog, StoreError> {
    let path = directory.join(SNAPSHOT);
    let failed = |path: &Path, error| StoreError::Io { path: path.to_owned(), error };
    let bytes = disk.read(&path).await.map_err(|error| failed(&path, error))?;
    let damaged = |reason: String| StoreError::Damaged { path: path.clone(), reason };
    let decoded = decode(&bytes).map_err(|error| damaged(error.to_string()))?;
    let intact_bytes = decoded.intact_bytes;
    let Ok([first, records]) = <[Vec<Record>; 2]>::try_from(decoded.groups) else {
        return Err(damaged(format!("byte {intact_bytes}: damaged or cut short")));
    };
    let [Record::LogFollows { sequence }] = first.as_slice() else {
        return Err(damaged("the snapshot does not name its log".to_owned()));
    };
    if intact_bytes != bytes.len() {
        return Err(damaged(format!("byte {intact_bytes}: unexpected bytes")));
    }
    let path = directory.join(log_name(*sequence));
    let bytes = disk.read(&path).await.map_err(|error| failed(&path, error))?;
    let decoded = decode_log(&path, &bytes)?;
    let mut groups = vec![records];
    groups.extend(decoded.groups);
    Ok(StoredCatalog {
        sequence: *sequence,
        groups,
        log_bytes: bytes.len() as u64,
        torn_bytes: (bytes.len() - decoded.intact_bytes) as u64,
    })
}

fn decode_log(path: &Path, bytes: &[u8]) -> Result<Decoded, StoreError> {
    decode(bytes).map_err(|error: FrameError| StoreError::Damaged {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

fn log_name(sequence: u64) -> String {
    format!("log-{sequence}")
}

fn log_sequence(name: &str) -> Option<u64> {
    name.strip_prefix("log-")?.parse().ok()
}

const SNAPSHOT: &str = "snapshot";

#[cfg(test)]
mod tests;
