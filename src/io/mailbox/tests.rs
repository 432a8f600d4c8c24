//! A model test of one thread with every interleaving of calls, and a stress test of real threads.

use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;
use std::time::Duration;

use futures_lite::future::block_on;
use proptest::prelude::*;

use super::*;

const SMALL: MeshLimits = MeshLimits { queue_messages: 2, requests_max: 4 };

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Counter {
    fn taken(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

fn poll_wait<M: Send>(mailbox: &Mailbox<M>, counter: &Arc<Counter>) -> Poll<()> {
    let waker = Waker::from(Arc::clone(counter));
    let mut context = Context::from_waker(&waker);
    pin!(mailbox.wait()).poll(&mut context)
}

fn messages<M: Send>(mailbox: &Mailbox<M>) -> Vec<M> {
    let mut envelopes = Vec::new();
    mailbox.receive(&mut envelopes, usize::MAX);
    envelopes.into_iter().map(|envelope| envelope.message).collect()
}

#[test]
fn control_work_is_admitted_until_so_much_of_it_is_kept_back() {
    let mesh = mesh(2, SMALL);
    let (zero, one) = (&mesh[0], &mesh[1]);
    // What the queue takes is not kept back.
    for number in 0..SMALL.queue_messages + MAILBOX_CONTROL_MAX - 1 {
        zero.send(ShardId(1), Lane::Control, number);
    }
    assert!(zero.has_control_credit(ShardId(1)), "one less than so many");
    zero.send(ShardId(1), Lane::Control, 0);
    assert!(!zero.has_control_credit(ShardId(1)));
    assert!(zero.has_control_credit(ShardId(0)), "of that shard only");
    // It may be sent all the same, and there is credit again once some has gone.
    zero.send(ShardId(1), Lane::Control, 0);
    let sleeper = Arc::new(Counter::default());
    assert_eq!(messages(one).len(), SMALL.queue_messages);
    assert_eq!(poll_wait(zero, &sleeper), Poll::Pending);
    assert!(zero.has_control_credit(ShardId(1)));
}

#[test]
fn what_does_not_fit_waits_in_the_outbox_and_follows_in_order() {
    let mesh = mesh(2, SMALL);
    let (zero, one) = (&mesh[0], &mesh[1]);
    let sleeper = Arc::new(Counter::default());
    for number in 0..5 {
        zero.send(ShardId(1), Lane::Control, number);
    }
    assert_eq!(zero.queued(), 3);
    assert_eq!(poll_wait(zero, &sleeper), Poll::Pending);
    assert_eq!(messages(one), [0, 1]);
    assert_eq!(sleeper.taken(), 1, "told that there is room");
    assert_eq!(poll_wait(zero, &sleeper), Poll::Pending);
    assert_eq!(zero.queued(), 1);
    zero.send(ShardId(1), Lane::Control, 5);
    assert_eq!(messages(one), [2, 3]);
    assert_eq!(poll_wait(zero, &sleeper), Poll::Pending);
    assert_eq!(messages(one), [4, 5]);
    assert_eq!(zero.queued(), 0);
}

#[test]
fn one_wake_per_sleep_however_many_messages() {
    let mesh = mesh(3, MeshLimits::default());
    let sleeper = Arc::new(Counter::default());
    assert_eq!(poll_wait(&mesh[0], &sleeper), Poll::Pending);
    for sender in &mesh[1..] {
        for _ in 0..10 {
            sender.send(ShardId(0), Lane::Control, sender.shard().0);
        }
    }
    assert_eq!(sleeper.taken(), 1);
    assert_eq!(poll_wait(&mesh[0], &sleeper), Poll::Ready(()));
    assert_eq!(messages(&mesh[0]).len(), 20);
    mesh[0].send(ShardId(0), Lane::Control, 0);
    assert_eq!(sleeper.taken(), 0, "awake shards are not woken");
    assert_eq!(poll_wait(&mesh[0], &sleeper), Poll::Ready(()));
}

#[test]
fn requests_hold_credit_until_answered_and_control_needs_none() {
    let mesh = mesh(2, SMALL);
    let (zero, one) = (&mesh[0], &mesh[1]);
    let waiting = Arc::new(Counter::default());
    let waker = Waker::from(Arc::clone(&waiting));
    let mut context = Context::from_waker(&waker);
    for number in 0..4 {
        assert!(zero.may_admit());
        zero.send(ShardId(1), Lane::Request, number);
    }
    assert!(!zero.may_admit());
    assert!(zero.has_control_credit(ShardId(1)));
    let mut admission = pin!(zero.ready_for_admission());
    assert_eq!(admission.as_mut().poll(&mut context), Poll::Pending);
    assert_eq!(admission.as_mut().poll(&mut context), Poll::Pending);
    // A handler that was admitted before may go over.
    zero.send(ShardId(1), Lane::Request, 4);
    assert_eq!(zero.requests(), 5);

    let sleeper = Arc::new(Counter::default());
    let mut answered = 0;
    while answered < 5 {
        answered += messages(one).len();
        let _ = poll_wait(zero, &sleeper);
    }
    for _ in 0..2 {
        one.send(ShardId(0), Lane::Reply, 0);
    }
    messages(zero);
    assert!(!zero.may_admit(), "three of four are still out");
    one.send(ShardId(0), Lane::Reply, 0);
    assert_eq!(messages(zero), [0]);
    assert_eq!(waiting.taken(), 1);
    assert_eq!(admission.as_mut().poll(&mut context), Poll::Ready(()));
    assert_eq!(zero.requests(), 2);
}

#[test]
fn an_ended_shard_swallows_and_gives_credit_back() {
    let mut mesh = mesh(2, SMALL);
    drop(mesh.pop());
    for number in 0..10 {
        mesh[0].send(ShardId(1), Lane::Request, number);
    }
    assert_eq!((mesh[0].queued(), mesh[0].requests()), (0, 0));
    assert!(mesh[0].may_admit());
    block_on(mesh[0].flushed());
}

#[test]
fn a_thread_outside_wakes_the_shard() {
    let mesh = mesh(1, SMALL);
    let outside = mesh[0].outside_sender();
    let thread = std::thread::spawn(move || (0..100).all(|number| outside.send(number)));
    let mut seen = Vec::new();
    while seen.len() < 100 {
        block_on(mesh[0].wait());
        seen.extend(messages(&mesh[0]));
    }
    assert!(thread.join().expect("thread"));
    assert!(seen.into_iter().eq(0..100));
}

#[derive(Clone, Debug)]
enum Step {
    Send { from: u16, to: u16, control: bool },
    Receive { shard: u16, limit: usize },
    Wait { shard: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let shard = 0..SHARDS;
    prop_oneof![
        4 => (shard.clone(), shard.clone(), any::<bool>())
            .prop_map(|(from, to, control)| Step::Send { from, to, control }),
        2 => (shard.clone(), 1..4usize).prop_map(|(shard, limit)| Step::Receive { shard, limit }),
        2 => shard.prop_map(|shard| Step::Wait { shard }),
    ]
}

const SHARDS: u16 = 3;

/// Every shard with its waker, against one plain queue per pair of shards.
struct World {
    mesh: Vec<Mailbox<u32>>,
    sleepers: Vec<Arc<Counter>>,
    asleep: Vec<bool>,
    model: Vec<Vec<VecDeque<u32>>>,
    next: u32,
}

impl World {
    fn new() -> World {
        let shards = usize::from(SHARDS);
        World {
            mesh: mesh(SHARDS, SMALL),
            sleepers: (0..shards).map(|_| Arc::default()).collect(),
            asleep: vec![false; shards],
            model: vec![vec![VecDeque::new(); shards]; shards],
            next: 0,
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Send { from, to, control } => {
                let lane = if control { Lane::Control } else { Lane::Request };
                self.mesh[usize::from(from)].send(ShardId(to), lane, self.next);
                self.model[usize::from(from)][usize::from(to)].push_back(self.next);
                self.next += 1;
            }
            Step::Receive { shard, limit } => self.receive(usize::from(shard), limit),
            Step::Wait { shard } => self.sleep(usize::from(shard)),
        }
    }

    fn receive(&mut self, shard: usize, limit: usize) {
        let mut envelopes = Vec::new();
        let count = self.mesh[shard].receive(&mut envelopes, limit);
        assert!(count <= limit && count == envelopes.len());
        for envelope in envelopes {
            let expected = self.model[usize::from(envelope.from.0)][shard].pop_front();
            assert_eq!(expected, Some(envelope.message));
        }
    }

    fn sleep(&mut self, shard: usize) {
        self.sleepers[shard].taken();
        self.asleep[shard] = poll_wait(&self.mesh[shard], &self.sleepers[shard]).is_pending();
    }

    /// Lets only those run that are awake or have been woken, until all sleep.
    fn settle(&mut self) {
        loop {
            let shards = 0..self.mesh.len();
            let woken = |&shard: &usize| {
                !self.asleep[shard] || self.sleepers[shard].0.load(Ordering::SeqCst) > 0
            };
            let Some(shard) = shards.clone().find(woken) else {
                return;
            };
            self.receive(shard, 1);
            self.sleep(shard);
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_reordered_or_left_asleep(steps in prop::collection::vec(step(), 0..200)) {
        let mut world = World::new();
        for step in &steps {
            world.apply(step);
        }
        world.settle();
        for (from, queues) in world.model.iter().enumerate() {
            prop_assert_eq!(world.mesh[from].queued(), 0);
            prop_assert!(queues.iter().all(VecDeque::is_empty), "{:?}", queues);
        }
    }
}

#[test]
fn real_threads_lose_nothing() {
    const PER_PAIR: u32 = 20_000;
    for shards in [2u16, 4] {
        let (done_sender, done) = crossbeam_channel::unbounded();
        for mailbox in mesh::<u32>(shards, SMALL_QUEUES) {
            let done_sender = done_sender.clone();
            std::thread::spawn(move || {
                exchange(&mailbox, PER_PAIR);
                let _ = done_sender.send(mailbox);
            });
        }
        for _ in 0..shards {
            let mailbox =
                done.recv_timeout(Duration::from_secs(60)).expect("a wake or a message was lost");
            assert_eq!((mailbox.queued(), mailbox.requests()), (0, 0));
        }
    }
}

const SMALL_QUEUES: MeshLimits = MeshLimits { queue_messages: 8, requests_max: 64 };

/// Sends `count` numbered requests to every shard and answers those that come.
fn exchange(mailbox: &Mailbox<u32>, count: u32) {
    let shards = mailbox.shards();
    let mut sent = 0;
    let mut requests = vec![0u32; shards];
    let mut replies = vec![0u32; shards];
    let mut envelopes = Vec::new();
    loop {
        while sent < count && mailbox.may_admit() {
            for to in 0..shards {
                mailbox.send(ShardId(to as u16), Lane::Request, sent);
            }
            sent += 1;
        }
        if replies.iter().chain(&requests).all(|&seen| seen == count) {
            break;
        }
        block_on(mailbox.wait());
        mailbox.receive(&mut envelopes, 16);
        for envelope in envelopes.drain(..) {
            let from = usize::from(envelope.from.0);
            let (seen, answer) = match envelope.lane {
                Lane::Request => (&mut requests[from], true),
                _ => (&mut replies[from], false),
            };
            assert_eq!(envelope.message, *seen, "in order");
            *seen += 1;
            if answer {
                mailbox.send(envelope.from, Lane::Reply, envelope.message);
            }
        }
    }
    block_on(mailbox.flushed());
}
