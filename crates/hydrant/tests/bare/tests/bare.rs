//! A job works without any feature of `hydrant`, and what is not built in names its feature.

use hydrant::{ConduitKind, Job, JobBuilder, Op, Settings};

fn builder() -> JobBuilder {
    JobBuilder::with(Settings::new()).heap(1 << 20)
}

#[test]
fn ranks_share_memory() {
    let ends = builder().run_local(2, |job: &Job| {
        let field = job.alloc::<u64>(4)?;
        field.put(job.right(), 1, &[7 + u64::from(job.rank().0)])?;
        job.barrier()?;
        assert_eq!(field.local()?.load(1)?, 8 - u64::from(job.rank().0));
        let mut sum = [1_u64];
        job.world().all_reduce(&mut sum, Op::Sum)?;
        Ok(sum[0])
    });
    let sums: Vec<u64> = ends.into_iter().map(|end| end.expect("it works")).collect();
    assert_eq!(sums, [2, 2]);
}

#[test]
fn networks_that_are_not_built_in_name_their_feature() {
    for (kind, feature) in [
        (ConduitKind::Verbs, "verbs"),
        (ConduitKind::Ofi, "ofi"),
        (ConduitKind::Pinned, "pin"),
    ] {
        for end in builder().conduit(kind).run_local(2, |job| job.barrier()) {
            let why = end.expect_err("it is not built in").to_string();
            assert!(
                why.contains(&format!("needs the feature `{feature}`")),
                "{why}"
            );
        }
    }
    let why = "sim:ideal".parse::<ConduitKind>().unwrap_err();
    assert!(why.contains("needs the feature `sim`"), "{why}");
    // Ranks of several hosts have no network.
    let several = builder().pretend_hosts(2).run_local(4, |job| job.barrier());
    let why = several[0]
        .as_ref()
        .expect_err("no network joins hosts")
        .to_string();
    assert!(why.contains("needs the feature `ofi`"), "{why}");
}

#[test]
fn settings_of_absent_features_do_no_harm() {
    let vars = ["HYDRANT_SIM_RANKS", "HYDRANT_VERBS_GID", "HYDRANT_LOG"];
    let settings = Settings::from_vars(vars.map(|name| (name.to_owned(), "4".to_owned())));
    let names = settings.expect("they are ignored").rows();
    assert!(names.iter().all(|row| !vars.contains(&row.name)));
}
