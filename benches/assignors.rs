//! What a target assignment costs: time over members and partitions, for both assignors.
//!
//! The bar is 1,000 members over 10,000 partitions in 50 ms, and growth no faster than n log n.
//! "fresh" starts from nothing, "join" adds one member to what was assigned, "mixed" has every
//! member subscribe to half of the topics. Run with `cargo bench --bench assignors`.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringlog::coordinator::group::assignor::{Assignor, Partitions, Subscriber};
use ringlog::ids::TopicId;

fn main() {
    println!("{:<10} {:<8} {:>8} {:>11} {:>10}", "assignor", "case", "members", "partitions", "ms");
    for assignor in [Assignor::Uniform, Assignor::Range] {
        for scale in [1, 2, 4, 8] {
            let (members, partitions) = (250 * scale, 2_500 * scale);
            for case in ["fresh", "join", "mixed"] {
                let time = measure(assignor, case, members, partitions);
                println!(
                    "{:<10} {:<8} {:>8} {:>11} {:>10.2}",
                    assignor.name(),
                    case,
                    members,
                    partitions,
                    time.as_secs_f64() * 1_000.0
                );
            }
        }
    }
}

const TOPICS: u8 = 20;

/// The shortest of a few runs.
fn measure(assignor: Assignor, case: &str, members: usize, partitions: usize) -> Duration {
    let count = i32::try_from(partitions / usize::from(TOPICS)).expect("a count");
    let counts: BTreeMap<TopicId, i32> = (0..TOPICS).map(|topic| (id(topic), count)).collect();
    let all: Rc<BTreeSet<TopicId>> = Rc::new(counts.keys().copied().collect());
    let halves: Vec<Rc<BTreeSet<TopicId>>> = (0..2)
        .map(|half| Rc::new((0..TOPICS).filter(|topic| topic % 3 != half).map(id).collect()))
        .collect();
    let ids: Vec<String> = (0..members).map(|number| format!("member-{number:06}")).collect();
    let topics = |place: usize| match case {
        "mixed" => Rc::clone(&halves[place % 2]),
        _ => Rc::clone(&all),
    };
    let nothing = Partitions::new();
    let ask = |ids: &[String], before: &[Partitions]| {
        let members: Vec<Subscriber<'_>> = ids
            .iter()
            .enumerate()
            .map(|(place, member_id)| Subscriber {
                member_id,
                instance_id: None,
                topics: topics(place),
                before: before.get(place).unwrap_or(&nothing),
            })
            .collect();
        assignor.assign(&members, &counts)
    };
    let before = if case == "join" { ask(&ids[..members - 1], &[]) } else { Vec::new() };
    let runs = (0..5).map(|_| {
        let start = Instant::now();
        black_box(ask(&ids, &before));
        start.elapsed()
    });
    runs.min().unwrap_or_default()
}

fn id(topic: u8) -> TopicId {
    TopicId([topic + 1; 16])
}
