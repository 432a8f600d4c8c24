//! Operations that were begun, in order, before their results are asked for.
//!
//! Owns no policy: how many are begun is the caller's business. Each is polled once when it is
//! begun, which is when a read or write goes to the device; after that whoever waits for the
//! oldest polls it. For code that has no tasks of its own: what runs before any shard does.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use super::LocalFuture;

/// Operations in the order they were begun.
pub struct InFlight<T> {
    operations: VecDeque<Operation<T>>,
}

enum Operation<T> {
    Running(LocalFuture<'static, T>),
    Ended(T),
}

impl<T> Default for InFlight<T> {
    fn default() -> InFlight<T> {
        InFlight { operations: VecDeque::new() }
    }
}

impl<T> InFlight<T> {
    /// How many results have not been taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether all results have been taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Begins an operation.
    pub async fn begin(&mut self, mut operation: LocalFuture<'static, T>) {
        let begun = poll_fn(|context| {
            Poll::Ready(match operation.as_mut().poll(context) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            })
        })
        .await;
        self.operations.push_back(match begun {
            Some(result) => Operation::Ended(result),
            None => Operation::Running(operation),
        });
    }

    /// The result of the oldest operation, once there is one; `None` if there is no operation.
    pub async fn next(&mut self) -> Option<T> {
        match self.operations.pop_front()? {
            Operation::Ended(result) => Some(result),
            Operation::Running(operation) => Some(operation.await),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use futures_lite::future::{block_on, yield_now};

    use super::*;

    #[test]
    fn operations_begin_at_once_and_end_in_order() {
        let begun = Rc::new(Cell::new(0));
        block_on(async {
            let mut operations = InFlight::default();
            for number in 0..4 {
                let begun = Rc::clone(&begun);
                let operation = Box::pin(async move {
                    begun.set(begun.get() + 1);
                    // The first ones take longest.
                    for _ in number..3 {
                        yield_now().await;
                    }
                    number
                });
                operations.begin(operation).await;
            }
            assert_eq!((begun.get(), operations.len()), (4, 4));
            for number in 0..4 {
                assert_eq!(operations.next().await, Some(number));
            }
            assert_eq!((operations.next().await, operations.is_empty()), (None, true));
        });
    }
}
