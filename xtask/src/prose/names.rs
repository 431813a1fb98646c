//! Type names with several meanings, because several modules declare them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::budget::{MAY_BE_SHARED, SHARED_TYPES};
use crate::rooms::Declared;

/// The names that several modules declare, each with its places.
#[derive(Debug)]
pub(super) struct SharedNames {
    shared: BTreeMap<String, Vec<Declared>>,
    /// The names of `MAY_BE_SHARED` that no two modules declare.
    stale: Vec<&'static str>,
}

impl SharedNames {
    /// Sorts these types by name, without those that may be shared.
    pub(super) fn among(types: impl IntoIterator<Item = Declared>) -> Self {
        let mut shared: BTreeMap<String, Vec<Declared>> = BTreeMap::new();
        for declared in types {
            shared
                .entry(declared.name.clone())
                .or_default()
                .push(declared);
        }
        shared.retain(|_, declared| declared.len() > 1);
        let allowed = MAY_BE_SHARED.iter().map(|&(name, _)| name);
        let stale = allowed.filter(|&name| shared.remove(name).is_none());
        let stale = stale.collect();
        Self { shared, stale }
    }

    /// A sentence for each problem.
    pub(super) fn problems(&self) -> Vec<String> {
        let above = SHARED_TYPES.exceeded("types that share a name", self.types() as f64);
        let stale = self
            .stale
            .iter()
            .map(|name| format!("{name} may be shared and is not: take it off the list"));
        above.into_iter().chain(stale).collect()
    }

    /// The counts in a line.
    pub(super) fn summary(&self) -> String {
        let (names, types) = (self.shared.len(), self.types());
        format!(
            "{types} types share a name with another module's, {names} names in all (budget {}, goal {} types)",
            SHARED_TYPES.now, SHARED_TYPES.goal
        )
    }

    fn types(&self) -> usize {
        self.shared.values().map(Vec::len).sum()
    }

    /// Each name with the places that declare it, the most shared first.
    pub(super) fn list(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, declared) in self.sorted() {
            lines.push(format!("{name} ({})", declared.len()));
            lines.extend(declared.iter().map(|it| format!("    {}", place(it))));
        }
        lines
    }

    /// The list as JSON, an object for each name.
    pub(super) fn json(&self) -> Vec<Value> {
        let object = |(name, declared): (&String, &Vec<Declared>)| {
            let places: Vec<_> = declared.iter().map(place).collect();
            json!({"name": name, "types": declared.len(), "places": places})
        };
        self.sorted().into_iter().map(object).collect()
    }

    fn sorted(&self) -> Vec<(&String, &Vec<Declared>)> {
        let mut sorted: Vec<_> = self.shared.iter().collect();
        sorted.sort_by_key(|(name, declared)| (std::cmp::Reverse(declared.len()), *name));
        sorted
    }
}

fn place(declared: &Declared) -> String {
    format!("{}:{}", declared.file.display(), declared.line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(types: &[(&str, &str)]) -> SharedNames {
        SharedNames::among(types.iter().map(|&(name, file)| Declared {
            name: name.into(),
            file: file.into(),
            line: 7,
        }))
    }

    #[test]
    fn a_name_of_two_modules_is_shared() {
        let names = names(&[
            ("State", "a.rs"),
            ("One", "a.rs"),
            ("State", "b.rs"),
            ("Error", "a.rs"),
            ("Error", "b.rs"),
        ]);
        assert_eq!(names.list(), ["State (2)", "    a.rs:7", "    b.rs:7"]);
        assert_eq!(names.json()[0]["places"][1], "b.rs:7");
        assert!(
            names
                .summary()
                .starts_with("2 types share a name with another module's, 1 names")
        );
    }

    #[test]
    fn an_exemption_that_nobody_needs_is_a_problem() {
        let problems = names(&[("Error", "a.rs"), ("Error", "b.rs"), ("Stats", "a.rs")]).problems();
        assert!(
            problems.iter().any(|it| it.starts_with("Stats may")),
            "{problems:?}"
        );
        assert!(
            !problems.iter().any(|it| it.starts_with("Error may")),
            "{problems:?}"
        );
    }

    #[test]
    fn names_above_the_budget_are_a_problem() {
        let many = SHARED_TYPES.now as usize / 2 + 1;
        let owned: Vec<String> = (0..many).map(|it| format!("T{it}")).collect();
        let types: Vec<_> = owned
            .iter()
            .flat_map(|it| [(it.as_str(), "a.rs"), (it.as_str(), "b.rs")])
            .collect();
        let is_above = |it: &String| it.starts_with("types that share");
        assert!(names(&types).problems().iter().any(is_above));
        assert!(!names(&types[2..]).problems().iter().any(is_above));
    }
}
