//! The policy that an offline command judges by: named as in the configuration, or by the path of its folder.

use super::ConfigArgs;
use super::Failure;
use super::configuration;
use crate::exchange::recorded::Judge;
use crate::json::fault::shown;

/// The judge for the policy of this name, or in this folder.
pub(super) fn judge(named: &str, config: &ConfigArgs) -> Result<Judge, Failure> {
    todo!()
}
