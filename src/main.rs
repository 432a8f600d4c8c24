//! The `ringlog` binary.

fn main() {}
