//! Messages between shards.
//!
//! Owns one [`Mailbox`] per shard: a bounded queue that all shards push to, and per receiver an
//! outbox for what did not fit. Sending never waits and never fails. A shard sleeps in
//! [`Mailbox::wait`] and is woken by one coalesced waker, whatever executor it runs on; the
//! simulation uses the same code.
//!
//! Must never drop or reorder: messages of one ordered pair of shards arrive in the order sent.
//! Must never be pumped by two tasks: one task of the shard calls `wait` and `receive`, any may
//! send.
//!
//! Invariants: a shard that is asleep with a message in its queue, or with an outbox that can
//! move, has a wake under way. A request takes one credit until its reply arrives, and only
//! admission asks for credit, so replies and control messages are never held up by it.
//!
//! How no wake is lost: both sides write their half, pass a full fence, and read the other's. The
//! sender pushes, then looks whether the receiver sleeps; the receiver says it sleeps, then looks
//! whether the queue is empty. With a full queue likewise: the sender marks itself stalled, then
//! tries once more; the receiver pops, then looks for marks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crossbeam_channel::{Receiver, Sender, TrySendError};

use super::threads;
use crate::ids::ShardId;
use crate::limits::{MAILBOX_CONTROL_MAX, MAILBOX_MESSAGES_MAX, MAILBOX_REQUESTS_MAX};

/// What a message is to the credit of its pair of shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Takes one of the sender's credits until a reply comes back.
    Request,
    /// Gives the credit of one request back to its receiver.
    Reply,
    /// Markers, transaction steps, catalog changes, wakes: outside the credit of requests.
    Control,
}

/// A message as it arrives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope<M> {
    /// The shard that sent it.
    pub from: ShardId,
    /// The lane it was sent on.
    pub lane: Lane,
    /// The message.
    pub message: M,
}

/// Bounds of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct MeshLimits {
    /// Messages in the queue of one shard.
    pub queue_messages: usize,
    /// Unanswered requests of one shard at which it stops admitting.
    pub requests_max: usize,
}

impl Default for MeshLimits {
    fn default() -> MeshLimits {
        MeshLimits { queue_messages: MAILBOX_MESSAGES_MAX, requests_max: MAILBOX_REQUESTS_MAX }
    }
}

/// What a mailbox has to carry, and where it met a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Messages in the outboxes.
    pub queued: usize,
    /// Requests sent and not answered yet.
    pub requests: usize,
    /// How often the queue of another shard was found full.
    pub stalls: u64,
    /// How often admission has closed.
    pub closings: u64,
}

/// Connected mailboxes for shards `0..shards`, to be moved to their threads. Every shard can
/// send to every shard, itself included.
#[must_use]
pub fn mesh<M: Send>(shards: u16, limits: MeshLimits) -> Vec<Mailbox<M>> {
    let mut inboxes = Vec::new();
    let mut receivers = Vec::new();
    for _ in 0..shards {
        let (sender, receiver) = crossbeam_channel::bounded(limits.queue_messages);
        receivers.push(receiver);
        inboxes.push(Inbox {
            sender,
            bell: Bell::default(),
            stalled: (0..shards).map(|_| AtomicBool::new(false)).collect(),
            any_stalled: AtomicBool::new(false),
        });
    }
    let inboxes: Arc<[Inbox<M>]> = inboxes.into();
    let numbered = receivers.into_iter().zip(0..shards);
    numbered
        .map(|(receiver, shard)| Mailbox {
            shard: ShardId(shard),
            receiver,
            inboxes: Arc::clone(&inboxes),
            requests_max: limits.requests_max,
            state: RefCell::new(State {
                outboxes: (0..shards).map(|_| Outbox::default()).collect(),
                waiting: Vec::new(),
                queued: 0,
                requests: 0,
                closed: false,
                stalls: 0,
                period: 0,
                admission: Vec::new(),
            }),
        })
        .collect()
}

/// One shard's end of the mesh.
pub struct Mailbox<M> {
    shard: ShardId,
    receiver: Receiver<Envelope<M>>,
    inboxes: Arc<[Inbox<M>]>,
    requests_max: usize,
    state: RefCell<State<M>>,
}

/// What belongs to the sending side and to admission.
struct State<M> {
    outboxes: Vec<Outbox<M>>,
    /// Shards whose outbox holds messages.
    waiting: Vec<usize>,
    /// Messages in all outboxes.
    queued: usize,
    /// Requests sent and not answered.
    requests: usize,
    /// Admission is closed, until half of the requests are answered.
    closed: bool,
    /// Counts how often the queue of another shard was found full.
    stalls: u64,
    /// Counts how often admission has closed.
    period: u64,
    admission: Vec<Waker>,
}

struct Outbox<M> {
    messages: VecDeque<Envelope<M>>,
    control: usize,
}

impl<M> Default for Outbox<M> {
    fn default() -> Outbox<M> {
        Outbox { messages: VecDeque::new(), control: 0 }
    }
}

/// The receiving half of a shard, shared by all.
struct Inbox<M> {
    sender: Sender<Envelope<M>>,
    bell: Bell,
    /// Senders that found the queue full and want to be told when it is not.
    stalled: Box<[AtomicBool]>,
    any_stalled: AtomicBool,
}

impl<M: Send> Mailbox<M> {
    /// The shard this end belongs to.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Number of shards in the mesh.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.inboxes.len()
    }

    /// Sends, or puts into the outbox what does not fit; never waits, never fails. What is sent
    /// to a shard that has ended is dropped.
    pub fn send(&self, to: ShardId, lane: Lane, message: M) {
        let peer = usize::from(to.0);
        let envelope = Envelope { from: self.shard, lane, message };
        {
            let mut state = self.state.borrow_mut();
            if lane == Lane::Request {
                state.take_credit(self.requests_max);
            }
            let outbox = &mut state.outboxes[peer];
            if lane == Lane::Control {
                outbox.control += 1;
            }
            outbox.messages.push_back(envelope);
            let first = outbox.messages.len() == 1;
            state.queued += 1;
            if first {
                state.waiting.push(peer);
            } else if self.is_stalled_at(peer) {
                return;
            }
        }
        self.flush(peer);
    }

    /// Appends up to `limit` messages that have arrived to `into`; returns how many. Also pushes
    /// what the outboxes hold.
    pub fn receive(&self, into: &mut Vec<Envelope<M>>, limit: usize) -> usize {
        self.flush_all();
        let mut count = 0;
        let mut replies = 0;
        while count < limit {
            let Ok(envelope) = self.receiver.try_recv() else {
                break;
            };
            replies += usize::from(envelope.lane == Lane::Reply);
            into.push(envelope);
            count += 1;
        }
        if count > 0 {
            self.call_stalled();
        }
        self.give_credit(replies);
        count
    }

    /// Waits until a message has arrived, pushing the outboxes meanwhile.
    pub async fn wait(&self) {
        poll_fn(|context| self.poll_until(context, || !self.receiver.is_empty())).await;
    }

    /// Waits until the outboxes are empty: at the end of a shard, in place of [`Mailbox::wait`].
    pub async fn flushed(&self) {
        poll_fn(|context| self.poll_until(context, || self.queued() == 0)).await;
    }

    /// Waits until this shard may take new work that will send requests.
    pub async fn ready_for_admission(&self) {
        let mut registered: Option<(u64, Waker)> = None;
        poll_fn(|context| self.poll_admission(context, &mut registered)).await;
    }

    /// Whether this shard may take new work that will send requests.
    #[must_use]
    pub fn may_admit(&self) -> bool {
        !self.state.borrow().closed
    }

    /// Whether new control work towards `to` may start; what has to be sent may always be sent.
    #[must_use]
    pub fn has_control_credit(&self, to: ShardId) -> bool {
        self.state.borrow().outboxes[usize::from(to.0)].control < MAILBOX_CONTROL_MAX
    }

    /// Messages in the outboxes: those that did not fit the queues of other shards.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.state.borrow().queued
    }

    /// Requests sent and not answered yet.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.state.borrow().requests
    }

    /// What it has to carry, and where it met a bound.
    #[must_use]
    pub fn load(&self) -> Load {
        let state = self.state.borrow();
        let (stalls, closings) = (state.stalls, state.period);
        Load { queued: state.queued, requests: state.requests, stalls, closings }
    }

    /// A handle for threads that are no shards (signals, scrapes). What it sends arrives as a
    /// control message from this shard itself.
    #[must_use]
    pub fn outside_sender(&self) -> OutsideSender<M> {
        OutsideSender { shard: self.shard, inboxes: Arc::clone(&self.inboxes) }
    }

    fn poll_until(&self, context: &mut Context<'_>, done: impl Fn() -> bool) -> Poll<()> {
        self.flush_all();
        if done() {
            return Poll::Ready(());
        }
        let bell = &self.own().bell;
        bell.arm(context.waker());
        self.flush_all();
        if done() {
            bell.disarm();
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn poll_admission(
        &self,
        context: &mut Context<'_>,
        registered: &mut Option<(u64, Waker)>,
    ) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        if !state.closed {
            return Poll::Ready(());
        }
        let waker = context.waker();
        let known = registered
            .as_ref()
            .is_some_and(|(period, known)| *period == state.period && known.will_wake(waker));
        if !known {
            state.admission.push(waker.clone());
            *registered = Some((state.period, waker.clone()));
        }
        Poll::Pending
    }

    fn own(&self) -> &Inbox<M> {
        &self.inboxes[usize::from(self.shard.0)]
    }

    fn is_stalled_at(&self, peer: usize) -> bool {
        self.inboxes[peer].stalled[usize::from(self.shard.0)].load(Ordering::SeqCst)
    }

    fn flush_all(&self) {
        let mut index = 0;
        loop {
            let Some(&peer) = self.state.borrow().waiting.get(index) else {
                return;
            };
            // A flush that empties an outbox puts another peer at this index.
            if self.is_stalled_at(peer) || !self.flush(peer) {
                index += 1;
            }
        }
    }

    /// Pushes the outbox of `peer`; returns whether it is empty now.
    fn flush(&self, peer: usize) -> bool {
        let inbox = &self.inboxes[peer];
        let mut pushed = false;
        let mut lost_requests = 0;
        let mut marked = false;
        let empty = loop {
            let mut state = self.state.borrow_mut();
            let Some(envelope) = state.pop(peer) else {
                break true;
            };
            match inbox.sender.try_send(envelope) {
                Ok(()) => pushed = true,
                Err(TrySendError::Full(envelope)) => {
                    state.put_back(peer, envelope);
                    if marked {
                        break false;
                    }
                    marked = true;
                    state.stalls += 1;
                    inbox.stalled[usize::from(self.shard.0)].store(true, Ordering::SeqCst);
                    inbox.any_stalled.store(true, Ordering::SeqCst);
                    fence(Ordering::SeqCst);
                }
                Err(TrySendError::Disconnected(envelope)) => {
                    lost_requests += usize::from(envelope.lane == Lane::Request);
                }
            }
        };
        if pushed {
            inbox.bell.ring();
        }
        self.give_credit(lost_requests);
        empty
    }

    /// Tells those that found the queue full that there is room.
    fn call_stalled(&self) {
        fence(Ordering::SeqCst);
        let own = self.own();
        if !own.any_stalled.swap(false, Ordering::SeqCst) {
            return;
        }
        for (stalled, inbox) in own.stalled.iter().zip(self.inboxes.iter()) {
            if stalled.swap(false, Ordering::SeqCst) {
                inbox.bell.ring();
            }
        }
    }

    fn give_credit(&self, replies: usize) {
        if replies == 0 {
            return;
        }
        let woken = {
            let mut state = self.state.borrow_mut();
            debug_assert!(state.requests >= replies, "a reply without a request");
            state.requests = state.requests.saturating_sub(replies);
            if !state.closed || state.requests > self.requests_max / 2 {
                return;
            }
            state.closed = false;
            std::mem::take(&mut state.admission)
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

impl<M> State<M> {
    fn take_credit(&mut self, requests_max: usize) {
        self.requests += 1;
        if self.requests >= requests_max && !self.closed {
            self.closed = true;
            self.period += 1;
        }
    }

    fn pop(&mut self, peer: usize) -> Option<Envelope<M>> {
        let outbox = &mut self.outboxes[peer];
        let Some(envelope) = outbox.messages.pop_front() else {
            self.waiting.retain(|&waiting| waiting != peer);
            return None;
        };
        outbox.control -= usize::from(envelope.lane == Lane::Control);
        self.queued -= 1;
        Some(envelope)
    }

    fn put_back(&mut self, peer: usize, envelope: Envelope<M>) {
        let outbox = &mut self.outboxes[peer];
        outbox.control += usize::from(envelope.lane == Lane::Control);
        outbox.messages.push_front(envelope);
        self.queued += 1;
    }
}

/// Sends to one shard from a thread that is none.
pub struct OutsideSender<M> {
    shard: ShardId,
    inboxes: Arc<[Inbox<M>]>,
}

impl<M> Clone for OutsideSender<M> {
    fn clone(&self) -> OutsideSender<M> {
        OutsideSender { shard: self.shard, inboxes: Arc::clone(&self.inboxes) }
    }
}

impl<M: Send> OutsideSender<M> {
    /// Sends, blocking this thread while the queue is full; false if the shard has ended.
    pub fn send(&self, message: M) -> bool {
        let inbox = &self.inboxes[usize::from(self.shard.0)];
        let envelope = Envelope { from: self.shard, lane: Lane::Control, message };
        let sent = inbox.sender.send(envelope).is_ok();
        inbox.bell.ring();
        sent
    }
}

/// Wakes one sleeper, at most once per sleep.
#[derive(Default)]
struct Bell {
    asleep: AtomicBool,
    sleeper: Mutex<Option<Sleeper>>,
}

/// The owner's waker, and what wakes the same task from other threads.
struct Sleeper {
    at_home: Waker,
    from_any_thread: Waker,
}

impl Bell {
    /// Says that the owner goes to sleep; it must look at its conditions once more afterwards.
    fn arm(&self, waker: &Waker) {
        {
            let mut held = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
            if !held.as_ref().is_some_and(|held| held.at_home.will_wake(waker)) {
                let from_any_thread = threads::from_any_thread(waker);
                *held = Some(Sleeper { at_home: waker.clone(), from_any_thread });
            }
        }
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn disarm(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Wakes the owner if it sleeps; what it is to see must have been written before.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if !self.asleep.load(Ordering::SeqCst) || !self.asleep.swap(false, Ordering::SeqCst) {
            return;
        }
        let held = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
        let waker = held.as_ref().map(|held| held.from_any_thread.clone());
        drop(held);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests;
