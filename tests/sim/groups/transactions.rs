//! Offsets that are committed in transactions, by members and by hand.
//!
//! Owns a whole transaction: its producer, the offset in it, its end. A member says who it is, and
//! in which generation or epoch, so that what holds for its other commits holds for these.

use kafka_protocol::messages::InitProducerIdRequest;
use ringlog::metadata::image::TRANSACTION_STATE;

use super::member::{Client, Credentials, PATIENCE_MS, Sense, sense};
use crate::support::offsets::text;
use crate::support::requests::Topic;
use crate::support::transactions::{Identity, end_txn, transactional_id, txn_offset_commit};

impl Client {
    /// A transaction that commits the offset of one partition, or does not. What was said of whoever
    /// commits: a refusal is of him, and not of his transaction.
    pub async fn commit_in_transaction(
        &mut self,
        by: &Credentials,
        topic: &Topic,
        partition: i32,
    ) -> Sense {
        let id = format!("txn of {}", self.name);
        let Some(producer) = self.init(&id).await else { return Sense::Unknown };
        let key = (self.group.clone(), topic.name.clone(), partition);
        let (no, value) = self.around.oracle.borrow_mut().offsets.committing(key, true);
        let offsets = [(partition, value)];
        let mut request = txn_offset_commit(&id, producer, &self.group, &topic.name, &offsets);
        request.member_id = text(&by.who.member_id);
        request.generation_id = by.epoch;
        request.group_instance_id = by.who.instance.as_deref().map(text);
        self.say(|| format!("commits {value} in {partition} in {producer:?} as {by:?}"));
        let mut said = Sense::Unknown;
        let mut is_under_way = false;
        for _ in 0..4 {
            let answer = self.ask(5, &request).await;
            is_under_way |= answer.is_none() || self.caller.copied;
            let Some(answer) = answer else { continue };
            let code = answer.topics[0].partitions[0].error_code;
            self.say(|| format!("{value} is answered {code}"));
            said = sense(code);
            match said {
                Sense::Unknown => self.caller.pause(20).await,
                Sense::Good | Sense::Refused(_) => break,
            }
        }
        let taken = said == Sense::Good;
        if taken && !is_under_way {
            self.around.oracle.borrow_mut().offsets.taken(no);
        }
        if self.caller.random.chance(1, 3) {
            self.caller.pause(60).await;
        }
        let commits = taken && self.caller.random.chance(3, 4);
        match self.end(&id, producer, commits).await {
            Sense::Good if commits => {
                let mut oracle = self.around.oracle.borrow_mut();
                oracle.counts.in_transactions += 1;
                oracle.counts.in_transactions_of_members += u64::from(by.epoch >= 0);
                oracle.offsets.acked(no);
            }
            // Nobody has asked to commit it, or will.
            _ if !commits => self.around.oracle.borrow_mut().offsets.refused(no),
            _ => {}
        }
        match said {
            Sense::Refused(code) if !OF_MEMBERS.contains(&code) => Sense::Unknown,
            said => said,
        }
    }

    async fn init(&mut self, id: &str) -> Option<Identity> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(transactional_id(id)))
            .with_transaction_timeout_ms(TRANSACTION_MS);
        let answer = self.ask_coordinator(5, id, &request).await?;
        let identity = Identity { id: answer.producer_id.0, epoch: answer.producer_epoch };
        (answer.error_code == 0).then_some(identity)
    }

    /// Ends a transaction; it asks until it knows, though not for ever.
    async fn end(&mut self, id: &str, producer: Identity, commit: bool) -> Sense {
        for _ in 0..6 {
            let request = end_txn(id, producer, commit);
            let answer = self.ask_coordinator(5, id, &request).await;
            match answer.map(|answer| sense(answer.error_code)) {
                None | Some(Sense::Unknown) => self.caller.pause(20).await,
                Some(known) => return known,
            }
        }
        Sense::Unknown
    }

    async fn ask_coordinator<R: kafka_protocol::protocol::Request>(
        &mut self,
        version: i16,
        id: &str,
        request: &R,
    ) -> Option<R::Response> {
        self.caller.aim_at_keeper(TRANSACTION_STATE, id);
        self.caller.ask(version, request, PATIENCE_MS).await
    }
}

/// How long a transaction may stay open.
pub const TRANSACTION_MS: i32 = 300;

/// Illegal generation, unknown member, fenced instance: what is said of a member.
const OF_MEMBERS: [i16; 3] = [22, 25, 82];
