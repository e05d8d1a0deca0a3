//! Property tests that compare [`BlockPool`] with a naive model, which stores every block and scans
//! all of them.

use proptest::prelude::*;

use super::{BlockPool, BlockTable};

const SEQUENCES: usize = 5;

#[derive(Debug, Clone)]
enum Act {
    /// Opens a sequence whose tokens follow a path in a binary tree, so that sequences share the
    /// blocks of their common prefix. `rest` of its tokens are known, but stored later.
    Open {
        path: Vec<bool>,
        tokens: u32,
        rest: u32,
    },
    Grow {
        which: usize,
        by: u32,
    },
    Close {
        which: usize,
    },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (prop::collection::vec(any::<bool>(), 0..6), 1u32..24, prop_oneof![Just(0), 1u32..12])
            .prop_map(|(path, tokens, rest)| Act::Open { path, tokens, rest }),
        3 => (0..SEQUENCES, 1u32..9).prop_map(|(which, by)| Act::Grow { which, by }),
        2 => (0..SEQUENCES).prop_map(|which| Act::Close { which }),
    ]
}

fn hashes(path: &[bool]) -> Vec<u64> {
    let mut hash = 1;
    path.iter()
        .map(|right| {
            hash = hash * 2 + u64::from(*right);
            hash
        })
        .collect()
}

#[derive(Debug, Default, Clone)]
struct Block {
    hash: Option<u64>,
    held_by: u32,
    returned: u64,
}

/// A naive model of a [`BlockPool`], which the tests compare with the real one.
struct Naive {
    blocks: Vec<Block>,
    size: u32,
    clock: u64,
}

impl Naive {
    fn with_hash(&self, hash: u64) -> Option<usize> {
        self.blocks.iter().position(|block| block.hash == Some(hash))
    }

    fn find(&self, hashes: &[u64], tokens: u32) -> Vec<usize> {
        let whole = (tokens / self.size) as usize;
        hashes.iter().take(whole).map_while(|hash| self.with_hash(*hash)).collect()
    }

    fn free(&self) -> usize {
        self.blocks.iter().filter(|block| block.held_by == 0).count()
    }

    fn take(&mut self) -> usize {
        let free = (0..self.blocks.len()).filter(|at| self.blocks[*at].held_by == 0);
        let at = free.min_by_key(|at| (self.blocks[*at].hash.is_some(), self.blocks[*at].returned)).unwrap();
        self.blocks[at] = Block { hash: None, held_by: 1, returned: 0 };
        at
    }

    /// Returns how many blocks a sequence needs beside its `own` to store `tokens` tokens.
    fn need(&self, own: &[usize], tokens: u32) -> usize {
        (tokens.div_ceil(self.size) as usize).saturating_sub(own.len())
    }

    fn grow(&mut self, own: &mut Vec<usize>, hashes: &[u64], tokens: u32) -> bool {
        let need = self.need(own, tokens);
        if need > self.free() {
            return false;
        }
        for _ in 0..need {
            let at = self.take();
            own.push(at);
        }
        for (index, hash) in hashes.iter().enumerate().take((tokens / self.size) as usize) {
            let at = own[index];
            match self.with_hash(*hash) {
                Some(known) if known == at => {}
                Some(known) => {
                    self.blocks[at] = Block::default();
                    self.blocks[known].held_by += 1;
                    own[index] = known;
                }
                None => self.blocks[at].hash = Some(*hash),
            }
        }
        true
    }

    fn release(&mut self, own: &mut Vec<usize>) {
        while let Some(at) = own.pop() {
            self.clock += 1;
            self.blocks[at].held_by -= 1;
            self.blocks[at].returned = self.clock;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pool_matches_the_naive_model(total in 1u32..14, size in 1u32..5, acts in prop::collection::vec(act(), 1..80)) {
        let mut pool = BlockPool::new(total, size);
        let mut naive = Naive { blocks: vec![Block::default(); total as usize], size, clock: 0 };
        let mut open: Vec<(BlockTable, Vec<u64>, Vec<usize>, u32)> = Vec::new();
        for act in acts {
            match act {
                Act::Open { path, tokens, rest } if open.len() < SEQUENCES => {
                    let hashes = hashes(&path);
                    let mut table = BlockTable::new(&hashes);
                    let found = pool.cached_tokens(&table, tokens - 1);
                    let known = naive.find(&hashes, tokens - 1);
                    prop_assert_eq!(found as usize, known.len() * size as usize);
                    prop_assert_eq!(found, pool.prefix(&hashes, tokens));
                    known.iter().for_each(|at| naive.blocks[*at].held_by += 1);
                    let mut own = known.clone();
                    let opened = pool.allocate(&mut table, found, tokens, tokens + rest);
                    let fits = naive.need(&own, tokens + rest) <= naive.free();
                    prop_assert_eq!(opened, fits && naive.grow(&mut own, &hashes, tokens));
                    if opened {
                        open.push((table, hashes, own, tokens));
                    } else {
                        known.iter().for_each(|at| naive.blocks[*at].held_by -= 1);
                    }
                }
                Act::Grow { which, by } if which < open.len() => {
                    let (table, hashes, own, tokens) = &mut open[which];
                    let grown = pool.grow(table, *tokens + by);
                    prop_assert_eq!(grown, naive.grow(own, hashes, *tokens + by));
                    *tokens += if grown { by } else { 0 };
                }
                Act::Close { which } if which < open.len() => {
                    let (mut table, _, mut own, _) = open.remove(which);
                    pool.release(&mut table);
                    naive.release(&mut own);
                }
                _ => {}
            }
            let held = naive.blocks.iter().filter(|block| block.held_by > 0).count();
            let idle = naive.blocks.iter().filter(|block| block.held_by == 0 && block.hash.is_some()).count();
            prop_assert_eq!((pool.used() as usize, pool.idle() as usize), (held, idle));
        }
        for (mut table, ..) in open {
            pool.release(&mut table);
        }
        prop_assert_eq!(pool.used(), 0, "something was left");
    }
}
