//! Checks of the machine before a start.
