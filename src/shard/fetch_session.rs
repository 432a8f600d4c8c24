//! Incremental fetch sessions: what a client has asked for before, and what it has been told.
//!
//! Owns the sessions of one shard and the rules of session ids and epochs; knows nothing of
//! records. Sans-IO: takes `now` and requests, returns what to read and what to leave out.
//!
//! Invariants: an epoch is used once and wraps from 2^31-1 to 1, never to 0; a forgotten partition
//! is never served again; no more sessions than slots. Source: KIP-227, Kafka's
//! `FetchSessionCache` and `FetchManager`.

use std::rc::Rc;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use crate::error_code::ErrorCode;
use crate::ids::{Offset, PartitionIndex, TopicId};
use crate::io::Monotonic;

/// Names a partition as the client does: by topic name up to v12, by id from v13 on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum TopicKey {
    /// Its name, shared: each answer of a session names all of its partitions again.
    Name(Rc<str>),
    /// Its id.
    Id(TopicId),
}

/// A partition of a session.
pub type PartitionKey = (TopicKey, PartitionIndex);

/// What a client wants of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// First offset.
    pub offset: Offset,
    /// Most bytes.
    pub bytes_max: i32,
    /// The client's leader epoch, -1 for none.
    pub leader_epoch: i32,
    /// Epoch of its last record, -1 for none.
    pub last_fetched_epoch: i32,
}

/// One fetch request as far as sessions care.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    /// Session id, 0 for none.
    pub session_id: i32,
    /// Session epoch.
    pub epoch: i32,
    /// Whether partitions are named by topic id.
    pub by_id: bool,
    /// Partitions added or changed, in order.
    pub partitions: Vec<(PartitionKey, Wanted)>,
    /// Partitions no longer wanted.
    pub forgotten: Vec<PartitionKey>,
}

/// How a fetch is to be answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionPlan {
    /// Read these and answer all of them, without a session.
    Sessionless(Vec<(PartitionKey, Wanted)>),
    /// Read these and answer all of them; then [`SessionCache::create`].
    Full(Vec<(PartitionKey, Wanted)>),
    /// Read these and answer those that changed; then [`SessionCache::update`].
    Incremental {
        /// The session.
        session_id: i32,
        /// Its partitions, in the order to be served.
        partitions: Vec<(PartitionKey, Wanted)>,
    },
}

/// What an answer tells of a partition, as far as sessions care.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Its error.
    pub error: ErrorCode,
    /// High watermark.
    pub high_watermark: Offset,
    /// Log start.
    pub log_start: Offset,
    /// Whether records are returned.
    pub has_records: bool,
    /// Whether the client's log parts from ours.
    pub diverges: bool,
}

struct SessionPartition {
    key: PartitionKey,
    wanted: Wanted,
    told: Option<(ErrorCode, Offset, Offset)>,
}

struct Session {
    epoch: i32,
    by_id: bool,
    partitions: Vec<SessionPartition>,
    last_used: Monotonic,
}

/// The sessions of one shard.
pub struct SessionCache {
    sessions: HashMap<i32, Session, RandomState>,
    slots: usize,
    /// Most partitions of all sessions together.
    partitions_max: usize,
    partitions: usize,
    refused: u64,
}

impl SessionCache {
    /// A cache with so many slots, for so many partitions of all sessions together.
    #[must_use]
    pub fn new(slots: usize, partitions_max: usize) -> SessionCache {
        let sessions = HashMap::default();
        SessionCache { sessions, slots, partitions_max, partitions: 0, refused: 0 }
    }

    /// Number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// How often there was no free slot for a new session, or no room for the partitions of one.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Decides how a request is answered, and takes its changes over.
    ///
    /// # Errors
    /// 70 for an unknown session, 71 for a wrong epoch, 106 for names where ids were used or the
    /// other way round; the answer then carries no partition.
    pub fn begin(
        &mut self,
        request: SessionRequest,
        now: Monotonic,
    ) -> Result<SessionPlan, ErrorCode> {
        match (request.session_id, request.epoch) {
            (id, FINAL_EPOCH) => {
                self.remove(id);
                Ok(SessionPlan::Sessionless(request.partitions))
            }
            (id, INITIAL_EPOCH) => {
                self.remove(id);
                Ok(SessionPlan::Full(request.partitions))
            }
            (id, _) => self.continue_session(id, request, now),
        }
    }

    fn continue_session(
        &mut self,
        id: i32,
        request: SessionRequest,
        now: Monotonic,
    ) -> Result<SessionPlan, ErrorCode> {
        let session = self.sessions.get_mut(&id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != request.epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != request.by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        self.partitions -= session.partitions.len();
        session.change(request.partitions, &request.forgotten);
        self.partitions += session.partitions.len();
        session.last_used = now;
        if session.partitions.is_empty() {
            self.remove(id);
            return Ok(SessionPlan::Sessionless(Vec::new()));
        }
        if self.partitions > self.partitions_max {
            // Its client begins anew, and asks for all of them each time from then on.
            self.refused += 1;
            self.remove(id);
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        session.epoch = next_epoch(session.epoch);
        let partitions = session
            .partitions
            .iter()
            .map(|partition| (partition.key.clone(), partition.wanted))
            .collect();
        Ok(SessionPlan::Incremental { session_id: id, partitions })
    }

    /// Makes a session of a full fetch that was answered with `told`; returns its id, or 0 when
    /// there is no room. `random` gives candidates for the id.
    pub fn create(
        &mut self,
        by_id: bool,
        partitions: Vec<(PartitionKey, Wanted, Told)>,
        now: Monotonic,
        mut random: impl FnMut() -> u64,
    ) -> i32 {
        if partitions.is_empty() {
            return 0;
        }
        if self.partitions + partitions.len() > self.partitions_max {
            self.refused += 1;
            return 0;
        }
        if !self.make_room(now) {
            return 0;
        }
        self.partitions += partitions.len();
        let id = loop {
            let id = (random() & 0x7fff_ffff) as i32;
            if id > 0 && !self.sessions.contains_key(&id) {
                break id;
            }
        };
        let partitions = partitions
            .into_iter()
            .map(|(key, wanted, told)| SessionPartition {
                key,
                wanted,
                told: Some((told.error, told.high_watermark, told.log_start)),
            })
            .collect();
        let session = Session { epoch: 1, by_id, partitions, last_used: now };
        self.sessions.insert(id, session);
        id
    }

    /// Takes over what an incremental answer will tell, partition by partition in the order of the
    /// plan; returns which of them the answer must contain. Partitions with records move to the
    /// end, so that the others come first next time.
    pub fn update(&mut self, session_id: i32, told: &[(PartitionKey, Told)]) -> Vec<bool> {
        let Some(session) = self.sessions.get_mut(&session_id) else {
            return vec![true; told.len()];
        };
        let is_as_planned = session.partitions.len() == told.len()
            && session.partitions.iter().zip(told).all(|(ours, (key, _))| ours.key == *key);
        if is_as_planned {
            return session.take_over(told);
        }
        // The session was changed while it was read.
        let by_key: HashMap<&PartitionKey, &Told, RandomState> =
            told.iter().map(|(key, told)| (key, told)).collect();
        let mut verdicts: HashMap<PartitionKey, bool, RandomState> = HashMap::default();
        let mut moved = Vec::new();
        for mut partition in std::mem::take(&mut session.partitions) {
            let Some(told) = by_key.get(&partition.key) else {
                session.partitions.push(partition);
                continue;
            };
            verdicts.insert(partition.key.clone(), partition.take_over(told));
            let places = if told.has_records { &mut moved } else { &mut session.partitions };
            places.push(partition);
        }
        session.partitions.append(&mut moved);
        told.iter().map(|(key, _)| verdicts.get(key).copied().unwrap_or(true)).collect()
    }

    /// Evicts the session that was idle longest, if any was idle long enough.
    fn make_room(&mut self, now: Monotonic) -> bool {
        if self.sessions.len() < self.slots {
            return true;
        }
        self.refused += 1;
        let victim = self
            .sessions
            .iter()
            .min_by_key(|(id, session)| (session.last_used, **id))
            .filter(|(_, session)| now.ms_since(session.last_used) > EVICTION_MS)
            .map(|(id, _)| *id);
        match victim {
            Some(id) => self.remove(id),
            None => false,
        }
    }

    /// Forgets a session; whether there was one.
    fn remove(&mut self, id: i32) -> bool {
        let removed = self.sessions.remove(&id);
        self.partitions -= removed.as_ref().map_or(0, |session| session.partitions.len());
        removed.is_some()
    }
}

impl Session {
    fn change(&mut self, changed: Vec<(PartitionKey, Wanted)>, forgotten: &[PartitionKey]) {
        if !changed.is_empty() {
            self.want(changed);
        }
        if !forgotten.is_empty() {
            let forgotten: HashSet<&PartitionKey, RandomState> = forgotten.iter().collect();
            self.partitions.retain(|partition| !forgotten.contains(&partition.key));
        }
    }

    fn want(&mut self, changed: Vec<(PartitionKey, Wanted)>) {
        let mut places: HashMap<PartitionKey, usize, RandomState> = self
            .partitions
            .iter()
            .enumerate()
            .map(|(place, partition)| (partition.key.clone(), place))
            .collect();
        for (key, wanted) in changed {
            match places.get(&key) {
                Some(&place) => self.partitions[place].wanted = wanted,
                None => {
                    places.insert(key.clone(), self.partitions.len());
                    self.partitions.push(SessionPartition { key, wanted, told: None });
                }
            }
        }
    }

    /// Takes over what is told of each of its partitions, in their order; which have to be told.
    /// Allocates for the verdicts alone, unless there are records.
    fn take_over(&mut self, told: &[(PartitionKey, Told)]) -> Vec<bool> {
        let pairs = self.partitions.iter_mut().zip(told);
        let included = pairs.map(|(partition, (_, told))| partition.take_over(told)).collect();
        if told.iter().any(|(_, told)| told.has_records) {
            let count = self.partitions.len();
            let partitions = std::mem::replace(&mut self.partitions, Vec::with_capacity(count));
            let mut moved = Vec::new();
            for (partition, (_, told)) in partitions.into_iter().zip(told) {
                let places = if told.has_records { &mut moved } else { &mut self.partitions };
                places.push(partition);
            }
            self.partitions.append(&mut moved);
        }
        included
    }
}

impl SessionPartition {
    /// Whether it has to be told, which it then was.
    fn take_over(&mut self, told: &Told) -> bool {
        let must_tell = self.must_tell(told);
        self.told = Some((told.error, told.high_watermark, told.log_start));
        must_tell
    }

    fn must_tell(&self, told: &Told) -> bool {
        let Some((error, high_watermark, log_start)) = self.told else { return true };
        told.has_records
            || told.diverges
            || !told.error.is_none()
            || error != told.error
            || high_watermark != told.high_watermark
            || log_start != told.log_start
    }
}

fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

const INITIAL_EPOCH: i32 = 0;
const FINAL_EPOCH: i32 = -1;
const EVICTION_MS: u64 = 120_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: i32) -> PartitionKey {
        (TopicKey::Name("t".into()), PartitionIndex(index))
    }

    fn wanted(offset: i64) -> Wanted {
        Wanted { offset: Offset(offset), bytes_max: 100, leader_epoch: -1, last_fetched_epoch: -1 }
    }

    fn told(high_watermark: i64, has_records: bool) -> Told {
        Told {
            error: ErrorCode::None,
            high_watermark: Offset(high_watermark),
            log_start: Offset(0),
            has_records,
            diverges: false,
        }
    }

    fn request(session_id: i32, epoch: i32, partitions: &[i32]) -> SessionRequest {
        SessionRequest {
            session_id,
            epoch,
            by_id: false,
            partitions: partitions.iter().map(|&index| (key(index), wanted(0))).collect(),
            forgotten: Vec::new(),
        }
    }

    fn cache_with_session() -> (SessionCache, i32) {
        let mut cache = SessionCache::new(2, 100);
        let now = Monotonic(0);
        let Ok(SessionPlan::Full(partitions)) = cache.begin(request(0, 0, &[0, 1]), now) else {
            panic!("a full fetch");
        };
        let partitions =
            partitions.into_iter().map(|(key, wanted)| (key, wanted, told(5, false))).collect();
        let id = cache.create(false, partitions, now, || 7);
        assert_eq!(id, 7);
        (cache, id)
    }

    fn indexes(plan: SessionPlan) -> Vec<i32> {
        let (SessionPlan::Sessionless(partitions)
        | SessionPlan::Full(partitions)
        | SessionPlan::Incremental { partitions, .. }) = plan;
        partitions.into_iter().map(|(key, _)| key.1.0).collect()
    }

    /// platformatic/kafka#321, redpanda-data/redpanda#27749
    #[test]
    fn wrong_ids_and_epochs_are_told_and_forgotten_partitions_are_gone() {
        let (mut cache, id) = cache_with_session();
        let now = Monotonic(1);
        let error = |result: Result<SessionPlan, ErrorCode>| result.map(|_| ()).map_err(i16::from);
        assert_eq!(error(cache.begin(request(99, 1, &[]), now)), Err(70));
        assert_eq!(error(cache.begin(request(id, 2, &[]), now)), Err(71));
        assert_eq!(error(cache.begin(request(0, 5, &[]), now)), Err(70));
        let by_id = SessionRequest { by_id: true, ..request(id, 1, &[]) };
        assert_eq!(error(cache.begin(by_id, now)), Err(106));
        let forget = SessionRequest { forgotten: vec![key(0)], ..request(id, 1, &[2]) };
        assert_eq!(cache.begin(forget, now).map(indexes), Ok(vec![1, 2]));
        assert_eq!(error(cache.begin(request(id, 1, &[]), now)), Err(71), "an epoch is used once");
        let forget = SessionRequest { forgotten: vec![key(1), key(2)], ..request(id, 2, &[]) };
        assert_eq!(cache.begin(forget, now), Ok(SessionPlan::Sessionless(Vec::new())));
        assert!(cache.is_empty());
    }

    #[test]
    fn only_changes_are_told_and_partitions_with_records_go_last() {
        let (mut cache, id) = cache_with_session();
        let now = Monotonic(1);
        assert!(cache.begin(request(id, 1, &[]), now).is_ok());
        let answer = [(key(0), told(6, true)), (key(1), told(5, false))];
        assert_eq!(cache.update(id, &answer), vec![true, false]);
        assert_eq!(cache.begin(request(id, 2, &[]), now).map(indexes), Ok(vec![1, 0]));
        let answer = [(key(1), told(6, false)), (key(0), told(6, false))];
        assert_eq!(cache.update(id, &answer), vec![true, false]);
        let failed = Told { error: ErrorCode::NotLeaderOrFollower, ..told(6, false) };
        assert!(cache.begin(request(id, 3, &[]), now).is_ok());
        assert_eq!(cache.update(id, &[(key(0), failed)]), vec![true]);
        assert!(cache.begin(request(id, 4, &[]), now).is_ok());
        assert_eq!(cache.update(id, &[(key(0), told(6, false))]), vec![true], "the error cleared");
    }

    #[test]
    fn a_session_that_changes_while_it_is_read_takes_over_what_it_still_has() {
        let (mut cache, id) = cache_with_session();
        let now = Monotonic(1);
        assert!(cache.begin(request(id, 1, &[]), now).is_ok());
        let other = SessionRequest { forgotten: vec![key(0)], ..request(id, 2, &[2]) };
        assert!(cache.begin(other, now).is_ok());
        let answer = [(key(0), told(6, true)), (key(1), told(6, true))];
        assert_eq!(cache.update(id, &answer), vec![true, true]);
        let plan = cache.begin(request(id, 3, &[]), now);
        assert_eq!(plan.map(indexes), Ok(vec![2, 1]));
        let answer = [(key(2), told(0, false)), (key(1), told(6, false))];
        assert_eq!(cache.update(id, &answer), vec![true, false]);
    }

    #[test]
    fn epochs_wrap_to_one() {
        let (mut cache, id) = cache_with_session();
        if let Some(session) = cache.sessions.get_mut(&id) {
            session.epoch = i32::MAX;
        }
        assert!(cache.begin(request(id, i32::MAX, &[]), Monotonic(0)).is_ok());
        assert!(cache.begin(request(id, 1, &[]), Monotonic(0)).is_ok());
    }

    #[test]
    fn a_full_cache_gives_way_only_to_the_idle() {
        let (mut cache, _) = cache_with_session();
        let partitions = |count: i32| {
            (0..count).map(|index| (key(index), wanted(0), told(0, false))).collect::<Vec<_>>()
        };
        assert_eq!(cache.create(false, partitions(1), Monotonic(0), || 8), 8);
        assert_eq!(cache.create(false, partitions(9), Monotonic(0), || 9), 0);
        let later = Monotonic(0).plus_ms(EVICTION_MS + 1);
        assert_eq!(cache.create(false, partitions(1), later, || 9), 9);
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn partitions_of_all_sessions_are_bounded() {
        let mut cache = SessionCache::new(10, 5);
        let partitions = |from: i32, count: i32| -> Vec<_> {
            (from..from + count).map(|index| (key(index), wanted(0), told(0, false))).collect()
        };
        let now = Monotonic::default();
        let first = cache.create(true, partitions(0, 3), now, || 1);
        let second = cache.create(true, partitions(0, 2), now, || 2);
        assert_eq!((first, second, cache.refused()), (1, 2, 0));
        assert_eq!(cache.create(true, partitions(0, 1), now, || 3), 0, "one too many");
        assert_eq!(cache.refused(), 1);
        let mut change = |epoch: i32, added: &[i32], forgotten: &[i32]| {
            let request = SessionRequest {
                session_id: first,
                epoch,
                by_id: true,
                partitions: added.iter().map(|index| (key(*index), wanted(0))).collect(),
                forgotten: forgotten.iter().map(|index| key(*index)).collect(),
            };
            cache.begin(request, now).map(|_| ())
        };
        assert_eq!(change(1, &[7], &[0]), Ok(()), "one for another");
        assert_eq!(change(2, &[8], &[]), Err(ErrorCode::FetchSessionIdNotFound));
        assert_eq!((cache.len(), cache.refused()), (1, 2));
        assert_eq!(cache.create(true, partitions(0, 3), now, || 4), 4, "there is room again");
    }
}
