//! The files of a shard's journal ring: made, zeroed, and marked with this boot's identity.
//!
//! Owns their preparation at a start. Space is written, not merely allocated, so that a journal
//! write never changes the file system's own records. Must never zero a file that is already of
//! the right size: recovery has read what it held, and old blocks do not validate any more.
//! **deviation** from the design: all files are zeroed before `ready`, which costs 30 ms per 64 MiB
//! once, and spares the journal a writer beside it.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use crate::io::{AlignedBuffer, Disk, File, OpenMode};
use crate::journal::Geometry;
use crate::journal::block::{FileHeader, Identity};
use crate::journal::manifest;
use crate::limits::BLOCK_ALIGN;

/// Opens the ring files of `identity`'s shard, making what is missing.
///
/// # Errors
/// What the disk says.
pub async fn prepare(
    disk: &Rc<dyn Disk>,
    data_dir: &Path,
    identity: &Identity,
    geometry: &Geometry,
    durable: bool,
) -> io::Result<Vec<Rc<dyn File>>> {
    let directory = data_dir.join(manifest::rings_directory());
    disk.create_directory(&directory).await?;
    // A name is durable only with all names above it: the files' own are not enough.
    disk.sync_directory(&data_dir.join(manifest::journal_directory())).await?;
    let mut files = Vec::new();
    for number in 0..geometry.files() {
        let path = data_dir.join(manifest::ring_file_path(identity.shard, number));
        let mode = OpenMode { write: true, create: true, ..OpenMode::default() };
        let file = disk.open(&path, mode).await?;
        if file.length().await? != geometry.file_bytes() {
            file.set_length(geometry.file_bytes()).await?;
            file.allocate(0, geometry.file_bytes()).await?;
            zero(&file, geometry.file_bytes()).await?;
            file.sync_data().await?;
        }
        file.close().await?;
        let file = disk.open(&path, OpenMode { durable, cached: !durable, ..mode }).await?;
        let mut header = AlignedBuffer::zeroed(BLOCK_ALIGN);
        let content = FileHeader { identity: identity.clone(), file: number, geometry: *geometry };
        content.encode_into(&mut header);
        file.write_at(Arc::new(header), 0).await?;
        if !durable {
            file.sync_data().await?;
        }
        files.push(file);
    }
    disk.sync_directory(&directory).await?;
    Ok(files)
}

async fn zero(file: &Rc<dyn File>, bytes: u64) -> io::Result<()> {
    let step = ZERO_BYTES.min(bytes);
    let buffer = Arc::new(AlignedBuffer::zeroed(step as usize));
    let mut position = 0;
    while position < bytes {
        let left = bytes - position;
        let piece = if left >= step {
            Arc::clone(&buffer)
        } else {
            Arc::new(AlignedBuffer::zeroed(left as usize))
        };
        position += piece.len() as u64;
        file.write_at(Arc::clone(&piece), position - piece.len() as u64).await?;
    }
    Ok(())
}

const ZERO_BYTES: u64 = 1024 * 1024;
