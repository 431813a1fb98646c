//! The methods of the builder that set one setting each, made from the table of settings.

use std::time::Duration;

use hydrant_launch::BootstrapKind;
use hydrant_smp::Foreign;

use super::JobBuilder;
#[cfg(feature = "verbs")]
use crate::PagingKind;
use crate::{
    AtomicsKind, ConduitKind, InterNodeKind, MessageProtocol, MonitorKind, Strategy,
    settings::each_setting,
};
#[cfg(feature = "foresight")]
use crate::{ForesightPolicy, IdleCores};

/// Makes the method of one row, unless only the environment sets it.
macro_rules! method {
    ($more:tt $feature:tt $name:literal $field:ident $meaning:literal $note:literal) => {};
    (
        {$(#[$more:meta])*} {$($feature:literal)?}
        $name:literal $field:ident $meaning:literal $note:literal
        $argument:ident: $given:ty => $value:expr
    ) => {
        #[doc = concat!("Sets ", $meaning, " (`", $name, "`). ", $note)]
        ///
        $(#[$more])*
        $(#[cfg(feature = $feature)])?
        pub fn $field(mut self, $argument: $given) -> Self {
            self.settings.$field = $value;
            self.settings.built($name);
            self
        }
    };
}

macro_rules! declare_methods {
    ($(
        $section:literal $note:literal {$(
            {
                $name:literal $field:ident $meaning:literal
                $feature:tt $more:tt {$($builder:tt)*}
                $($rest:tt)*
            }
        )*}
    )*) => {
        /// # Settings
        ///
        /// Each method sets what the environment variable of the same name sets, and wins over it.
        impl JobBuilder {$($(
            method! {
                $more $feature $name $field $meaning $note
                $($builder)*
            }
        )*)*}
    };
}

each_setting!(declare_methods);
