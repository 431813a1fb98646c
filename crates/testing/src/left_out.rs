//! Tests that a machine cannot run.

use std::{env, fmt::Display};

/// Reports that a test, or a part of one, is left out on this machine. The caller then returns.
///
/// # Panics
/// If every test must run (`HYDRANT_TEST_REQUIRE`, as in continuous integration).
///
/// ```
/// # if std::env::var_os("HYDRANT_TEST_REQUIRE").is_none() {
/// hydrant_testing::left_out("there is no userfaultfd");
/// # }
/// ```
pub fn left_out(why: impl Display) {
    let required = env::var_os("HYDRANT_TEST_REQUIRE").is_some_and(|value| value != "0");
    assert!(!required, "this test must run, but {why}");
    eprintln!("left out: {why}");
}
