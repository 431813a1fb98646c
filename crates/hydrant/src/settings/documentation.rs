//! Checks that the tables of `docs/settings.md` are those of this crate. `HYDRANT_TEST_WRITE=1`
//! lets the test write them.

use std::{env, fs, path::Path};

use super::{
    Settings,
    table::{ABSENT, Setting, TABLE},
};

/// The table of a section, between its heading and the next one.
fn table(section: &str) -> String {
    let mut table = String::from("| setting | values | default | meaning | builder |\n");
    table += "|---|---|---|---|---|\n";
    for setting in TABLE.iter().filter(|it| it.section == section) {
        table += &row(setting);
    }
    table
}

fn row(setting: &Setting) -> String {
    let shown = (setting.show)(&Settings::new());
    let default = match setting.default {
        Some(words) => words.to_owned(),
        None if shown.is_empty() => "empty".to_owned(),
        None => format!("`{shown}`"),
    };
    let meaning = match setting.feature {
        Some(feature) => format!("{} (feature `{feature}`)", setting.meaning),
        None => setting.meaning.to_owned(),
    };
    let builder = match setting.environment {
        Some(why) => format!("none: {why}"),
        None => format!("`{}`", setting.field),
    };
    let (name, values) = (setting.name, (setting.values)());
    format!("| `{name}` | {values} | {default} | {meaning} | {builder} |\n")
}

/// Returns the text with the table of each section replaced by that of this crate.
fn replaced(text: &str) -> String {
    let mut sections: Vec<&str> = TABLE.iter().map(|setting| setting.section).collect();
    sections.dedup();
    let mut lines = Vec::new();
    let mut named = Vec::new();
    let mut is_dropping = false;
    for line in text.lines() {
        let heading = line.strip_prefix("## ").unwrap_or_default();
        if sections.contains(&heading) {
            named.push(heading);
        }
        if line.starts_with('|') {
            if let (false, Some(section)) = (is_dropping, named.last()) {
                lines.extend(table(section).lines().map(str::to_owned));
            }
            is_dropping = true;
        } else {
            is_dropping = false;
            lines.push(line.to_owned());
        }
    }
    assert_eq!(named, sections, "docs/settings.md has other headings");
    lines.join("\n") + "\n"
}

#[test]
fn the_documentation_has_every_setting() {
    assert!(ABSENT.is_empty(), "tests have all features");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let text = fs::read_to_string(&path).expect("the documentation is there");
    let right = replaced(&text);
    if env::var_os("HYDRANT_TEST_WRITE").is_some() {
        fs::write(&path, &right).expect("the documentation can be written");
    } else if text != right {
        let stale = right.lines().filter(|line| !text.contains(line));
        let stale: Vec<&str> = stale.collect();
        panic!(
            "docs/settings.md is stale; set HYDRANT_TEST_WRITE=1 to write it; it lacks:\n{}",
            stale.join("\n")
        );
    }
}

#[test]
fn a_setting_has_one_name() {
    for setting in TABLE {
        let name = format!("HYDRANT_{}", setting.field.to_uppercase());
        assert_eq!(setting.name, name);
        assert!(!setting.meaning.ends_with('.'), "{name}");
    }
}
