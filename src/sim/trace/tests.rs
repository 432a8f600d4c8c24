//! Traces of a toy journal over the simulated disk, its crash images, and each rule broken once.

use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::ids::ShardId;
use crate::io::{AlignedBuffer, Disk};
use crate::sim::{Recorder, RecordingDisk, SimDisk, World};

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn block(fill: u8) -> Arc<AlignedBuffer> {
    let mut buffer = AlignedBuffer::zeroed(4096);
    buffer.fill(fill);
    Arc::new(buffer)
}

const DURABLE: OpenMode = OpenMode {
    write: true,
    create: true,
    create_new: false,
    truncate: false,
    durable: true,
    cached: false,
};

/// What a toy journal leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    NoDirectorySync,
    NoDsync,
}

/// A journal of blocks numbered from 1, two writers, each block marked when it is acknowledged.
async fn toy_journal(disk: Rc<dyn Disk>, recorder: Recorder, mistake: Mistake) -> io::Result<()> {
    disk.create_directory(path("/data/journal")).await?;
    disk.sync_directory(path("/")).await?;
    disk.sync_directory(path("/data")).await?;
    let mode = OpenMode { durable: mistake != Mistake::NoDsync, ..DURABLE };
    let file = disk.open(path("/data/journal/0"), mode).await?;
    if mistake != Mistake::NoDirectorySync {
        disk.sync_directory(path("/data/journal")).await?;
    }
    for number in (1..40u8).step_by(2) {
        let position = |number: u8| u64::from(number - 1) * 4096;
        let (first, second) = futures_lite::future::zip(
            file.write_at(block(number), position(number)),
            file.write_at(block(number + 1), position(number + 1)),
        )
        .await;
        first.and(second)?;
        recorder.mark("acked", "block", i64::from(number) + 1);
        if number == 21 {
            let manifest = format!("at {number}");
            disk.replace(path("/data/manifest"), manifest.as_bytes()).await?;
            recorder.mark("manifest", "at", i64::from(number));
        }
    }
    file.close().await
}

fn recorded(seed: u64, mistake: Mistake) -> Trace {
    let world = World::new(seed);
    let inner: Rc<dyn Disk> = Rc::new(SimDisk::new(&world));
    let recorder = Recorder::new(Medium::new(), 1 << 30);
    let disk: Rc<dyn Disk> = Rc::new(RecordingDisk::new(inner, recorder.clone()));
    let journal = toy_journal(disk, recorder.clone(), mistake);
    let ended = world.run_until(journal).expect("no stall");
    ended.expect("no fault");
    recorder.trace()
}

/// The first acknowledged block that an image lost.
fn lost(trace: &Trace, at: usize, image: &Medium) -> Option<i64> {
    let content = image.read(path("/data/journal/0")).unwrap_or_default();
    for mark in trace.marks_before(at) {
        if mark.kind == "manifest" {
            let manifest = image.read(path("/data/manifest")).ok();
            if manifest.as_deref() != Some(b"at 21") {
                return Some(mark.value);
            }
            continue;
        }
        for number in 1..=mark.value {
            let start = (number as usize - 1) * 4096;
            let stored = content.get(start..start + 4096);
            if stored != Some(&[number as u8; 4096][..]) {
                return Some(number);
            }
        }
    }
    None
}

fn images_that_lose(trace: &Trace, count: usize) -> usize {
    let mut random = Random::new(5);
    let mut cuts: Vec<usize> = (0..count).map(|_| random.index(trace.events().len() + 1)).collect();
    cuts.sort_unstable();
    let mut replay = trace.replay();
    let mut losing = 0;
    for at in cuts {
        replay.advance_to(at);
        let image = replay.crash_image(&mut random);
        losing += usize::from(lost(trace, at, &image).is_some());
    }
    losing
}

#[test]
fn a_thousand_images_of_a_sound_journal_lose_nothing() {
    let trace = recorded(1, Mistake::None);
    assert_eq!(trace.check_rules(), Ok(()));
    assert_eq!(trace.check_clean_stop(path("/data")), Ok(()));
    assert_eq!(images_that_lose(&trace, 1_000), 0);
}

#[test]
fn images_of_a_careless_journal_lose_acknowledged_blocks() {
    let unsynced = recorded(1, Mistake::NoDsync);
    assert_eq!(unsynced.check_rules(), Ok(()));
    assert!(images_that_lose(&unsynced, 200) > 50);
    let stop = unsynced.check_clean_stop(path("/data"));
    let stop = stop.expect_err("nothing was synced");
    assert_eq!(stop.what, "/data/journal/0 is not synced");

    let unnamed = recorded(1, Mistake::NoDirectorySync);
    assert!(images_that_lose(&unnamed, 200) > 20);
    let broken = unnamed.check_rules().expect_err("no name");
    assert_eq!(broken.what, "acked block 2 while the name /data/journal/0 is not durable");
}

/// Runs the toy journal for so many turns, crashes everything, and looks at what is left.
fn crashed_after(seed: u64, steps: u64, mistake: Mistake) -> (bool, Option<i64>) {
    let world = World::new(seed);
    let disk = SimDisk::new(&world);
    let recorder = Recorder::new(Medium::new(), 0);
    let (shared, marks): (Rc<dyn Disk>, _) = (Rc::new(disk.clone()), recorder.clone());
    world.runtime(ShardId(0)).spawn(Box::pin(async move {
        let ended = toy_journal(shared, marks, mistake).await;
        ended.expect("no fault");
    }));
    let is_over = world.run_steps(steps) < steps;
    world.crash();
    let left = disk.crash().medium();
    let trace = recorder.trace();
    (is_over, lost(&trace, trace.events().len(), &left))
}

#[test]
fn a_crash_at_every_await_of_a_sound_journal_loses_nothing() {
    for seed in 0..5 {
        for steps in 0.. {
            let (is_over, lost) = crashed_after(seed, steps, Mistake::None);
            assert_eq!(lost, None, "seed {seed}, {steps} steps");
            if is_over {
                assert!(steps > 40);
                break;
            }
        }
    }
    let careless = (0..50).filter(|&seed| {
        let (_, lost) = crashed_after(seed, 40, Mistake::NoDsync);
        lost.is_some()
    });
    assert!(careless.count() > 25);
}

#[test]
fn a_trace_and_a_seed_give_the_same_image() {
    let trace = recorded(2, Mistake::NoDsync);
    let at = trace.events().len() / 2;
    let tree = |seed| trace.crash_image(at, &mut Random::new(seed)).tree();
    assert!((0..20).all(|seed| tree(seed) == tree(seed)));
    assert!((1..20).any(|seed| tree(seed) != tree(0)));
}

#[test]
fn an_operation_in_flight_happened_or_not() {
    let trace = recorded(3, Mistake::None);
    let rename = trace.events().iter().position(|event| {
        let TraceEvent::Begin { operation, .. } = event else {
            return false;
        };
        matches!(operation, Call::Rename { .. })
    });
    let at = rename.expect("replace renames") + 1;
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let image = trace.crash_image(at, &mut Random::new(seed));
        seen.insert(image.read(path("/data/manifest")).ok());
    }
    assert_eq!(seen, BTreeSet::from([None, Some(b"at 21".to_vec())]));
}

#[test]
fn recorded_shards_share_one_trace_and_content_is_bounded() {
    let world = World::new(4);
    let inner: Rc<dyn Disk> = Rc::new(SimDisk::new(&world));
    let recorder = Recorder::new(Medium::new(), 10);
    for shard in [0, 1] {
        let disk = RecordingDisk::new(Rc::clone(&inner), recorder.clone());
        world.runtime(ShardId(shard)).spawn(Box::pin(async move {
            let name = format!("/{shard}");
            let write = disk.write(path(&name), b"123456");
            write.await.expect("no fault");
        }));
    }
    world.run_for(1_000).expect("no stall");
    let trace = recorder.trace();
    assert_eq!(trace.events().len(), 4);
    // The second write was not kept, so no image shows it.
    let second = trace.events().iter().rposition(|event| matches!(event, TraceEvent::Begin { .. }));
    assert_eq!(Some(trace.cuttable_end()), second);
    let mut replay = trace.replay();
    replay.advance_to(4);
    assert_eq!(replay.position(), trace.cuttable_end());
}

fn begin(call: u64, operation: Call) -> TraceEvent {
    TraceEvent::Begin { call, operation }
}

fn end(call: u64) -> TraceEvent {
    TraceEvent::End { call, succeeded: true }
}

fn write(position: u64, length: usize) -> Call {
    Call::Write { handle: 0, position, content: Recorded::Zeroes(length) }
}

fn check(events: Vec<TraceEvent>, event: usize, what: &str) {
    let open = Call::Open { path: PathBuf::from("/f"), mode: DURABLE, handle: 0 };
    let mut all = vec![begin(0, open), end(0)];
    all.extend(events);
    let what = what.to_owned();
    let broken = Trace::new(Medium::new(), all).check_rules();
    assert_eq!(broken, Err(RuleBroken { event, what }));
}

#[test]
fn each_rule_is_noticed() {
    check(vec![begin(1, write(100, 4096))], 2, "an unaligned write of 100..4196");
    check(
        vec![begin(1, write(0, 8192)), begin(2, write(4096, 4096))],
        3,
        "a write of 4096..8192 of /f meets 0..8192 in flight",
    );
    let read = Call::Read { handle: 0, range: 4096..8192 };
    check(
        vec![begin(1, write(0, 8192)), begin(2, read)],
        3,
        "a read of 4096..8192 of /f meets 0..8192 in flight",
    );
    let set = Call::SetLength { handle: 0, length: 100 };
    let rename = Call::Rename { from: PathBuf::from("/f"), to: PathBuf::from("/g") };
    check(
        vec![begin(1, set), end(1), begin(2, rename)],
        4,
        "/f is renamed before its content is durable",
    );
}
