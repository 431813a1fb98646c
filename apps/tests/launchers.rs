//! The same programs under the launchers of MPICH and Open MPI.

mod support;

use support::{
    Launcher::{self, Hydra, OpenMpi},
    fails, report,
};

const CANNON: &str = env!("CARGO_BIN_EXE_cannon");
const BITONIC: &str = env!("CARGO_BIN_EXE_bitonic");

fn cannon_on_every_mesh(launcher: Launcher) {
    for ranks in [1, 4, 9, 16] {
        if let Some(report) = report(launcher, ranks, CANNON, &["--n", "61"]) {
            assert_eq!(report["verified"], "full");
        }
    }
    let message = "cannon: 3 ranks make no square mesh: the nearest numbers that do are 1 and 4\n";
    fails(launcher, 3, CANNON, &[], 1, message);
}

fn bitonic_on_every_hypercube(launcher: Launcher) {
    for ranks in [1, 2, 4, 8, 16] {
        if let Some(report) = report(launcher, ranks, BITONIC, &["--n", "1001"]) {
            assert_eq!(report["verified"], "full");
        }
    }
    let message = "the nearest numbers that do are 4 and 8\n";
    fails(launcher, 6, BITONIC, &[], 1, message);
}

#[test]
fn mpiexec_starts_cannon() {
    cannon_on_every_mesh(Hydra);
}

#[test]
fn mpiexec_starts_bitonic() {
    bitonic_on_every_hypercube(Hydra);
}

#[test]
fn mpirun_starts_cannon() {
    cannon_on_every_mesh(OpenMpi);
}

#[test]
fn mpirun_starts_bitonic() {
    bitonic_on_every_hypercube(OpenMpi);
}
