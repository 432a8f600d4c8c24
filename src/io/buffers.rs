//! Aligned, zeroed buffers for direct I/O, and their hand-over to readers on any shard.
//!
//! Owns [`AlignedBuffer`], which is filled and written on its home thread, and its frozen form:
//! [`Bytes`] that share the memory without a copy and may be sent to other shards. The memory of
//! a real buffer belongs to the runtime of the thread that made it, so the last reader on a
//! foreign thread sends it home to be freed there; it must never be freed elsewhere.
//!
//! Invariants: address and length are multiples of [`BLOCK_ALIGN`]; the memory is zero when handed
//! out; once frozen it is never written again.

use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use std::thread::ThreadId;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};
use glommio::io::{DmaBuffer, ReadResult};

use crate::limits::BLOCK_ALIGN;

/// Aligned memory, zeroed when made.
pub struct AlignedBuffer {
    storage: Storage,
}

enum Storage {
    /// Counted, because a write in flight keeps the memory alive; written to only while this is
    /// the one reference.
    Dma(Rc<DmaBuffer>),
    Heap(HeapBuffer),
}

struct HeapBuffer {
    memory: NonNull<u8>,
    capacity: usize,
    length: usize,
}

impl AlignedBuffer {
    /// Ordinary heap memory, for files that are not glommio's.
    #[must_use]
    pub fn heap(length: usize) -> AlignedBuffer {
        assert!(length > 0 && length.is_multiple_of(BLOCK_ALIGN), "unaligned length {length}");
        let layout = HeapBuffer::layout(length);
        // SAFETY: the layout has a non-zero size, asserted above.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { std::alloc::handle_alloc_error(layout) };
        AlignedBuffer { storage: Storage::Heap(HeapBuffer { memory, capacity: length, length }) }
    }

    /// Takes a buffer of glommio's and zeroes it: it comes uninitialised, and what is left over
    /// in it would reach the disk.
    pub(super) fn dma(mut buffer: DmaBuffer) -> AlignedBuffer {
        assert!(buffer.len().is_multiple_of(BLOCK_ALIGN), "unaligned length {}", buffer.len());
        // SAFETY: the buffer owns `len` writable bytes; writing zeroes initialises them before
        // any reference to them is made.
        unsafe { std::ptr::write_bytes(buffer.as_mut_ptr(), 0, buffer.len()) };
        AlignedBuffer { storage: Storage::Dma(Rc::new(buffer)) }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.storage {
            Storage::Dma(buffer) => buffer.len(),
            Storage::Heap(buffer) => buffer.length,
        }
    }

    /// Whether the length is zero; never so for a buffer in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives up all but the first `length` bytes, a multiple of [`BLOCK_ALIGN`].
    pub fn shorten(&mut self, length: usize) {
        assert!(length <= self.len() && length.is_multiple_of(BLOCK_ALIGN));
        match &mut self.storage {
            Storage::Dma(buffer) => unshared(buffer).trim_to_size(length),
            Storage::Heap(buffer) => buffer.length = length,
        }
    }

    /// Freezes the buffer: the returned handle writes it, its [`FrozenBuffer::bytes`] read it.
    #[must_use]
    pub fn freeze(self, home: &Home) -> FrozenBuffer {
        let written = Rc::new(self);
        let shared = HomeBound::new(&written, Keep::Written(Rc::clone(&written)), home);
        FrozenBuffer { written, bytes: Bytes::from_owner(shared) }
    }

    /// The bytes, shareable, from a buffer that was read from a file.
    #[must_use]
    pub fn into_bytes(self, home: &Home) -> Bytes {
        self.freeze(home).bytes
    }

    /// The runtime's own handle of the memory; `None` for ordinary heap memory.
    pub(super) fn as_dma(&self) -> Option<&Rc<DmaBuffer>> {
        match &self.storage {
            Storage::Dma(buffer) => Some(buffer),
            Storage::Heap(_) => None,
        }
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.storage {
            Storage::Dma(buffer) => buffer.as_bytes(),
            // SAFETY: `length` initialised bytes are owned by this buffer.
            Storage::Heap(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.memory.as_ptr(), buffer.length)
            },
        }
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::Dma(buffer) => unshared(buffer).as_bytes_mut(),
            // SAFETY: as in `deref`, and `&mut self` excludes every other reference.
            Storage::Heap(buffer) => unsafe {
                std::slice::from_raw_parts_mut(buffer.memory.as_ptr(), buffer.length)
            },
        }
    }
}

/// Only a write shares the memory, and a write needs the buffer in an `Rc` of its own, out of
/// which no `&mut` leads.
fn unshared(buffer: &mut Rc<DmaBuffer>) -> &mut DmaBuffer {
    Rc::get_mut(buffer).expect("invariant: a buffer that is being written is not changed")
}

impl HeapBuffer {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, BLOCK_ALIGN).expect("invariant: a valid buffer layout")
    }
}

impl Drop for HeapBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `heap` with the same layout, freed once.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), HeapBuffer::layout(self.capacity)) };
    }
}

/// A buffer that will not change any more.
pub struct FrozenBuffer {
    /// For [`crate::io::File::write_at`].
    pub written: Rc<AlignedBuffer>,
    /// For readers on any shard.
    pub bytes: Bytes,
}

/// The way home for buffers of one thread. Its [`Home::collect`] frees what came back.
pub struct Home {
    thread: ThreadId,
    sender: Sender<Returned>,
    receiver: Receiver<Returned>,
}

/// Shares what a file read returned, without a copy.
pub(super) fn share_read(result: ReadResult, home: &Home) -> Bytes {
    if result.is_empty() {
        return Bytes::new();
    }
    let memory: *const [u8] = &*result;
    // SAFETY: the memory belongs to `result`, which the owner keeps alive and nobody writes to.
    let memory = unsafe { &*memory };
    Bytes::from_owner(HomeBound::new(memory, Keep::Read(result), home))
}

/// What keeps shared memory alive.
#[allow(dead_code, reason = "held only to be dropped at home")]
enum Keep {
    Written(Rc<AlignedBuffer>),
    Read(ReadResult),
}

/// A buffer on its way home.
struct Returned(#[allow(dead_code, reason = "held only to be dropped at home")] Keep);

// SAFETY: a `Returned` is made by `HomeBound::drop`, which gives up its only reference, and is
// taken apart in `Home::collect` on the home thread; the counter is never touched in between.
unsafe impl Send for Returned {}

impl Home {
    /// The home of the current thread's buffers.
    #[must_use]
    pub fn new() -> Home {
        let (sender, receiver) = crossbeam_channel::unbounded();
        Home { thread: std::thread::current().id(), sender, receiver }
    }

    /// Frees the buffers whose last reader was on another thread. Bounded by the number of
    /// buffers handed out; call it once a turn. Returns how many it freed.
    pub fn collect(&self) -> usize {
        assert_eq!(self.thread, std::thread::current().id(), "buffers are freed at home only");
        self.receiver.try_iter().map(drop).count()
    }
}

impl Default for Home {
    fn default() -> Home {
        Home::new()
    }
}

/// The owner inside a frozen buffer's [`Bytes`].
struct HomeBound {
    memory: *const u8,
    length: usize,
    keep: ManuallyDrop<Keep>,
    home: Sender<Returned>,
    thread: ThreadId,
}

impl HomeBound {
    fn new(memory: &[u8], keep: Keep, home: &Home) -> HomeBound {
        HomeBound {
            memory: memory.as_ptr(),
            length: memory.len(),
            keep: ManuallyDrop::new(keep),
            home: home.sender.clone(),
            thread: home.thread,
        }
    }
}

// SAFETY: other threads only read `memory[..length]`, which nobody writes after the hand-over, and
// `keep` is cloned and dropped on the home thread only (see `Drop`).
unsafe impl Send for HomeBound {}
// SAFETY: as above; shared access is reading.
unsafe impl Sync for HomeBound {}

impl AsRef<[u8]> for HomeBound {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `keep` keeps the memory alive and unchanged for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.memory, self.length) }
    }
}

impl Drop for HomeBound {
    fn drop(&mut self) {
        // SAFETY: `keep` is taken once, here.
        let keep = unsafe { ManuallyDrop::take(&mut self.keep) };
        if self.thread == std::thread::current().id() {
            drop(keep);
        } else if let Err(refused) = self.home.send(Returned(keep)) {
            // The home thread has ended, which only happens while the process stops.
            std::mem::forget(refused.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_aligned_and_shared_without_a_copy() {
        let home = Home::new();
        let mut buffer = AlignedBuffer::heap(2 * BLOCK_ALIGN);
        assert_eq!(buffer.as_ptr() as usize % BLOCK_ALIGN, 0);
        assert!(buffer.iter().all(|&byte| byte == 0));
        buffer[5] = 7;
        buffer.shorten(BLOCK_ALIGN);
        let frozen = buffer.freeze(&home);
        assert_eq!(frozen.bytes.len(), BLOCK_ALIGN);
        assert_eq!(frozen.bytes.as_ptr(), frozen.written.as_ptr());
        assert_eq!(frozen.bytes[5], 7);
    }

    #[test]
    fn the_last_reader_on_another_thread_sends_the_memory_home() {
        let home = Home::new();
        let frozen = AlignedBuffer::heap(BLOCK_ALIGN).freeze(&home);
        let count = Rc::clone(&frozen.written);
        let bytes = frozen.bytes;
        drop(frozen.written);
        std::thread::spawn(move || drop(bytes)).join().expect("reader");
        assert_eq!(Rc::strong_count(&count), 2, "not freed by the reader");
        home.collect();
        assert_eq!(Rc::strong_count(&count), 1, "freed at home");
    }
}
