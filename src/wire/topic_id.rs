//! Topic ids between the wire's UUID type and ours.
//!
//! Owns the two conversions only. Both types are the same 16 raw bytes, so nothing can fail.

use uuid::Uuid;

use crate::ids::TopicId;

impl From<Uuid> for TopicId {
    fn from(uuid: Uuid) -> TopicId {
        TopicId(uuid.into_bytes())
    }
}

impl From<TopicId> for Uuid {
    fn from(id: TopicId) -> Uuid {
        Uuid::from_bytes(id.0)
    }
}
