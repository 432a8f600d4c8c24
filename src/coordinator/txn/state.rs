//! States of a transactional id.

/// State of a transactional id; the number is the one in its record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum State {
    /// No transaction since the producer was initialized.
    Empty = 0,
    /// A transaction is open.
    Ongoing = 1,
    /// It is committed; markers are being written.
    PrepareCommit = 2,
    /// It is aborted; markers are being written.
    PrepareAbort = 3,
    /// It is committed and every marker is written.
    CompleteCommit = 4,
    /// It is aborted and every marker is written.
    CompleteAbort = 5,
    /// The id has expired; in memory only.
    Dead = 6,
    /// The coordinator is about to abort it; in memory only.
    PrepareEpochFence = 7,
}

impl State {
    /// Its name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::Ongoing => "Ongoing",
            State::PrepareCommit => "PrepareCommit",
            State::PrepareAbort => "PrepareAbort",
            State::CompleteCommit => "CompleteCommit",
            State::CompleteAbort => "CompleteAbort",
            State::Dead => "Dead",
            State::PrepareEpochFence => "PrepareEpochFence",
        }
    }
}
