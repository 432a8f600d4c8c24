//! The coordinators: rules without I/O and without a clock, kept in internal topics.

pub mod group;
