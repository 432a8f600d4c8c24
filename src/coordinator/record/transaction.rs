//! Records of `__transaction_state`.
