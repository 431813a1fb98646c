//! Profiles: the shipped ones, and errors in profiles.

use hydrant_sim::{Attentiveness, Profile, ProfileError};
use toml::{Table, Value};

fn table(name: &str) -> Table {
    Profile::text(name).unwrap().parse().unwrap()
}

fn parse(table: &Table) -> Result<Profile, ProfileError> {
    Profile::parse("mine.toml", &table.to_string())
}

/// Every figure's section and key.
fn figures(table: &Table) -> Vec<(String, String)> {
    let sections = table.iter().filter_map(|(name, section)| {
        let section = section.as_table()?;
        Some(section.keys().map(move |key| (name.clone(), key.clone())))
    });
    sections.flatten().collect()
}

#[test]
fn every_shipped_profile_is_whole() {
    let names: Vec<_> = Profile::names().collect();
    for name in [
        "ideal",
        "myrinet-gm",
        "myrinet-pm",
        "myrinet-gm-armci",
        "clan-via",
        "connectx",
    ] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
    for name in names {
        let profile = Profile::named(name).unwrap();
        assert_eq!(profile.name(), name);
        assert!(!profile.about().is_empty());
    }
}

#[test]
fn figures_are_those_of_the_papers() {
    let gm = Profile::named("myrinet-gm").unwrap();
    let page = |name: &str| {
        let costs = Profile::named(name).unwrap().registration().clone();
        (
            costs.register_op.as_ns() + costs.register_page.as_ns(),
            costs.deregister_op.as_ns() + costs.deregister_page.as_ns(),
        )
    };
    assert_eq!(page("myrinet-gm"), (40e3, 6e6));
    assert_eq!(page("myrinet-pm"), (47e3, 0.0));
    assert!(!gm.nic().reads);
    assert_eq!(gm.host().attentiveness, Attentiveness::Polling);
    let pm = Profile::named("myrinet-pm").unwrap();
    assert_eq!(pm.nic().max_bytes, 4 << 20);
    assert_eq!(pm.host().lookup.as_ns(), 530.0);
    assert!(Profile::named("connectx").unwrap().nic().reads);
}

#[test]
fn each_missing_figure_is_named() {
    for name in Profile::names() {
        let whole = table(name);
        for (section, key) in figures(&whole) {
            let mut less = whole.clone();
            less[&section].as_table_mut().unwrap().remove(&key);
            match parse(&less) {
                Err(ProfileError::Missing { file, key: at, .. }) => {
                    assert_eq!((file, at), ("mine.toml".into(), format!("{section}.{key}")));
                }
                other => panic!("{name} without {section}.{key}: {other:?}"),
            }
        }
        for section in whole.keys() {
            let mut less = whole.clone();
            less.remove(section);
            let error = parse(&less).unwrap_err();
            assert!(
                matches!(&error, ProfileError::Missing { key, .. } if key == section),
                "{error}"
            );
        }
    }
}

#[test]
fn each_figure_that_cannot_be_one_is_named() {
    let whole = table("myrinet-gm");
    let wrong = [
        Value::Integer(-1),
        Value::Float(f64::NAN),
        Value::Float(-0.5),
        Value::String("many".to_owned()),
        Value::Array(Vec::new()),
    ];
    for (section, key) in figures(&whole) {
        if key == "copy" {
            continue;
        }
        for value in &wrong {
            let mut other = whole.clone();
            other[&section][&key]["value"] = value.clone();
            match parse(&other) {
                Err(ProfileError::Bad { key: at, .. }) => {
                    assert_eq!(at, format!("{section}.{key}"));
                }
                outcome => panic!("{section}.{key} = {value}: {outcome:?}"),
            }
        }
        // A figure without its origin is refused.
        let mut other = whole.clone();
        let figure = other[&section][&key].as_table_mut().unwrap();
        figure.remove("source");
        figure.remove("calibrated");
        let error = parse(&other).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{section}.{key}.source")),
            "{error}"
        );
        other[&section][&key] = Value::Integer(3);
        let error = parse(&other).unwrap_err();
        assert!(matches!(error, ProfileError::Bad { .. }), "{error}");
    }
}

#[test]
fn copies_are_listed_by_size() {
    let whole = table("clan-via");
    let copies = |list: Vec<Value>| {
        let mut other = whole.clone();
        other["host"]["copy"] = Value::Array(list);
        parse(&other)
    };
    let list = whole["host"]["copy"].as_array().unwrap().clone();
    assert!(copies(list.clone()).is_ok());
    let swapped = vec![list[1].clone(), list[0].clone(), list[2].clone()];
    for wrong in [Vec::new(), swapped, list[..2].to_vec()] {
        let error = copies(wrong.clone()).unwrap_err().to_string();
        assert!(error.contains("host.copy"), "{wrong:?}: {error}");
    }
    let mut slow = list;
    slow[2]["bandwidth"]["value"] = Value::Integer(0);
    let error = copies(slow).unwrap_err().to_string();
    assert!(error.contains("host.copy[2].bandwidth"), "{error}");
}

#[test]
fn an_unknown_key_is_named() {
    for (section, key, near) in [
        ("nic", "mtus", Some("nic.mtu")),
        ("host", "operation", Some("host.operations")),
        ("link", "colour_of_the_cable", None),
    ] {
        let mut other = table("ideal");
        let figure = other["nic"]["mtu"].clone();
        (other[section].as_table_mut().unwrap()).insert(key.to_owned(), figure);
        match parse(&other) {
            Err(ProfileError::UnknownKey {
                key: at,
                near: hint,
                ..
            }) => {
                assert_eq!(at, format!("{section}.{key}"));
                assert_eq!(hint.as_deref(), near);
            }
            outcome => panic!("{section}.{key}: {outcome:?}"),
        }
    }
    let error = Profile::parse("mine.toml", "nic = ").unwrap_err();
    assert!(matches!(error, ProfileError::Syntax { .. }), "{error}");
}

#[test]
fn an_unknown_name_is_met_with_the_nearest() {
    match Profile::named("myrinet-mg") {
        Err(ProfileError::Unknown { near, known, .. }) => {
            assert_eq!(near, Some("myrinet-gm"));
            assert!(known.contains("clan-via"));
        }
        other => panic!("{other:?}"),
    }
    let error = Profile::named("quadrics").unwrap_err().to_string();
    assert!(!error.contains("did you mean"), "{error}");
    let error = Profile::named("/nowhere/my.toml").unwrap_err();
    assert!(matches!(error, ProfileError::Unreadable { .. }), "{error}");
}

#[test]
fn a_file_is_a_profile_too() {
    let path = std::env::temp_dir().join(format!("hydrant-sim-{}.toml", std::process::id()));
    std::fs::write(&path, Profile::text("connectx").unwrap()).unwrap();
    let loaded = Profile::named(path.to_str().unwrap());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(loaded.unwrap(), Profile::named("connectx").unwrap());
}
