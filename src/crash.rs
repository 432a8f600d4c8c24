//! What the broker was working on when it crashed, and frames that it refuses since.
//!
//! Owns `<data-dir>/crash/`: per crash a report `<hash>.<n>.txt` with API, version, peer and the
//! panic's message, and per hash the frame itself, `<hash>.frame`, as it came after its length. A
//! frame with two reports is refused from the next start on: it closes its connection before it is
//! decoded. Delete its files to lift that. Must never look into a frame while nothing is wrong, and
//! never make a crash worse: what cannot be written is left.
//!
//! Invariants: the request in hand is the one whose future is being polled on this thread; the
//! hash leaves out the correlation id, which a client changes when it tries again.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::metrics::stages::RequestClock;

/// A request while it is worked on.
#[derive(Debug)]
pub struct InHand {
    /// Text that names the client.
    pub peer: Rc<str>,
    /// The frame, without its length.
    pub frame: Bytes,
    /// Where its time goes.
    pub clock: Rc<RequestClock>,
}

impl InHand {
    /// The same for longer: a small frame must not keep the whole buffer that it came in.
    #[must_use]
    pub fn kept(&self) -> InHand {
        let frame = match self.frame.len() {
            0..FRAME_BYTES_COPIED => Bytes::copy_from_slice(&self.frame),
            _ => self.frame.clone(),
        };
        InHand { peer: Rc::clone(&self.peer), frame, clock: Rc::clone(&self.clock) }
    }
}

/// Reads which frames are refused, and makes every panic of this process leave a report. Call
/// once, with the data directory locked.
///
/// # Errors
/// The directory of reports is there and cannot be read.
pub fn install(data_dir: &Path) -> io::Result<()> {
    let directory = data_dir.join(DIRECTORY);
    let refused = refused_hashes(&directory)?;
    for hash in &refused {
        let path = directory.join(format!("{hash:016x}.frame"));
        tracing::warn!("a request that crashed the broker twice is refused: {}", path.display());
    }
    // A second call in one process changes nothing.
    let _ = REFUSED.set(refused);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        let request = IN_HAND.with(|in_hand| in_hand.try_borrow().ok()?.clone());
        if let Some(request) = request {
            // The process is going down; the message is on standard error already.
            let _ = write_report(&directory, &request, &panic_text(panic));
        }
    }));
    Ok(())
}

/// Whether this frame crashed the broker twice before this start.
#[must_use]
pub fn is_refused(frame: &[u8]) -> bool {
    match REFUSED.get() {
        Some(refused) if !refused.is_empty() => refused.contains(&frame_hash(frame)),
        _ => false,
    }
}

/// Gives the clock of the request in hand, if there is one.
pub fn on_clock(note: impl FnOnce(&RequestClock)) {
    IN_HAND.with(|in_hand| {
        if let Some(request) = &*in_hand.borrow() {
            note(&request.clock);
        }
    });
}

/// A future that is the work on one request.
pub struct Watched<F> {
    request: Rc<InHand>,
    future: F,
}

/// Names `request` as what is in hand whenever `future` is polled.
pub fn watched<F: Future + Unpin>(request: &Rc<InHand>, future: F) -> Watched<F> {
    Watched { request: Rc::clone(request), future }
}

impl<F: Future + Unpin> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let request = Rc::clone(&self.request);
        let before = IN_HAND.with(|in_hand| in_hand.replace(Some(request)));
        // After a panic this is not reached, and the request stays in hand for the hook.
        let polled = Pin::new(&mut self.future).poll(context);
        IN_HAND.with(|in_hand| in_hand.replace(before));
        polled
    }
}

/// Hashes of the frames with as many reports as are refused.
fn refused_hashes(directory: &Path) -> io::Result<HashSet<u64>> {
    let listing = match fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
        Err(error) => return Err(error),
    };
    let mut refused = HashSet::new();
    for entry in listing {
        let name = entry?.file_name();
        let hash = name.to_str().and_then(|name| name.strip_suffix(LAST_REPORT));
        refused.extend(hash.and_then(|hash| u64::from_str_radix(hash, 16).ok()));
    }
    Ok(refused)
}

/// Writes the report of a crash, and the frame unless it is there.
fn write_report(directory: &Path, request: &InHand, panic: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let hash = frame_hash(&request.frame);
    let frame = directory.join(format!("{hash:016x}.frame"));
    if !frame.exists() {
        fs::write(&frame, &request.frame)?;
    }
    let number = |place: usize| request.frame.get(place..place + 2)?.first_chunk::<2>().copied();
    let mut text = format!("ringlog {}\npanic: {panic}\n", env!("CARGO_PKG_VERSION"));
    for (name, place) in [("api", 0), ("version", 2)] {
        let value = number(place).map_or(-1, i16::from_be_bytes);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}: {value}");
    }
    let _ = writeln!(text, "peer: {}\nframe bytes: {}", request.peer, request.frame.len());
    let first = directory.join(format!("{hash:016x}{FIRST_REPORT}"));
    let path = match first.exists() {
        false => first,
        true => directory.join(format!("{hash:016x}{LAST_REPORT}")),
    };
    fs::write(&path, text)?;
    fs::File::open(directory)?.sync_all()?;
    Ok(path)
}

/// Of everything but the correlation id.
fn frame_hash(frame: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(frame.get(..CORRELATION_ID.start).unwrap_or(frame));
    hasher.update(frame.get(CORRELATION_ID.end..).unwrap_or_default());
    hasher.digest()
}

fn panic_text(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "no message",
    };
    let place = panic.location().map_or_else(String::new, |location| format!(" at {location}"));
    format!("{message}{place}")
}

thread_local! {
    static IN_HAND: RefCell<Option<Rc<InHand>>> = const { RefCell::new(None) };
}

static REFUSED: OnceLock<HashSet<u64>> = OnceLock::new();

const DIRECTORY: &str = "crash";
const FIRST_REPORT: &str = ".1.txt";
const LAST_REPORT: &str = ".2.txt";
const FRAME_BYTES_COPIED: usize = 16 * 1024;
const CORRELATION_ID: std::ops::Range<usize> = 4..8;

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;

    use futures_lite::future::{block_on, yield_now};

    use super::*;

    fn request(correlation_id: u8) -> Rc<InHand> {
        let frame = vec![0, 3, 0, 12, 0, 0, 0, correlation_id, 0, 0, 9];
        Rc::new(InHand { peer: "127.0.0.1:5".into(), frame: frame.into(), clock: Rc::default() })
    }

    fn in_hand() -> Option<Rc<InHand>> {
        IN_HAND.with(|in_hand| in_hand.borrow().clone())
    }

    #[test]
    fn a_request_is_in_hand_only_while_it_is_polled() {
        let (one, other) = (request(1), request(2));
        let is_in_hand = |request| Rc::ptr_eq(&in_hand().expect("in hand"), request);
        let inner = pin!(async {
            assert!(is_in_hand(&other));
            yield_now().await;
            assert!(is_in_hand(&other));
        });
        let outer = pin!(async {
            assert!(is_in_hand(&one));
            watched(&other, inner).await;
            assert!(is_in_hand(&one));
        });
        let mut work = watched(&one, outer);
        assert!(block_on(futures_lite::future::poll_once(&mut work)).is_none());
        assert!(in_hand().is_none(), "not between two polls");
        block_on(work);
        assert!(in_hand().is_none());
    }

    #[test]
    fn the_second_crash_by_one_frame_has_it_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let crash = directory.path().join(DIRECTORY);
        install(directory.path()).expect("no reports yet");
        for (id, reports) in [(1, 1), (2, 2), (3, 2)] {
            let panicking = pin!(async { panic!("on purpose") });
            let panicking = watched(&request(id), panicking);
            let ended = catch_unwind(AssertUnwindSafe(|| block_on(panicking)));
            assert!(ended.is_err());
            IN_HAND.with(|in_hand| in_hand.take());
            let names = fs::read_dir(&crash).expect("reports").count();
            assert_eq!(names, reports + 1, "the frame, and up to two reports");
            let refused = refused_hashes(&crash).expect("reports");
            assert_eq!(refused.contains(&frame_hash(&request(9).frame)), reports == 2);
        }
        let hash = frame_hash(&request(1).frame);
        let report = fs::read_to_string(crash.join(format!("{hash:016x}.2.txt"))).expect("text");
        let lines: Vec<&str> = report.lines().collect();
        assert!(lines[1].starts_with("panic: on purpose at src/crash.rs:"), "{report}");
        assert_eq!(lines[2..], ["api: 3", "version: 12", "peer: 127.0.0.1:5", "frame bytes: 11"]);
        let frame = fs::read(crash.join(format!("{hash:016x}.frame"))).expect("the frame");
        assert_eq!(frame, request(1).frame, "as it came the first time");
    }

    #[test]
    fn the_hash_knows_every_byte_but_the_correlation_id() {
        let frame = request(1).frame.to_vec();
        for place in 0..frame.len() {
            let mut other = frame.clone();
            other[place] ^= 1;
            let same = frame_hash(&other) == frame_hash(&frame);
            assert_eq!(same, CORRELATION_ID.contains(&place), "byte {place}");
        }
        assert_ne!(frame_hash(&frame[..3]), frame_hash(&frame[..2]), "shorter than a header");
        assert!(!is_refused(&frame));
    }
}
