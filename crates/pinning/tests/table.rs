//! The hot table against a model that searches all its buckets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hydrant_pinning::table::{BucketTable, Editor, Error, Extent, FoundBucket, MAX_REFERENCES};
use proptest::prelude::*;

/// Few enough buckets that extents meet, and enough for the index to grow.
const BUCKETS: u64 = 400;

#[derive(Clone, Debug)]
enum TableStep {
    /// Adds the missing ones of `len` buckets from `base`, the first with so many references.
    Insert {
        base: u64,
        len: u64,
        held: u32,
    },
    Acquire(u64),
    Release(prop::sample::Index),
    DropReference(prop::sample::Index),
    Remove(u64),
    Close(u64),
    Queue(u64),
    TakeVictim,
}

fn step() -> impl Strategy<Value = TableStep> {
    let bucket = 0..BUCKETS;
    prop_oneof![
        4 => (0..BUCKETS, 1..6_u64, 0..3_u32)
            .prop_map(|(base, len, held)| TableStep::Insert { base, len, held }),
        8 => bucket.clone().prop_map(TableStep::Acquire),
        6 => any::<prop::sample::Index>().prop_map(TableStep::Release),
        2 => any::<prop::sample::Index>().prop_map(TableStep::DropReference),
        2 => bucket.clone().prop_map(TableStep::Remove),
        1 => bucket.clone().prop_map(TableStep::Close),
        4 => bucket.prop_map(TableStep::Queue),
        2 => Just(TableStep::TakeVictim),
    ]
}

#[derive(Clone, Debug)]
struct Bucket {
    extent: Extent,
    references: u32,
    hit: bool,
    awaited: bool,
    closed: bool,
}

/// The expected table: every bucket, and the first buckets of the queued extents.
struct Model {
    buckets: BTreeMap<u64, Bucket>,
    queue: VecDeque<u64>,
}

impl Model {
    fn lead(&self, bucket: u64) -> u64 {
        self.buckets[&bucket].extent.base
    }

    fn parts(&mut self, bucket: u64) -> Vec<&mut Bucket> {
        let lead = self.lead(bucket);
        let all = self.buckets.values_mut();
        all.filter(|part| part.extent.base == lead).collect()
    }

    fn unqueue(&mut self, bucket: u64) {
        let lead = self.lead(bucket);
        self.queue.retain(|queued| *queued != lead);
    }

    fn queue(&mut self, bucket: u64) {
        let lead = self.lead(bucket);
        if !self.queue.contains(&lead) {
            self.queue.push_back(lead);
        }
    }

    fn take(&mut self, bucket: u64) -> Option<Extent> {
        let found = self.buckets.get_mut(&bucket).filter(|it| !it.closed)?;
        found.references += 1;
        found.hit = true;
        Some(found.extent)
    }

    /// Returns true if the editor is to be told.
    fn release(&mut self, bucket: u64) -> bool {
        let found = self.buckets.get_mut(&bucket).unwrap();
        found.references -= 1;
        found.references == 0 && found.awaited
    }

    fn requeue(&mut self, bucket: u64) {
        let found = self.buckets.get_mut(&bucket).unwrap();
        if !found.closed {
            found.awaited = false;
            self.queue(bucket);
        }
    }

    fn remove(&mut self, bucket: u64) -> Option<Extent> {
        if self.parts(bucket).iter().any(|part| part.references > 0) {
            return None;
        }
        self.unqueue(bucket);
        let extent = self.buckets[&bucket].extent;
        self.buckets.retain(|_, it| it.extent.base != extent.base);
        Some(extent)
    }

    fn take_victim(&mut self) -> Option<Extent> {
        let mut chances = self.queue.len();
        loop {
            let first = *self.queue.front()?;
            let mut hit = false;
            let mut used = false;
            for part in self.parts(first) {
                if part.references > 0 {
                    part.awaited = true;
                    used = true;
                    break;
                }
                hit |= std::mem::take(&mut part.hit);
            }
            if used {
                self.queue.pop_front();
            } else if hit && chances > 0 {
                chances -= 1;
                self.queue.rotate_left(1);
            } else {
                return self.remove(first);
            }
        }
    }
}

/// A table, its model, and the references that are taken.
struct TableAndModel {
    editor: Editor,
    table: Arc<BucketTable>,
    model: Model,
    held: Vec<(u64, u32)>,
    next_key: u64,
}

impl TableAndModel {
    fn new() -> Self {
        let editor = Editor::new();
        TableAndModel {
            table: editor.table().clone(),
            editor,
            model: Model {
                buckets: BTreeMap::new(),
                queue: VecDeque::new(),
            },
            held: vec![],
            next_key: 1,
        }
    }

    fn run(&mut self, step: TableStep) {
        match step {
            TableStep::Insert { base, len, held } => self.insert(base, len, held),
            TableStep::Acquire(bucket) => {
                let found = self.table.acquire(bucket);
                assert_eq!(found.map(extent_of), self.model.take(bucket));
                self.held.extend(found.map(|it| (bucket, it.slot)));
            }
            TableStep::Release(which) => {
                let Some((bucket, slot)) = self.pick(which) else {
                    return;
                };
                let last = self.table.release(slot);
                assert_eq!(last, self.model.release(bucket));
                if last {
                    self.editor.requeue(slot);
                    self.model.requeue(bucket);
                }
            }
            TableStep::DropReference(which) => {
                let Some((bucket, slot)) = self.pick(which) else {
                    return;
                };
                let unheld = self.editor.drop_reference(slot);
                if self.model.release(bucket) {
                    self.model.requeue(bucket);
                }
                assert_eq!(unheld, self.model.buckets[&bucket].references == 0);
            }
            TableStep::TakeVictim => {
                assert_eq!(self.editor.take_victim(), self.model.take_victim());
            }
            TableStep::Remove(bucket) | TableStep::Close(bucket) | TableStep::Queue(bucket) => {
                let slot = self.editor.get(bucket);
                assert_eq!(slot.is_some(), self.model.buckets.contains_key(&bucket));
                if let Some(slot) = slot {
                    self.change(step, bucket, slot);
                }
            }
        }
    }

    fn insert(&mut self, base: u64, len: u64, held: u32) {
        let present = |bucket: &u64| self.model.buckets.contains_key(bucket);
        let end = (base..base + len).find(present).unwrap_or(base + len);
        let key = self.next_key;
        let writable = key.is_multiple_of(2);
        self.next_key += 1;
        let extent = Extent {
            key,
            base,
            end,
            writable,
        };
        for bucket in base..end {
            let references = if bucket == base { held } else { 0 };
            let slot = self.editor.insert(bucket, &extent, references).unwrap();
            self.held.extend((0..references).map(|_| (bucket, slot)));
            let record = Bucket {
                extent,
                references,
                hit: false,
                awaited: false,
                closed: false,
            };
            self.model.buckets.insert(bucket, record);
        }
    }

    fn change(&mut self, step: TableStep, bucket: u64, slot: u32) {
        let (editor, model) = (&mut self.editor, &mut self.model);
        match step {
            TableStep::Remove(_) => assert_eq!(editor.remove(slot), model.remove(bucket)),
            TableStep::Close(_) => {
                model.unqueue(bucket);
                for part in model.parts(bucket) {
                    (part.closed, part.awaited) = (true, true);
                }
                editor.close(slot);
            }
            TableStep::Queue(_) => {
                // A closed extent is not queued again, because it is about to go.
                if !model.buckets[&bucket].closed {
                    editor.queue(slot);
                    model.queue(bucket);
                }
            }
            _ => unreachable!("not a change of one bucket"),
        }
    }

    fn pick(&mut self, which: prop::sample::Index) -> Option<(u64, u32)> {
        let at = (!self.held.is_empty()).then(|| which.index(self.held.len()))?;
        Some(self.held.swap_remove(at))
    }

    /// Compares every query with the model.
    fn check(&self) {
        let mut all: Vec<_> = self.editor.iter().collect();
        all.sort_unstable();
        let numbers: Vec<_> = all.iter().map(|(bucket, _)| *bucket).collect();
        let expected: Vec<_> = self.model.buckets.keys().copied().collect();
        assert_eq!(numbers, expected);
        assert_eq!(self.editor.len(), expected.len());
        assert_eq!(self.editor.queued(), self.model.queue.len());
        for (bucket, slot) in all {
            let expected = &self.model.buckets[&bucket];
            assert_eq!(self.editor.get(bucket), Some(slot));
            assert_eq!(self.editor.bucket(slot), bucket);
            assert_eq!(self.editor.references(slot), expected.references);
            assert_eq!(self.editor.extent(slot), expected.extent);
            let queued = self.model.queue.contains(&self.model.lead(bucket));
            assert_eq!(self.editor.is_queued(slot), queued);
        }
    }
}

fn extent_of(found: FoundBucket) -> Extent {
    Extent {
        key: found.key,
        base: found.base,
        end: found.end,
        writable: found.writable,
    }
}

proptest! {
    #[test]
    fn a_table_does_as_the_model(steps in prop::collection::vec(step(), 1..600)) {
        let mut pair = TableAndModel::new();
        for step in steps {
            pair.run(step);
            pair.check();
        }
    }
}

fn lone(key: u64, bucket: u64) -> Extent {
    Extent {
        key,
        base: bucket,
        end: bucket + 1,
        writable: true,
    }
}

#[test]
fn a_bucket_stays_below_64_bytes() {
    for buckets in [256, 257, 1_000, 3_700, 4_096, 4_097, 28_673, 57_345, 65_536] {
        let mut editor = Editor::new();
        for bucket in 0..buckets {
            let bucket = bucket * 7_919;
            editor.insert(bucket, &lone(1, bucket), 0).unwrap();
        }
        let each = editor.memory() as f64 / buckets as f64;
        assert!(
            each <= 64.0,
            "{each:.1} bytes for each of {buckets} buckets"
        );
    }
}

#[test]
fn one_reference_too_many_is_refused() {
    let mut editor = Editor::new();
    let table = editor.table().clone();
    let slot = (editor.insert(5, &lone(1, 5), MAX_REFERENCES - 1)).unwrap();
    assert!(table.acquire(5).is_some());
    assert!(table.acquire(5).is_none());
    assert_eq!(editor.references(slot), MAX_REFERENCES);
    assert_eq!(editor.remove(slot), None);
    let too_many = editor.insert(6, &lone(1, 6), MAX_REFERENCES + 1);
    assert_eq!(too_many, Err(Error::TooManyReferences { bucket: 6 }));
}

#[test]
fn inserts_that_do_not_fit_are_refused() {
    let mut editor = Editor::new();
    let extent = |base, end| Extent {
        key: 1,
        base,
        end,
        writable: false,
    };
    let last = (1 << 40) - 1;
    let past = Error::Beyond { bucket: 1 << 40 };
    assert_eq!(editor.insert(1 << 40, &extent(0, 9), 0), Err(past));
    assert_eq!(editor.insert(last, &extent(last, last + 2), 0), Err(past));
    assert!(editor.insert(last, &extent(last, last + 1), 0).is_ok());

    let outside = editor.insert(9, &extent(3, 9), 0);
    let (bucket, base, end) = (9, 3, 9);
    assert_eq!(outside, Err(Error::Outside { bucket, base, end }));
    let first = editor.insert(4, &extent(3, 9), 0);
    assert_eq!(first, Err(Error::NoFirst { bucket: 4, base: 3 }));

    let slot = editor.insert(3, &extent(3, 9), 0).unwrap();
    let twice = editor.insert(3, &extent(3, 4), 0);
    assert_eq!(twice, Err(Error::Present { bucket: 3, slot }));
    assert_eq!(editor.len(), 2);
}

#[test]
#[should_panic(expected = "given back more often than taken")]
fn a_release_without_a_hold_panics() {
    let mut editor = Editor::new();
    let slot = editor.insert(5, &lone(1, 5), 0).unwrap();
    let _ = editor.table().release(slot);
}
