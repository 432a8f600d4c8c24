//! Committed offsets as registers: what was written, what was read, and whether one order explains
//! both.
//!
//! Owns every commit and deletion that was asked for. Each commit has a value of its own, so that a
//! reader's answer names the commit. One that was answered is done; one that was refused never is;
//! any other may be done until the broker that it was sent to is gone. Must know nothing of
//! groups: whether a commit ought to be refused is not said here.

use std::collections::BTreeMap;

/// Where an offset is committed: group, topic, partition.
pub type Key = (String, String, i32);

/// Number of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteNo(usize);

/// One commit, or the deletion of what was committed.
#[derive(Clone, Debug)]
struct Write {
    key: Key,
    /// `None` is a deletion.
    value: Option<i64>,
    began: u64,
    /// It was done by then, as anybody can see.
    done: Option<u64>,
    /// It was done by then, as a reader of stable offsets can see.
    done_stably: Option<u64>,
    /// It is not done after that.
    over: Option<u64>,
    refused: bool,
    /// Copies of it may be done again.
    doubled: bool,
    /// It waits for the end of a transaction, which outlives brokers.
    in_transaction: bool,
}

/// An answer that a reader got.
#[derive(Clone, Copy, Debug)]
struct Seen {
    began: u64,
    ended: u64,
    write: usize,
}

/// All offsets.
#[derive(Default)]
pub struct Offsets {
    writes: Vec<Write>,
    by_key: BTreeMap<Key, Vec<usize>>,
    seen: BTreeMap<Key, Vec<Seen>>,
    clock: u64,
    next_value: i64,
}

impl Offsets {
    /// A moment, later than all before.
    pub fn moment(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Notes a commit about to be sent; its number and its value.
    pub fn committing(&mut self, key: Key, in_transaction: bool) -> (WriteNo, i64) {
        self.next_value += 1;
        let value = self.next_value;
        (self.begin(key, Some(value), in_transaction), value)
    }

    /// Notes a deletion about to be sent.
    pub fn deleting(&mut self, key: Key) -> WriteNo {
        self.begin(key, None, false)
    }

    fn begin(&mut self, key: Key, value: Option<i64>, in_transaction: bool) -> WriteNo {
        let began = self.moment();
        let no = self.writes.len();
        self.by_key.entry(key.clone()).or_default().push(no);
        self.writes.push(Write {
            key,
            value,
            began,
            done: None,
            done_stably: None,
            over: None,
            refused: false,
            doubled: false,
            in_transaction,
        });
        WriteNo(no)
    }

    /// A copy of it is under way.
    pub fn doubled(&mut self, WriteNo(no): WriteNo) {
        self.writes[no].doubled = true;
    }

    /// It was taken into its transaction: whatever begins from now on stands behind it in the log.
    pub fn taken(&mut self, WriteNo(no): WriteNo) {
        let now = self.moment();
        self.writes[no].over = Some(now);
    }

    /// It was acknowledged.
    pub fn acked(&mut self, WriteNo(no): WriteNo) {
        let now = self.moment();
        let write = &mut self.writes[no];
        write.done_stably = write.done_stably.or(Some(now));
        if !write.in_transaction {
            write.done = write.done.or(Some(now));
            if !write.doubled {
                write.over = Some(now);
            }
        }
    }

    /// It was refused for good.
    pub fn refused(&mut self, WriteNo(no): WriteNo) {
        // A copy may have come at a better time.
        self.writes[no].refused |= !self.writes[no].doubled;
    }

    /// The broker is gone, and with it whatever had no answer.
    pub fn boot(&mut self) {
        let now = self.moment();
        for write in &mut self.writes {
            if !write.in_transaction {
                write.over = write.over.or(Some(now));
            }
        }
    }

    /// Judges an answer to a question that was asked at `began`; `None` is "no offset".
    pub fn told(
        &mut self,
        key: &Key,
        began: u64,
        told: Option<i64>,
        stable: bool,
    ) -> Result<(), String> {
        let ended = self.moment();
        let writes = self.by_key.get(key).cloned().unwrap_or_default();
        let Some(value) = told else { return self.told_nothing(key, &writes, began, stable) };
        let Some(&no) = writes.iter().find(|&&no| self.writes[no].value == Some(value)) else {
            return Err(format!("the offset of {key:?} is {value}, which was never sent"));
        };
        if self.writes[no].refused {
            return Err(format!("the offset of {key:?} is {value}, which was refused"));
        }
        if let Some(newer) = self.newer(&writes, no, began, stable) {
            let newer = self.named(newer);
            return Err(format!("the offset of {key:?} is {value}, though {newer} came after it"));
        }
        self.check_return(key, no, began)?;
        let write = &mut self.writes[no];
        write.done = write.done.or(Some(ended));
        write.done_stably = write.done_stably.or(Some(ended));
        self.seen.entry(key.clone()).or_default().push(Seen { began, ended, write: no });
        Ok(())
    }

    fn told_nothing(
        &self,
        key: &Key,
        writes: &[usize],
        began: u64,
        stable: bool,
    ) -> Result<(), String> {
        let is_first = |no: &&usize| self.is_done(**no, began, stable);
        let Some(&any) = writes.iter().find(is_first) else { return Ok(()) };
        let is_last = |&&no: &&usize| {
            let write = &self.writes[no];
            let may_be = write.value.is_none() && !write.refused;
            may_be && self.newer(writes, no, began, stable).is_none()
        };
        match writes.iter().find(is_last) {
            Some(_) => Ok(()),
            None => Err(format!("there is no offset of {key:?}, though {}", self.named(any))),
        }
    }

    /// A write that is surely after this one, and surely before the question.
    fn newer(&self, writes: &[usize], no: usize, began: u64, stable: bool) -> Option<usize> {
        let over = self.writes[no].over?;
        let is_newer = |&other: &usize| {
            other != no && self.writes[other].began > over && self.is_done(other, began, stable)
        };
        writes.iter().copied().find(is_newer)
    }

    fn is_done(&self, no: usize, began: u64, stable: bool) -> bool {
        let write = &self.writes[no];
        let done = if stable { write.done_stably } else { write.done };
        done.is_some_and(|done| done < began)
    }

    /// What was seen, and then another, does not come back.
    fn check_return(&self, key: &Key, no: usize, began: u64) -> Result<(), String> {
        let seen = self.seen.get(key).map_or(&[][..], Vec::as_slice);
        if self.writes[no].doubled {
            return Ok(());
        }
        let Some(first) = seen.iter().find(|seen| seen.write == no) else { return Ok(()) };
        let mut others = seen.iter().filter(|seen| seen.write != no);
        let between = others.find(|other| other.began > first.ended && other.ended < began);
        match between {
            Some(other) => {
                let (this, other) = (self.named(no), self.named(other.write));
                Err(format!("the offset of {key:?} went back: {this} is there after {other}"))
            }
            None => Ok(()),
        }
    }

    fn named(&self, no: usize) -> String {
        let write = &self.writes[no];
        let of = (&write.key.0, &write.key.1, write.key.2);
        match write.value {
            Some(value) => format!("{value} of {of:?} (at {}, done {:?})", write.began, write.done),
            None => format!("a deletion of {of:?} (at {}, done {:?})", write.began, write.done),
        }
    }

    /// Everything that was written to, for a last look.
    pub fn keys(&self) -> Vec<Key> {
        self.by_key.keys().cloned().collect()
    }
}

/// A reader of the state that the oracle has must find its own faults: the oracle is tried out on
/// histories that are wrong.
#[test]
fn wrong_histories_are_found() {
    let key: Key = ("g".to_owned(), "t".to_owned(), 0);
    let read = |offsets: &mut Offsets, told: Option<i64>| {
        let began = offsets.moment();
        offsets.told(&key, began, told, true).is_ok()
    };
    let two = || {
        let mut offsets = Offsets::default();
        let (first, one) = offsets.committing(key.clone(), false);
        offsets.acked(first);
        let (second, two) = offsets.committing(key.clone(), false);
        (offsets, one, second, two)
    };
    let (mut offsets, one, second, two_is) = two();
    assert!(!read(&mut offsets, None), "an acknowledged commit is not there");
    assert!(read(&mut offsets, Some(one)) && read(&mut offsets, Some(two_is)), "not acknowledged");
    assert!(!read(&mut offsets, Some(one)), "it went back");
    offsets.acked(second);
    assert!(!read(&mut offsets, Some(99)), "nobody wrote that");
    let (mut offsets, one, second, _) = two();
    offsets.acked(second);
    assert!(!read(&mut offsets, Some(one)), "an older one");
    let (mut offsets, _, second, two_is) = two();
    offsets.refused(second);
    assert!(!read(&mut offsets, Some(two_is)), "a refused one");
    let (mut offsets, one, second, two_is) = two();
    offsets.doubled(second);
    offsets.acked(second);
    let gone = offsets.deleting(key.clone());
    assert!(read(&mut offsets, None) && read(&mut offsets, Some(two_is)), "its copy came later");
    offsets.acked(gone);
    offsets.boot();
    assert!(!read(&mut offsets, Some(one)), "long gone");
    let mut offsets = Offsets::default();
    let (pending, first_is) = offsets.committing(key.clone(), true);
    offsets.taken(pending);
    let (plain, _) = offsets.committing(key.clone(), false);
    offsets.acked(plain);
    offsets.acked(pending);
    assert!(!read(&mut offsets, Some(first_is)), "a later commit stands behind it");
}
