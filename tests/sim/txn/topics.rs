//! A topic that is deleted while transactions are open in it, and created again, often as one that
//! keeps nothing.
//!
//! Owns nothing but the wish: what becomes of records there is nobody's promise. Transactions that
//! wrote to it must end all the same, and nothing may be left open in the topic that takes its
//! name.

use kafka_protocol::messages::create_topics_request::CreatableTopicConfig;

use super::SPARE;
use super::clients::{PATIENCE_MS, Surroundings};
use crate::caller::Caller;
use crate::support::requests::{create_topic, delete_topic};
use crate::support::transactions::text;

/// Whoever deletes and creates it.
pub struct Admin {
    pub around: Surroundings,
    pub caller: Caller,
}

impl Admin {
    /// Goes on for ever.
    pub async fn run(mut self) {
        loop {
            self.caller.pause(60).await;
            let answer = match self.caller.owner(SPARE, 0) {
                Some(_) if self.caller.random.chance(1, 3) => {
                    let request = delete_topic(SPARE);
                    let answer = self.caller.ask(5, &request, PATIENCE_MS).await;
                    answer.map(|answer| answer.responses[0].error_code)
                }
                Some(_) => continue,
                None => {
                    let mut request = create_topic(SPARE, SPARE_PARTITIONS);
                    if self.caller.random.chance(2, 3) {
                        request.topics[0].configs = forgetful();
                    }
                    let answer = self.caller.ask(5, &request, PATIENCE_MS).await;
                    answer.map(|answer| answer.topics[0].error_code)
                }
            };
            let mut oracle = self.around.oracle.borrow_mut();
            oracle.trace.say(format!("{SPARE} is deleted or created: {answer:?}"));
            oracle.counts.deletions += u64::from(answer == Some(0));
        }
    }
}

/// Settings by which retention takes records at once, whatever is open among them.
fn forgetful() -> Vec<CreatableTopicConfig> {
    let settings = [("retention.ms", "1"), ("segment.ms", "1")];
    let config = |(name, value)| {
        CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
    };
    settings.map(config).into()
}

/// Its partitions.
pub const SPARE_PARTITIONS: i32 = 2;
