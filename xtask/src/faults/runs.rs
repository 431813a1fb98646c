//! Parses the output of the script and the ranks for each run, and judges it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::scenarios::{Expected, Scenario};

/// A scenario and its runs.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) scenario: Scenario,
    pub(crate) runs: Vec<ScenarioRun>,
}

/// One run.
#[derive(Debug, Default)]
pub(crate) struct ScenarioRun {
    /// The time of the fault, in nanoseconds since 1970.
    at: Option<u64>,
    /// The reports of the ranks that survived to print one.
    pub(crate) ranks: Vec<Value>,
    /// Pages that were left pinned.
    pub(crate) pages: Option<i64>,
    /// The objects left at the devices.
    objects: String,
    /// The launcher's reasons for the end of the job.
    why: Vec<String>,
    /// The reason why this machine cannot try it.
    pub(crate) skipped: Option<String>,
    /// True if the script came to its end.
    ended: bool,
}

/// Parses the output line by line.
pub(crate) struct Listener {
    tried: Vec<Tried>,
    /// The index of the scenario that runs.
    now: Option<usize>,
}

impl Listener {
    pub(crate) fn new(scenarios: &[Scenario]) -> Self {
        let tried = scenarios.iter().map(|scenario| Tried {
            scenario: *scenario,
            runs: Vec::new(),
        });
        Self {
            tried: tried.collect(),
            now: None,
        }
    }

    pub(crate) fn listen(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("fault begins: ") {
            self.now = (self.tried.iter()).position(|tried| tried.scenario.name == name);
            if let Some(now) = self.now {
                self.tried[now].runs.push(ScenarioRun::default());
            }
            return;
        }
        let Some(run) = (self.now).and_then(|now| self.tried[now].runs.last_mut()) else {
            return;
        };
        if let Some(at) = line.strip_prefix("fault at ") {
            run.at = at.parse().ok();
        } else if let Some(left) = line.strip_prefix("fault left ") {
            let (pages, objects) = left.split_once(' ').unwrap_or((left, ""));
            run.pages = pages.parse().ok();
            run.objects = objects.trim().to_owned();
        } else if let Some(why) = line.strip_prefix("fault skipped ") {
            run.skipped = Some(why.to_owned());
        } else if let Some(why) = line.strip_prefix("hydrant run: ") {
            run.why.push(why.to_owned());
        } else if line == "fault ends" {
            run.ended = true;
        } else if line.starts_with('{') {
            run.ranks.extend(serde_json::from_str::<Value>(line).ok());
        }
    }

    pub(crate) fn tried(self) -> Vec<Tried> {
        self.tried
    }
}

impl Tried {
    /// The differences from the expected result, a sentence each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.runs.len() as u32 != self.scenario.runs {
            all.push(format!("{}: it did not run", self.scenario.name));
        }
        for (number, run) in (1..).zip(&self.runs) {
            let found = run.problems(&self.scenario);
            all.extend(
                (found.into_iter())
                    .map(|problem| format!("{}, run {number}: {problem}", self.scenario.name)),
            );
        }
        all
    }
}

impl ScenarioRun {
    fn problems(&self, scenario: &Scenario) -> Vec<String> {
        if self.skipped.is_some() {
            return Vec::new();
        }
        let expected = scenario.expected;
        let mut all = Vec::new();
        if !self.ended {
            all.push("it did not end".to_owned());
        }
        let survivors = match expected {
            Expected::Lost(lost) => 4 - lost.len(),
            // The first rank that fails ends the others.
            Expected::Refused(_) => 0,
            Expected::Cases(reports) => reports,
            Expected::Unharmed | Expected::Split(_) => 4,
        };
        if let Expected::Refused(texts) = expected
            && !self.says(texts)
        {
            let told: Vec<&str> = self.reasons().collect();
            all.push(format!("no rank says {texts:?}: {told:?}"));
        }
        if self.ranks.len() < survivors {
            let told = self.ranks.len();
            all.push(format!("{told} of {survivors} ranks printed their reports"));
        }
        match self.pages {
            Some(0) => {}
            Some(count) => {
                let resources = scenario.machine.resources();
                all.push(format!("{count} {resources} were left: {}", self.objects));
            }
            None => all.push("what was left is not known".to_owned()),
        }
        if self.pages == Some(0) && !["none", ""].contains(&self.objects.as_str()) {
            all.push(format!("at the devices there is left: {}", self.objects));
        }
        for rank in &self.ranks {
            let found = of_rank(rank, expected);
            let name = &rank["rank"];
            all.extend(found.map(|problem| format!("rank {name} {problem}")));
        }
        all
    }

    /// The time that each rank waited, in seconds: until it got the error, or for the longest
    /// operation.
    pub(crate) fn times(&self, expected: Expected) -> Vec<f64> {
        let told = |rank: &Value| -> Vec<f64> {
            let losses = list(&rank["lost"]).iter();
            let times = losses.filter_map(|loss| {
                let after = loss["at"].as_u64()?.checked_sub(self.at?)?;
                Some(after as f64 * 1e-9)
            });
            times.collect()
        };
        let ranks = self.ranks.iter();
        match expected {
            Expected::Lost(_) | Expected::Split(_) => ranks.flat_map(told).collect(),
            Expected::Unharmed => ranks.filter_map(|rank| rank["longest"].as_f64()).collect(),
            Expected::Refused(_) => ranks.filter_map(|rank| rank["waited"].as_f64()).collect(),
            Expected::Cases(_) => Vec::new(),
        }
    }

    /// True if one of the reasons why no rank got into the job contains all these texts.
    pub(crate) fn says(&self, texts: &[&str]) -> bool {
        (self.reasons()).any(|why| texts.iter().all(|text| why.contains(text)))
    }

    /// The reasons that the launcher and the ranks gave.
    fn reasons(&self) -> impl Iterator<Item = &str> {
        let ranks = self.ranks.iter().filter_map(|rank| rank["why"].as_str());
        self.why.iter().map(String::as_str).chain(ranks)
    }
}

/// The problem in the report of a rank, if there is one.
fn of_rank(rank: &Value, expected: Expected) -> Option<String> {
    let wrong = rank["wrong"].as_u64().unwrap_or(0);
    if wrong > 0 {
        return Some(format!(
            "read {wrong} things wrong: {}",
            rank["first_wrong"]
        ));
    }
    let pinned = rank["pinned_after"].as_u64();
    if pinned != Some(0) {
        return Some(format!("has {pinned:?} KiB pinned after the job"));
    }
    if let Expected::Refused(_) = expected {
        return (!rank["ranks"].is_null()).then(|| "got into the job".to_owned());
    }
    if rank["ranks"].is_null() {
        return Some(format!("did not get into the job: {}", rank["why"]));
    }
    let own = rank["rank"].as_u64().unwrap_or(u64::MAX);
    let lost: BTreeSet<u64> = match expected {
        Expected::Lost(lost) => lost.iter().map(|rank| u64::from(*rank)).collect(),
        Expected::Split(half) => {
            let is_first = |rank: u64| half.iter().any(|it| u64::from(*it) == rank);
            (0..4)
                .filter(|rank| is_first(*rank) != is_first(own))
                .collect()
        }
        _ => BTreeSet::new(),
    };
    if lost.contains(&own) {
        return None;
    }
    let told = list(&rank["lost"]).iter();
    let told: BTreeSet<u64> = told.filter_map(|loss| loss["rank"].as_u64()).collect();
    if told != lost {
        return Some(format!("heard of the loss of {told:?}, not of {lost:?}"));
    }
    let fitting = |kind: &str| lost.iter().any(|rank| kind == format!("PeerLost({rank})"));
    let other = errors(rank).into_iter().find(|kind| !fitting(kind));
    if let Some(other) = other {
        return Some(format!("got the error {other}"));
    }
    let case = list(&rank["cases"])
        .iter()
        .find(|case| case["right"] != true);
    case.map(|case| format!("got {} of {}", case["got"], case["name"]))
}

/// The kinds of errors that a rank got.
pub(crate) fn errors(rank: &Value) -> Vec<String> {
    let kinds = list(&rank["errors"]).iter();
    kinds
        .filter_map(|error| Some(error[0].as_str()?.to_owned()))
        .collect()
}

/// The elements of a list, none if it is something else.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::super::scenarios::ALL;
    use super::*;

    fn killed() -> Scenario {
        let killed = ALL.iter().find(|it| it.expected == Expected::Lost(&[1]));
        Scenario {
            runs: 1,
            ..*killed.unwrap()
        }
    }

    fn rank_report(rank: u32, lost: u32, wrong: u32) -> String {
        format!(
            r#"{{"rank":{rank},"ranks":4,"wrong":{wrong},"pinned_after":0,"cases":[],
            "errors":[["PeerLost({lost})",1]],"lost":[{{"rank":{lost},"at":3000000000}}]}}"#
        )
        .replace('\n', "")
    }

    fn run(lines: &[String]) -> Tried {
        let scenario = killed();
        let mut listener = Listener::new(&[scenario]);
        listener.listen(&format!("fault begins: {}", scenario.name));
        lines.iter().for_each(|line| listener.listen(line));
        listener.tried().remove(0)
    }

    fn rest() -> [String; 3] {
        ["fault at 1000000000", "fault left 0 none", "fault ends"].map(str::to_owned)
    }

    #[test]
    fn a_run_as_it_should_be_has_no_problems_and_its_times() {
        let ranks = [0, 2, 3].map(|rank| rank_report(rank, 1, 0));
        let tried = run(&[ranks.as_slice(), &rest()].concat());
        assert_eq!(tried.problems(), Vec::<String>::new());
        assert_eq!(tried.runs[0].times(tried.scenario.expected), [2.0; 3]);
    }

    #[test]
    fn every_difference_from_the_expected_result_is_reported() {
        let good = [0, 2, 3].map(|rank| rank_report(rank, 1, 0));
        let mut cases = vec![
            (vec![], "0 of 3 ranks printed their reports"),
            (good[..2].to_vec(), "2 of 3 ranks printed their reports"),
        ];
        for (rank, problem) in [
            (rank_report(3, 1, 1), "rank 3 read 1 things wrong"),
            (
                rank_report(3, 2, 0),
                "rank 3 heard of the loss of {2}, not of {1}",
            ),
            (
                rank_report(3, 1, 0).replace("after\":0", "after\":8"),
                "KiB pinned after the job",
            ),
            (
                rank_report(3, 1, 0).replace("(1)\"", "(2)\""),
                "got the error PeerLost(2)",
            ),
        ] {
            cases.push(([&good[..2], &[rank]].concat(), problem));
        }
        for (ranks, problem) in cases {
            let problems = run(&[ranks.as_slice(), &rest()].concat()).problems();
            let all = problems.join("\n");
            assert!(all.contains(problem), "{problem}: {all}");
        }
        let left = rest().map(|line| line.replace("0 none", "3 mr 1"));
        let all = run(&[good.as_slice(), &left].concat())
            .problems()
            .join("\n");
        assert!(all.contains("3 pinned pages were left"), "{all}");
        assert!(all.contains("mr 1"), "{all}");
        let all = run(&good).problems().join("\n");
        assert!(all.contains("it did not end"), "{all}");
    }
}
