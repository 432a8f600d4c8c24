//! `ringlog txn`: what transactions do, asked of a live broker.
//!
//! Owns the questions and the text. `list` names every transactional id; `explain` says which
//! transaction holds the last stable offset of a partition back, since when, when it will end by
//! itself, and which command ends it now. Changes nothing.

use std::io::Write;

use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::ProducerState;
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{
    BrokerId, DescribeProducersRequest, DescribeTransactionsRequest, ListOffsetsRequest,
    ListTransactionsRequest, ProducerId, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::args::TxnCommand;
use super::client::Cluster;

/// Runs the command.
///
/// # Errors
/// One sentence: why there is no answer.
pub fn run(command: &TxnCommand, now_ms: i64, out: &mut dyn Write) -> Result<(), String> {
    match command {
        TxnCommand::List { bootstrap } => {
            let mut cluster = Cluster::connect(bootstrap)?;
            let mut found = transactions(&mut cluster, &[])?;
            found.sort_by(|left, right| left.1.transactional_id.cmp(&right.1.transactional_id));
            for (node, state) in &found {
                line(out, &listed(*node, state, now_ms))?;
            }
            line(out, &format!("{} transactional ids", found.len()))
        }
        TxnCommand::Explain { place, bootstrap } => {
            let (topic, only) = parse_place(place);
            let mut cluster = Cluster::connect(bootstrap)?;
            let described = cluster.describe_topic(topic)?;
            let described = described.topics.first().filter(|topic| topic.error_code == 0);
            let described = described.ok_or_else(|| format!("there is no topic {topic}"))?;
            let mut partitions: Vec<(i32, i32)> = described
                .partitions
                .iter()
                .map(|partition| (partition.partition_index, partition.leader_id.0))
                .filter(|(index, _)| only.is_none_or(|only| only == *index))
                .collect();
            if partitions.is_empty() {
                return Err(format!("there is no partition {place}"));
            }
            partitions.sort_unstable();
            for (partition, leader) in partitions {
                let place = Place { topic, partition, leader };
                for text in explain(&mut cluster, &place, now_ms)? {
                    line(out, &text)?;
                }
            }
            Ok(())
        }
    }
}

fn line(out: &mut dyn Write, text: &str) -> Result<(), String> {
    writeln!(out, "{text}").map_err(|error| error.to_string())
}

/// `TOPIC` or `TOPIC:PARTITION`; a topic's name has no colon.
fn parse_place(place: &str) -> (&str, Option<i32>) {
    match place.rsplit_once(':') {
        Some((topic, number)) => match number.parse() {
            Ok(number) => (topic, Some(number)),
            Err(_) => (place, None),
        },
        None => (place, None),
    }
}

/// A partition and the node that leads it.
struct Place<'a> {
    topic: &'a str,
    partition: i32,
    leader: i32,
}

/// The transactional ids with one of these producers, or all, and the nodes that coordinate them.
fn transactions(
    cluster: &mut Cluster,
    producers: &[i64],
) -> Result<Vec<(i32, TransactionState)>, String> {
    let mut found = Vec::new();
    for node in cluster.nodes() {
        let filter = producers.iter().map(|id| ProducerId(*id)).collect();
        let request = ListTransactionsRequest::default().with_producer_id_filters(filter);
        let listed = cluster.call(node, 0, &request)?;
        if listed.error_code != 0 {
            return Err(format!("node {node} answers ListTransactions with {}", listed.error_code));
        }
        let ids: Vec<_> =
            listed.transaction_states.into_iter().map(|state| state.transactional_id).collect();
        if ids.is_empty() {
            continue;
        }
        let request = DescribeTransactionsRequest::default().with_transactional_ids(ids);
        let described = cluster.call(node, 0, &request)?.transaction_states;
        // One that has expired meanwhile is none.
        let described = described.into_iter().filter(|state| state.error_code == 0);
        found.extend(described.map(|state| (node, state)));
    }
    Ok(found)
}

fn listed(node: i32, state: &TransactionState, now_ms: i64) -> String {
    let mut text = format!(
        "{} {}, producer {} epoch {}, coordinator {node}",
        state.transactional_id.as_str(),
        state.transaction_state.as_str(),
        state.producer_id.0,
        state.producer_epoch
    );
    if state.transaction_start_time_ms >= 0 {
        let open_ms = now_ms - state.transaction_start_time_ms;
        text += &format!(", for {} of {}", span(open_ms), span(timeout_ms(state)));
    }
    let partitions = state.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|index| format!("{}:{index}", topic.topic.as_str()))
    });
    let partitions: Vec<String> = partitions.collect();
    if !partitions.is_empty() {
        text += &format!(", in {}", partitions.join(" "));
    }
    text
}

/// Why readers of committed records do not get everything of a partition.
fn explain(cluster: &mut Cluster, place: &Place<'_>, now_ms: i64) -> Result<Vec<String>, String> {
    let name = format!("{}:{}", place.topic, place.partition);
    let stable = end_offset(cluster, place, READ_COMMITTED)?;
    let end = end_offset(cluster, place, READ_UNCOMMITTED)?;
    if stable >= end {
        return Ok(vec![format!("{name}: nothing is held back, all up to {end} is readable")]);
    }
    let mut lines = vec![format!(
        "{name}: readers of committed records stop at offset {stable}, {} before the end at {end}",
        end - stable
    )];
    let holders: Vec<ProducerState> = open_producers(cluster, place)?
        .into_iter()
        .filter(|producer| (0..=stable).contains(&producer.current_txn_start_offset))
        .collect();
    if holders.is_empty() {
        lines.push("  no open transaction is in the way any more: ask again".to_owned());
    }
    for holder in holders {
        let known = transactions(cluster, &[holder.producer_id.0])?;
        let owning = known.into_iter().find(|(_, state)| state.transaction_start_time_ms >= 0);
        let owning = owning.map(|(_, state)| state);
        let bootstrap = cluster.bootstrap().to_owned();
        lines.extend(reasons(place, &bootstrap, &holder, owning.as_ref(), now_ms));
    }
    Ok(lines)
}

/// What is known of the transaction that holds a partition back, and how to end it.
fn reasons(
    place: &Place<'_>,
    bootstrap: &str,
    holder: &ProducerState,
    owning: Option<&TransactionState>,
    now_ms: i64,
) -> Vec<String> {
    let mut lines = vec![format!(
        "  held by producer {} epoch {}, whose transaction began here at offset {}; its last batch \
         is of {} ({} ago)",
        holder.producer_id.0,
        holder.producer_epoch,
        holder.current_txn_start_offset,
        utc(holder.last_timestamp),
        span(now_ms - holder.last_timestamp)
    )];
    let tool = format!("kafka-transactions.sh --bootstrap-server {bootstrap}");
    match owning {
        Some(state) => {
            let start_ms = state.transaction_start_time_ms;
            let id = state.transactional_id.as_str();
            lines.push(format!(
                "  transactional id {id}, state {}, open since {} ({})",
                state.transaction_state.as_str(),
                utc(start_ms),
                span(now_ms - start_ms)
            ));
            lines.push(ending(state, now_ms));
            lines.push(format!(
                "  to end it now: {tool} forceTerminateTransaction --transactional-id {id}"
            ));
        }
        None => {
            lines.push(
                "  no coordinator knows a transaction of this producer: it will not end by itself"
                    .to_owned(),
            );
            lines.push(format!(
                "  to end it now: {tool} abort --topic {} --partition {} --start-offset {}",
                place.topic, place.partition, holder.current_txn_start_offset
            ));
        }
    }
    lines
}

/// When a transaction ends by itself.
fn ending(state: &TransactionState, now_ms: i64) -> String {
    if state.transaction_state.as_str() != "Ongoing" {
        return "  it is decided: its markers are still to be written".to_owned();
    }
    if state.transaction_timeout_ms == i32::MAX {
        return "  it has no timeout: it waits for its producer".to_owned();
    }
    let due_ms = state.transaction_start_time_ms + timeout_ms(state);
    match due_ms - now_ms {
        left @ 1.. => format!(
            "  its timeout of {} ends it at {} (in {})",
            span(timeout_ms(state)),
            utc(due_ms),
            span(left)
        ),
        _ => format!("  its timeout of {} has passed: it is due", span(timeout_ms(state))),
    }
}

fn timeout_ms(state: &TransactionState) -> i64 {
    i64::from(state.transaction_timeout_ms)
}

fn end_offset(cluster: &mut Cluster, place: &Place<'_>, isolation: i8) -> Result<i64, String> {
    let asked = ListOffsetsPartition::default()
        .with_partition_index(place.partition)
        .with_timestamp(LATEST);
    let topic =
        ListOffsetsTopic::default().with_name(wire_name(place.topic)).with_partitions(vec![asked]);
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation)
        .with_topics(vec![topic]);
    let response = cluster.call(place.leader, 2, &request)?;
    match response.topics.first().and_then(|topic| topic.partitions.first()) {
        Some(found) if found.error_code == 0 => Ok(found.offset),
        Some(found) => Err(format!("ListOffsets is answered with {}", found.error_code)),
        None => Err("ListOffsets is answered with nothing".to_owned()),
    }
}

fn open_producers(cluster: &mut Cluster, place: &Place<'_>) -> Result<Vec<ProducerState>, String> {
    let topic = TopicRequest::default()
        .with_name(wire_name(place.topic))
        .with_partition_indexes(vec![place.partition]);
    let request = DescribeProducersRequest::default().with_topics(vec![topic]);
    let mut response = cluster.call(place.leader, 0, &request)?;
    let partition = response.topics.pop().and_then(|mut topic| topic.partitions.pop());
    match partition {
        Some(found) if found.error_code == 0 => Ok(found.active_producers),
        Some(found) => Err(format!("DescribeProducers is answered with {}", found.error_code)),
        None => Err("DescribeProducers is answered with nothing".to_owned()),
    }
}

fn wire_name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// A length of time in its two largest units.
fn span(milliseconds: i64) -> String {
    let seconds = milliseconds.max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A time in UTC, to the second.
fn utc(milliseconds: i64) -> String {
    let seconds = milliseconds.div_euclid(1000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 1 March of year 0, in eras of 400 years, so that a leap day ends its year.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second % 3_600 / 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

const READ_UNCOMMITTED: i8 = 0;
const READ_COMMITTED: i8 = 1;
const LATEST: i64 = -1;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::TransactionalId;
    use kafka_protocol::messages::describe_transactions_response::TopicData;

    use super::*;

    #[test]
    fn a_place_is_a_topic_or_a_partition_of_it() {
        assert_eq!(parse_place("orders"), ("orders", None));
        assert_eq!(parse_place("orders:3"), ("orders", Some(3)));
        assert_eq!(parse_place("orders:x"), ("orders:x", None));
    }

    #[test]
    fn times_are_written_for_people() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_709_251_199_999), "2024-02-29 23:59:59 UTC");
        assert_eq!(utc(1_709_251_200_000), "2024-03-01 00:00:00 UTC");
        assert_eq!(utc(1_735_689_599_000), "2024-12-31 23:59:59 UTC");
        assert_eq!(utc(-1_000), "1969-12-31 23:59:59 UTC");
        let texts: Vec<String> =
            [0, 59_999, 60_000, 3_599_000, 3_600_000, 90_000_000].map(span).into();
        assert_eq!(texts, ["0s", "59s", "1m 0s", "59m 59s", "1h 0m", "1d 1h"]);
        assert_eq!(span(-5), "0s");
    }

    fn state(name: &'static str, start_ms: i64, timeout_ms: i32) -> TransactionState {
        let topic =
            TopicData::default().with_topic(wire_name("orders")).with_partitions(vec![0, 2]);
        TransactionState::default()
            .with_transactional_id(TransactionalId(StrBytes::from_static_str("billing-1")))
            .with_transaction_state(StrBytes::from_static_str(name))
            .with_producer_id(ProducerId(7))
            .with_producer_epoch(3)
            .with_transaction_start_time_ms(start_ms)
            .with_transaction_timeout_ms(timeout_ms)
            .with_topics(vec![topic])
    }

    #[test]
    fn a_line_per_transactional_id() {
        assert_eq!(
            listed(1, &state("Ongoing", 1_000, 60_000), 6_500),
            "billing-1 Ongoing, producer 7 epoch 3, coordinator 1, for 5s of 1m 0s, in orders:0 \
             orders:2"
        );
        let mut empty = state("Empty", -1, 60_000);
        empty.topics.clear();
        let expected = "billing-1 Empty, producer 7 epoch 3, coordinator 0";
        assert_eq!(listed(0, &empty, 6_500), expected);
    }

    #[test]
    fn the_reason_names_who_since_when_until_when_and_what_to_do() {
        let place = Place { topic: "orders", partition: 2, leader: 1 };
        let holder = ProducerState::default()
            .with_producer_id(ProducerId(7))
            .with_producer_epoch(3)
            .with_last_timestamp(4_000)
            .with_current_txn_start_offset(120);
        let known = state("Ongoing", 1_000, 60_000);
        let lines = reasons(&place, "localhost:9092", &holder, Some(&known), 6_500);
        assert_eq!(
            lines,
            [
                "  held by producer 7 epoch 3, whose transaction began here at offset 120; its \
                 last batch is of 1970-01-01 00:00:04 UTC (2s ago)",
                "  transactional id billing-1, state Ongoing, open since 1970-01-01 00:00:01 UTC \
                 (5s)",
                "  its timeout of 1m 0s ends it at 1970-01-01 00:01:01 UTC (in 54s)",
                "  to end it now: kafka-transactions.sh --bootstrap-server localhost:9092 \
                 forceTerminateTransaction --transactional-id billing-1",
            ]
        );
        let lines = reasons(&place, "localhost:9092", &holder, None, 6_500);
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains("will not end by itself"));
        assert!(lines[2].ends_with("abort --topic orders --partition 2 --start-offset 120"));
    }

    #[test]
    fn every_way_to_end_is_told() {
        let ending = |name, timeout_ms| ending(&state(name, 1_000, timeout_ms), 61_000);
        assert_eq!(ending("Ongoing", 60_000), "  its timeout of 1m 0s has passed: it is due");
        let decided = "  it is decided: its markers are still to be written";
        assert_eq!(ending("PrepareCommit", 60_000), decided);
        assert!(ending("Ongoing", i32::MAX).contains("no timeout"));
    }
}
