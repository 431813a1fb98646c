//! Figure 8 and table 1: helpers on fewer idle cores than there are ranks.

use std::time::Duration;

use hydrant_foresight::sharing::{HelperHost, Placement, Policy, Sharing};
use hydrant_foresight::{Communication, Costs, LinearCost, PageRun};
use hydrant_sim::Profile;
use hydrant_traces::evaluation::{TraceClock, communications};

use super::host::{HelperTurns, RankHistory, THRESHOLD, play_rank};
use super::{MACHINE, REGISTERED, in_mib, percent_above, percent_saved};
use crate::papers::job::{MB, PAGE};
use crate::papers::part::{Part, Picture, Sheet};
use crate::papers::published::value;
use crate::papers::replays::together;
use crate::papers::traces::{Recorded, size};
use crate::papers::{ExperimentInputs, PaperResult};
use crate::replay::{mean, staircase};
use hydrant_report::plot::{self, Figure, Panel, Series, SeriesKind};
use hydrant_report::units;

/// The time slices of helpers that share a core, in nanoseconds.
const SLICES: [u64; 3] = [100_000, 1_000_000, 4_000_000];
/// The slice that is drawn.
const DRAWN: u64 = 1_000_000;
const CONTEXT_SWITCH_NS: u64 = 2000;
/// The number of uses of registered buffers after which each rank posts its registered bytes.
const POSTED_AFTER: usize = 32;
/// The most changes of a host's registered memory in a picture.
const SHOWN: usize = 240;

/// The distribution of a host's helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HelperPolicy {
    None,
    Unshared,
    Shared(Policy),
}

impl HelperPolicy {
    fn name(self) -> &'static str {
        match self {
            HelperPolicy::None => "no helper",
            HelperPolicy::Unshared => "a core for each",
            HelperPolicy::Shared(Policy::Conservative) => "conservative",
            HelperPolicy::Shared(Policy::Aggressive) => "aggressive",
        }
    }
}

/// The results of all ranks of a host.
struct Together {
    series: Vec<(Duration, u64)>,
    took: Duration,
    stalled: Duration,
    late: u64,
    mean: f64,
}

/// Figure 8 and table 1.
pub(in crate::papers) fn figure_8(inputs: &ExperimentInputs<'_>) -> PaperResult<Part> {
    let mut part = Part::new(
        "foresight-figure-8",
        "Foresight, figure 8 and table 1: helpers on fewer cores than ranks",
    );
    part.note(
        "All ranks of a trace on one host that has one idle core: all helpers take turns there (aggressive, with \
         condition 2), or only that of the rank which registers most runs (conservative). This is the model of §5 by \
         itself, in virtual time: the plan that ships, a rank that waits for no other, and helpers that run in turns \
         of a whole time slice. Helpers of Hydrant share idle cores in real time only. The \
         paper has six ranks and two idle cores, so three helpers to a core, and does not name its time slice; ours \
         are of 0.1, 1 and 4 ms because small classes compute for less time than class D.",
    );
    let (calm, busy) = (calm(inputs), inputs.traces.of_program("cg", false));
    let mut sheet = Sheet::new(
        "foresight-figure-8",
        "A host's registered memory and time",
        &[
            "trace",
            "policy",
            "slice_ms",
            "mean_mb",
            "saved_pct",
            "peak_mb",
            "time_s",
            "time_pct",
            "stalled_ms",
            "late",
        ],
    );
    let mut panels = Vec::new();
    for (recorded, is_busy) in [(calm, false), (busy, true)] {
        let Some(recorded) = recorded else { continue };
        inputs.doing(format!("foresight: figure 8, {}", recorded.name));
        let ranks: Vec<Vec<Communication>> = (recorded.trace.ranks().iter())
            .map(|rank| communications(rank, TraceClock::Computing))
            .collect();
        let costs = costs()?;
        let none = host(&ranks, costs, HelperPolicy::None, 0);
        if none.series.is_empty() {
            continue;
        }
        row(&mut sheet, recorded, HelperPolicy::None, None, &none, &none);
        let alone = host(&ranks, costs, HelperPolicy::Unshared, 0);
        row(
            &mut sheet,
            recorded,
            HelperPolicy::Unshared,
            None,
            &alone,
            &none,
        );
        let conservative = HelperPolicy::Shared(Policy::Conservative);
        let of_few = host(&ranks, costs, conservative, 0);
        row(&mut sheet, recorded, conservative, None, &of_few, &none);
        let (mut drawn, mut by_slice) = (None, Vec::new());
        for slice in SLICES {
            let aggressive = HelperPolicy::Shared(Policy::Aggressive);
            let all = host(&ranks, costs, aggressive, slice);
            row(&mut sheet, recorded, aggressive, Some(slice), &all, &none);
            by_slice.push(format!(
                "{:.1} % with slices of {}",
                percent_saved(all.mean, none.mean),
                units::nanos(slice as f64)
            ));
            if slice == DRAWN {
                drawn = Some(all);
            }
        }
        let Some(aggressive) = drawn else { continue };
        let by_slice = format!("the aggressive policy saves {}", by_slice.join(", "));
        let those = [&none, &of_few, &aggressive];
        judge(&mut part, recorded, is_busy, those, &by_slice)?;
        panels.push(panel(recorded, [&none, &of_few, &aggressive]));
    }
    part.sheets.push(sheet);
    part.pictures.push(Picture {
        name: "foresight-figure-8".to_owned(),
        figure: Figure {
            title: part.title.clone(),
            subtitle: format!(
                "the model of §5 with the costs of {MACHINE}; time slices of {}",
                units::nanos(DRAWN as f64)
            ),
            panels,
        },
    });
    Ok(part)
}

/// A program with long computations between its exchanges: the paper's SP, or a substitute.
fn calm<'a>(inputs: &ExperimentInputs<'a>) -> Option<&'a Recorded> {
    let named = |program| inputs.traces.of_program(program, inputs.quick);
    (named("sp").filter(|it| size(it) > 0)).or_else(|| named("ft"))
}

/// The cost of registration on the machine.
fn costs() -> PaperResult<Costs> {
    let profile = Profile::named(MACHINE)?;
    let costs = profile.registration();
    Ok(Costs {
        register: LinearCost {
            per_page_ns: costs.register_page.as_ns(),
            per_operation_ns: costs.register_op.as_ns(),
        },
        deregister: LinearCost {
            per_page_ns: costs.deregister_page.as_ns(),
            per_operation_ns: costs.deregister_op.as_ns(),
        },
        ..Costs::TYPICAL
    })
}

/// Plays all ranks of a host.
fn host(ranks: &[Vec<Communication>], costs: Costs, way: HelperPolicy, slice_ns: u64) -> Together {
    let placements = placements(ranks, way);
    let mut on_core = 0;
    let lived: Vec<RankHistory> = (ranks.iter().zip(placements))
        .map(|(communications, placement)| {
            let helper = match placement {
                Placement::Stopped => None,
                Placement::On { helpers, .. } => {
                    let sharing = match helpers {
                        1 => Sharing::NONE,
                        helpers => Sharing {
                            helpers,
                            time_slice_ns: slice_ns,
                            context_switch_ns: CONTEXT_SWITCH_NS,
                        },
                    };
                    let own = on_core % helpers.max(1);
                    on_core += 1;
                    // The helpers are assigned when all ranks have posted.
                    let from = match way {
                        HelperPolicy::Shared(Policy::Conservative) => POSTED_AFTER,
                        _ => 0,
                    };
                    Some((HelperTurns { sharing, own }, from))
                }
            };
            play_rank(communications, costs, helper)
        })
        .collect();
    let series = together(lived.iter().map(|it| &it.series[..]));
    let took = lived.iter().map(|it| it.took).max().unwrap_or_default();
    Together {
        mean: mean(&series, took) as f64,
        series,
        took,
        stalled: lived.iter().map(|it| it.stalled).sum(),
        late: lived.iter().map(|it| it.stats.late).sum(),
    }
}

/// The placement of each rank's helper.
fn placements(ranks: &[Vec<Communication>], way: HelperPolicy) -> Vec<Placement> {
    let count = ranks.len() as u32;
    let (policy, cores) = match way {
        HelperPolicy::None => return vec![Placement::Stopped; ranks.len()],
        HelperPolicy::Unshared => (Policy::Aggressive, count),
        HelperPolicy::Shared(policy) => (policy, 1),
    };
    let mut host = HelperHost::new(count, cores, policy, 1);
    for (rank, communications) in (0..).zip(ranks) {
        host.post(rank, posted(communications));
    }
    host.placements()
}

/// The bytes that a rank has registered when it posts.
fn posted(communications: &[Communication]) -> u64 {
    let uses = communications.iter().filter(|it| it.bytes > THRESHOLD);
    let regions = uses.map(|it| PageRun::of_pages(PAGE as u64, it.addr, it.bytes));
    let mut seen: Vec<(u64, u64)> = (regions.take(POSTED_AFTER))
        .map(|it| (it.addr, it.bytes))
        .collect();
    seen.sort_unstable();
    seen.dedup();
    seen.iter().map(|it| it.1).sum()
}

fn row(
    sheet: &mut Sheet,
    recorded: &Recorded,
    way: HelperPolicy,
    slice_ns: Option<u64>,
    of: &Together,
    none: &Together,
) {
    let peak = of.series.iter().map(|it| it.1).max().unwrap_or(0);
    sheet.row([
        recorded.name.as_str().into(),
        way.name().into(),
        slice_ns.map(|it| it as f64 / 1e6).into(),
        (of.mean / MB as f64).into(),
        percent_saved(of.mean, none.mean).into(),
        (peak as f64 / MB as f64).into(),
        of.took.as_secs_f64().into(),
        percent_above(of.took.as_secs_f64(), none.took.as_secs_f64()).into(),
        (of.stalled.as_secs_f64() * 1e3).into(),
        of.late.into(),
    ]);
}

fn judge(
    part: &mut Part,
    recorded: &Recorded,
    is_busy: bool,
    [none, conservative, aggressive]: [&Together; 3],
    by_slice: &str,
) -> PaperResult<()> {
    let saved = |it: &Together| percent_saved(it.mean, none.mean);
    let words = format!(
        "{:.1} % against {:.1} %",
        saved(aggressive),
        saved(conservative)
    );
    if is_busy {
        part.expect(
            format!("{}, which communicates all the time: the conservative policy saves more than the aggressive", recorded.name),
            "the aggressive one saves nothing (CG)",
            words,
            saved(conservative) > saved(aggressive),
            by_slice,
        );
    } else {
        part.expect(
            format!("{}, which computes for long: the aggressive policy saves more memory than the conservative", recorded.name),
            "so (SP)",
            words,
            saved(aggressive) > saved(conservative),
            by_slice,
        );
    }
    let slower = |it: &Together| percent_above(it.took.as_secs_f64(), none.took.as_secs_f64());
    let key = if is_busy { "cg_policy" } else { "sp_policy" };
    let paper = |what: &str| value("foresight", &format!("{key}_{what}"));
    let beside = percent_above(paper("aggressive")?, paper("none")?)
        .max(percent_above(paper("conservative")?, paper("none")?));
    part.expect(
        format!(
            "{}: neither policy costs time (0.5 % at most)",
            recorded.name
        ),
        format!("{beside:.2} % at most"),
        format!(
            "conservative {:+.2} %, aggressive {:+.2} %",
            slower(conservative),
            slower(aggressive)
        ),
        slower(conservative) <= 0.5 && slower(aggressive) <= 0.5,
        "first uses are given up and registered again on the critical path, and a helper that waits for its turn hears of \
         them late; in runs this short they weigh more than in the paper's",
    );
    Ok(())
}

fn panel(recorded: &Recorded, all: [&Together; 3]) -> Panel {
    let names = ["no helper", "conservative", "aggressive"];
    let kinds = [SeriesKind::Reference, SeriesKind::Line, SeriesKind::Line];
    let changes = all.iter().map(|it| it.series.len()).max().unwrap_or(0);
    // The longest part of the middle in which changes can be told apart.
    let share = (SHOWN as f64 / changes.max(1) as f64).min(1.0);
    let ms = |it: Duration| it.as_secs_f64() * 1e3;
    let whole = ms(all[0].took);
    let (from, until) = (whole * (0.5 - share / 2.0), whole * (0.5 + share / 2.0));
    let series =
        (all.iter().zip(names).zip(kinds).enumerate()).map(|(colour, ((it, name), kind))| {
            let points = staircase(&it.series, it.took);
            Series {
                name: name.to_owned(),
                kind,
                colour: [1, 2, 0][colour],
                points: in_mib(super::cut(&points, from, until)),
            }
        });
    Panel::Curves {
        title: format!(
            "{}, {} to {} of {}",
            recorded.name,
            units::nanos(from * 1e6),
            units::nanos(until * 1e6),
            units::nanos(whole * 1e6)
        ),
        x: plot::Axis {
            label: "milliseconds",
            scale: plot::Scale::Plain,
            words: units::plain,
        },
        y: REGISTERED,
        series: series.collect(),
        marks: Vec::new(),
    }
}
