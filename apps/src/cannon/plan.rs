//! The block that each rank has in each step.
//!
//! Rank (i, j) of a mesh with side q is home to A(i, j), B(i, j) and C(i, j); all indices wrap
//! around the edges. Both variants take q steps, and in each every rank multiplies its two blocks:
//!
//! | | rank (i, j) multiplies in step t | so that | what moves |
//! |---|---|---|---|
//! | local | A(i, k) and B(k, j), k = i + j + t | its sum stays: C(i, j) | A left, B up |
//! | remote | A(i, j) and B(j, k), k = i + j + t | A stays | B up, the product to C(i, k) |
//!
//! The first is Cannon's algorithm as he gave it (1969). The second is what Firehose §4.3
//! measures: "if results are accumulated on remote nodes, put operations are used".

use hydrant::Rank;

use crate::{exchange::Hop, shape::Mesh};

/// The moves of each rank's A: to its position for step 0, then left. (Local variant.)
pub fn a_moves(mesh: Mesh, rank: Rank) -> Vec<Hop> {
    let (i, j) = mesh.place(rank);
    let back = mesh.side() - 1;
    let place = Hop {
        to: mesh.rank(i, j + back * i),
        from: mesh.rank(i, j + i),
    };
    let left = Hop {
        to: mesh.rank(i, j + back),
        from: mesh.rank(i, j + 1),
    };
    steps(mesh, place, left)
}

/// The moves of each rank's B: to its position for step 0, then up. (Local variant.)
pub fn b_moves(mesh: Mesh, rank: Rank) -> Vec<Hop> {
    let (i, j) = mesh.place(rank);
    let back = mesh.side() - 1;
    let place = Hop {
        to: mesh.rank(i + back * j, j),
        from: mesh.rank(i + j, j),
    };
    steps(mesh, place, up(mesh, i, j))
}

/// The moves of each rank's B: to its position for step 0, then up. (Remote variant.)
pub fn b_moves_remote(mesh: Mesh, rank: Rank) -> Vec<Hop> {
    let (i, j) = mesh.place(rank);
    let back = mesh.side() - 1;
    let place = Hop {
        // Column i needs B(i, j) in the row r for which r + i = j.
        to: mesh.rank(j + back * i, i),
        from: mesh.rank(j, i + j),
    };
    steps(mesh, place, up(mesh, i, j))
}

/// The moves of each rank's product: to the home of its sum. (Remote variant.)
pub fn product_moves(mesh: Mesh, rank: Rank) -> Vec<Hop> {
    let (i, j) = mesh.place(rank);
    let back = mesh.side() - 1;
    (0..mesh.side())
        .map(|step| Hop {
            to: mesh.rank(i, i + j + step),
            from: mesh.rank(i, j + back * (i + step)),
        })
        .collect()
}

fn up(mesh: Mesh, i: usize, j: usize) -> Hop {
    Hop {
        to: mesh.rank(i + mesh.side() - 1, j),
        from: mesh.rank(i + 1, j),
    }
}

/// A move to the position for step 0, then one move from each step to the next.
fn steps(mesh: Mesh, place: Hop, shift: Hop) -> Vec<Hop> {
    let shifts = mesh.side() - 1;
    std::iter::once(place)
        .chain(std::iter::repeat_n(shift, shifts))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents of every rank after one more step of a plan.
    fn moved<T: Clone>(plans: &[Vec<Hop>], step: usize, held: &[T]) -> Vec<T> {
        for (rank, plan) in plans.iter().enumerate() {
            let to = plan[step].to.index();
            assert_eq!(
                plans[to][step].from.index(),
                rank,
                "both sides agree in step {step}"
            );
        }
        plans
            .iter()
            .map(|plan| held[plan[step].from.index()].clone())
            .collect()
    }

    #[test]
    fn every_pair_of_blocks_is_multiplied_for_the_sum_it_belongs_to() {
        for side in 1..8 {
            let mesh = Mesh::new(side * side).unwrap();
            let ranks: Vec<Rank> = (0..side * side).map(Rank).collect();
            let homes: Vec<_> = ranks.iter().map(|rank| mesh.place(*rank)).collect();
            let plans = |plan: fn(Mesh, Rank) -> Vec<Hop>| -> Vec<_> {
                ranks.iter().map(|rank| plan(mesh, *rank)).collect()
            };
            let (a_plans, b_plans) = (plans(a_moves), plans(b_moves));
            let (far_plans, product_plans) = (plans(b_moves_remote), plans(product_moves));
            let (mut a, mut b, mut far) = (homes.clone(), homes.clone(), homes.clone());
            let mut local = vec![Vec::new(); homes.len()];
            let mut remote = local.clone();
            for step in 0..mesh.side() {
                a = moved(&a_plans, step, &a);
                b = moved(&b_plans, step, &b);
                far = moved(&far_plans, step, &far);
                let pairs = |a: &[_], b: &[_]| -> Vec<((usize, usize), (usize, usize))> {
                    a.iter().copied().zip(b.iter().copied()).collect()
                };
                for (sum, pair) in local.iter_mut().zip(pairs(&a, &b)) {
                    sum.push(pair);
                }
                let arrived = moved(&product_plans, step, &pairs(&homes, &far));
                for (sum, pair) in remote.iter_mut().zip(arrived) {
                    sum.push(pair);
                }
            }
            for sums in [local, remote] {
                for ((row, column), mut sum) in homes.iter().copied().zip(sums) {
                    sum.sort_unstable();
                    let wanted: Vec<_> =
                        (0..mesh.side()).map(|k| ((row, k), (k, column))).collect();
                    assert_eq!(sum, wanted, "C({row}, {column}) on a mesh of side {side}");
                }
            }
        }
    }
}
