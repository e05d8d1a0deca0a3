//! An ordered set of keys with requirements, which finds the first key whose requirements fit.
//!
//! The set is a treap. Each node stores the minimum of each requirement over its subtree, and the
//! number of nodes in it. A search skips subtrees in which nothing fits. It takes O(log n) time if
//! members differ in one requirement. If they differ in several, the minimum of a subtree may
//! combine values of different members, and the subtree is searched without a result.

use std::cmp::Ordering;
use std::time::Instant;

use slab::Slab;

use super::{Available, Requirements};

/// The index that stands for no node.
const NIL: u32 = u32::MAX;

/// A member of the set, as a node of the tree.
#[derive(Debug)]
struct Node<K> {
    key: K,
    needs: Requirements,
    /// The minimum of each requirement over the node and all nodes below it.
    least: Requirements,
    /// The index of the child with smaller keys, or [`NIL`].
    left: u32,
    /// The index of the child with greater keys, or [`NIL`].
    right: u32,
    /// A random number, at least as great as the numbers of the children. Keeps the tree balanced.
    priority: u32,
    /// The number of nodes in the subtree, this one included.
    size: u32,
}

/// An ordered set of keys, each with [`Requirements`]. See [the module](self). Keys must be unique.
#[derive(Debug)]
pub(super) struct FitSet<K> {
    nodes: Slab<Node<K>>,
    /// The index of the root, or [`NIL`] if the set is empty.
    root: u32,
    /// The state of the random number generator.
    seed: u32,
    /// Scratch space of changes: the indices of the nodes from the root to the parent of the
    /// changed node. A field, so that its memory is allocated only once.
    path: Vec<u32>,
}

impl<K> Default for FitSet<K> {
    fn default() -> Self {
        Self { nodes: Slab::new(), root: NIL, seed: 0x9E37_79B9, path: Vec::new() }
    }
}

impl<K: Copy + Ord> FitSet<K> {
    pub(super) fn len(&self) -> usize {
        self.size(self.root) as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.root == NIL
    }

    /// Returns the minimum of each requirement over all members, or `None` if the set is empty.
    pub(super) fn least(&self) -> Option<Requirements> {
        Some(self.node(self.root)?.least)
    }

    /// Returns the member with the least key, or `None` if the set is empty.
    pub(super) fn first(&self) -> Option<(K, Requirements)> {
        let mut at = self.node(self.root)?;
        while let Some(left) = self.node(at.left) {
            at = left;
        }
        Some((at.key, at.needs))
    }

    /// Returns the key at the position `index` in ascending order, counted from 0. Returns `None`
    /// if the set has too few members.
    pub(super) fn nth(&self, mut index: usize) -> Option<K> {
        let mut at = self.node(self.root)?;
        loop {
            let before = self.size(at.left) as usize;
            at = match index.cmp(&before) {
                Ordering::Equal => return Some(at.key),
                Ordering::Less => self.node(at.left)?,
                Ordering::Greater => {
                    index -= before + 1;
                    self.node(at.right)?
                }
            };
        }
    }

    /// Returns the number of members whose key is smaller than `key`.
    pub(super) fn rank(&self, key: &K) -> usize {
        let (mut at, mut rank) = (self.root, 0);
        while let Some(node) = self.node(at) {
            if *key <= node.key {
                at = node.left;
            } else {
                rank += self.size(node.left) as usize + 1;
                at = node.right;
            }
        }
        rank
    }

    /// Returns the least key greater than `after` whose requirements fit into `available` and
    /// `tenant_tokens`. If `after` is `None`, searches all members. Returns `None` if no member
    /// fits.
    pub(super) fn next_fit(&self, after: Option<&K>, available: &Available, tenant_tokens: u32) -> Option<K> {
        self.fit(self.root, after, available, tenant_tokens)
    }

    /// Adds a member. The key must not be in the set.
    pub(super) fn insert(&mut self, key: K, needs: Requirements) {
        let node = Node { key, needs, least: needs, left: NIL, right: NIL, priority: self.draw(), size: 1 };
        let new = self.nodes.insert(node) as u32;
        self.hang(new, key, needs);
    }

    /// Removes a member. Returns `false` if the key is not in the set.
    pub(super) fn remove(&mut self, key: &K) -> bool {
        let Some((gone, left, right)) = self.descend(key) else { return false };
        let below = self.merge(left, right);
        match self.path.last() {
            None => self.root = below,
            Some(parent) => {
                let parent = &mut self.nodes[*parent as usize];
                *(if parent.left == gone { &mut parent.left } else { &mut parent.right }) = below;
            }
        }
        for at in &self.path {
            self.nodes[*at as usize].size -= 1;
        }
        self.ascend();
        self.nodes.remove(gone as usize);
        true
    }

    /// Replaces the requirements of a member. Does nothing if the key is not in the set.
    pub(super) fn set(&mut self, key: &K, needs: Requirements) {
        if let Some((at, left, right)) = self.descend(key) {
            self.nodes[at as usize].needs = needs;
            self.join(at, left, right);
            self.ascend();
        }
    }

    /// Returns the earliest time that `of` returns for a member, or `best` if that is earlier.
    ///
    /// `bound` returns a lower bound of these times for all members that require at least the given
    /// amounts, or `None` if none of them has a time. Branches that cannot improve `best` are
    /// skipped.
    pub(super) fn soonest(
        &self,
        best: Option<Instant>,
        bound: &mut dyn FnMut(&Requirements) -> Option<Instant>,
        of: &mut dyn FnMut(&K, &Requirements) -> Option<Instant>,
    ) -> Option<Instant> {
        self.soonest_below(self.root, best, bound, of)
    }

    /// Does the same as [`FitSet::soonest`] for the subtree at `at`.
    fn soonest_below(
        &self,
        at: u32,
        mut best: Option<Instant>,
        bound: &mut dyn FnMut(&Requirements) -> Option<Instant>,
        of: &mut dyn FnMut(&K, &Requirements) -> Option<Instant>,
    ) -> Option<Instant> {
        let Some(node) = self.node(at) else { return best };
        let Some(earliest) = bound(&node.least) else { return best };
        if best.is_some_and(|best| best <= earliest) {
            return best;
        }
        best = earlier(best, of(&node.key, &node.needs));
        best = self.soonest_below(node.left, best, bound, of);
        self.soonest_below(node.right, best, bound, of)
    }

    /// Does the same as [`FitSet::next_fit`] for the subtree at `at`.
    fn fit(&self, at: u32, after: Option<&K>, available: &Available, tenant_tokens: u32) -> Option<K> {
        let node = self.node(at)?;
        if !node.least.fits(available, tenant_tokens) {
            return None;
        }
        if after.is_none_or(|after| *after < node.key) {
            if let Some(found) = self.fit(node.left, after, available, tenant_tokens) {
                return Some(found);
            }
            if node.needs.fits(available, tenant_tokens) {
                return Some(node.key);
            }
        }
        self.fit(node.right, after, available, tenant_tokens)
    }

    /// Inserts the node `new` where its key and priority belong, and updates the nodes above it.
    fn hang(&mut self, new: u32, key: K, needs: Requirements) {
        let priority = self.nodes[new as usize].priority;
        let (mut at, mut parent) = (self.root, None);
        while let Some(node) = self.nodes.get_mut(at as usize).filter(|node| node.priority >= priority) {
            node.size += 1;
            node.least = node.least.least(needs);
            let before = key < node.key;
            parent = Some((at, before));
            at = if before { node.left } else { node.right };
        }
        let (left, right) = self.split(at, &key);
        self.join(new, left, right);
        match parent {
            None => self.root = new,
            Some((parent, true)) => self.nodes[parent as usize].left = new,
            Some((parent, false)) => self.nodes[parent as usize].right = new,
        }
    }

    /// Returns the node of a key and its two children. Stores the nodes above it in `path`, the
    /// root first. Returns `None` if the key is not in the set.
    fn descend(&mut self, key: &K) -> Option<(u32, u32, u32)> {
        self.path.clear();
        let mut at = self.root;
        loop {
            let node = self.nodes.get(at as usize)?;
            let next = match key.cmp(&node.key) {
                Ordering::Equal => return Some((at, node.left, node.right)),
                Ordering::Less => node.left,
                Ordering::Greater => node.right,
            };
            self.path.push(at);
            at = next;
        }
    }

    /// Updates the minimum of the nodes in `path` from the bottom up, until one does not change.
    fn ascend(&mut self) {
        while let Some(at) = self.path.pop() {
            let Node { least, left, right, .. } = self.nodes[at as usize];
            self.join(at, left, right);
            if self.nodes[at as usize].least == least {
                return;
            }
        }
    }

    /// Splits the subtree at `at` into the members with smaller keys than `key` and the others.
    /// Returns the roots of both.
    fn split(&mut self, at: u32, key: &K) -> (u32, u32) {
        let Some(node) = self.node(at) else { return (NIL, NIL) };
        let (left, right) = (node.left, node.right);
        if node.key < *key {
            let (inner, outer) = self.split(right, key);
            self.join(at, left, inner);
            (at, outer)
        } else {
            let (outer, inner) = self.split(left, key);
            self.join(at, inner, right);
            (outer, at)
        }
    }

    /// Joins two subtrees into one and returns its root. All keys of `left` must be smaller than
    /// those of `right`.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        let (Some(l), Some(r)) = (self.node(left), self.node(right)) else {
            return if left == NIL { right } else { left };
        };
        if l.priority > r.priority {
            let (outer, inner) = (l.left, l.right);
            let inner = self.merge(inner, right);
            self.join(left, outer, inner);
            left
        } else {
            let (inner, outer) = (r.left, r.right);
            let inner = self.merge(left, inner);
            self.join(right, inner, outer);
            right
        }
    }

    /// Sets the children of a node, and updates its minimum and size from them.
    fn join(&mut self, at: u32, left: u32, right: u32) {
        let mut least = self.nodes[at as usize].needs;
        for below in [left, right] {
            if let Some(node) = self.node(below) {
                least = least.least(node.least);
            }
        }
        let size = 1 + self.size(left) + self.size(right);
        let node = &mut self.nodes[at as usize];
        (node.left, node.right, node.least, node.size) = (left, right, least, size);
    }

    fn node(&self, at: u32) -> Option<&Node<K>> {
        self.nodes.get(at as usize)
    }

    fn size(&self, at: u32) -> u32 {
        self.node(at).map_or(0, |node| node.size)
    }

    /// Returns the next random number (xorshift). The tree needs no unpredictable numbers, and a
    /// fixed seed makes each run the same.
    fn draw(&mut self) -> u32 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 17;
        self.seed ^= self.seed << 5;
        self.seed
    }
}

/// Returns the earlier of two times. `None` stands for never.
pub(super) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
impl<K: Copy + Ord> FitSet<K> {
    /// Returns the number of nodes on the longest path from the root.
    pub(super) fn depth(&self) -> usize {
        let mut deepest = 0;
        let mut left = vec![(self.root, 1)];
        while let Some((at, depth)) = left.pop() {
            if let Some(node) = self.node(at) {
                deepest = deepest.max(depth);
                left.extend([(node.left, depth + 1), (node.right, depth + 1)]);
            }
        }
        deepest
    }
}
