//! Alterations of the catalog that need nothing but the catalog to be planned.
//!
//! Owns what shard 0 is asked for and the shape of its answer; the rules are in [`super::configs`],
//! [`super::quotas`] and [`super::scram`]. Must never change anything: a plan is results, and the
//! records that would make them so, appended as one change.

use crate::error_code::ErrorCode;
use crate::limits::CATALOG_RECORDS_PER_REQUEST_MAX;
use crate::metrics::Limit;

use super::configs::{self, AlterResource};
use super::image::Image;
use super::quotas::{self, AlterQuotas};
use super::records::Record;
use super::scram::{self, ScramDeletion, ScramUpsertion};
use super::topics::{PlanError, refuse};

/// What is to be altered.
#[derive(Clone, Debug)]
pub enum Alteration {
    /// Configs of resources.
    Configs {
        /// The node that was asked, which is the only broker it may be asked about.
        node: i32,
        /// What to set.
        resources: Vec<AlterResource>,
        /// Check only.
        validate_only: bool,
    },
    /// Client quotas.
    Quotas {
        /// What to set.
        entries: Vec<AlterQuotas>,
        /// Check only.
        validate_only: bool,
    },
    /// SCRAM credentials; one answer per user.
    Scram {
        /// What to remove.
        deletions: Vec<ScramDeletion>,
        /// What to set.
        upsertions: Vec<ScramUpsertion>,
    },
}

/// Answers to an alteration and what makes them true.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterationPlan {
    /// One answer per entry of the alteration, in its order.
    pub results: Vec<Result<(), PlanError>>,
    /// To be appended as one change; empty if only validated.
    pub records: Vec<Record>,
}

impl Alteration {
    /// Plans it against the catalog as it is.
    #[must_use]
    pub fn plan(&self, image: &Image) -> AlterationPlan {
        let mut records = Vec::new();
        let (mut results, validate_only) = match self {
            Alteration::Configs { node, resources, validate_only } => {
                (configs::plan(image, *node, resources, &mut records), *validate_only)
            }
            Alteration::Quotas { entries, validate_only } => {
                (quotas::plan(image, entries, &mut records), *validate_only)
            }
            Alteration::Scram { deletions, upsertions } => {
                (scram::plan(image, deletions, upsertions, &mut records), false)
            }
        };
        if records.len() > CATALOG_RECORDS_PER_REQUEST_MAX {
            let message = "Unable to perform excessively large batch operation.";
            let refusal = refuse(ErrorCode::PolicyViolation, message);
            let refusal = refusal.at(Limit::CatalogRecordsPerRequest);
            results = results.iter().map(|_| Err(refusal.clone())).collect();
            records.clear();
        }
        if validate_only {
            records.clear();
        }
        AlterationPlan { results, records }
    }

    /// How many answers it has.
    #[must_use]
    pub fn entries(&self) -> usize {
        match self {
            Alteration::Configs { resources, .. } => resources.len(),
            Alteration::Quotas { entries, .. } => entries.len(),
            Alteration::Scram { deletions, upsertions } => {
                scram::users(deletions, upsertions).len()
            }
        }
    }
}
