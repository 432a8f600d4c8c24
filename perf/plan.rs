//! How long a comparison takes, and what gets shorter where it has less time.
//!
//! Owns the arithmetic: seconds of a scenario on a broker, from what it does. A broker that has to
//! be started again is slow where it is a JVM; the rest is parts, warm-ups and what is between
//! them. Told before anything runs, so that nobody waits in vain.

use super::scenario::{Contestant, Does, Scenario};

/// How often, and how long each run takes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    pub rounds: usize,
    pub seconds: u64,
    pub warm_up_seconds: u64,
    pub first_warm_up_seconds: u64,
}

impl Plan {
    /// As long as it takes to see that everything works.
    pub const QUICK: Plan =
        Plan { rounds: 1, seconds: 1, warm_up_seconds: 0, first_warm_up_seconds: 1 };

    /// Shorter, where scenarios do not fit into so many minutes on these brokers.
    #[must_use]
    pub fn within(self, minutes: u64, scenarios: &[Scenario], there: &[Contestant]) -> Plan {
        let mut plan = self;
        while plan.of(scenarios, there) > minutes * 60 {
            // What costs least first: pairs are worth more than their length.
            match plan {
                Plan { first_warm_up_seconds: 7.., .. } => plan.first_warm_up_seconds -= 1,
                Plan { seconds: 4.., .. } => plan.seconds -= 1,
                Plan { warm_up_seconds: 2.., .. } => plan.warm_up_seconds -= 1,
                Plan { rounds: 6.., .. } => plan.rounds -= 1,
                Plan { seconds: 3.., .. } => plan.seconds -= 1,
                Plan { first_warm_up_seconds: 4.., .. } => plan.first_warm_up_seconds -= 1,
                Plan { rounds: 3.., .. } => plan.rounds -= 1,
                _ => break,
            }
        }
        plan
    }

    /// Rounds of a scenario.
    #[must_use]
    pub fn rounds(&self, scenario: &Scenario) -> usize {
        if scenario.rounds > 0 { self.rounds.min(scenario.rounds) } else { self.rounds }
    }

    /// Seconds of all scenarios.
    #[must_use]
    pub fn of(&self, scenarios: &[Scenario], there: &[Contestant]) -> u64 {
        scenarios.iter().map(|scenario| self.of_scenario(scenario, there)).sum()
    }

    /// Seconds of one scenario on those brokers that take part.
    #[must_use]
    pub fn of_scenario(&self, scenario: &Scenario, there: &[Contestant]) -> u64 {
        let taking_part = there.iter().filter(|contestant| scenario.is_for(**contestant));
        let seconds: f64 = taking_part.map(|of| self.of_broker(scenario, *of)).sum();
        (seconds + AROUND_SECONDS).ceil() as u64
    }

    fn of_broker(&self, scenario: &Scenario, of: Contestant) -> f64 {
        let rounds = self.rounds(scenario) as f64;
        let (measured, warm_up) = (self.seconds as f64, self.warm_up_seconds as f64);
        let first = self.first_warm_up_seconds.saturating_sub(self.warm_up_seconds) as f64;
        let parts = |between: f64| (measured + warm_up + between) * rounds + first;
        let filling = scenario.filled_mib as f64 / FILLED_MIB_PER_SECOND;
        let made = f64::from(scenario.partitions()) / MADE_PARTITIONS_PER_SECOND;
        filling
            + match scenario.does {
                Does::Produce | Does::Fetch | Does::Tail => parts(BETWEEN_SECONDS),
                Does::Commit | Does::Transact | Does::Offsets => parts(BETWEEN_SECONDS),
                Does::Network => parts(2.0 * BETWEEN_SECONDS + measured),
                Does::Knee => (measured * STEPS / 2.0 + warm_up) * rounds + first,
                Does::ProducerPerformance | Does::ConsumerPerformance | Does::EndToEndLatency => {
                    parts(JVM_SECONDS + BETWEEN_SECONDS) + JVM_SECONDS
                }
                Does::Restart | Does::Crash if of.is_kafka() => {
                    let parts = scenario.filled_mib as f64 / RECOVERED_MIB_PER_SECOND;
                    (KAFKA_START_SECONDS + parts + made) * rounds + 10.0 * made
                }
                Does::Restart | Does::Crash => BETWEEN_SECONDS * rounds,
            }
    }
}

/// What a run takes beside its parts: connections, a topic, and the end of what was written.
const BETWEEN_SECONDS: f64 = 1.5;
/// What a scenario takes beside its runs: Ringlog's start and end.
const AROUND_SECONDS: f64 = 2.0;
/// Steps of a search for the highest rate, each half a part.
const STEPS: f64 = 9.0;
/// Start and end of a JVM on one core.
const JVM_SECONDS: f64 = 3.0;
/// End and start of Apache Kafka on one core.
const KAFKA_START_SECONDS: f64 = 8.0;
const FILLED_MIB_PER_SECOND: f64 = 300.0;
const RECOVERED_MIB_PER_SECOND: f64 = 200.0;
/// What Apache Kafka gets through, to make partitions and to load them.
const MADE_PARTITIONS_PER_SECOND: f64 = 400.0;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Contestant] = Contestant::ALL;
    const FULL: Plan =
        Plan { rounds: 6, seconds: 5, warm_up_seconds: 2, first_warm_up_seconds: 10 };

    fn named(name: &str) -> Vec<Scenario> {
        Scenario::named(&[name.to_owned()]).expect("is known")
    }

    #[test]
    fn what_does_not_fit_gets_shorter() {
        let goals = named("goals");
        let short = FULL.within(20, &goals, ALL);
        assert!(short.of(&goals, ALL) <= 20 * 60, "{short:?}");
        assert!(short.rounds >= 2 && short.seconds >= 2, "{short:?}");
        assert_eq!(FULL.within(600, &goals, ALL), FULL);
    }

    #[test]
    fn the_goals_get_five_pairs_in_half_an_hour() {
        let goals = named("goals");
        let plan = FULL.within(34, &goals, ALL);
        let minutes = plan.of(&goals, ALL) / 60;
        assert!(plan.rounds >= 5 && plan.seconds >= 3, "{plan:?} takes {minutes} minutes");
    }

    #[test]
    fn who_takes_no_part_costs_nothing() {
        let of = |brokers: &str| {
            let text = format!("title = \"t\"\ndoes = \"produce\"\nbrokers = [{brokers}]\n");
            let scenario = Scenario::parse("t", &text).expect("a scenario");
            FULL.of_scenario(&scenario, ALL)
        };
        let [one, two] = [of("\"power-loss\""), of("\"power-loss\", \"kafka\"")];
        assert!(one < two, "{one} {two}");
        // Six rounds of 8.5 s, and 8 s more of the first warm-up.
        assert_eq!((one, two), (61, 120));
        let text = "title = \"t\"\ndoes = \"produce\"\nrounds = 2\nbrokers = [\"kafka\"]\n";
        let scenario = Scenario::parse("t", text).expect("a scenario");
        assert_eq!((FULL.rounds(&scenario), FULL.of_scenario(&scenario, ALL)), (2, 27));
    }
}
