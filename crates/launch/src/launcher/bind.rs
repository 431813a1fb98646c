//! Binding: the processors on which each rank may run.

use std::collections::BTreeMap;
use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity};

use super::Bind;

/// Returns the processors of each rank. `None` means that the rank keeps all of the launcher's.
pub(super) fn plan(bind: Bind, ranks: u32) -> Vec<Option<CpuSet>> {
    // A machine with more processors than the set holds is not bound.
    let cores = sched_getaffinity(None)
        .map(|allowed| cores(&allowed))
        .unwrap_or_default();
    let sets = assign(bind, ranks as usize, &cores);
    sets.into_iter()
        .map(|cpus| cpus.map(|cpus| to_set(&cpus)))
        .collect()
}

/// Returns the launcher's processors, which are the host's for its ranks. `None` if they are
/// unknown.
pub(super) fn host() -> Option<String> {
    let allowed = sched_getaffinity(None).ok()?;
    let cpus: Vec<String> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .map(|cpu| cpu.to_string())
        .collect();
    Some(cpus.join(",")).filter(|cpus| !cpus.is_empty())
}

/// Groups the allowed processors by core, because hyperthreads of one core share its units.
fn cores(allowed: &CpuSet) -> Vec<Vec<usize>> {
    let mut cores: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut order = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)) {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = fs::read_to_string(path).unwrap_or_else(|_| cpu.to_string());
        let core = cores.entry(siblings.clone()).or_default();
        if core.is_empty() {
            order.push(siblings);
        }
        core.push(cpu);
    }
    order
        .iter()
        .filter_map(|siblings| cores.remove(siblings))
        .collect()
}

fn assign(bind: Bind, ranks: usize, cores: &[Vec<usize>]) -> Vec<Option<Vec<usize>>> {
    let threads: usize = cores.iter().map(Vec::len).sum();
    // With more ranks than cores, hyperthreads count as cores.
    let units: Vec<Vec<usize>> = if ranks <= cores.len() || bind == Bind::Core {
        cores.to_vec()
    } else {
        cores.iter().flatten().map(|&cpu| vec![cpu]).collect()
    };
    let everything =
        cores.is_empty() || bind == Bind::None || (bind == Bind::Auto && ranks > threads);
    (0..ranks)
        .map(|rank| match bind {
            _ if everything => None,
            Bind::Core => Some(cores[rank % cores.len()].clone()),
            _ if ranks >= units.len() => Some(units[rank % units.len()].clone()),
            _ => {
                let share = rank * units.len() / ranks..(rank + 1) * units.len() / ranks;
                Some(units[share].concat())
            }
        })
        .collect()
}

fn to_set(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four_cores_of_two() -> Vec<Vec<usize>> {
        vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]
    }

    #[test]
    fn shares_are_equal_and_disjoint() {
        let cores = four_cores_of_two();
        let two = assign(Bind::Auto, 2, &cores);
        assert_eq!(two, [Some(vec![0, 4, 1, 5]), Some(vec![2, 6, 3, 7])]);
        let three = assign(Bind::Share, 3, &cores);
        assert_eq!(
            three,
            [Some(vec![0, 4]), Some(vec![1, 5]), Some(vec![2, 6, 3, 7])]
        );
        let four = assign(Bind::Auto, 4, &cores);
        assert_eq!(four[3], Some(vec![3, 7]));
    }

    #[test]
    fn more_ranks_than_cores_share_hyperthreads_and_still_more_are_not_bound() {
        let cores = four_cores_of_two();
        let eight = assign(Bind::Auto, 8, &cores);
        let mut all: Vec<_> = eight.into_iter().flat_map(Option::unwrap).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(assign(Bind::Auto, 9, &cores).iter().all(Option::is_none));
        assert!(assign(Bind::None, 2, &cores).iter().all(Option::is_none));
        assert!(assign(Bind::Auto, 2, &[]).iter().all(Option::is_none));
    }

    #[test]
    fn cores_are_reused_in_turn_when_ranks_outnumber_them() {
        let cores = four_cores_of_two();
        let six = assign(Bind::Core, 6, &cores);
        assert_eq!(six[0], Some(vec![0, 4]));
        assert_eq!(six[5], Some(vec![1, 5]));
        let nine = assign(Bind::Share, 9, &cores);
        assert_eq!(nine[8], nine[0]);
    }

    #[test]
    fn the_host_offers_the_processors_of_the_launcher() {
        let allowed = sched_getaffinity(None).unwrap();
        let host = host().unwrap();
        let cpus: Vec<usize> = host.split(',').map(|cpu| cpu.parse().unwrap()).collect();
        assert_eq!(cpus.len(), allowed.count() as usize);
        assert!(cpus.iter().all(|cpu| allowed.is_set(*cpu)));
    }

    #[test]
    fn the_plan_for_this_machine_uses_only_allowed_processors() {
        let allowed = sched_getaffinity(None).unwrap();
        for set in plan(Bind::Core, 5) {
            let set = set.unwrap();
            assert!(set.count() > 0);
            assert!((0..CpuSet::MAX_CPU).all(|cpu| !set.is_set(cpu) || allowed.is_set(cpu)));
        }
    }
}
