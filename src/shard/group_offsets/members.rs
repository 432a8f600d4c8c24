//! Requests of members of groups: from the connection to the rules and back.
//!
//! Owns the tickets of a partition: who waits for which answer. A request takes the partition's
//! turn, is done by the rules, its records are appended and applied in that turn, and the answers
//! that come of it, its own or those of others, are given out with the journal position that they
//! wait for. An answer may come much later; whoever goes away meanwhile is forgotten here, though
//! not by the group, which learns that somebody is gone by his silence only, as in Kafka. Must
//! never leave a ticket unanswered when the partition goes or the shard stops.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use super::{Kept, consumers, find, newest_of, place_of, wait_durable, write};
use crate::api::list_offsets::is_served;
use crate::coordinator::group::classic::Rules;
use crate::coordinator::group::classic::join::Join;
use crate::coordinator::group::classic::members::{Heartbeat, Leave, Sync};
use crate::coordinator::group::consumer;
use crate::coordinator::group::outcome::{Answer, Now, Outcome, Ticket};
use crate::error_code::ErrorCode;
use crate::ids::{JournalSequence, ShardId};
use crate::io::mailbox::Lane;
use crate::metrics::stages::Stage;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::event::Slot;
use crate::shard::message::{Message, Operation, Reply};
use crate::shard::partition::Waiter;

/// What a member of a group may ask.
#[derive(Clone, Debug)]
pub enum MemberRequest {
    /// To join.
    Join(Box<Join>),
    /// What it is assigned.
    Sync(Box<Sync>),
    /// To go on.
    Heartbeat(Heartbeat),
    /// To leave.
    Leave(Leave),
    /// To join, to go on, or to leave a consumer group.
    Consumer(Box<consumer::Heartbeat>),
}

impl MemberRequest {
    fn group(&self) -> &Arc<str> {
        match self {
            MemberRequest::Join(join) => &join.group,
            MemberRequest::Sync(sync) => &sync.group,
            MemberRequest::Heartbeat(beat) => &beat.group,
            MemberRequest::Leave(leave) => &leave.group,
            MemberRequest::Consumer(beat) => &beat.group,
        }
    }
}

/// What a ticket gets: an answer and when it may leave, or why there is none.
type Given = Result<(Answer, JournalSequence), ErrorCode>;

/// The tickets of a partition that are not answered yet.
#[derive(Default)]
pub(super) struct Tickets {
    waiting: RefCell<HashMap<Ticket, Rc<Slot<Given>>, foldhash::fast::RandomState>>,
    next: std::cell::Cell<u64>,
}

impl Tickets {
    fn give(&self, ticket: Ticket, given: Given) {
        if let Some(slot) = self.waiting.borrow_mut().remove(&ticket) {
            slot.fill(given);
        }
    }

    /// Everybody is told that there will be no answer.
    pub fn refuse_all(&self, code: ErrorCode) {
        for (_, slot) in self.waiting.borrow_mut().drain() {
            slot.fill(Err(code));
        }
    }
}

/// A ticket that somebody holds; forgotten when he lets it go.
pub(super) struct Held<'a> {
    tickets: &'a Tickets,
    ticket: Ticket,
    slot: Rc<Slot<Given>>,
}

impl<'a> Held<'a> {
    pub fn of(tickets: &'a Tickets) -> Held<'a> {
        let ticket = Ticket(tickets.next.get());
        tickets.next.set(ticket.0 + 1);
        let slot = Slot::new();
        tickets.waiting.borrow_mut().insert(ticket, Rc::clone(&slot));
        Held { tickets, ticket, slot }
    }

    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Waits for the answer, and until it may leave.
    pub async fn answered(&self, shard: &Shard) -> Result<Answer, ErrorCode> {
        let given = async { self.slot.take().await };
        let stopped = async {
            shard.stopped().await;
            Err(ErrorCode::NotCoordinator)
        };
        let (answer, durable_at) = futures_lite::future::or(given, stopped).await?;
        wait_durable(shard, durable_at).await?;
        Ok(answer)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.tickets.waiting.borrow_mut().remove(&self.ticket);
    }
}

/// A request of another shard, by its number there.
type Call = (ShardId, u64);

/// Requests of other shards whose clients may go away.
#[derive(Default)]
pub(super) struct Remote {
    waiters: RefCell<HashMap<Call, Rc<Slot<()>>, foldhash::fast::RandomState>>,
}

/// Has a member's request done where the group is kept; `None` if the client is gone.
///
/// # Errors
/// 16 for a group of another node, and what its coordinator says for all of the request.
pub async fn ask(
    shard: &Rc<Shard>,
    connection: &Rc<Connection>,
    request: MemberRequest,
) -> Option<Result<Answer, ErrorCode>> {
    let owner = match place_of(shard, request.group()) {
        Ok((_, owner)) if is_served(shard, owner) => owner,
        Ok(_) => return Some(Err(ErrorCode::NotCoordinator)),
        Err(code) => return Some(Err(code)),
    };
    // Members wait for one another here: that is no slowness of the broker's.
    let parks = matches!(request, MemberRequest::Join(_) | MemberRequest::Sync(_));
    let asked = ask_owner(shard, connection, owner, request);
    if parks { shard.spend(Stage::Park, asked).await } else { asked.await }
}

async fn ask_owner(
    shard: &Rc<Shard>,
    connection: &Rc<Connection>,
    owner: ShardId,
    request: MemberRequest,
) -> Option<Result<Answer, ErrorCode>> {
    let waiter = Waiter::new();
    let gone = async {
        connection.park(&waiter);
        while !connection.is_closed() {
            waiter.fired().await;
        }
    };
    if owner == shard.id {
        let answered = async { Some(perform(shard, request).await) };
        return futures_lite::future::or(answered, none_after(gone)).await;
    }
    let (number, slot) = shard.links.call_numbered(owner, Operation::Member(request));
    let answered = async { Some(slot.take().await) };
    match futures_lite::future::or(answered, none_after(gone)).await {
        Some(Reply::Member(outcome)) => Some(*outcome),
        Some(_) => Some(Err(ErrorCode::UnknownServerError)),
        None => {
            shard.links.tell(owner, Message::Revoke { number });
            None
        }
    }
}

async fn none_after<T>(gone: impl Future<Output = ()>) -> Option<T> {
    gone.await;
    None
}

/// Takes in a request of another shard.
pub fn take_in(shard: &Rc<Shard>, from: ShardId, number: u64, lane: Lane, request: MemberRequest) {
    let revoked = Slot::new();
    let remote = &shard.group_offsets.remote;
    remote.waiters.borrow_mut().insert((from, number), Rc::clone(&revoked));
    let shard = Rc::clone(shard);
    let runtime = Rc::clone(&shard.runtime);
    runtime.spawn(Box::pin(async move {
        let gone = async {
            revoked.take().await;
            Err(ErrorCode::RequestTimedOut)
        };
        let outcome = futures_lite::future::or(perform(&shard, request), gone).await;
        shard.group_offsets.remote.waiters.borrow_mut().remove(&(from, number));
        shard.links.reply(from, number, lane, Reply::Member(Box::new(outcome)));
    }));
}

/// Another shard no longer wants the answer to its request.
pub fn revoke(shard: &Shard, from: ShardId, number: u64) {
    if let Some(revoked) = shard.group_offsets.remote.waiters.borrow().get(&(from, number)) {
        revoked.fill(());
    }
}

/// Does a member's request on this shard, and waits for its answer.
///
/// # Errors
/// What the coordinator says for all of the request.
pub async fn perform(shard: &Rc<Shard>, request: MemberRequest) -> Result<Answer, ErrorCode> {
    if let MemberRequest::Consumer(beat) = request {
        return consumers::heartbeat(shard, beat).await;
    }
    let kept = find(shard, request.group())?;
    let MemberRequest::Heartbeat(beat) = &request else {
        return perform_with_ticket(shard, &kept, request).await;
    };
    let mut timers = Vec::new();
    let turn = kept.turn().await;
    let code = kept.with_mut(|groups| groups.heartbeat(beat, now(shard), &mut timers))?;
    shard.group_offsets.timers.set_all(kept.id.partition, &beat.group, timers);
    drop(turn);
    wait_durable(shard, newest_of(shard, kept.id)).await?;
    Ok(Answer::Heartbeat(code))
}

async fn perform_with_ticket(
    shard: &Rc<Shard>,
    kept: &Rc<Kept>,
    request: MemberRequest,
) -> Result<Answer, ErrorCode> {
    let held = Held::of(&kept.tickets);
    // What is planned is appended to its end, also when the client goes away meanwhile.
    let (doing, ticket) = (Rc::clone(shard), held.ticket);
    let planning = Rc::clone(kept);
    shard.runtime.spawn(Box::pin(async move {
        let turn = planning.turn().await;
        let rules = rules(&doing);
        let group = Arc::clone(request.group());
        let outcome = consumers::with_rules(&doing, &group, |consumers| {
            planning.with_mut(|groups| match request {
                MemberRequest::Join(join) => groups.join(*join, ticket, &rules, consumers),
                MemberRequest::Sync(sync) => groups.sync(&sync, ticket, &rules, consumers),
                MemberRequest::Leave(leave) => groups.leave(&leave, ticket, &rules, consumers),
                MemberRequest::Heartbeat(_) | MemberRequest::Consumer(_) => Outcome::default(),
            })
        });
        match outcome {
            Ok(outcome) => {
                carry_out(&doing, &planning, &group, outcome).await;
            }
            Err(code) => planning.tickets.give(ticket, Err(code)),
        }
        drop(turn);
    }));
    held.answered(shard).await
}

/// Does what an operation came to; the turn is the caller's. Says whether it could be written.
pub(super) async fn carry_out(
    shard: &Rc<Shard>,
    kept: &Rc<Kept>,
    group: &Arc<str>,
    outcome: Outcome,
) -> bool {
    let Outcome { records, mut answers, timers, conversion } = outcome;
    shard.group_offsets.timers.set_all(kept.id.partition, group, timers);
    let written = write(shard, kept, records, None).await;
    let durable_at = newest_of(shard, kept.id);
    let Err(code) = written else {
        let convert = |conversion| kept.with_mut(|groups| groups.convert(group, conversion));
        if let Some(Ok((more, timers))) = conversion.map(|conversion| convert(*conversion)) {
            answers.extend(more);
            shard.group_offsets.timers.set_all(kept.id.partition, group, timers);
        }
        for (ticket, answer) in answers {
            kept.tickets.give(ticket, Ok((answer, durable_at)));
        }
        return true;
    };
    tracing::warn!(shard = %shard.id, %group, ?code, "the state of a group could not be written");
    for (ticket, answer) in answers {
        kept.tickets.give(ticket, Ok((answer.not_written(code), durable_at)));
    }
    let sessions = consumers::session_rules(shard, group);
    let taken_back = kept.with_mut(|groups| {
        let mut outcome = groups.not_written(group, code, &rules(shard), now(shard));
        outcome.timers.extend(groups.consumers_not_written(group, &sessions));
        outcome
    });
    let Ok(Outcome { answers, timers, .. }) = taken_back else { return false };
    shard.group_offsets.timers.set_all(kept.id.partition, group, timers);
    for (ticket, answer) in answers {
        kept.tickets.give(ticket, Ok((answer, durable_at)));
    }
    false
}

/// Both clocks.
pub(super) fn now(shard: &Shard) -> Now {
    let ms = i64::try_from(shard.runtime.now().0 / 1_000_000).unwrap_or(i64::MAX);
    Now { ms, wall_ms: shard.runtime.wall_ms() }
}

/// What the configuration says of classic groups.
pub(super) fn rules(shard: &Shard) -> Rules {
    let image = shard.catalog();
    let config = image.broker();
    Rules {
        session_ms_min: config.group_min_session_timeout_ms,
        session_ms_max: config.group_max_session_timeout_ms,
        initial_delay_ms: i64::from(config.group_initial_rebalance_delay_ms),
        members_max: usize::try_from(config.group_max_size).unwrap_or(usize::MAX),
    }
}
