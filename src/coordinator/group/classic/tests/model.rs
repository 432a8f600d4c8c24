//! Random requests and time: after any of them what the log says is what there is, nobody is
//! answered twice, and the counts kept beside the members are right.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    New { static_as: Option<u8>, version: i16, protocols: u8 },
    Again { who: u8, protocols: u8 },
    Sync { who: u8, stale: bool },
    Beat { who: u8 },
    Leave { who: u8 },
    Pass { ms: i64 },
    Fail { fails: bool },
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let version = prop_oneof![Just(3_i16), Just(8), Just(9)];
    let step = prop_oneof![
        3 => (prop::option::of(0..2_u8), version, 0..3_u8).prop_map(
            |(static_as, version, protocols)| Step::New { static_as, version, protocols }
        ),
        4 => (any::<u8>(), 0..3_u8).prop_map(|(who, protocols)| Step::Again { who, protocols }),
        5 => (any::<u8>(), prop::bool::weighted(0.1))
            .prop_map(|(who, stale)| Step::Sync { who, stale }),
        2 => any::<u8>().prop_map(|who| Step::Beat { who }),
        1 => any::<u8>().prop_map(|who| Step::Leave { who }),
        5 => prop_oneof![Just(1_i64), Just(3_000), Just(9_000), Just(25_000)]
            .prop_map(|ms| Step::Pass { ms }),
        1 => prop::bool::weighted(0.3).prop_map(|fails| Step::Fail { fails }),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..80)
}

const PROTOCOLS: [&[(&str, &str)]; 3] = [
    &[("range", "t")],
    &[("sticky", "t"), ("range", "u")],
    &[("range", "u"), ("sticky", "u"), ("other", "v")],
];

/// Members seen so far: id and instance.
type Known = Vec<(Arc<str>, Option<Arc<str>>)>;

impl Context {
    fn take(&mut self, step: &Step, known: &mut Known) {
        let pick = |who: u8| known.get(usize::from(who) % known.len().max(1)).cloned();
        match step {
            Step::New { static_as, version, protocols: list } => {
                let instance_id = static_as.map(|number| format!("i{number}").into());
                let protocols = protocols(PROTOCOLS[usize::from(*list)]);
                self.join(Join { instance_id, protocols, version: *version, ..join("") });
            }
            Step::Again { who, protocols: list } => {
                let Some((id, instance_id)) = pick(*who) else { return };
                let protocols = protocols(PROTOCOLS[usize::from(*list)]);
                self.join(Join { instance_id, protocols, ..join(&id) });
            }
            Step::Sync { who, stale } => {
                let Some((id, _)) = pick(*who) else { return };
                let generation = self.generation() - i32::from(*stale);
                let assigned: Vec<_> = known
                    .iter()
                    .map(|(id, _)| (Arc::clone(id), Bytes::from_static(b"x")))
                    .collect();
                self.sync_with(Sync {
                    group: "g".into(),
                    member_id: id,
                    instance_id: None,
                    generation,
                    protocol_type: None,
                    protocol: None,
                    assignments: assigned,
                });
            }
            Step::Beat { who } => {
                let Some((id, instance)) = pick(*who) else { return };
                self.heartbeat(&id, instance.as_deref(), self.generation());
            }
            Step::Leave { who } => {
                let Some((id, instance)) = pick(*who) else { return };
                let fails = std::mem::take(&mut self.fail);
                self.leave(&[(&id, instance.as_deref())]);
                self.fail = fails;
            }
            Step::Pass { ms } => self.pass(*ms),
            Step::Fail { fails } => self.fail = *fails,
            Step::Restart => self.restart(),
        }
        for answer in std::mem::take(&mut self.answers).into_values() {
            if let Answer::Join(answer) = answer
                && !answer.member_id.is_empty()
                && !known.iter().any(|(id, _)| *id == answer.member_id)
            {
                let instance =
                    answer.member_id.starts_with('i').then(|| answer.member_id[..2].into());
                known.push((answer.member_id, instance));
            }
        }
    }

    fn live(&self) -> Option<&Live> {
        let group = self.groups.groups.get("g")?;
        group.kind.classic().map(|classic| &classic.live)
    }

    fn generation(&self) -> i32 {
        self.live().map_or(0, |live| live.generation)
    }

    fn check(&self) {
        let Some(live) = self.live() else { return };
        let members = live.members.values();
        assert_eq!(live.joined, members.clone().filter(|member| member.join.is_some()).count());
        assert_eq!(live.unsynced, members.clone().filter(|member| !member.has_synced).count());
        for name in ["range", "sticky", "other"] {
            let supports = |member: &&Member| member.protocols.iter().any(|p| &*p.name == name);
            let count = members.clone().filter(supports).count();
            assert_eq!(live.supported.get(name).copied().unwrap_or(0), count, "{name}");
        }
        let instances = members.clone().filter(|member| member.instance_id.is_some());
        assert_eq!(live.statics.len(), instances.count());
        assert_eq!(live.phase == Phase::Empty, live.members.is_empty() && !live.is_preparing());
        assert!(live.members.is_empty() || live.members.contains_key(&live.leader_id()));
        for (id, session) in members
            .map(|member| (&member.id, member.session))
            .chain(live.pending.iter().map(|(id, session)| (id, *session)))
        {
            let timer = self.timers.get(&("g".into(), TimerKey::Session(Arc::clone(id))));
            assert_eq!(session.timer_ms, timer.copied(), "{id}");
        }
        let timer = |key| self.timers.get(&("g".into(), key)).copied();
        assert_eq!(
            (timer(TimerKey::Join), timer(TimerKey::Sync)),
            (live.join_due_ms, live.sync_due_ms)
        );
        assert_eq!(live.join_due_ms.is_some(), live.is_preparing());
    }
}

impl Live {
    fn is_preparing(&self) -> bool {
        matches!(self.phase, Phase::Preparing(_))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_requests_leave_what_their_records_say(steps in steps()) {
        let mut context = Context::new();
        let mut known = Known::new();
        for step in &steps {
            context.take(step, &mut known);
            context.check();
        }
        // In the end everybody is silent: nobody is left, and nothing waits any more.
        context.fail = false;
        context.pass(1_000_000);
        context.check();
        prop_assert!(context.live().is_none_or(|live| live.phase == Phase::Empty));
        prop_assert!(context.timers.is_empty());
    }
}
