//! What a thread has allocated at most while it handles one input.
//!
//! The allocator of this binary counts live bytes of each thread; a target asks for the peak.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is ending has no cells any more, and nothing to measure either.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Does `work` and holds that it never had more than `most` bytes beyond what there was before.
pub fn within<T>(most: usize, what: &str, work: impl FnOnce() -> T) -> T {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let value = work();
    let used = PEAK.with(Cell::get) - before;
    assert!(
        used <= most.cast_signed(),
        "{what}: {used} bytes were allocated, at most {most} may be"
    );
    value
}

/// Does `work`; what it leaves behind in bytes, and its value.
pub fn kept<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(Cell::get);
    let value = work();
    let kept = LIVE.with(Cell::get) - before;
    (value, kept.cast_unsigned())
}

#[test]
fn what_stays_is_measured() {
    let (stays, bytes) = kept(|| {
        drop(vec![0_u8; 9_000]);
        vec![0_u8; 700]
    });
    assert_eq!((stays.len(), bytes), (700, 700));
}

#[test]
fn the_peak_is_measured() {
    let kept = within(10_100, "two at once", || {
        let _gone = vec![0_u8; 4_000];
        vec![0_u8; 6_000]
    });
    let seen = std::panic::catch_unwind(|| within(9_000, "too much", || vec![0_u8; 9_100]));
    assert!(seen.is_err());
    assert_eq!(kept.len(), 6_000);
}
