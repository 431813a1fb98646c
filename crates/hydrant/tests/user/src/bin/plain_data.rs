//! Puts elements of a type of its own, which it makes plain old data by Hydrant's derives.

#![forbid(unsafe_code)]

/// What the ranks send each other.
#[derive(Clone, Copy, Debug, PartialEq, hydrant::Pod, hydrant::Zeroable)]
#[repr(C)]
pub struct Particle {
    /// Where it is.
    pub position: [f64; 3],
    /// What it weighs.
    pub mass: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, hydrant::Pod, hydrant::Zeroable)]
#[repr(transparent)]
struct Charge(i64);

/// Bytes of three sizes without padding between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, hydrant::Pod, hydrant::Zeroable)]
#[repr(C, packed(2))]
struct Packed {
    small: u16,
    large: u64,
    particles: u32,
}

fn main() -> hydrant::Result<()> {
    hydrant::run(|job| {
        let particles = job.alloc::<Particle>(4)?;
        let charges = job.alloc::<Charge>(4)?;
        let packed = job.alloc::<Packed>(4)?;
        let earth = Particle {
            position: [1.0, 0.0, 0.0],
            mass: 5.97e24,
        };
        let counted = Packed {
            small: 1,
            large: 2,
            particles: 3,
        };
        particles.put(job.right(), 0, &[earth])?;
        charges.put(job.right(), 1, &[Charge(-1)])?;
        packed.put(job.right(), 2, &[counted])?;
        job.barrier()?;
        assert_eq!(particles.local()?.load(0)?, earth);
        assert_eq!(charges.local()?.load(1)?, Charge(-1));
        assert_eq!(packed.local()?.load(2)?, counted);
        job.barrier()
    })
}
