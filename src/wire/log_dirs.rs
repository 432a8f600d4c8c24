//! DescribeLogDirs responses: version 5 is not known to the codec library and written here.
//!
//! Owns the layout of version 5, which is that of 4 with one more byte per directory; older ones
//! go through the codec. Source: Kafka's `DescribeLogDirsResponse`; KIP-1066.

use bytes::{BufMut, Bytes};
use kafka_protocol::messages::DescribeLogDirsResponse;

use super::encode::{EncodeFault, encode_response, patch_length, put_header};
use super::primitive::{put_count, put_no_tags, put_text};
use super::versions::Api;

/// A whole response frame, the length prefix included.
///
/// # Errors
/// The response or a text in it is longer than its length field can say.
pub fn encode_log_dirs(
    version: i16,
    correlation_id: i32,
    response: &DescribeLogDirsResponse,
) -> Result<Bytes, EncodeFault> {
    if version < CORDONED_SINCE {
        return encode_response(Api::DescribeLogDirs, version, correlation_id, response);
    }
    let mut out = Vec::new();
    put_header(&mut out, correlation_id, true);
    out.put_i32(response.throttle_time_ms);
    out.put_i16(response.error_code);
    put_count(&mut out, response.results.len(), true)?;
    for result in &response.results {
        out.put_i16(result.error_code);
        put_text(&mut out, &result.log_dir, true)?;
        put_count(&mut out, result.topics.len(), true)?;
        for topic in &result.topics {
            put_text(&mut out, &topic.name, true)?;
            put_count(&mut out, topic.partitions.len(), true)?;
            for partition in &topic.partitions {
                out.put_i32(partition.partition_index);
                out.put_i64(partition.partition_size);
                out.put_i64(partition.offset_lag);
                out.put_u8(u8::from(partition.is_future_key));
                put_no_tags(&mut out, true);
            }
            put_no_tags(&mut out, true);
        }
        out.put_i64(result.total_bytes);
        out.put_i64(result.usable_bytes);
        // Whether it is cordoned.
        out.put_u8(0);
        put_no_tags(&mut out, true);
    }
    put_no_tags(&mut out, true);
    patch_length(&mut out, 0)?;
    Ok(Bytes::from(out))
}

const CORDONED_SINCE: i16 = 5;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::TopicName;
    use kafka_protocol::messages::describe_log_dirs_response::{
        DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::*;

    #[test]
    fn version_5_is_version_4_with_a_byte_more_per_directory() {
        let partition = DescribeLogDirsPartition::default()
            .with_partition_index(3)
            .with_partition_size(1 << 40)
            .with_offset_lag(7)
            .with_is_future_key(true);
        let topic = DescribeLogDirsTopic::default()
            .with_name(TopicName(StrBytes::from_static_str("t")))
            .with_partitions(vec![partition.clone(), partition]);
        let result = DescribeLogDirsResult::default()
            .with_error_code(56)
            .with_log_dir(StrBytes::from_static_str("/d"))
            .with_topics(vec![topic])
            .with_total_bytes(10)
            .with_usable_bytes(-1);
        let response = DescribeLogDirsResponse::default().with_results(vec![result]);
        let fourth = encode_log_dirs(4, 9, &response).expect("encodes");
        let fifth = encode_log_dirs(5, 9, &response).expect("encodes");
        let mut expected = fourth.to_vec();
        // Before the tags of the directory and of the response.
        expected.insert(expected.len() - 2, 0);
        expected[..4].copy_from_slice(&(fourth.len() as u32 - 3).to_be_bytes());
        assert_eq!(fifth[..], expected[..]);
        for version in 1..=3 {
            encode_log_dirs(version, 9, &DescribeLogDirsResponse::default()).expect("encodes");
        }
    }
}
