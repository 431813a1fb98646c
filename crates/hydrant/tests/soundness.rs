//! Programs that would be unsound, and do not compile.

#[test]
fn unsound_programs_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/soundness/*.rs");
}
