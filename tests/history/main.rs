//! Histories.

mod checker;
mod history;
