//! In place of the strategy `foresight`, where it is not built in: nothing is predicted.

use std::sync::Arc;

use crate::{settings::Settings, transfer::Transfer};

/// There is no predictor of a rank.
#[derive(Debug)]
pub(crate) enum NoForeseeing {}

impl NoForeseeing {
    pub(crate) fn start(_: &Arc<Transfer>, _: &Settings) -> Option<Arc<Self>> {
        None
    }

    pub(crate) fn stop(&self) {
        match *self {}
    }
}
