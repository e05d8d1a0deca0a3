//! An ordered set of requirements that finds the first member that fits.
//!
//! A treap in an arena. Each node knows the minimum of each requirement below it, and the number of
//! members. Branches in which no member fits are skipped: the first fitting member is found in
//! O(log n) if members differ in one requirement. If they differ in several, a branch may combine
//! the minimum of different members, and is then searched in vain.

use std::cmp::Ordering;
use std::time::Instant;

use super::available::Available;
use super::requirements::Requirements;

const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct Node<K> {
    key: K,
    needs: Requirements,
    least: Requirements,
    left: u32,
    right: u32,
    priority: u32,
    size: u32,
}

/// The set. See [the module](self). Keys must be unique.
#[derive(Debug)]
pub(super) struct FitSet<K> {
    nodes: Vec<Node<K>>,
    free: Vec<u32>,
    root: u32,
    seed: u32,
    /// The path to the last change, kept to reuse its memory.
    path: Vec<u32>,
}

impl<K> Default for FitSet<K> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: NIL, seed: 0x9E37_79B9, path: Vec::new() }
    }
}

impl<K: Copy + Ord> FitSet<K> {
    pub(super) fn len(&self) -> usize {
        self.size(self.root) as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.root == NIL
    }

    /// Returns the minimum of each requirement over all members.
    pub(super) fn least(&self) -> Option<Requirements> {
        Some(self.node(self.root)?.least)
    }

    pub(super) fn first(&self) -> Option<(K, Requirements)> {
        let mut at = self.node(self.root)?;
        while let Some(left) = self.node(at.left) {
            at = left;
        }
        Some((at.key, at.needs))
    }

    /// Returns the member at a position.
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

    /// Returns the number of members before a key.
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

    /// Returns the first member after `after` that fits; the first of all if `after` is `None`.
    pub(super) fn next_fit(&self, after: Option<&K>, available: &Available, tenant_tokens: u32) -> Option<K> {
        self.fit(self.root, after, available, tenant_tokens)
    }

    pub(super) fn insert(&mut self, key: K, needs: Requirements) {
        let node = Node { key, needs, least: needs, left: NIL, right: NIL, priority: self.draw(), size: 1 };
        let new = match self.free.pop() {
            Some(free) => {
                self.nodes[free as usize] = node;
                free
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.hang(new, key, needs);
    }

    /// Returns `false` if the key was not in the set.
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
        self.free.push(gone);
        true
    }

    /// Replaces the requirements of a member.
    pub(super) fn set(&mut self, key: &K, needs: Requirements) {
        if let Some((at, left, right)) = self.descend(key) {
            self.nodes[at as usize].needs = needs;
            self.join(at, left, right);
            self.ascend();
        }
    }

    /// Returns the earliest time that `of` returns for a member, or `best` if that is earlier.
    ///
    /// `bound` returns a lower bound for all members that require at least that much, or `None` for
    /// never. Branches that cannot improve `best` are skipped.
    pub(super) fn soonest(
        &self,
        best: Option<Instant>,
        bound: &mut dyn FnMut(&Requirements) -> Option<Instant>,
        of: &mut dyn FnMut(&K, &Requirements) -> Option<Instant>,
    ) -> Option<Instant> {
        self.soonest_below(self.root, best, bound, of)
    }

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

    /// Inserts a new node at the place of its key and priority, and updates the nodes above it.
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

    /// Returns the node of a key and its children. Stores the path to it in `path`.
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

    /// Updates the nodes on the path from the bottom up, until nothing changes.
    fn ascend(&mut self) {
        while let Some(at) = self.path.pop() {
            let Node { least, left, right, .. } = self.nodes[at as usize];
            self.join(at, left, right);
            if self.nodes[at as usize].least == least {
                return;
            }
        }
    }

    /// Splits a subtree into the members before the key and the others.
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

    /// Sets the children of a node, and updates its minimum and size.
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

    /// Xorshift. The balance of the tree needs no unpredictable numbers, and every run must be the
    /// same.
    fn draw(&mut self) -> u32 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 17;
        self.seed ^= self.seed << 5;
        self.seed
    }
}

pub(super) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
impl<K: Copy + Ord> FitSet<K> {
    /// Returns the depth of the tree.
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
