//! A recorded run: its trace keeps the rules, and crash images cut from it anywhere recover with
//! everything that clients knew at the cut.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;

use ringlog::sim::{Random, Recorder};

use crate::machine::DATA_DIR;
use crate::oracle::Recording;
use crate::scenario::Machine;

#[test]
fn a_recorded_run_keeps_the_rules_and_its_crash_images_recover() {
    let images = crate::number("RINGLOG_SIM_IMAGES").unwrap_or(IMAGES);
    let first = crate::number("RINGLOG_SIM_FIRST").unwrap_or(1);
    for seed in first..first + RUNS {
        if let Err(what) = record_and_cut(seed, images / RUNS) {
            panic!("recorded run {seed}: {what}");
        }
    }
}

fn record_and_cut(seed: u64, images: u64) -> Result<(), String> {
    let mut machine = Machine::new(seed);
    machine.durability = "power-loss";
    // Something must be there to be recovered by the recorded boot.
    let cluster = machine.boot_and_verify()?;
    machine.start_clients(&cluster, &Rc::default(), 40);
    machine.world.run_steps(6_000);
    machine.crash();
    let recorder = Recorder::new(machine.disk.medium(), CONTENT_BYTES_MAX);
    let recording = Rc::new(Recording { recorder: recorder.clone(), known: RefCell::default() });
    machine.recorder = Some(recorder.clone());
    machine.oracle.borrow_mut().recording = Some(Rc::clone(&recording));
    machine.oracle.borrow().told();
    let cluster = machine.boot()?;
    machine.check(&cluster)?;
    let may_fail = Rc::new(Cell::new(false));
    machine.start_clients(&cluster, &may_fail, 60);
    machine.world.run_steps(12_000);
    may_fail.set(true);
    let stopped = machine.world.run_until(cluster.stop()).map_err(|stalled| stalled.to_string())?;
    stopped.map_err(|error| error.to_string())?;
    machine.oracle.borrow().check()?;

    let trace = recorder.trace();
    trace.check_rules().map_err(|broken| broken.to_string())?;
    trace.check_clean_stop(Path::new(DATA_DIR)).map_err(|broken| broken.to_string())?;
    let mut random = Random::stream(seed, "cuts");
    let end = trace.cuttable_end();
    assert_eq!(end, trace.events().len(), "all content was kept");
    let mut cuts: Vec<usize> = (0..images).map(|_| 1 + random.index(end)).collect();
    cuts.sort_unstable();
    let mut replay = trace.replay();
    for (number, cut) in cuts.into_iter().enumerate() {
        replay.advance_to(cut);
        let known = trace.marks_before(cut).count();
        let known = recording.known.borrow()[known - 1].clone();
        let image = replay.crash_image(&mut random);
        let mut after = Machine::from_image(number as u64, image, known, machine.ring);
        after.boot_and_verify().map_err(|what| format!("image {number}, cut at {cut}: {what}"))?;
    }
    Ok(())
}

/// Images in all when nothing else is asked for.
const IMAGES: u64 = 24;

/// Recorded runs they are cut from.
const RUNS: u64 = 3;

const CONTENT_BYTES_MAX: usize = 1 << 30;
