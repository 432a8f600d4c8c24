//! Whether a group may change from one protocol to the other while it has members.
//!
//! Source: KIP-848, Kafka's `ConsumerGroupMigrationPolicy`.

use super::{ConsumerGroup, Member, Rules};

/// Which conversions are allowed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MigrationPolicy {
    /// None.
    Disabled,
    /// From classic to consumer groups.
    Upgrade,
    /// From consumer to classic groups.
    Downgrade,
    /// Both.
    #[default]
    Bidirectional,
}

impl MigrationPolicy {
    /// The policy with this name, in letters of either case.
    #[must_use]
    pub fn of(name: &str) -> Option<MigrationPolicy> {
        match name.to_ascii_lowercase().as_str() {
            "disabled" => Some(MigrationPolicy::Disabled),
            "upgrade" => Some(MigrationPolicy::Upgrade),
            "downgrade" => Some(MigrationPolicy::Downgrade),
            "bidirectional" => Some(MigrationPolicy::Bidirectional),
            _ => None,
        }
    }

    /// Whether a classic group may become a consumer group.
    #[must_use]
    pub fn upgrades(self) -> bool {
        matches!(self, MigrationPolicy::Upgrade | MigrationPolicy::Bidirectional)
    }

    /// Whether a consumer group may become a classic group.
    #[must_use]
    pub fn downgrades(self) -> bool {
        matches!(self, MigrationPolicy::Downgrade | MigrationPolicy::Bidirectional)
    }
}

impl ConsumerGroup {
    /// Whether only members of the classic protocol are left without these, and a classic group
    /// may have them.
    pub(super) fn can_downgrade_without(&self, gone: &[&Member], rules: &Rules<'_>) -> bool {
        let left = self.members.len() - gone.len();
        let classic = gone.iter().filter(|member| member.metadata.classic.is_some()).count();
        self.derived.classic - classic == left
            && left > 0
            && rules.policy.downgrades()
            && left <= rules.classic_members_max
    }
}
