//! Requests that met a pending transition: held until it has ended, instead of being refused.
//!
//! Owns, for every transactional id that has any, the line of its held requests. When the id's
//! state changes the first of them has its turn: it asks the coordinator again from scratch, and
//! the next follows when its answer is known, so that they are served in the order they came and
//! one change costs one question. A request is held until its deadline, which is set when it
//! arrives; the first that reaches it ends the holding of all of that id, and until its state
//! changes further ones are refused at once. One whose client has gone is dropped, and so is one
//! whose client waits less long than the broker would: that says nothing to the others.
//!
//! A connection has one request held at a time: APIs of transactions do not overlap on it, and
//! the transactions of one AddPartitionsToTxn request are asked for one after the other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use super::hold_deadline;
use crate::error_code::ErrorCode;
use crate::ids::ShardId;
use crate::io::{Monotonic, Runtime};
use crate::limits::TXN_REQUESTS_HELD_MAX;
use crate::metrics::Counter;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::message::{Message, Operation, Patience, Reply, TxnRequest};
use crate::shard::partition::Waiter;

/// Whose request may be held.
pub struct Caller {
    waiter: Rc<Waiter>,
    /// The client's connection, if it is one of this shard.
    connection: Option<Rc<Connection>>,
    /// Another shard has said that its client is gone.
    revoked: Cell<bool>,
    has_turn: Cell<bool>,
    deadline: Deadline,
}

/// When a request is no longer held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Deadline {
    /// The time.
    pub at: Monotonic,
    /// Its client waits no longer; the broker would hold it.
    pub is_own: bool,
}

impl Caller {
    /// The client of a connection of this shard.
    #[must_use]
    pub fn of(shard: &Shard, connection: &Rc<Connection>) -> Rc<Caller> {
        let deadline = hold_deadline(shard, Patience::AsTheBroker);
        Caller::new(deadline, Some(Rc::clone(connection)))
    }

    /// Somebody on this shard who does not go away.
    #[must_use]
    pub fn here(shard: &Shard, patience: Patience) -> Rc<Caller> {
        Caller::new(hold_deadline(shard, patience), None)
    }

    /// Another shard, for a request that it may revoke.
    #[must_use]
    pub(super) fn elsewhere(
        shard: &Shard,
        from: ShardId,
        number: u64,
        patience: Patience,
    ) -> Rc<Caller> {
        let caller = Caller::here(shard, patience);
        let remote = &shard.transactions.holds.remote;
        remote.borrow_mut().insert((from, number), Rc::clone(&caller));
        caller
    }

    fn new(deadline: Deadline, connection: Option<Rc<Connection>>) -> Rc<Caller> {
        Rc::new(Caller {
            waiter: Waiter::new(),
            connection,
            revoked: Cell::new(false),
            has_turn: Cell::new(false),
            deadline,
        })
    }

    /// What it is told when it is not held, or no longer.
    pub(super) fn refusal(&self, now: Monotonic) -> ErrorCode {
        match self.deadline.is_own && self.deadline.at <= now {
            true => ErrorCode::RequestTimedOut,
            false => ErrorCode::ConcurrentTransactions,
        }
    }

    fn is_gone(&self) -> bool {
        self.revoked.get() || self.connection.as_ref().is_some_and(|c| c.is_closed())
    }
}

/// Where in the line a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Before the others: it has been asked already, and they came later.
    First,
    /// Behind the others.
    Last,
}

/// The held requests of a shard.
#[derive(Default)]
pub(super) struct Holds {
    lines: RefCell<HashMap<Arc<str>, Line, foldhash::fast::RandomState>>,
    held: Cell<usize>,
    /// What has become of requests.
    pub counts: HoldCounts,
    remote: RefCell<HashMap<(ShardId, u64), Rc<Caller>, foldhash::fast::RandomState>>,
}

/// What has become of requests that met a pending transition.
#[derive(Default)]
pub(super) struct HoldCounts {
    /// They were held.
    pub held: Counter,
    /// They were held to their deadline.
    pub expired: Counter,
    /// They were refused: too many are held.
    pub refused: Counter,
}

/// The held requests of one id.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Rc<Caller>>,
    /// One has left the line and is asking.
    turn_taken: bool,
    /// One was held to its deadline since the state changed.
    expired: bool,
}

impl Line {
    /// Gives the turn to the first that is still there.
    fn give_turn(&mut self) {
        while let Some(caller) = self.waiting.pop_front() {
            if !caller.is_gone() {
                self.turn_taken = true;
                caller.has_turn.set(true);
                caller.waiter.fire();
                return;
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.turn_taken && !self.expired
    }
}

impl Holds {
    /// How many are held now.
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// Whether others come before a request that has not been asked yet.
    pub fn is_queued(&self, id: &str) -> bool {
        self.lines.borrow().get(id).is_some_and(|line| line.turn_taken || !line.waiting.is_empty())
    }

    /// Holds a request until it has its turn; `false` when it is refused instead.
    pub async fn hold(
        &self,
        runtime: &dyn Runtime,
        id: &Arc<str>,
        caller: &Rc<Caller>,
        place: Place,
    ) -> bool {
        if !self.enqueue(runtime.now(), id, caller, place) {
            return false;
        }
        if let Some(connection) = &caller.connection {
            connection.park(&caller.waiter);
        }
        self.held.set(self.held.get() + 1);
        self.counts.held.add(1);
        let woken = async {
            caller.waiter.fired().await;
            true
        };
        let timer = runtime.sleep_until(caller.deadline.at);
        let too_late = async {
            timer.await;
            false
        };
        let woken = futures_lite::future::or(woken, too_late).await;
        self.held.set(self.held.get() - 1);
        if caller.is_gone() {
            if caller.has_turn.replace(false) {
                self.pass_turn(id);
            }
            self.leave(id, caller);
            return false;
        }
        if !woken && caller.deadline.is_own {
            self.leave(id, caller);
        } else if !woken {
            self.counts.expired.add(1);
            self.expire(id);
        }
        caller.has_turn.replace(false)
    }

    fn enqueue(&self, now: Monotonic, id: &Arc<str>, caller: &Rc<Caller>, place: Place) -> bool {
        let mut lines = self.lines.borrow_mut();
        let line = lines.entry(Arc::clone(id)).or_default();
        if place == Place::First {
            line.turn_taken = false;
        }
        let full = self.held.get() >= TXN_REQUESTS_HELD_MAX;
        self.counts.refused.add(u64::from(full));
        if line.expired || full || caller.deadline.at <= now || caller.is_gone() {
            if line.is_idle() {
                lines.remove(id);
            }
            return false;
        }
        match place {
            Place::First => line.waiting.push_front(Rc::clone(caller)),
            Place::Last => line.waiting.push_back(Rc::clone(caller)),
        }
        true
    }

    /// The id's state has changed: whatever is held may ask again, one after the other.
    pub fn release(&self, id: &str) {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(id) else { return };
        line.expired = false;
        if !line.turn_taken {
            line.give_turn();
        }
        if line.is_idle() {
            lines.remove(id);
        }
    }

    /// A request is answered without having changed anything: the next has its turn.
    pub fn pass_turn(&self, id: &str) {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(id) else { return };
        line.turn_taken = false;
        line.give_turn();
        if line.is_idle() {
            lines.remove(id);
        }
    }

    /// A request has begun a transition: those behind wait for its end.
    pub fn end_turn(&self, id: &str) {
        if let Some(line) = self.lines.borrow_mut().get_mut(id) {
            line.turn_taken = false;
        }
    }

    /// All of them may ask again: a partition has gone.
    pub fn release_all(&self) {
        let mut ids: Vec<Arc<str>> = self.lines.borrow().keys().cloned().collect();
        // What follows must not depend on hashing.
        ids.sort_unstable();
        for id in ids {
            self.release(&id);
        }
    }

    /// A request is no longer held, and nobody else is the worse for it.
    fn leave(&self, id: &str, caller: &Rc<Caller>) {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(id) else { return };
        line.waiting.retain(|other| !Rc::ptr_eq(other, caller));
        if line.is_idle() {
            lines.remove(id);
        }
    }

    /// A request was held to its deadline: so long takes nobody else of this id.
    fn expire(&self, id: &str) {
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.get_mut(id) else { return };
        line.expired = true;
        for caller in line.waiting.drain(..) {
            caller.waiter.fire();
        }
    }

    /// Another shard no longer wants an answer.
    pub fn revoke(&self, from: ShardId, number: u64) {
        if let Some(caller) = self.remote.borrow().get(&(from, number)) {
            caller.revoked.set(true);
            caller.waiter.fire();
        }
    }

    /// The request of another shard is answered.
    pub fn forget_remote(&self, from: ShardId, number: u64) {
        self.remote.borrow_mut().remove(&(from, number));
    }
}

/// Has another shard do a request, and tells it when the client goes away meanwhile.
pub(super) async fn ask(
    shard: &Rc<Shard>,
    caller: &Rc<Caller>,
    owner: ShardId,
    request: TxnRequest,
) -> Reply {
    let (number, slot) = shard.links.call_numbered(owner, Operation::Transaction(request));
    if let Some(connection) = &caller.connection {
        connection.park(&caller.waiter);
        let closed = async {
            while !connection.is_closed() {
                caller.waiter.fired().await;
            }
            None
        };
        let reply = async { Some(slot.take().await) };
        if let Some(reply) = futures_lite::future::or(reply, closed).await {
            return reply;
        }
        shard.links.tell(owner, Message::Revoke { number });
    }
    slot.take().await
}

#[cfg(test)]
mod tests;
