//! x
/// x
pub struct CatalogStore;
