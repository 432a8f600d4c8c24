//! The block device below a directory, as the kernel's file tree shows it.
//!
//! Owns the way there. Must never open the device, nor fail: file systems without one have none.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory itself if it exists, or the nearest one above.
#[must_use]
pub fn nearest(directory: &Path) -> PathBuf {
    let mut path = std::path::absolute(directory).unwrap_or_else(|_| PathBuf::from("/"));
    while !path.is_dir() && path.pop() {}
    path
}

/// The kernel's directory of the disk or partition that `directory` is on, or will be.
#[must_use]
pub fn of(directory: &Path) -> Option<PathBuf> {
    let device = fs::metadata(nearest(directory)).ok()?.st_dev();
    let name = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    fs::canonicalize(Path::new("/sys/dev/block").join(name)).ok()
}
