//! Makes the fields, their defaults, and a [`Setting`] from each row of the table. The builder's methods are made
//! beside the builder.

use super::Settings;

/// One setting: all that is not a field.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "a test compares the documentation with all of it")
)]
pub(in crate::settings) struct Setting {
    pub(in crate::settings) name: &'static str,
    /// The heading in the documentation.
    pub(in crate::settings) section: &'static str,
    /// True if only experiments need the setting.
    pub(in crate::settings) is_experimental: bool,
    pub(in crate::settings) meaning: &'static str,
    /// The field, and the method of the builder.
    pub(in crate::settings) field: &'static str,
    /// The reason why the builder has no method.
    pub(in crate::settings) environment: Option<&'static str>,
    /// The feature of this crate without which the setting does not exist.
    pub(in crate::settings) feature: Option<&'static str>,
    /// The default in words, where it depends on the machine.
    pub(in crate::settings) default: Option<&'static str>,
    /// The values, in words.
    pub(in crate::settings) values: fn() -> String,
    /// The unit of a number, in the plural; `None` if the value is a word.
    pub(in crate::settings) unit: fn() -> Option<&'static str>,
    /// Sets the value, or returns what was expected.
    pub(in crate::settings) set: fn(&mut Settings, &str) -> Result<(), String>,
    pub(in crate::settings) show: fn(&Settings) -> String,
}

/// Parses the rows of the table, and passes their parts in groups to the macro `$make`. A macro names
/// the groups that it uses, which come first if other macros use them too.
macro_rules! parse_settings {
    ($make:ident$(
        $section:literal $note:literal {$(
            $(#[$more:meta])*
            $name:literal $field:ident: $type:ty = $default:expr;
            $form:expr;
            $meaning:literal;
            $(default $words:literal;)?
            $(feature $feature:literal;)?
            $(builder $argument:ident: $given:ty => $value:expr;)?
            $(environment $why:literal;)?
        )*}
    )*) => {
        $make! {$(
            $section $note {$(
                {
                    $name $field $meaning
                    {$($feature)?} {$(#[$more])*} {$($argument: $given => $value)?}
                    {$type} {$default} {$form} {$($words)?} {$($why)?}
                }
            )*}
        )*}
    };
}

pub(crate) use parse_settings;

/// Declares [`Settings`] from the parts of the rows.
macro_rules! declare_settings {
    ($(
        $section:literal $note:literal {$(
            {
                $name:literal $field:ident $meaning:literal
                {$($feature:literal)?} $more:tt $builder:tt
                {$type:ty} {$default:expr} {$form:expr} {$($words:literal)?} {$($why:literal)?}
            }
        )*}
    )*) => {
        /// The values in force.
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub struct Settings {$($(
            #[doc = concat!("`", $name, "`: ", $meaning, ". ", $note)]
            $(#[cfg(feature = $feature)])?
            pub $field: $type,
        )*)*
            pub(super) origins: BTreeMap<&'static str, Origin>,
            /// Texts that are no values, and what was expected.
            pub(super) refused: BTreeMap<&'static str, (String, String)>,
            /// Variables with Hydrant's prefix that have no effect, each with a sentence.
            pub(super) ignored: Vec<String>,
        }

        impl Settings {
            /// Returns the defaults, without the environment.
            pub fn new() -> Self {
                Self {$($(
                    $(#[cfg(feature = $feature)])?
                    $field: $default,
                )*)*
                    origins: BTreeMap::new(),
                    refused: BTreeMap::new(),
                    ignored: Vec::new(),
                }
            }
        }

        /// The settings of this build, in the order of the documentation.
        pub(super) const TABLE: &[Setting] = &[$($(
            $(#[cfg(feature = $feature)])?
            Setting {
                name: $name,
                section: $section,
                is_experimental: !$note.is_empty(),
                meaning: $meaning,
                field: stringify!($field),
                environment: [$(Some($why),)? None][0],
                feature: [$(Some($feature),)? None][0],
                default: [$(Some($words),)? None][0],
                values: || ValueForm::<$type>::values(&$form),
                unit: || ValueForm::<$type>::unit(&$form),
                set: |settings, text| {
                    settings.$field = ValueForm::<$type>::read(&$form, text)?;
                    Ok(())
                },
                show: |settings| ValueForm::<$type>::show(&$form, &settings.$field),
            },
        )*)*];

        /// The settings that this build lacks, each with the feature that has it.
        pub(super) const ABSENT: &[(&str, &str)] = &[$($($(
            #[cfg(not(feature = $feature))]
            ($name, $feature),
        )?)*)*];
    };
}

pub(super) use declare_settings;
