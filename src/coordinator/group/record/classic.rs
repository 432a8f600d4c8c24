//! The value of a classic group's record: the group as its last finished rebalance left it.
//!
//! Owns the layout of Kafka's `GroupMetadataValue`: versions 0-4 are read, 3 is written, as Kafka
//! does. What a client sent as metadata or assignment is bytes here, and no more.

use std::sync::Arc;

use bytes::Bytes;

use super::{FLEXIBLE, Reader, RecordFault, put_text};

/// A classic group as its record says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClassicMetadata {
    /// Protocol type; empty for a group that nobody has joined yet.
    pub protocol_type: Arc<str>,
    /// Generation.
    pub generation: i32,
    /// Protocol that the members have chosen; none without members.
    pub protocol: Option<Arc<str>>,
    /// The leader's member id.
    pub leader: Option<Arc<str>>,
    /// Wall clock when the group came into its state.
    pub since_ms: Option<i64>,
    /// Members.
    pub members: Vec<StoredMember>,
}

/// A member as the record says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredMember {
    /// Member id.
    pub id: Arc<str>,
    /// Instance id of a static member.
    pub instance_id: Option<Arc<str>>,
    /// The client's own name.
    pub client_id: Arc<str>,
    /// Where it connects from.
    pub client_host: Arc<str>,
    /// How long it may take to join again.
    pub rebalance_timeout_ms: i32,
    /// How long it may be silent.
    pub session_timeout_ms: i32,
    /// Its metadata for the protocol chosen.
    pub subscription: Bytes,
    /// What the leader assigned to it.
    pub assignment: Bytes,
}

impl ClassicMetadata {
    pub(super) fn decode(value: &[u8]) -> Result<ClassicMetadata, RecordFault> {
        let mut value = Reader(value);
        let version = value.int16()?;
        if !(0..=FLEXIBLE).contains(&version) {
            return Err(RecordFault::Version(version));
        }
        let flexible = version >= FLEXIBLE;
        let protocol_type = value.any_text(flexible)?.ok_or(RecordFault::Text)?;
        let generation = value.int32()?;
        let protocol = value.any_text(flexible)?;
        let leader = value.any_text(flexible)?;
        let since_ms = if version >= WITH_TIME { value.int64()? } else { -1 };
        let mut members = Vec::new();
        for _ in 0..value.count(flexible)? {
            members.push(StoredMember::decode(&mut value, version)?);
        }
        if flexible {
            value.skip_tags()?;
        }
        let since_ms = (since_ms != -1).then_some(since_ms);
        Ok(ClassicMetadata { protocol_type, generation, protocol, leader, since_ms, members })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + 256 * self.members.len());
        out.extend_from_slice(&WRITTEN.to_be_bytes());
        put_text(&mut out, &self.protocol_type);
        out.extend_from_slice(&self.generation.to_be_bytes());
        put_nullable(&mut out, self.protocol.as_deref());
        put_nullable(&mut out, self.leader.as_deref());
        out.extend_from_slice(&self.since_ms.unwrap_or(-1).to_be_bytes());
        put_count(&mut out, self.members.len());
        for member in &self.members {
            put_text(&mut out, &member.id);
            put_nullable(&mut out, member.instance_id.as_deref());
            put_text(&mut out, &member.client_id);
            put_text(&mut out, &member.client_host);
            out.extend_from_slice(&member.rebalance_timeout_ms.to_be_bytes());
            out.extend_from_slice(&member.session_timeout_ms.to_be_bytes());
            for bytes in [&member.subscription, &member.assignment] {
                put_count(&mut out, bytes.len());
                out.extend_from_slice(bytes);
            }
        }
        out
    }
}

impl StoredMember {
    fn decode(value: &mut Reader<'_>, version: i16) -> Result<StoredMember, RecordFault> {
        let flexible = version >= FLEXIBLE;
        let id = value.any_text(flexible)?.ok_or(RecordFault::Text)?;
        let instance_id = if version >= WITH_INSTANCE { value.any_text(flexible)? } else { None };
        let client_id = value.any_text(flexible)?.ok_or(RecordFault::Text)?;
        let client_host = value.any_text(flexible)?.ok_or(RecordFault::Text)?;
        let rebalance_timeout_ms = if version >= WITH_REBALANCE { value.int32()? } else { -1 };
        let session_timeout_ms = value.int32()?;
        let subscription = value.blob(flexible)?;
        let assignment = value.blob(flexible)?;
        if flexible {
            value.skip_tags()?;
        }
        // Before there was one, the session timeout stood for it.
        let rebalance_timeout_ms =
            if rebalance_timeout_ms == -1 { session_timeout_ms } else { rebalance_timeout_ms };
        Ok(StoredMember {
            id,
            instance_id,
            client_id,
            client_host,
            rebalance_timeout_ms,
            session_timeout_ms,
            subscription,
            assignment,
        })
    }
}

impl Reader<'_> {
    fn any_text(&mut self, flexible: bool) -> Result<Option<Arc<str>>, RecordFault> {
        if flexible {
            return match self.uvarint()?.checked_sub(1) {
                Some(length) => self.utf8(length as usize).map(Some),
                None => Ok(None),
            };
        }
        match self.int16()? {
            -1 => Ok(None),
            length => self.utf8(usize::try_from(length).map_err(|_| RecordFault::Text)?).map(Some),
        }
    }

    fn count(&mut self, flexible: bool) -> Result<usize, RecordFault> {
        if flexible {
            return Ok(self.uvarint()?.saturating_sub(1) as usize);
        }
        usize::try_from(self.int32()?).map_err(|_| RecordFault::Truncated)
    }

    fn blob(&mut self, flexible: bool) -> Result<Bytes, RecordFault> {
        let length = self.count(flexible)?;
        self.take(length).map(Bytes::copy_from_slice)
    }

    fn skip_tags(&mut self) -> Result<(), RecordFault> {
        for _ in 0..self.uvarint()? {
            self.uvarint()?;
            let size = self.uvarint()?;
            self.take(size as usize)?;
        }
        Ok(())
    }
}

fn put_nullable(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => put_text(out, text),
        None => out.extend_from_slice(&(-1_i16).to_be_bytes()),
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = i32::try_from(count).expect("invariant: nothing of the wire is larger");
    out.extend_from_slice(&count.to_be_bytes());
}

const WRITTEN: i16 = 3;
const WITH_REBALANCE: i16 = 1;
const WITH_TIME: i16 = 2;
const WITH_INSTANCE: i16 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::group::record::GroupRecord;
    use crate::coordinator::group::record::tests::check_value;
    use proptest::prelude::*;

    const KEY: &[u8] = b"\0\x02\0\x01g";

    fn metadata() -> ClassicMetadata {
        ClassicMetadata {
            protocol_type: "consumer".into(),
            generation: 7,
            protocol: Some("range".into()),
            leader: Some("m".into()),
            since_ms: Some(9),
            members: vec![StoredMember {
                id: "m".into(),
                instance_id: Some("i".into()),
                client_id: "c".into(),
                client_host: "/h".into(),
                rebalance_timeout_ms: 5,
                session_timeout_ms: 6,
                subscription: Bytes::from_static(b"sub"),
                assignment: Bytes::from_static(b"a"),
            }],
        }
    }

    fn check(expected: &ClassicMetadata, parts: &[&[u8]], written: bool) {
        let record = GroupRecord::Classic("g".into(), Arc::new(expected.clone()));
        check_value(KEY, &record, &parts.concat(), written);
    }

    /// The layout of Kafka's `GroupMetadataValue`, written by hand.
    #[test]
    fn every_version_byte_for_byte() {
        let head: &[u8] = b"\0\x08consumer\0\0\0\x07\0\x05range\0\x01m";
        let time: &[u8] = b"\0\0\0\0\0\0\0\x09";
        let tail: &[u8] = b"\0\0\0\x06\0\0\0\x03sub\0\0\0\x01a";
        let three: &[&[u8]] =
            &[b"\0\x03", head, time, b"\0\0\0\x01\0\x01m\0\x01i\0\x01c\0\x02/h\0\0\0\x05", tail];
        check(&metadata(), three, true);
        let mut older = metadata();
        older.members[0].instance_id = None;
        let member: &[u8] = b"\0\0\0\x01\0\x01m\0\x01c\0\x02/h";
        check(&older, &[b"\0\x02", head, time, member, b"\0\0\0\x05", tail], false);
        older.since_ms = None;
        check(&older, &[b"\0\x01", head, member, b"\0\0\0\x05", tail], false);
        older.members[0].rebalance_timeout_ms = 6;
        check(&older, &[b"\0\0", head, member, tail], false);
        let four: &[&[u8]] = &[
            b"\0\x04\x09consumer\0\0\0\x07\x06range\x02m",
            time,
            b"\x02\x02m\x02i\x02c\x03/h\0\0\0\x05\0\0\0\x06\x04sub\x02a\0\0",
        ];
        check(&metadata(), four, false);
    }

    #[test]
    fn an_empty_group_has_nulls() {
        let empty = ClassicMetadata {
            protocol_type: "".into(),
            generation: 0,
            protocol: None,
            leader: None,
            since_ms: None,
            members: Vec::new(),
        };
        let ones = [0xff; 12];
        check(&empty, &[b"\0\x03\0\0\0\0\0\0", &ones, b"\0\0\0\0"], true);
        let refused = GroupRecord::decode(KEY, Some(b"\0\x05"));
        assert_eq!(refused, Err(RecordFault::Version(5)));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn arbitrary_bytes_never_panic(
            version in 0_i16..6,
            value in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let bytes = [&version.to_be_bytes()[..], &value].concat();
            let _ = GroupRecord::decode(KEY, Some(&bytes));
        }
    }
}
