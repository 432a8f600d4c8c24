//! Aligned, zeroed buffers for direct I/O, and their hand-over to readers on any shard.
//!
//! Owns [`AlignedBuffer`], which is filled and written on its home thread, and its frozen form:
//! [`Bytes`] that share the memory without a copy and may be sent to other shards. The last reader
//! on a foreign thread sends it home to be freed there: the count that a write in flight shares is
//! not for other threads.
//!
//! Invariants: address and capacity are multiples of [`BLOCK_ALIGN`], and so is the length of what
//! is written to a file; what was not written to cannot be read; once frozen it is never written
//! again.

use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::rc::Rc;
use std::thread::ThreadId;

use crate::limits::BLOCK_ALIGN;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender};

/// Aligned memory of the heap.
pub struct AlignedBuffer {
    memory: NonNull<u8>,
    capacity: usize,
    /// Bytes that are initialised and in use.
    length: usize,
}

impl AlignedBuffer {
    /// `length` zeroes.
    #[must_use]
    pub fn zeroed(length: usize) -> AlignedBuffer {
        // SAFETY: the layout has a non-zero size, as `layout` asserts.
        let memory = unsafe { std::alloc::alloc_zeroed(layout(length)) };
        AlignedBuffer { memory: or_fail(memory, length), capacity: length, length }
    }

    /// Space for up to `capacity` bytes, none of which is there yet.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> AlignedBuffer {
        // SAFETY: as above.
        let memory = unsafe { std::alloc::alloc(layout(capacity)) };
        AlignedBuffer { memory: or_fail(memory, capacity), capacity, length: 0 }
    }

    /// Bytes it has space for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends bytes. Panics if there is no space for them: callers size what they write.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let space = self.capacity - self.length;
        assert!(bytes.len() <= space, "{} bytes into {space}", bytes.len());
        // SAFETY: so much space is there behind `length`, and `&mut self` excludes that `bytes`
        // are in it.
        unsafe {
            let end = self.memory.as_ptr().add(self.length);
            end.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.length += bytes.len();
    }

    /// Appends zeroes up to the next multiple of [`BLOCK_ALIGN`].
    pub fn pad(&mut self) {
        let padding = self.length.next_multiple_of(BLOCK_ALIGN) - self.length;
        self.extend_from_slice(&PADDING[..padding]);
    }

    /// Where a read goes to.
    pub(super) fn space(&mut self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Says that a read has filled the first `length` bytes.
    ///
    /// # Safety
    /// It has.
    pub(super) unsafe fn was_read(&mut self, length: usize) {
        assert!(length <= self.capacity, "{length} bytes read into {}", self.capacity);
        self.length = length;
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the length is zero; never so for a buffer that is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Gives up all but the first `length` bytes, a multiple of [`BLOCK_ALIGN`].
    pub fn shorten(&mut self, length: usize) {
        assert!(length <= self.length && length.is_multiple_of(BLOCK_ALIGN));
        self.length = length;
    }

    /// Freezes the buffer: the returned handle writes it, its [`FrozenBuffer::bytes`] read it.
    #[must_use]
    pub fn freeze(self, home: &Home) -> FrozenBuffer {
        let written = Rc::new(self);
        let shared = HomeBound::new(Rc::clone(&written), home);
        FrozenBuffer { written, bytes: Bytes::from_owner(shared) }
    }

    /// The bytes, shareable, from a buffer that was read from a file.
    #[must_use]
    pub fn into_bytes(self, home: &Home) -> Bytes {
        self.freeze(home).bytes
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` initialised bytes are owned by this buffer.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.length) }
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes every other reference.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.length) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout, freed once.
        unsafe { std::alloc::dealloc(self.memory.as_ptr(), layout(self.capacity)) };
    }
}

static PADDING: [u8; BLOCK_ALIGN] = [0; BLOCK_ALIGN];

fn layout(capacity: usize) -> Layout {
    assert!(capacity > 0 && capacity.is_multiple_of(BLOCK_ALIGN), "unaligned length {capacity}");
    Layout::from_size_align(capacity, BLOCK_ALIGN).expect("invariant: a valid buffer layout")
}

fn or_fail(memory: *mut u8, capacity: usize) -> NonNull<u8> {
    NonNull::new(memory).unwrap_or_else(|| std::alloc::handle_alloc_error(layout(capacity)))
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

/// A buffer on its way home.
struct Returned(#[allow(dead_code, reason = "held only to be dropped at home")] Rc<AlignedBuffer>);

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
    keep: ManuallyDrop<Rc<AlignedBuffer>>,
    home: Sender<Returned>,
    thread: ThreadId,
}

impl HomeBound {
    fn new(keep: Rc<AlignedBuffer>, home: &Home) -> HomeBound {
        HomeBound {
            memory: keep.as_ptr(),
            length: keep.len(),
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
        let mut buffer = AlignedBuffer::zeroed(2 * BLOCK_ALIGN);
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
        let frozen = AlignedBuffer::zeroed(BLOCK_ALIGN).freeze(&home);
        let count = Rc::clone(&frozen.written);
        let bytes = frozen.bytes;
        drop(frozen.written);
        std::thread::spawn(move || drop(bytes)).join().expect("reader");
        assert_eq!(Rc::strong_count(&count), 2, "not freed by the reader");
        home.collect();
        assert_eq!(Rc::strong_count(&count), 1, "freed at home");
    }
}
