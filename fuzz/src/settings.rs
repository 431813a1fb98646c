//! Settings from the environment: lines of `NAME=value`. Accepted settings can be listed.

#![no_main]

use hydrant::Settings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let vars = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    if let Ok(settings) = Settings::from_vars(vars) {
        drop(settings.rows());
    }
});
