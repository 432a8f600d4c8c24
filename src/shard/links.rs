//! A shard's requests to others and theirs to it.
//!
//! Owns the slots of replies under way and the loop that takes messages in. Must never wait for
//! room while sending: what does not fit stays in the mailbox's outbox, and only admission asks
//! for credit. Invariant: every request gets exactly one reply, also when the work failed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use hashbrown::HashMap;

use super::event::Slot;
use super::message::{Message, Operation, Reply};
use super::{
    Shard, append, catalog, cleaner, connection, group_offsets, log_start, markers, offsets, read,
    scrape, transactions, watch,
};
use crate::ids::ShardId;
use crate::io::mailbox::{Envelope, Lane, Load, Mailbox, OutsideSender};
use crate::limits::MESSAGES_PER_TURN_MAX;
use crate::metrics::Limit;

/// One shard's end of the mesh, with the replies it waits for.
pub struct Links {
    mailbox: Mailbox<Message>,
    slots: RefCell<HashMap<u64, Rc<Slot<Reply>>, foldhash::fast::RandomState>>,
    next_number: Cell<u64>,
    /// Parked fetches, here and for other shards.
    pub watches: watch::Watches,
    /// Appends of other shards, in the order they came.
    pub appends: append::AppendQueues,
}

impl Links {
    /// Links over a mailbox.
    #[must_use]
    pub fn new(mailbox: Mailbox<Message>) -> Links {
        let shards = mailbox.shards();
        Links {
            mailbox,
            slots: RefCell::default(),
            next_number: Cell::new(1),
            watches: watch::Watches::default(),
            appends: append::AppendQueues::new(shards),
        }
    }

    /// Sends a request; the slot gets the reply.
    pub fn call(&self, to: ShardId, operation: Operation) -> Rc<Slot<Reply>> {
        self.call_numbered(to, operation).1
    }

    /// The same, with the number under which it may be revoked.
    pub fn call_numbered(&self, to: ShardId, operation: Operation) -> (u64, Rc<Slot<Reply>>) {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        let slot = Slot::new();
        self.slots.borrow_mut().insert(number, Rc::clone(&slot));
        let lane = lane_of(&operation);
        self.mailbox.send(to, lane, Message::Request { number, operation });
        (number, slot)
    }

    /// Sends a message that has no reply.
    pub fn tell(&self, to: ShardId, message: Message) {
        self.mailbox.send(to, Lane::Control, message);
    }

    /// A handle for threads that are no shards.
    #[must_use]
    pub fn outside_sender(&self) -> OutsideSender<Message> {
        self.mailbox.outside_sender()
    }

    /// What the mailbox has to carry, and where it met a bound.
    #[must_use]
    pub fn load(&self) -> Load {
        self.mailbox.load()
    }

    /// Waits until requests may be admitted again.
    pub async fn ready_for_admission(&self) {
        self.mailbox.ready_for_admission().await;
    }

    /// Answers a request of another shard.
    pub fn reply(&self, to: ShardId, number: u64, lane: Lane, reply: Reply) {
        let lane = match lane {
            Lane::Request => Lane::Reply,
            Lane::Reply | Lane::Control => Lane::Control,
        };
        self.mailbox.send(to, lane, Message::Reply { number, reply });
    }
}

impl Shard {
    /// Has `operation` done by its shard, this one or another.
    pub async fn ask(self: &Rc<Self>, shard: ShardId, operation: Operation) -> Reply {
        if shard == self.id {
            perform(self, operation).await
        } else {
            self.links.call(shard, operation).take().await
        }
    }

    /// Does `operation` on this shard.
    pub async fn perform_here(self: &Rc<Self>, operation: Operation) -> Reply {
        perform(self, operation).await
    }
}

/// Starts the loop that takes messages in.
pub fn start(shard: &Rc<Shard>) {
    append::start_queues(shard);
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        let mut messages = Vec::new();
        loop {
            match shard.links.mailbox.receive(&mut messages, MESSAGES_PER_TURN_MAX) {
                0 => {
                    shard.links.mailbox.wait().await;
                    continue;
                }
                MESSAGES_PER_TURN_MAX => shard.metrics.limit_reached(Limit::MessagesPerTurn),
                _ => {}
            }
            for envelope in messages.drain(..) {
                take_in(&shard, envelope);
            }
            shard.runtime.yield_now().await;
        }
    }));
}

fn take_in(shard: &Rc<Shard>, envelope: Envelope<Message>) {
    let Envelope { from, lane, message } = envelope;
    match message {
        Message::Reply { number, reply } => {
            if let Some(slot) = shard.links.slots.borrow_mut().remove(&number) {
                slot.fill(reply);
            }
        }
        Message::Wake { fetch } => shard.links.watches.wake(fetch),
        Message::Stop => shard.begin_stop(),
        Message::Connection { accepted, place } => match accepted.into_stream() {
            Ok(stream) => connection::spawn(shard, Rc::new(stream), place),
            Err(error) => tracing::debug!("a connection was lost on its way: {error}"),
        },
        Message::Revoke { number } => {
            transactions::revoke(shard, from, number);
            group_offsets::members::revoke(shard, from, number);
        }
        Message::Unwatch { fetch } => shard.links.watches.forget_remote(from, fetch),
        Message::Request { number, operation: Operation::Append(parts) } => {
            shard.links.appends.push(from, number, lane, parts);
        }
        Message::Request { number, operation: Operation::Watch { fetch, parts } } => {
            let moved = watch::watch_for(shard, from, fetch, &parts);
            shard.links.reply(from, number, lane, Reply::Done(moved));
        }
        Message::Request { number, operation: Operation::Transaction(request) } => {
            transactions::take_in(shard, from, number, lane, request);
        }
        Message::Request { number, operation: Operation::Member(request) } => {
            group_offsets::members::take_in(shard, from, number, lane, request);
        }
        Message::Request { number, operation } => {
            let shard = Rc::clone(shard);
            let runtime = Rc::clone(&shard.runtime);
            runtime.spawn(Box::pin(async move {
                let reply = perform(&shard, operation).await;
                shard.links.reply(from, number, lane, reply);
            }));
        }
    }
}

async fn perform(shard: &Rc<Shard>, operation: Operation) -> Reply {
    match operation {
        Operation::Append(parts) => Reply::Appended(append::append_durably(shard, parts).await),
        Operation::Verify(parts) => {
            let verify = |part| append::begin_verification(shard, part);
            Reply::Verified(parts.iter().map(verify).collect())
        }
        Operation::WriteMarkers(parts) => {
            Reply::Markers(markers::write_markers(shard, parts).await)
        }
        Operation::DeleteRecords(parts) => {
            Reply::LogStarts(log_start::delete_records(shard, parts).await)
        }
        Operation::DescribeProducers(ids) => {
            let mut outcomes = Vec::with_capacity(ids.len());
            for id in ids {
                outcomes.push(markers::describe_producers(shard, id).await);
            }
            Reply::Producers(outcomes)
        }
        Operation::Read(parts) => Reply::Read(read::read_parts(shard, &parts).await),
        // A shard watches its own partitions directly; this is never sent to itself.
        Operation::Watch { .. } => Reply::Done(true),
        Operation::ListOffsets(queries) => {
            let mut answers = Vec::with_capacity(queries.len());
            for query in &queries {
                answers.push(offsets::list_offset(shard, query).await);
            }
            Reply::Offsets(answers)
        }
        Operation::EpochEnds(queries) => {
            Reply::EpochEnds(queries.iter().map(|query| offsets::epoch_end(shard, query)).collect())
        }
        Operation::GroupOffsets(request) => {
            Reply::GroupOffsets(Box::pin(group_offsets::perform(shard, *request)).await)
        }
        Operation::Member(request) => {
            let outcome = group_offsets::members::perform(shard, request).await;
            Reply::Member(Box::new(outcome))
        }
        Operation::GroupAdmin(request) => {
            Reply::GroupAdmin(Box::pin(group_offsets::admin::perform(shard, request)).await)
        }
        Operation::Transaction(request) => {
            let caller = transactions::Caller::here(shard, request.patience());
            Reply::Transaction(Box::pin(transactions::perform(shard, &caller, request)).await)
        }
        Operation::LogSizes => Reply::LogSizes(
            shard.all_partitions().iter().map(|partition| partition.log_size()).collect(),
        ),
        Operation::IsSound => Reply::Done(shard.check_sound().is_ok()),
        Operation::Metrics => Reply::Metrics(Box::new(scrape::take(shard).await)),
        Operation::Catalog(change) => {
            Reply::Catalog(Box::pin(catalog::change(shard, change)).await)
        }
        Operation::Publish(image) => {
            shard.take_over(image);
            Reply::Done(true)
        }
        Operation::DropTopic(topic) => Reply::Done(catalog::drop_topic(shard, topic).await),
        Operation::Checkpoint => Reply::Done(shard.checkpoints.request_and_wait().await.is_ok()),
        Operation::CleanerProgress(report) => {
            cleaner::progress::take_in(shard, report).await;
            Reply::Done(true)
        }
    }
}

fn lane_of(operation: &Operation) -> Lane {
    match operation {
        Operation::Append(_)
        | Operation::Verify(_)
        | Operation::DeleteRecords(_)
        | Operation::DescribeProducers(_)
        | Operation::Read(_)
        | Operation::ListOffsets(_)
        | Operation::EpochEnds(_)
        | Operation::GroupOffsets(_)
        | Operation::GroupAdmin(_)
        | Operation::LogSizes => Lane::Request,
        Operation::Watch { .. }
        | Operation::WriteMarkers(_)
        | Operation::Member(_)
        | Operation::Transaction(_)
        | Operation::Metrics
        | Operation::IsSound
        | Operation::Catalog(_)
        | Operation::Publish(_)
        | Operation::DropTopic(_)
        | Operation::CleanerProgress(_)
        | Operation::Checkpoint => Lane::Control,
    }
}
