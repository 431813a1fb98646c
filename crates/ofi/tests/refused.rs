//! A provider that a setting names, and that lacks what the conduit needs, is refused in a sentence.

use hydrant_ofi::{OfiOptions, attach, endpoints};
use hydrant_testing::ranks;

#[test]
fn a_named_provider_that_lacks_something_is_refused_with_the_setting() {
    let options = OfiOptions {
        segment: 1 << 20,
        extents: 64,
        provider: "shm".to_owned(),
        ..OfiOptions::default()
    };
    // Some builds of libfabric have no such provider.
    if let Err(why) = endpoints(&options) {
        eprintln!("skipped: {why}");
        return;
    }
    ranks::joined(1, |mut bootstrap| {
        let why = match attach(&mut bootstrap, &options) {
            // Another version of libfabric may have what this one lacks.
            Ok(_) => return,
            Err(error) => error.to_string(),
        };
        assert!(why.contains("HYDRANT_OFI_PROVIDER names shm"), "{why}");
        assert!(why.contains("without the setting"), "{why}");
    });
}
