//! Histories of a broker that does everything right, made at random: none of them has an anomaly;
//! and what is changed in one of them is found.
