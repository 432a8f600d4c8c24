//! Aligned buffers for direct I/O, and their hand-over to readers on any shard.
//!
//! Owns [`AlignedBuffer`], and its frozen form: [`Bytes`] that share the memory without a copy and
//! may be sent to other shards. The last who has it frees it, on whatever thread.
//!
//! Invariants: address and capacity are multiples of [`BLOCK_ALIGN`], and so is the length of what
//! is written to a file; what was not written to cannot be read; once frozen it is never written
//! again.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::limits::BLOCK_ALIGN;
use bytes::Bytes;

/// Aligned memory of the heap.
pub struct AlignedBuffer {
    memory: NonNull<u8>,
    capacity: usize,
    /// Bytes that are initialised and in use.
    length: usize,
}

// SAFETY: the memory is owned, and what is shared is read only.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuffer {}

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

    /// Bytes that it still has space for.
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity - self.length
    }

    /// Appends bytes. Panics if there is no space for them: callers size what they write.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let space = self.room();
        assert!(bytes.len() <= space, "{} bytes into {space}", bytes.len());
        // SAFETY: so much space is there behind `length`, and `&mut self` excludes that `bytes`
        // are in it.
        unsafe {
            let end = self.memory.as_ptr().add(self.length);
            end.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.length += bytes.len();
    }

    /// Appends bytes that nobody reads again but the device. Many at once go past the cache, which
    /// keeps what is in use, and what they overwrite is not fetched first. Panics as
    /// `extend_from_slice`.
    pub fn stream_from_slice(&mut self, bytes: &[u8]) {
        if bytes.len() < STREAMED_BYTES_MIN {
            return self.extend_from_slice(bytes);
        }
        let head = self.length.next_multiple_of(LANE_BYTES) - self.length;
        let (head, rest) = bytes.split_at(head);
        let (lanes, tail) = rest.as_chunks::<LANE_BYTES>();
        self.extend_from_slice(head);
        self.stream_lanes(lanes);
        self.extend_from_slice(tail);
    }

    #[cfg(target_arch = "x86_64")]
    fn stream_lanes(&mut self, lanes: &[[u8; LANE_BYTES]]) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        let (bytes, space) = (lanes.as_flattened().len(), self.room());
        assert!(bytes <= space, "{bytes} bytes into {space}");
        assert!(self.length.is_multiple_of(LANE_BYTES), "{} bytes are there", self.length);
        // SAFETY: so much space is there behind `length`, aligned to a lane as the memory is to
        // more, and `&mut self` excludes that `lanes` are in it. The fence puts the stores before
        // whatever hands the buffer on.
        unsafe {
            let to = self.memory.as_ptr().add(self.length).cast::<__m128i>();
            for (place, lane) in lanes.iter().enumerate() {
                _mm_stream_si128(to.add(place), _mm_loadu_si128(lane.as_ptr().cast()));
            }
            _mm_sfence();
        }
        self.length += bytes;
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn stream_lanes(&mut self, lanes: &[[u8; LANE_BYTES]]) {
        self.extend_from_slice(lanes.as_flattened());
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

    /// Freezes the buffer: the returned handle writes it, its [`FrozenBuffer::bytes`] read it.
    #[must_use]
    pub fn freeze(self) -> FrozenBuffer {
        let written = Arc::new(self);
        let bytes = Bytes::from_owner(Owner(Arc::clone(&written)));
        FrozenBuffer { written, bytes }
    }

    /// The bytes, shareable, from a buffer that was read from a file.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.freeze().bytes
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
    pub written: Arc<AlignedBuffer>,
    /// For readers on any shard.
    pub bytes: Bytes,
}

/// The owner inside a frozen buffer's [`Bytes`].
struct Owner(Arc<AlignedBuffer>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What one store past the cache takes.
const LANE_BYTES: usize = 16;

/// Below this there are too many lines of the cache of which only a part is written past it.
const STREAMED_BYTES_MIN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_aligned_and_shared_without_a_copy() {
        let mut buffer = AlignedBuffer::zeroed(BLOCK_ALIGN);
        assert_eq!(buffer.as_ptr() as usize % BLOCK_ALIGN, 0);
        assert!(buffer.iter().all(|&byte| byte == 0));
        buffer[5] = 7;
        let frozen = buffer.freeze();
        assert_eq!(frozen.bytes.len(), BLOCK_ALIGN);
        assert_eq!(frozen.bytes.as_ptr(), frozen.written.as_ptr());
        assert_eq!(frozen.bytes[5], 7);
    }

    #[test]
    fn the_last_reader_may_be_on_another_thread() {
        let frozen = AlignedBuffer::zeroed(BLOCK_ALIGN).freeze();
        let (kept, bytes) = (Arc::downgrade(&frozen.written), frozen.bytes);
        drop(frozen.written);
        let read = std::thread::spawn(move || bytes.iter().filter(|&&byte| byte == 0).count());
        assert_eq!(read.join().expect("reader"), BLOCK_ALIGN);
        assert!(kept.upgrade().is_none(), "freed with the last reader");
    }

    #[test]
    fn bytes_are_appended_and_padded() {
        let mut buffer = AlignedBuffer::with_capacity(2 * BLOCK_ALIGN);
        buffer.pad();
        assert_eq!((buffer.len(), buffer.is_empty()), (0, true));
        buffer.extend_from_slice(b"some");
        buffer.extend_from_slice(&[7; BLOCK_ALIGN]);
        buffer.pad();
        assert_eq!(buffer.len(), 2 * BLOCK_ALIGN);
        assert_eq!((&buffer[..4], buffer[4], buffer[4099]), (&b"some"[..], 7, 7));
        assert!(buffer[4100..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_goes_past_the_cache_is_there() {
        let source: Vec<u8> = (0..3 * STREAMED_BYTES_MIN).map(|n| (n % 251) as u8).collect();
        for skipped in [0, 1, 15, 16, 17] {
            for count in [0, 15, STREAMED_BYTES_MIN - 1, STREAMED_BYTES_MIN, source.len() - 17] {
                let mut buffer = AlignedBuffer::with_capacity(4 * BLOCK_ALIGN);
                buffer.extend_from_slice(&source[..skipped]);
                buffer.stream_from_slice(&source[skipped..skipped + count]);
                assert_eq!(*buffer, source[..skipped + count], "{count} bytes after {skipped}");
            }
        }
    }
}
