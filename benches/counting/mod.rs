//! An allocator that counts: how often, how many bytes, and how many of them are still there.
//!
//! Owns the allocator of a benchmark. Threads that only put load on the measured ones leave
//! themselves out; all others count together. The counts are exact: every call of the program goes
//! through here. What the runtime maps for direct I/O does not.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Counts what goes to the system's allocator.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    static IS_LEFT_OUT: Cell<bool> = const { Cell::new(false) };
    static OF_THIS_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Counts so far, or between two moments.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "not every benchmark counts all threads")]
pub struct Count {
    /// Allocations and reallocations.
    pub allocations: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Bytes that have not been given back.
    pub live_bytes: i64,
}

#[allow(dead_code, reason = "not every benchmark counts all threads")]
impl Count {
    /// Counts of all threads that are not left out.
    #[must_use]
    pub fn now() -> Count {
        Count {
            allocations: ALLOCATIONS.load(Ordering::Relaxed),
            bytes: BYTES.load(Ordering::Relaxed),
            live_bytes: LIVE_BYTES.load(Ordering::Relaxed),
        }
    }

    /// What has come since then.
    #[must_use]
    pub fn elapsed(&self) -> Count {
        let now = Count::now();
        Count {
            allocations: now.allocations - self.allocations,
            bytes: now.bytes - self.bytes,
            live_bytes: now.live_bytes - self.live_bytes,
        }
    }
}

/// Allocations and reallocations of the calling thread so far: what the runtime's other threads do
/// meanwhile is not among them.
#[allow(dead_code, reason = "not every benchmark has other threads")]
#[must_use]
pub fn allocations_of_this_thread() -> u64 {
    OF_THIS_THREAD.get()
}

/// The calling thread does not count from here on.
#[allow(dead_code, reason = "not every benchmark has such a thread")]
pub fn leave_this_thread_out() {
    IS_LEFT_OUT.set(true);
}

fn note(allocations: u64, asked: usize, live: i64) {
    OF_THIS_THREAD.set(OF_THIS_THREAD.get() + allocations);
    if !IS_LEFT_OUT.get() {
        ALLOCATIONS.fetch_add(allocations, Ordering::Relaxed);
        BYTES.fetch_add(asked as u64, Ordering::Relaxed);
        LIVE_BYTES.fetch_add(live, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), layout.size() as i64);
        // SAFETY: the caller keeps the contract of this very call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size, size as i64 - layout.size() as i64);
        // SAFETY: as above; the memory came from the same allocator.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(0, 0, -(layout.size() as i64));
        // SAFETY: as above; the memory came from the same allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;
