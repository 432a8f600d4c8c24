//! Looking at groups, and deleting them.
//!
//! Owns what ListGroups, DescribeGroups and DeleteGroups see. A simple group is listed as a
//! classic one without a protocol type, as in Kafka.

use std::sync::Arc;

use bytes::Bytes;

use super::classic::ClassicGroup;
use super::consumer::Refusal;
use super::record::GroupRecord;
use super::{Groups, Kind};
use crate::error_code::ErrorCode;

/// Which groups to list.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct GroupFilter {
    /// States by name; none for any.
    pub states: Vec<String>,
    /// Types by name; none for any.
    pub types: Vec<String>,
}

/// A group in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedGroup {
    /// The group.
    pub id: Arc<str>,
    /// Its protocol type, empty for none.
    pub protocol_type: Arc<str>,
    /// Its state.
    pub state: &'static str,
    /// `classic` or `consumer`.
    pub kind: &'static str,
}

/// A classic group with its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedGroup {
    /// Its state.
    pub state: &'static str,
    /// Its protocol type, empty for none.
    pub protocol_type: Arc<str>,
    /// The protocol chosen, if it is stable.
    pub protocol: Arc<str>,
    /// Its members.
    pub members: Vec<DescribedMember>,
}

/// A member of a classic group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedMember {
    /// Member id.
    pub id: Arc<str>,
    /// Instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// The client's own name.
    pub client_id: Arc<str>,
    /// Where it connects from.
    pub client_host: Arc<str>,
    /// Its metadata for the protocol chosen, if the group is stable.
    pub metadata: Bytes,
    /// What it was assigned.
    pub assignment: Bytes,
}

impl GroupFilter {
    fn has(list: &[String], name: &str) -> bool {
        list.is_empty() || list.iter().any(|wanted| wanted.eq_ignore_ascii_case(name))
    }
}

impl Groups {
    /// The groups that pass a filter.
    #[must_use]
    pub fn list(&self, filter: &GroupFilter) -> Vec<ListedGroup> {
        let all = self.groups.iter().map(|(id, group)| {
            let (protocol_type, state) = match &group.kind {
                Kind::Simple => (Arc::from(""), "Empty"),
                Kind::Classic(classic) => (classic.protocol_type(), classic.state()),
                Kind::Consumer(group) => (Arc::from("consumer"), group.state().name()),
            };
            let kind = if group.kind.consumer().is_some() { "consumer" } else { "classic" };
            ListedGroup { id: Arc::clone(id), protocol_type, state, kind }
        });
        let wanted = |group: &ListedGroup| {
            GroupFilter::has(&filter.states, group.state)
                && GroupFilter::has(&filter.types, group.kind)
        };
        all.filter(wanted).collect()
    }

    /// A classic group.
    ///
    /// # Errors
    /// 69 if there is none of that name.
    pub fn describe(&self, id: &str) -> Result<DescribedGroup, Refusal> {
        let refuse = |what| Refusal {
            code: ErrorCode::GroupIdNotFound,
            message: format!("Group {id} {what}."),
        };
        let group = self.groups.get(id).ok_or_else(|| refuse("not found"))?;
        if group.kind.consumer().is_some() {
            return Err(refuse("is not a classic group"));
        }
        let simple = || DescribedGroup {
            state: "Empty",
            protocol_type: "".into(),
            protocol: "".into(),
            members: Vec::new(),
        };
        Ok(group.kind.classic().map_or_else(simple, ClassicGroup::describe))
    }

    /// The tombstones that delete a group with its offsets.
    ///
    /// # Errors
    /// 69 if nobody knows the group, 68 if it has members.
    pub fn plan_delete_group(&self, id: &Arc<str>) -> Result<Vec<GroupRecord>, ErrorCode> {
        let group = self.groups.get(id).ok_or(ErrorCode::GroupIdNotFound)?;
        if !group.kind.is_empty() {
            return Err(ErrorCode::NonEmptyGroup);
        }
        let mut records = self.all_tombstones(id);
        records.extend(group.kind.tombstones(id));
        Ok(records)
    }
}
