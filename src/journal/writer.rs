//! The shard's journal at work: one open block that batches are copied into, group commit without
//! a timer, and who is told when a block is durable.
//!
//! Owns the ring files of this boot, the open block and the blocks in flight. A block leaves as
//! soon as the device takes one more, so while blocks are in flight the next one fills. Durability
//! advances over the contiguous completed prefix only. Must never await between a caller's check
//! and its append: space is reserved before ([`Journal::reserve`]), appending is synchronous.
//!
//! Invariants: blocks are placed in the order they were opened; a partition's batches are in
//! blocks in offset order; after a failed write nothing becomes durable any more.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Poll, Waker};

use smallvec::SmallVec;

use super::block::{self, BLOCK_HEADER_BYTES, BatchEntry, ControlEntry, Identity, Seal};
use super::ring::{CONTROL_SHARE, JournalPoint, Placement, Purpose, Reservation, Ring};
use crate::ids::{JournalSequence, Offset, TopicPartition};
use crate::io::{AlignedBuffer, File, Monotonic, Runtime};
use crate::limits::{
    JOURNAL_BLOCK_BYTES_COPIED, JOURNAL_BLOCK_BYTES_MAX, JOURNAL_BLOCK_BYTES_MIN,
    JOURNAL_BLOCKS_IN_FLIGHT_MAX, JOURNAL_SEAL_IDLE_MS,
};
use crate::log::tail::{BlockMemory, TailPart};
use crate::metrics::Histogram;
use crate::metrics::stages::BlockTimes;
use crate::shard::event::Event;

/// What has batches in blocks and wants to know when they are durable.
pub trait JournalClient {
    /// Everything of this client below `end` is durable.
    fn durable_through(&self, end: Offset);

    /// Remembers the block that holds the client's newest batch, and the client's place there.
    fn block_place(&self) -> &Cell<(JournalSequence, usize)>;
}

/// The journal can take nothing more in this boot.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the journal of this shard has failed: {0}")]
pub struct JournalFailed(pub String);

/// A batch to be copied into the open block.
pub struct BatchCopy<'a> {
    /// Its partition.
    pub tp: TopicPartition,
    /// First bytes of the batch as they shall be stored: offsets and epoch are set already.
    pub header: &'a [u8],
    /// The rest of the batch.
    pub payload: &'a [u8],
    /// Wall clock of the append.
    pub append_ms: i64,
    /// First offset after the batch.
    pub end: Offset,
}

/// Where a batch went.
pub struct Journaled {
    /// The block that holds its last part: durable with that.
    pub sequence: JournalSequence,
    /// Its bytes in memory.
    pub parts: SmallVec<[TailPart; 1]>,
}

/// One shard's journal.
pub struct Journal {
    runtime: Rc<dyn Runtime>,
    identity: Identity,
    files: Vec<Rc<dyn File>>,
    memory_budget: usize,
    memory_used: Rc<Cell<usize>>,
    state: RefCell<State>,
    /// Something to submit, or a flight has ended.
    work: Event,
    /// Room in ring or memory may have come back, or the journal has failed.
    room: Event,
    counters: JournalCounters,
    /// Times of the newest durable blocks, by sequence.
    times: [Cell<(JournalSequence, BlockTimes)>; BLOCK_TIMES_KEPT],
    stopped: Cell<bool>,
}

/// What the journal has done; plain numbers of one shard.
#[derive(Default)]
pub struct JournalCounters {
    /// Blocks written.
    pub blocks: Cell<u64>,
    /// Bytes written, headers and padding included.
    pub block_bytes: Cell<u64>,
    /// Batches copied in.
    pub batches: Cell<u64>,
    /// Bytes of those batches.
    pub batch_bytes: Cell<u64>,
    /// Entries of blocks that had any.
    pub entries: Histogram,
    /// Times of their writes.
    pub device: Histogram,
    /// Blocks that were full before the device took them.
    pub filled: Cell<u64>,
    /// Times that a block waited for those in flight.
    pub crowded: Cell<u64>,
    /// Appends that waited for block memory.
    pub memory_waits: Cell<u64>,
    /// Appends that waited for room in the ring.
    pub ring_waits: Cell<u64>,
}

struct State {
    ring: Ring,
    open: Option<OpenBlock>,
    full: VecDeque<OpenBlock>,
    in_flight: VecDeque<Flight>,
    durable_through: JournalSequence,
    /// Highest `durable_through` that a submitted block carries.
    stamped_through: JournalSequence,
    failed: Option<JournalFailed>,
    durable_waiters: BTreeMap<JournalSequence, SmallVec<[Waker; 2]>>,
    capacity: usize,
}

struct OpenBlock {
    buffer: AlignedBuffer,
    entries: u32,
    memory: Rc<BlockMemory>,
    charge: MemoryCharge,
    touched: Touched,
    reservations: SmallVec<[Reservation; 8]>,
}

struct Flight {
    sequence: JournalSequence,
    submitted: Monotonic,
    entries: u32,
    touched: Touched,
    done: bool,
}

/// Who has batches in a block, and the offset after the newest of each.
type Touched = SmallVec<[(Rc<dyn JournalClient>, Offset); 4]>;

/// Room for one batch: give it to [`Journal::append_batch`], or drop it.
pub struct Permit {
    journal: Rc<Journal>,
    reservation: Option<Reservation>,
}

/// Bytes of block memory in use, given back when dropped with the block.
#[derive(Debug)]
pub struct MemoryCharge {
    used: Rc<Cell<usize>>,
    bytes: usize,
}

impl MemoryCharge {
    fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.used.set(self.used.get() + bytes);
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.used.set(self.used.get() - self.bytes);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.journal.state.borrow_mut().ring.settle(reservation);
            self.journal.room.notify();
        }
    }
}

impl Journal {
    /// A journal over prepared ring files: pre-allocated, zeroed, with their header blocks of
    /// `identity` written. `memory_budget` bounds the bytes of blocks kept in memory.
    #[must_use]
    pub fn new(
        runtime: Rc<dyn Runtime>,
        identity: Identity,
        files: Vec<Rc<dyn File>>,
        ring: Ring,
        memory_budget: usize,
    ) -> Rc<Journal> {
        assert_eq!(files.len(), ring.geometry().files() as usize, "one handle per ring file");
        let before_first = JournalSequence(ring.head().sequence.0 - 1);
        Rc::new(Journal {
            runtime,
            identity,
            files,
            memory_budget,
            memory_used: Rc::new(Cell::new(0)),
            state: RefCell::new(State {
                ring,
                open: None,
                full: VecDeque::new(),
                in_flight: VecDeque::new(),
                durable_through: before_first,
                stamped_through: before_first,
                failed: None,
                durable_waiters: BTreeMap::new(),
                capacity: JOURNAL_BLOCK_BYTES_MIN,
            }),
            work: Event::default(),
            room: Event::default(),
            counters: JournalCounters::default(),
            times: std::array::from_fn(|_| Cell::new((JournalSequence(0), NO_TIMES))),
            stopped: Cell::new(false),
        })
    }

    /// Starts the task that submits blocks.
    pub fn start(self: &Rc<Self>) {
        let journal = Rc::clone(self);
        self.runtime.spawn(Box::pin(async move { journal.submit_blocks().await }));
    }

    /// Counters.
    #[must_use]
    pub fn counters(&self) -> &JournalCounters {
        &self.counters
    }

    /// When a block went to the device and was durable, if that is not too long ago.
    #[must_use]
    pub fn times(&self, sequence: JournalSequence) -> Option<BlockTimes> {
        let (kept, times) = self.times[sequence.0 as usize % BLOCK_TIMES_KEPT].get();
        (kept == sequence && sequence.0 > 0).then_some(times)
    }

    /// Size of the ring.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        self.state.borrow().ring.geometry().ring_bytes()
    }

    /// Largest batch the ring and the memory budget take.
    #[must_use]
    pub fn largest_batch_bytes(&self) -> usize {
        let ring = self.state.borrow().ring.largest_batch_bytes();
        usize::try_from(ring).unwrap_or(usize::MAX).min(self.memory_budget / 4)
    }

    /// Waits until the ring and the block memory have room for a batch of `batch_bytes`; `None`
    /// when `refuse` says that it is of no use to wait. [`Purpose::Control`] may use the part of
    /// both that is kept for what ends transactions.
    ///
    /// # Errors
    /// When the journal has failed.
    pub async fn reserve(
        self: &Rc<Self>,
        batch_bytes: usize,
        purpose: Purpose,
        refuse: &dyn Fn() -> bool,
    ) -> Result<Option<Permit>, JournalFailed> {
        let mut has_waited = false;
        loop {
            let seen = self.room.generation();
            if let Some(permit) = self.try_reserve(batch_bytes, purpose)? {
                return Ok(Some(permit));
            }
            if !std::mem::replace(&mut has_waited, true) {
                let is_memory = !self.has_memory(batch_bytes, purpose);
                let counters = &self.counters;
                bump(if is_memory { &counters.memory_waits } else { &counters.ring_waits }, 1);
            }
            if refuse() {
                return Ok(None);
            }
            self.room.wait(seen).await;
        }
    }

    /// Takes room for a batch if there is some now.
    ///
    /// # Errors
    /// When the journal has failed.
    pub fn try_reserve(
        self: &Rc<Self>,
        batch_bytes: usize,
        purpose: Purpose,
    ) -> Result<Option<Permit>, JournalFailed> {
        let mut state = self.state.borrow_mut();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        if self.stopped.get() {
            return Err(JournalFailed("the shard is stopping".to_owned()));
        }
        if !self.has_memory(batch_bytes, purpose) {
            return Ok(None);
        }
        let bytes = state.ring.geometry().worst_case_bytes(batch_bytes as u64);
        Ok(match state.ring.reserve(bytes, purpose) {
            Ok(reservation) => {
                let journal = Rc::clone(self);
                Some(Permit { journal, reservation: Some(reservation) })
            }
            Err(_) => None,
        })
    }

    fn has_memory(&self, batch_bytes: usize, purpose: Purpose) -> bool {
        let memory = self.memory_used.get();
        let budget = match purpose {
            Purpose::Data => self.memory_budget,
            // What ends a transaction must not wait for what a full disk holds back.
            Purpose::Control => self.memory_budget + self.memory_budget / CONTROL_SHARE as usize,
        };
        memory == 0 || memory.saturating_add(batch_bytes) <= budget
    }

    /// Copies a batch into the open block, or into several when it is larger than one.
    pub fn append_batch(
        &self,
        mut permit: Permit,
        batch: &BatchCopy<'_>,
        client: &Rc<dyn JournalClient>,
    ) -> Journaled {
        let reservation = permit.reservation.take().expect("invariant: a permit is used once");
        let total = batch.header.len() + batch.payload.len();
        let total_bytes = u32::try_from(total).expect("invariant: a batch is below 4 GiB");
        let mut state = self.state.borrow_mut();
        let mut parts = SmallVec::new();
        let mut start = 0usize;
        let mut part = 0u32;
        while start < total {
            let length = self.room_for_part(&mut state, total, start);
            let open = state.open.as_mut().expect("invariant: room_for_part opens a block");
            let entry = BatchEntry {
                tp: batch.tp,
                append_ms: batch.append_ms,
                batch_bytes: total_bytes,
                part,
                part_start: start as u32,
                part_bytes: length as u32,
            };
            open.buffer.extend_from_slice(&block::batch_entry(&entry));
            let begin = open.buffer.len();
            copy_part(&mut open.buffer, batch, start..start + length);
            open.entries += 1;
            let range = begin..open.buffer.len();
            parts.push(TailPart { block: Rc::clone(&open.memory), range });
            start += length;
            part += 1;
        }
        let sequence = state.next_sequence();
        let open = state.open.as_mut().expect("invariant: the last part is in the open block");
        open.reservations.push(reservation);
        open.touch(client, sequence, batch.end);
        drop(state);
        bump(&self.counters.batches, 1);
        bump(&self.counters.batch_bytes, total as u64);
        self.work.notify();
        Journaled { sequence, parts }
    }

    /// Appends control entries; they may use the space kept for them. All or none.
    ///
    /// # Errors
    /// When the journal has failed, or even the control space is used up.
    pub fn append_control(
        &self,
        entries: &[ControlEntry],
    ) -> Result<JournalSequence, JournalFailed> {
        let mut state = self.state.borrow_mut();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let bytes = state.ring.geometry().worst_case_control_bytes() * entries.len() as u64;
        let reservation = state
            .ring
            .reserve(bytes, Purpose::Control)
            .map_err(|full| JournalFailed(full.to_string()))?;
        for entry in entries {
            if !self.grow_to(&mut state, entry.entry_bytes()) {
                self.open_block(&mut state, JOURNAL_BLOCK_BYTES_MIN);
            }
            let open = state.open.as_mut().expect("invariant: a block is open");
            open.buffer.extend_from_slice(&block::control_entry(entry));
            open.entries += 1;
        }
        let sequence = state.next_sequence();
        if let Some(open) = state.open.as_mut() {
            open.reservations.push(reservation);
        }
        drop(state);
        self.work.notify();
        Ok(sequence)
    }

    /// Highest sequence that is durable with all before it.
    #[must_use]
    pub fn durable_through(&self) -> JournalSequence {
        self.state.borrow().durable_through
    }

    /// The sequence of everything appended so far.
    #[must_use]
    pub fn appended_through(&self) -> JournalSequence {
        let state = self.state.borrow();
        let pending = state.full.len() as u64 + u64::from(state.open.is_some());
        JournalSequence(state.ring.head().sequence.0 + pending - 1)
    }

    /// Waits until `sequence` is durable.
    ///
    /// # Errors
    /// When the journal failed before.
    pub async fn wait(&self, sequence: JournalSequence) -> Result<(), JournalFailed> {
        poll_fn(|context| {
            let mut state = self.state.borrow_mut();
            if state.durable_through >= sequence {
                return Poll::Ready(Ok(()));
            }
            if let Some(failed) = &state.failed {
                return Poll::Ready(Err(failed.clone()));
            }
            let wakers = state.durable_waiters.entry(sequence).or_default();
            if !wakers.last().is_some_and(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// Takes nothing more, and waits until everything appended is durable.
    ///
    /// # Errors
    /// When the journal has failed.
    pub async fn stop(&self) -> Result<(), JournalFailed> {
        self.stopped.set(true);
        self.room.notify();
        self.wait(self.appended_through()).await
    }

    /// Whether it takes nothing more because its shard is stopping.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Where replay must begin so that everything appended from now on is covered.
    #[must_use]
    pub fn point(&self) -> JournalPoint {
        self.state.borrow().ring.head()
    }

    /// Gives ring space below `point` back, once an image that starts there is durable.
    pub fn release_through(&self, point: JournalPoint) {
        self.state.borrow_mut().ring.release_through(point);
        self.room.notify();
    }

    /// Whether half of the ring is in use.
    #[must_use]
    pub fn half_full(&self) -> bool {
        self.state.borrow().ring.half_full()
    }

    /// Bytes of the ring between the reclaim position and the next block.
    #[must_use]
    pub fn ring_used_bytes(&self) -> u64 {
        self.state.borrow().ring.used()
    }

    /// Bytes of block memory in use, and its budget.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        (self.memory_used.get(), self.memory_budget)
    }

    /// Says that block memory may have been given back.
    pub fn memory_changed(&self) {
        self.room.notify();
    }

    /// Why the journal takes nothing more, if it has failed.
    #[must_use]
    pub fn failure(&self) -> Option<JournalFailed> {
        self.state.borrow().failed.clone()
    }

    /// Makes sure the open block can take the next part; returns that part's length.
    fn room_for_part(&self, state: &mut State, total: usize, start: usize) -> usize {
        loop {
            if let Some(open) = &state.open {
                let (capacity, used) = (open.buffer.capacity(), open.buffer.len());
                let geometry = state.ring.geometry();
                let part = geometry.next_part_bytes(capacity, used, total as u64, start as u64);
                if let Some(bytes) = part {
                    return bytes as usize;
                }
            }
            let rest = total - start + block::BATCH_ENTRY_BYTES;
            if !self.grow_to(state, rest) {
                self.open_block(state, rest + BLOCK_HEADER_BYTES);
            }
        }
    }

    /// Makes room for `bytes` more in the open block, if it is a small one: a block of one record
    /// takes no more memory than it needs, and still a few records do not take a block each.
    fn grow_to(&self, state: &mut State, bytes: usize) -> bool {
        let largest =
            JOURNAL_BLOCK_BYTES_COPIED.min(state.ring.geometry().block_bytes_max() as usize);
        let Some(open) = state.open.as_mut() else { return false };
        let (capacity, wanted) = (open.buffer.capacity(), open.buffer.len() + bytes);
        if wanted <= capacity {
            return true;
        }
        if wanted > largest {
            return false;
        }
        let grown = block::aligned_bytes(wanted).next_power_of_two().min(largest);
        let mut buffer = AlignedBuffer::with_capacity(grown);
        buffer.extend_from_slice(&open.buffer);
        open.buffer = buffer;
        open.charge.grow(grown - capacity);
        state.capacity = state.capacity.max(grown);
        true
    }

    /// Opens a block of at least `wanted` bytes, as far as blocks go; an open one is full now.
    fn open_block(&self, state: &mut State, wanted: usize) {
        if let Some(open) = state.open.take() {
            state.full.push_back(open);
            bump(&self.counters.filled, 1);
            // It filled up before the device took it: larger blocks from now on.
            state.capacity = (state.capacity * 2).min(JOURNAL_BLOCK_BYTES_MAX);
        }
        let largest = state.ring.geometry().block_bytes_max() as usize;
        let capacity =
            state.capacity.max(block::aligned_bytes(wanted)).min(largest.max(BLOCK_HEADER_BYTES));
        let mut buffer = AlignedBuffer::with_capacity(capacity);
        // Its place, until the block is sealed.
        buffer.extend_from_slice(&[0; BLOCK_HEADER_BYTES]);
        let mut charge = MemoryCharge { used: Rc::clone(&self.memory_used), bytes: 0 };
        charge.grow(capacity);
        state.open = Some(OpenBlock {
            buffer,
            entries: 0,
            memory: Rc::default(),
            charge,
            touched: SmallVec::new(),
            reservations: SmallVec::new(),
        });
    }

    async fn submit_blocks(self: Rc<Self>) {
        loop {
            let seen = self.work.generation();
            while let Some(block) = self.next_to_submit() {
                self.submit(block);
            }
            if self.state.borrow().failed.is_some() {
                return;
            }
            if self.unsealed() {
                let deadline = self.runtime.now().plus_ms(JOURNAL_SEAL_IDLE_MS);
                let idle = self.runtime.sleep_until(deadline);
                futures_lite::future::or(self.work.wait(seen), idle).await;
                if self.work.generation() == seen && self.unsealed() {
                    self.seal_last_block();
                }
            } else {
                self.work.wait(seen).await;
            }
        }
    }

    fn next_to_submit(&self) -> Option<OpenBlock> {
        let mut state = self.state.borrow_mut();
        if state.failed.is_some() {
            return None;
        }
        if state.in_flight.len() >= JOURNAL_BLOCKS_IN_FLIGHT_MAX {
            if state.open.is_some() || !state.full.is_empty() {
                bump(&self.counters.crowded, 1);
            }
            return None;
        }
        if let Some(full) = state.full.pop_front() {
            return Some(full);
        }
        let open = state.open.take()?;
        if open.buffer.len() < state.capacity / 4 {
            state.capacity = (state.capacity / 2).max(JOURNAL_BLOCK_BYTES_MIN);
        }
        Some(open)
    }

    /// Whether the newest durable block is known as durable by no later block.
    fn unsealed(&self) -> bool {
        let state = self.state.borrow();
        state.failed.is_none()
            && !self.stopped.get()
            && state.in_flight.is_empty()
            && state.open.is_none()
            && state.stamped_through < state.durable_through
    }

    /// Writes an empty block, so that damage to the last one can be told from a torn tail.
    fn seal_last_block(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        let bytes = state.ring.geometry().worst_case_control_bytes();
        let Ok(reservation) = state.ring.reserve(bytes, Purpose::Control) else { return };
        self.open_block(&mut state, BLOCK_HEADER_BYTES);
        let Some(mut open) = state.open.take() else { return };
        open.reservations.push(reservation);
        drop(state);
        self.submit(open);
    }

    fn submit(self: &Rc<Self>, mut open: OpenBlock) {
        let placement = self.place(&mut open);
        let OpenBlock { buffer, memory, charge, .. } = open;
        let frozen = buffer.freeze();
        memory.seal(frozen.bytes, charge);
        bump(&self.counters.blocks, 1);
        bump(&self.counters.block_bytes, frozen.written.len() as u64);
        let journal = Rc::clone(self);
        let file = Rc::clone(&self.files[placement.file as usize]);
        self.runtime.spawn(Box::pin(async move {
            let result = file.write_at(frozen.written, placement.offset).await;
            journal.landed(placement.sequence, result);
        }));
    }

    /// Gives the block its place in the ring and its header.
    fn place(&self, open: &mut OpenBlock) -> Placement {
        let mut state = self.state.borrow_mut();
        let aligned = block::aligned_bytes(open.buffer.len());
        let placement = state.ring.place(aligned);
        let settled = !open.reservations.is_empty();
        for reservation in open.reservations.drain(..) {
            state.ring.settle(reservation);
        }
        if settled {
            // Reserved was the worst case: who waits for room may have it now.
            self.room.notify();
        }
        let seal = Seal {
            sequence: placement.sequence,
            position: placement.position,
            wall_ms: self.runtime.wall_ms(),
            durable_through: state.durable_through,
            entries: open.entries,
        };
        // An empty block needs no seal of its own: nobody waits for it.
        let stamped = if open.entries == 0 { placement.sequence } else { seal.durable_through };
        state.stamped_through = state.stamped_through.max(stamped);
        let used = open.buffer.len();
        open.buffer.pad();
        let length = block::seal(&mut open.buffer, used, &seal, &self.identity);
        debug_assert_eq!(length, open.buffer.len());
        let touched = std::mem::take(&mut open.touched);
        let flight = Flight {
            sequence: placement.sequence,
            submitted: self.runtime.now(),
            entries: open.entries,
            touched,
            done: false,
        };
        state.in_flight.push_back(flight);
        placement
    }

    fn landed(&self, sequence: JournalSequence, result: io::Result<()>) {
        let now = self.runtime.now();
        let mut state = self.state.borrow_mut();
        if let Err(error) = result {
            if state.failed.is_none() {
                tracing::error!(
                    shard = %self.identity.shard,
                    %sequence,
                    "a journal write failed: {error}; this shard takes no more records until the \
                     broker is restarted on a sound disk"
                );
                state.failed = Some(JournalFailed(error.to_string()));
            }
        } else if let Some(flight) =
            state.in_flight.iter_mut().find(|flight| flight.sequence == sequence)
        {
            flight.done = true;
            if flight.entries > 0 {
                self.counters.entries.record(u64::from(flight.entries));
                self.counters.device.record_ns(now.0.saturating_sub(flight.submitted.0));
            }
        }
        let mut ended: SmallVec<[Flight; 2]> = SmallVec::new();
        while state.failed.is_none() && state.in_flight.front().is_some_and(|flight| flight.done) {
            if let Some(flight) = state.in_flight.pop_front() {
                state.durable_through = flight.sequence;
                let times = BlockTimes { submitted: flight.submitted, durable: now };
                let place = flight.sequence.0 as usize % BLOCK_TIMES_KEPT;
                self.times[place].set((flight.sequence, times));
                ended.push(flight);
            }
        }
        let wakers = state.take_woken();
        drop(state);
        for (client, end) in ended.into_iter().flat_map(|flight| flight.touched) {
            client.durable_through(end);
        }
        for waker in wakers {
            waker.wake();
        }
        if self.failure().is_some() {
            self.room.notify();
        }
        self.work.notify();
    }
}

impl State {
    /// Sequence that the open block will get: blocks are placed in the order they were opened.
    fn next_sequence(&self) -> JournalSequence {
        JournalSequence(self.ring.head().sequence.0 + self.full.len() as u64)
    }

    fn take_woken(&mut self) -> Vec<Waker> {
        let later = match self.failed {
            Some(_) => BTreeMap::new(),
            None => {
                let next = JournalSequence(self.durable_through.0 + 1);
                self.durable_waiters.split_off(&next)
            }
        };
        let woken = std::mem::replace(&mut self.durable_waiters, later);
        woken.into_values().flatten().collect()
    }
}

impl OpenBlock {
    fn touch(&mut self, client: &Rc<dyn JournalClient>, sequence: JournalSequence, end: Offset) {
        let (in_block, place) = client.block_place().get();
        match self.touched.get_mut(place) {
            Some(touched) if in_block == sequence => touched.1 = end,
            _ => {
                client.block_place().set((sequence, self.touched.len()));
                self.touched.push((Rc::clone(client), end));
            }
        }
    }
}

/// Copies the bytes `part` of a batch.
fn copy_part(out: &mut AlignedBuffer, batch: &BatchCopy<'_>, part: Range<usize>) {
    let header = batch.header.len();
    if part.start < header {
        out.extend_from_slice(&batch.header[part.start..part.end.min(header)]);
    }
    if part.end > header {
        out.extend_from_slice(&batch.payload[part.start.max(header) - header..part.end - header]);
    }
}

/// Blocks whose times are kept: far more than are waited for at once.
const BLOCK_TIMES_KEPT: usize = 64;

const NO_TIMES: BlockTimes = BlockTimes { submitted: Monotonic(0), durable: Monotonic(0) };

fn bump(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}
