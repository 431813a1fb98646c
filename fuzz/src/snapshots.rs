//! The answer of a rank to `hydrant top`. An accepted answer is written and read alike.

#![no_main]

use hydrant::top::RankSnapshot;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(snapshot) = text.parse::<RankSnapshot>() {
        assert_eq!(snapshot.to_string().parse(), Ok(snapshot));
    }
});
