//! Many lives, one seed each: on some threads, added up, and each failing seed with the command
//! that lives it again.
//!
//! Owns what the environment says about seeds, and the macro by which a kind of lives counts.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What lives count.
pub trait Tally: Default + fmt::Debug + Send {
    /// Adds what another life has counted.
    fn add(&mut self, other: &Self);

    /// Every count, by name.
    fn all(&self) -> Vec<(&'static str, u64)>;
}

/// Declares the counts of one kind of lives.
macro_rules! counts {
    ($(#[$about:meta])* pub struct Counts { $($(#[$of:meta])* pub $name:ident: u64,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Counts {
            $($(#[$of])* pub $name: u64,)*
        }

        impl crate::seeds::Tally for Counts {
            fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }

            fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

/// What a life leaves: equal for equal seeds.
#[derive(PartialEq, Eq, Debug)]
pub struct Outcome<C> {
    pub event_hash: u64,
    pub counts: C,
}

/// What makes lives hard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Trouble {
    /// Operations of the disk fail.
    pub faults: bool,
    /// Internal topics are compacted all the time.
    pub compaction: bool,
}

impl Trouble {
    /// None of it.
    pub const NONE: Trouble = Trouble { faults: false, compaction: false };

    /// Failing disks.
    pub const FAULTS: Trouble = Trouble { faults: true, compaction: false };

    /// Compaction, over failing disks in every other life.
    pub const COMPACTION: Trouble = Trouble { faults: true, compaction: true };

    /// What is in store for one seed.
    pub fn of(self, seed: u64) -> Trouble {
        let spared = self.compaction && seed.is_multiple_of(2);
        Trouble { faults: self.faults && !spared, ..self }
    }
}

/// How a seed is lived.
pub type Life<C> = fn(seed: u64, trouble: Trouble) -> Result<Outcome<C>, String>;

/// Lives many seeds; if there are enough of them, everything that they count has happened.
pub fn check<C: Tally>(test: &str, seeds: u64, trouble: Trouble, life: Life<C>) {
    let lived = |seed: u64| life(seed, trouble.of(seed)).map(|left| left.counts);
    require_all(&run_seeds(test, seeds, lived), trouble);
}

/// Requires that everything has happened that is counted, if there were enough boots.
pub fn require_all<C: Tally>(total: &C, trouble: Trouble) {
    let counts = total.all();
    if counts.iter().any(|&(name, count)| name == "boots" && count < BOOTS_MIN) {
        return;
    }
    let may_miss = |name: &str| match name {
        "faulty_boots" | "faulty_starts" => !trouble.faults,
        "passes" | "removed" => !trouble.compaction,
        _ => false,
    };
    let missing = counts.into_iter().filter(|&(name, count)| count == 0 && !may_miss(name));
    assert_eq!(missing.collect::<Vec<_>>(), [], "{total:?}");
}

/// Lives some seeds twice.
pub fn check_determinism<C: PartialEq + fmt::Debug>(life: Life<C>) {
    for (seed, trouble) in [(1, Trouble::NONE), (4, Trouble::FAULTS), (7, Trouble::COMPACTION)] {
        let [first, second] = [(), ()].map(|()| life(seed, trouble).expect("a sound run"));
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Lives so many seeds, or those that the environment names; panics if any fails.
pub fn run_seeds<C: Tally>(
    test: &str,
    seeds: u64,
    life: impl Fn(u64) -> Result<C, String> + Sync + RefUnwindSafe,
) -> C {
    let (first, count) = match number("RINGLOG_SIM_SEED") {
        Some(seed) => (seed, 1),
        None => {
            let first = number("RINGLOG_SIM_FIRST").unwrap_or(0);
            (first, number("RINGLOG_SIM_SEEDS").unwrap_or(seeds))
        }
    };
    if std::env::var_os("RINGLOG_SIM_TRACE").is_some() {
        let _ =
            tracing_subscriber::fmt().with_env_filter("ringlog=debug").without_time().try_init();
    }
    let begun = Instant::now();
    let next = AtomicU64::new(first);
    let failures = Mutex::new(Vec::new());
    let total = Mutex::new(C::default());
    std::thread::scope(|scope| {
        for _ in 0..number("RINGLOG_SIM_THREADS").unwrap_or(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failed = failures.lock().expect("no panic while locked").len();
                    if seed >= first + count || failed >= FAILURES_MAX {
                        return;
                    }
                    match unless_it_panics(|| life(seed)) {
                        Ok(counts) => {
                            total.lock().expect("no panic while locked").add(&counts);
                        }
                        Err(what) => {
                            let mut failures = failures.lock().expect("no panic while locked");
                            failures.push((seed, what));
                        }
                    }
                }
            });
        }
    });
    let total = total.into_inner().expect("no panic while locked");
    println!("{count} seeds from {first} in {:.1?}: {total:?}", begun.elapsed());
    let mut failures = failures.into_inner().expect("no panic while locked");
    failures.sort();
    for (seed, what) in &failures {
        println!("seed {seed}: {what}");
        println!("  RINGLOG_SIM_SEED={seed} cargo test --test sim {test}");
    }
    assert!(failures.is_empty(), "{} seeds failed", failures.len());
    total
}

/// One life; a panic of the code under test is a failure like any other.
fn unless_it_panics<C>(life: impl FnOnce() -> Result<C, String> + UnwindSafe) -> Result<C, String> {
    match catch_unwind(life) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("a panic: {}", text.unwrap_or_default()))
        }
    }
}

/// A number that the environment may name.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Boots after which nothing may be missing.
const BOOTS_MIN: u64 = 300;

/// Failing seeds after which a run gives up.
const FAILURES_MAX: usize = 10;
