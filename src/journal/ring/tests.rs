//! The ring against a naive model: a byte map of the files, and a writer that packs batches the
//! way the real one does.

use proptest::prelude::*;

use super::*;

const BLOCK: u32 = 16 * 1024;

fn small() -> Geometry {
    Geometry::new(4, 64 * 1024, BLOCK).expect("geometry")
}

fn default_sized() -> Geometry {
    Geometry::new(4, 64 << 20, 1 << 20).expect("geometry")
}

#[test]
fn shapes_that_cannot_work_are_refused() {
    assert!(Geometry::new(4, 64 << 20, 1 << 20).is_ok());
    assert!(Geometry::new(1, 64 << 20, 1 << 20).is_ok());
    for (files, file_bytes, block) in [
        (0, 64 << 20, 1 << 20),
        (4, (64 << 20) + 512, 1 << 20),
        (4, 1 << 20, 1 << 20),
        (4, 64 << 20, 4096),
        (4, 64 << 20, 5000),
        (4, 0, 1 << 20),
        (u32::MAX, u64::MAX - 4095, 1 << 20),
        (1, u64::MAX - 4095, u32::MAX - 4095),
        // A quarter of it in one batch would not fit beside the skipped ends and the 5 %.
        (4, 20 * 1024, BLOCK),
    ] {
        assert!(Geometry::new(files, file_bytes, block).is_err(), "{files} {file_bytes} {block}");
    }
}

#[test]
fn blocks_skip_headers_and_never_cross_a_file() {
    let mut ring = Ring::new(small(), JournalSequence(10));
    let first = ring.place(4096);
    assert_eq!(
        first,
        Placement { sequence: JournalSequence(10), position: 4096, file: 0, offset: 4096 }
    );
    // 56 KiB are left after the first: three blocks of 16 KiB, then 8 KiB are skipped.
    for k in 0..3 {
        assert_eq!(ring.place(16384).position, 8192 + k * 16384);
    }
    assert_eq!(ring.head().position, 57344);
    let skipped = ring.place(12288);
    assert_eq!((skipped.file, skipped.offset), (1, 4096));
    assert_eq!(skipped.position, 65536 + 4096);
    assert_eq!(skipped.sequence, JournalSequence(14));
    assert_eq!(
        ring.head(),
        JournalPoint { position: 65536 + 16384, sequence: JournalSequence(15) }
    );
    assert_eq!(ring.used(), 65536 + 16384);
    assert!(!ring.half_full());
}

#[test]
fn a_block_that_ends_with_its_file_is_followed_by_the_next_header() {
    let mut ring = Ring::new(small(), JournalSequence(1));
    for _ in 0..5 {
        let _ = ring.place(12288);
    }
    assert_eq!(ring.head().position, 65536);
    assert_eq!(ring.geometry().locate(65536), (1, 0));
    let next = ring.place(4096);
    assert_eq!((next.position, next.file, next.offset), (65536 + 4096, 1, 4096));
}

#[test]
fn positions_go_on_over_the_end_and_reuse_released_space() {
    let mut ring = Ring::new(small(), JournalSequence(1));
    for lap in 0..3u64 {
        for block in 0..20u64 {
            let placed = ring.place(12288);
            assert_eq!(
                placed.position,
                lap * 262_144 + block / 5 * 65536 + 4096 + block % 5 * 12288
            );
            assert_eq!(u64::from(placed.file), block / 5);
            assert_eq!(placed.offset, 4096 + block % 5 * 12288);
            assert_eq!(placed.sequence.0, lap * 20 + block + 1);
            ring.release_through(ring.head());
        }
    }
    assert_eq!(ring.used(), 0);
}

#[test]
fn overwriting_live_space_stops_the_process() {
    let mut ring = Ring::new(small(), JournalSequence(1));
    for _ in 0..20 {
        let _ = ring.place(12288);
    }
    let placed = std::panic::catch_unwind(move || ring.place(12288).position);
    let message = placed.expect_err("refused");
    let text = message.downcast_ref::<String>().expect("text");
    assert!(text.contains("would overwrite live journal space from 0"), "{text}");
}

#[test]
fn five_percent_are_kept_for_control_entries() {
    let mut ring = Ring::new(default_sized(), JournalSequence(1));
    let small_batch = ring.geometry().worst_case_bytes(1000);
    assert_eq!(small_batch, 1000 + 80 + 48 + 4095);
    let mut held = Vec::new();
    let full = loop {
        match ring.reserve(small_batch, Purpose::Data) {
            Ok(reservation) => held.push(reservation),
            Err(full) => break full,
        }
    };
    // 95 % of 256 MiB, less a crossing of at most 1 MiB for every 63 MiB.
    let limit = (256 << 20) - (256 << 20) / 20;
    let promised = held.len() as u64 * small_batch;
    assert_eq!(ring.reserved(), promised);
    assert_eq!(held.len() as u64, (limit - (4 << 20)) / small_batch);
    assert_eq!(full.available, limit - promised);
    assert!(full.needed > full.available);
    assert!(!ring.has_room(small_batch, Purpose::Data));
    let control = ring.geometry().worst_case_control_bytes();
    assert!(ring.has_room(control, Purpose::Control));
    let mut control_entries = 0;
    while let Ok(reservation) = ring.reserve(control, Purpose::Control) {
        held.push(reservation);
        control_entries += 1;
    }
    assert!(control_entries > 3000, "{control_entries}");
    for reservation in held {
        ring.settle(reservation);
    }
    assert_eq!(ring.reserved(), 0);
}

#[test]
fn the_largest_batch_fits_an_empty_ring() {
    for geometry in [small(), default_sized()] {
        assert_eq!(geometry.largest_batch_bytes(), geometry.ring_bytes() / 4);
        let mut ring = Ring::new(geometry, JournalSequence(1));
        let bytes = geometry.worst_case_bytes(geometry.largest_batch_bytes());
        let reservation = ring.reserve(bytes, Purpose::Data).expect("room");
        ring.settle(reservation);
    }
}

#[test]
fn half_full_counts_what_is_not_released() {
    let mut ring = Ring::new(small(), JournalSequence(1));
    for _ in 0..10 {
        let _ = ring.place(12288);
    }
    assert_eq!(ring.used(), 131_072);
    assert!(ring.half_full());
    let point = JournalPoint { position: 4096 + 12288, sequence: JournalSequence(2) };
    ring.release_through(point);
    assert_eq!(ring.reclaim_position(), 16384);
    assert!(!ring.half_full());
    ring.release_through(JournalPoint { position: 0, sequence: JournalSequence(1) });
    assert_eq!(ring.reclaim_position(), 16384, "never back");
}

#[test]
fn parts_fill_their_blocks_and_small_batches_stay_whole() {
    let geometry = small();
    let max = geometry.part_bytes_max();
    assert_eq!(max, 16384 - 128);
    let full = BLOCK as usize;
    // Fits in what is left.
    assert_eq!(geometry.next_part_bytes(full, 80, 1000, 0), Some(1000));
    assert_eq!(geometry.next_part_bytes(full, full - 1048, 1000, 0), Some(1000));
    // Does not, but would in a fresh block.
    assert_eq!(geometry.next_part_bytes(full, full - 1047, 1000, 0), None);
    assert_eq!(geometry.next_part_bytes(full, 80, max, 0), Some(max));
    assert_eq!(geometry.next_part_bytes(full, 81, max, 0), None);
    // Split: the first part takes what is worth taking, the others fresh full blocks.
    assert_eq!(geometry.next_part_bytes(full, full - 4096 - 48, max + 1, 0), Some(4096));
    assert_eq!(geometry.next_part_bytes(full, full - 4095 - 48, max + 1, 0), None);
    assert_eq!(geometry.next_part_bytes(full, 80, 3 * max, 4096), Some(max));
    assert_eq!(geometry.next_part_bytes(full, 5000, 3 * max, 4096), None);
    assert_eq!(geometry.next_part_bytes(8192, 80, 3 * max, 4096), None);
    assert_eq!(geometry.next_part_bytes(full, 80, 3 * max, 2 * max), Some(max));
    assert_eq!(geometry.next_part_bytes(8192, 80, 3 * max, 3 * max - 7), Some(7));
}

/// A writer that packs admitted batches into blocks, and the bytes each block covers.
struct Model {
    ring: Ring,
    /// Physical 4 KiB blocks that are live: which logical position wrote them.
    live: Vec<Option<u64>>,
    placed: Vec<Placement>,
    capacity: usize,
    used: usize,
    settle_with_block: Vec<Reservation>,
}

impl Model {
    fn new(geometry: Geometry) -> Model {
        Model {
            live: vec![None; (geometry.ring_bytes() / ALIGN) as usize],
            ring: Ring::new(geometry, JournalSequence(1)),
            placed: Vec::new(),
            capacity: 8192,
            used: BLOCK_HEADER_BYTES,
            settle_with_block: Vec::new(),
        }
    }

    /// Whether the batch was admitted; if so all its blocks but the last are placed.
    fn append(&mut self, bytes: u64, purpose: Purpose) -> bool {
        let geometry = *self.ring.geometry();
        let Ok(reservation) = self.ring.reserve(geometry.worst_case_bytes(bytes), purpose) else {
            return false;
        };
        self.fill(bytes);
        self.settle_with_block.push(reservation);
        true
    }

    /// Puts a batch into blocks; the last one stays open.
    fn fill(&mut self, bytes: u64) {
        let geometry = *self.ring.geometry();
        let mut done = 0;
        while done < bytes {
            match geometry.next_part_bytes(self.capacity, self.used, bytes, done) {
                Some(part) => {
                    self.used += BATCH_ENTRY_BYTES + part as usize;
                    done += part;
                }
                None => {
                    self.end_block();
                    self.capacity = BLOCK as usize;
                }
            }
        }
    }

    fn end_block(&mut self) {
        if self.used > BLOCK_HEADER_BYTES {
            let aligned = self.used.next_multiple_of(BLOCK_ALIGN);
            let placement = self.ring.place(aligned);
            self.occupy(placement, aligned as u64);
            for reservation in self.settle_with_block.drain(..) {
                self.ring.settle(reservation);
            }
        }
        self.used = BLOCK_HEADER_BYTES;
        self.capacity = 8192;
    }

    fn occupy(&mut self, placement: Placement, aligned: u64) {
        let geometry = *self.ring.geometry();
        assert!(placement.offset >= ALIGN, "covers a file header");
        assert!(placement.offset + aligned <= geometry.file_bytes(), "crosses a file");
        let physical = u64::from(placement.file) * geometry.file_bytes() + placement.offset;
        assert_eq!(physical, placement.position % geometry.ring_bytes());
        for block in physical / ALIGN..(physical + aligned) / ALIGN {
            let slot = &mut self.live[block as usize];
            assert_eq!(*slot, None, "overwrites a live block");
            *slot = Some(placement.position);
        }
        if let Some(last) = self.placed.last() {
            assert_eq!(placement.sequence.0, last.sequence.0 + 1);
            assert!(placement.position > last.position);
        }
        self.placed.push(placement);
    }

    fn release(&mut self, point: JournalPoint) {
        self.ring.release_through(point);
        for slot in &mut self.live {
            if slot.is_some_and(|position| position < point.position) {
                *slot = None;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    AppendControl,
    EndBlock,
    /// Checkpoint at the point before the n-th last block.
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u64..3000).prop_map(Step::Append),
        2 => (1u64..40_000).prop_map(Step::Append),
        1 => (40_000u64..=65536).prop_map(Step::Append),
        1 => Just(Step::AppendControl),
        2 => Just(Step::EndBlock),
        1 => (0usize..12).prop_map(Step::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn admitted_batches_always_find_released_space(steps in prop::collection::vec(step(), 1..200)) {
        let mut model = Model::new(small());
        let mut refused = 0;
        for step in steps {
            match step {
                Step::Append(bytes) => refused += usize::from(!model.append(bytes, Purpose::Data)),
                Step::AppendControl => { model.append(60, Purpose::Control); }
                Step::EndBlock => model.end_block(),
                Step::Release(back) => {
                    let point = match model.placed.len().checked_sub(back) {
                        Some(n) if n < model.placed.len() => JournalPoint {
                            position: model.placed[n].position,
                            sequence: model.placed[n].sequence,
                        },
                        _ => model.ring.head(),
                    };
                    model.release(point);
                }
            }
        }
        // After a checkpoint of everything the largest batch is taken again.
        model.end_block();
        prop_assert_eq!(model.ring.reserved(), 0);
        model.release(model.ring.head());
        prop_assert!(model.append(65536, Purpose::Data), "refused so far: {}", refused);
        model.end_block();
    }

    /// The whole ring is promised, down to the last reservation that fits; then everything is
    /// placed, in blocks as wasteful as they come.
    #[test]
    fn reservations_made_at_once_are_placed_whatever_comes_first(
        kind in 0usize..5,
        sizes in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
        ends in prop::collection::vec(any::<bool>(), 1..40),
        lead in 0u64..65536,
        kept in 0u64..260_000,
    ) {
        let geometry = small();
        // Sizes that fill a block to the byte, or waste almost all of its last 4 KiB.
        let just_over = 4096 - 128 + 1;
        let mixed = [1, 1000, just_over, 12 * 1024, 16_256, 16_257, 40_000, 65_536];
        let candidates = match kind {
            0 => mixed.to_vec(),
            1 => vec![1],
            2 => vec![just_over],
            3 => vec![8192 - 128 + 1, 16_257],
            _ => vec![16_256],
        };
        let mut model = Model::new(geometry);
        if lead > 0 {
            prop_assert!(model.append(lead, Purpose::Data));
            model.end_block();
            model.release(model.ring.head());
        }
        // What no checkpoint has released yet.
        while model.ring.used() < kept && model.append(3000, Purpose::Control) {
            model.end_block();
        }
        let mut admitted = Vec::new();
        for size in sizes.iter().cycle() {
            let bytes = *size.get(&candidates);
            match model.ring.reserve(geometry.worst_case_bytes(bytes), Purpose::Control) {
                Ok(held) => admitted.push((bytes, held)),
                Err(_) => break,
            }
        }
        for ((bytes, held), end) in admitted.into_iter().zip(ends.iter().cycle()) {
            model.fill(bytes);
            model.settle_with_block.push(held);
            if *end || kind > 0 {
                model.end_block();
            }
        }
        model.end_block();
        prop_assert_eq!(model.ring.reserved(), 0);
    }
}
