//! The stage clock: where the time of a request goes, from its first byte to the last of its
//! response.
//!
//! Owns the stages and their sum. A request's times are read at four points of its way (started,
//! computed, leaving, sent); the journal knows when a block went to the device and when it was
//! durable. A handler that waits says for what ([`RequestClock::spend`]); what is left of its time
//! is its own work. So the stages of a request add up to its whole time.
//!
//! Invariant: a stage is never negative, whatever order the times come in.

use std::cell::Cell;

use crate::io::Monotonic;

macro_rules! stages {
    ($($(#[doc = $doc:literal])+ $variant:ident = $label:literal),*) => {
        /// A part of a request's way.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Stage { $($(#[doc = $doc])+ $variant),* }

        impl Stage {
            /// Every stage, in the order of a request's way.
            pub const ALL: &'static [Stage] = &[$(Stage::$variant),*];

            /// Value of the label `stage`.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self { $(Stage::$variant => $label),* }
            }
        }
    };
}

stages! {
    /// From its first bytes to its last.
    Receive = "receive",
    /// Until it was started: memory, its connection's earlier requests.
    Queue = "queue",
    /// In its handler, other shards included.
    Handle = "handle",
    /// Held back until a transaction's transition has ended.
    Hold = "hold",
    /// Parked, as the client asked: for data, for other members.
    Park = "park",
    /// Waiting for room in the journal, or in a block that the device did not take yet.
    BlockWait = "block_wait",
    /// At the device.
    Device = "device",
    /// From durable to leaving: the task's turn, earlier responses of its connection.
    Wake = "wake",
    /// Until the socket had taken all of the response.
    Send = "send"
}

/// Number of stages.
pub const STAGES: usize = Stage::ALL.len();

/// Nanoseconds of one request by stage.
pub type Times = [u64; STAGES];

/// When a journal block went to the device, and when it was durable with all before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockTimes {
    /// Its write began.
    pub submitted: Monotonic,
    /// It was durable.
    pub durable: Monotonic,
}

/// The clock of one request.
#[derive(Debug, Default)]
pub struct RequestClock {
    began: Cell<Monotonic>,
    arrived: Cell<Monotonic>,
    started: Cell<Monotonic>,
    computed: Cell<Monotonic>,
    spent: [Cell<u64>; STAGES],
}

impl RequestClock {
    /// Of a request whose first bytes were there at `began` and its last at `arrived`.
    #[must_use]
    pub fn new(began: Monotonic, arrived: Monotonic) -> RequestClock {
        RequestClock {
            began: Cell::new(began),
            arrived: Cell::new(arrived),
            started: Cell::new(arrived),
            computed: Cell::new(arrived),
            ..RequestClock::default()
        }
    }

    /// Its handler begins.
    pub fn start(&self, now: Monotonic) {
        self.started.set(now);
        self.computed.set(now);
    }

    /// Its response is computed.
    pub fn compute(&self, now: Monotonic) {
        self.computed.set(now);
    }

    /// Its handler waited from `since` until `now`, for this.
    pub fn spend(&self, stage: Stage, since: Monotonic, now: Monotonic) {
        let spent = &self.spent[stage as usize];
        spent.set(spent.get().saturating_add(between(since, now)));
    }

    /// Its handler waited from `since` until `now` for a journal block.
    pub fn spend_on_block(&self, since: Monotonic, block: Option<BlockTimes>, now: Monotonic) {
        for (stage, from, to) in block_stages(since, block, now) {
            self.spend(stage, from, to);
        }
    }

    /// Its stages, once its response, which waited for `block`, has left.
    #[must_use]
    pub fn times(&self, block: Option<BlockTimes>, leaving: Monotonic, sent: Monotonic) -> Times {
        let mut times: Times = std::array::from_fn(|stage| self.spent[stage].get());
        let waited: u64 = times.iter().sum();
        let (started, computed) = (self.started.get(), self.computed.get());
        times[Stage::Receive as usize] = between(self.began.get(), self.arrived.get());
        times[Stage::Queue as usize] = between(self.arrived.get(), started);
        times[Stage::Handle as usize] = between(started, computed).saturating_sub(waited);
        for (stage, from, to) in block_stages(computed, block, leaving) {
            times[stage as usize] += between(from, to);
        }
        times[Stage::Send as usize] = between(leaving, sent);
        times
    }
}

/// The wait from `since` until `now` for a block, by stage. Of a block that was durable before, or
/// of none, it is the turn alone.
fn block_stages(
    since: Monotonic,
    block: Option<BlockTimes>,
    now: Monotonic,
) -> [(Stage, Monotonic, Monotonic); 3] {
    let (submitted, durable) = match block {
        Some(block) => (block.submitted.max(since).min(now), block.durable.max(since).min(now)),
        None => (since, since),
    };
    [
        (Stage::BlockWait, since, submitted),
        (Stage::Device, submitted, durable),
        (Stage::Wake, durable, now),
    ]
}

/// What a slow request is measured by: all but what its client asked to wait.
#[must_use]
pub fn answerable_ns(times: &Times) -> u64 {
    times.iter().sum::<u64>() - times[Stage::Park as usize]
}

/// The stage that took most of it, and how long.
#[must_use]
pub fn guilty(times: &Times) -> (Stage, u64) {
    let candidates = Stage::ALL.iter().filter(|stage| **stage != Stage::Park);
    let longest = candidates.max_by_key(|stage| times[**stage as usize]);
    let stage = longest.copied().unwrap_or(Stage::Handle);
    (stage, times[stage as usize])
}

fn between(from: Monotonic, to: Monotonic) -> u64 {
    to.0.saturating_sub(from.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanoseconds: u64) -> Monotonic {
        Monotonic(nanoseconds)
    }

    fn of(times: &Times, stage: Stage) -> u64 {
        times[stage as usize]
    }

    #[test]
    fn stages_add_up_to_the_whole_time() {
        let clock = RequestClock::new(at(100), at(110));
        clock.start(at(130));
        clock.spend(Stage::Hold, at(140), at(190));
        clock.compute(at(200));
        let block = BlockTimes { submitted: at(250), durable: at(350) };
        let times = clock.times(Some(block), at(360), at(364));
        let expected = [10, 20, 20, 50, 0, 50, 100, 10, 4];
        assert_eq!(times, expected);
        assert_eq!(times.iter().sum::<u64>(), 364 - 100);
        assert_eq!(guilty(&times), (Stage::Device, 100));
    }

    #[test]
    fn a_block_that_was_durable_before_costs_a_turn_only() {
        let clock = RequestClock::new(at(10), at(10));
        clock.compute(at(20));
        let block = BlockTimes { submitted: at(12), durable: at(15) };
        let times = clock.times(Some(block), at(23), at(23));
        assert_eq!((of(&times, Stage::Device), of(&times, Stage::Wake)), (0, 3));
        let none = clock.times(None, at(23), at(23));
        assert_eq!(none, times);
    }

    #[test]
    fn a_block_in_flight_costs_what_is_left_of_it() {
        let clock = RequestClock::new(at(10), at(10));
        clock.start(at(10));
        let block = BlockTimes { submitted: at(5), durable: at(40) };
        clock.spend_on_block(at(20), Some(block), at(41));
        clock.compute(at(45));
        let times = clock.times(None, at(45), at(46));
        assert_eq!(of(&times, Stage::BlockWait), 0);
        assert_eq!(of(&times, Stage::Device), 20);
        assert_eq!(of(&times, Stage::Wake), 1);
        assert_eq!(of(&times, Stage::Handle), 14);
    }

    #[test]
    fn parking_is_nobodys_fault() {
        let clock = RequestClock::new(at(0), at(0));
        clock.start(at(1));
        clock.spend(Stage::Park, at(1), at(1_001));
        clock.compute(at(1_003));
        let times = clock.times(None, at(1_003), at(1_004));
        assert_eq!(answerable_ns(&times), 4);
        assert_eq!(guilty(&times), (Stage::Handle, 2));
        let backwards = RequestClock::new(at(9), at(5)).times(None, at(3), at(1));
        assert_eq!(backwards, [0; STAGES]);
    }
}
