//! WriteTxnMarkers requests, which the codec library knows only in version 1.
//!
//! Owns the layout of both versions: 2 adds the transaction version to every marker (KIP-1228).
//! Must never be given a body that the shape check has not accepted: counts are trusted here.
//! Source: Kafka's `WriteTxnMarkersRequest.json`.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

use super::primitive::get_uvarint;

/// Markers that a coordinator, or an operator, orders.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WriteTxnMarkersRequest {
    /// One per transaction that ends.
    pub markers: Vec<TxnMarker>,
}

/// The end of one transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxnMarker {
    /// The producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Whether it is committed.
    pub committed: bool,
    /// Where.
    pub topics: Vec<TxnMarkerTopic>,
    /// Epoch of the coordinator.
    pub coordinator_epoch: i32,
    /// Which rule the marker's epoch follows; 0 before version 2.
    pub transaction_version: i8,
}

/// Partitions of a topic that get a marker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxnMarkerTopic {
    /// The topic.
    pub name: StrBytes,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

/// Reads a body whose shape is checked; `None` for a text that is not UTF-8.
#[must_use]
pub fn decode(version: i16, body: &Bytes) -> Option<WriteTxnMarkersRequest> {
    let mut reader = Reader { body, at: 0 };
    let mut request = WriteTxnMarkersRequest::default();
    for _ in 0..reader.count()? {
        request.markers.push(reader.marker(version)?);
    }
    reader.tags()?;
    (reader.at == body.len()).then_some(request)
}

struct Reader<'a> {
    body: &'a Bytes,
    at: usize,
}

impl Reader<'_> {
    fn marker(&mut self, version: i16) -> Option<TxnMarker> {
        let producer_id = i64::from_be_bytes(self.fixed()?);
        let producer_epoch = i16::from_be_bytes(self.fixed()?);
        let committed = self.fixed::<1>()? != [0];
        let mut topics = Vec::new();
        for _ in 0..self.count()? {
            topics.push(self.topic()?);
        }
        let coordinator_epoch = i32::from_be_bytes(self.fixed()?);
        let versioned = version >= VERSIONED_SINCE;
        let transaction_version = if versioned { i8::from_be_bytes(self.fixed()?) } else { 0 };
        self.tags()?;
        Some(TxnMarker {
            producer_id,
            producer_epoch,
            committed,
            topics,
            coordinator_epoch,
            transaction_version,
        })
    }

    fn topic(&mut self) -> Option<TxnMarkerTopic> {
        let length = self.count()?;
        let end = self.at.checked_add(length)?;
        let name = (end <= self.body.len()).then(|| self.body.slice(self.at..end))?;
        self.at = end;
        let name = StrBytes::try_from(name).ok()?;
        let mut partitions = Vec::new();
        for _ in 0..self.count()? {
            partitions.push(i32::from_be_bytes(self.fixed()?));
        }
        self.tags()?;
        Some(TxnMarkerTopic { name, partitions })
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let field = self.body.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*field)
    }

    fn number(&mut self) -> Option<usize> {
        let (value, bytes) = get_uvarint(self.body.get(self.at..)?)?;
        self.at += bytes;
        usize::try_from(value).ok()
    }

    /// A compact count or length, which is one more; a null is none.
    fn count(&mut self) -> Option<usize> {
        self.number()?.checked_sub(1)
    }

    /// Passes over tagged fields: none are known.
    fn tags(&mut self) -> Option<()> {
        for _ in 0..self.number()? {
            self.number()?;
            let bytes = self.number()?;
            self.at = self.at.checked_add(bytes)?;
        }
        Some(())
    }
}

const VERSIONED_SINCE: i16 = 2;

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::messages::write_txn_markers_request::{
        WritableTxnMarker, WritableTxnMarkerTopic,
    };
    use kafka_protocol::messages::{self, ProducerId, TopicName};
    use kafka_protocol::protocol::Encodable;

    use super::*;

    #[test]
    fn version_1_is_what_the_codec_library_writes() {
        let topic = WritableTxnMarkerTopic::default()
            .with_name(TopicName(StrBytes::from_static_str("orders")))
            .with_partition_indexes(vec![3, -1]);
        let marker = WritableTxnMarker::default()
            .with_producer_id(ProducerId(7))
            .with_producer_epoch(-2)
            .with_transaction_result(true)
            .with_topics(vec![topic])
            .with_coordinator_epoch(9)
            .with_unknown_tagged_field(4, Bytes::from_static(b"later"));
        let theirs = messages::WriteTxnMarkersRequest::default().with_markers(vec![marker]);
        let mut body = BytesMut::new();
        theirs.encode(&mut body, 1).expect("encodes");
        let body = body.freeze();
        let topics = vec![TxnMarkerTopic {
            name: StrBytes::from_static_str("orders"),
            partitions: vec![3, -1],
        }];
        let marker = TxnMarker {
            producer_id: 7,
            producer_epoch: -2,
            committed: true,
            topics,
            coordinator_epoch: 9,
            transaction_version: 0,
        };
        let ours = WriteTxnMarkersRequest { markers: vec![marker] };
        assert_eq!(decode(1, &body), Some(ours));
        assert_eq!(decode(1, &[&body[..], &[0]].concat().into()), None, "a byte is left");
        assert_eq!(decode(2, &body), None, "the transaction version is not there");
    }
}
