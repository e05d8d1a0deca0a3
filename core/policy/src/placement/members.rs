//! The members of a pool: which replicas join and leave, and which calls they serve.

use std::sync::Arc;
use std::time::Instant;

use super::{MAX_REPLICAS, PlacedCall, Placement, ReplicaConfig, ReplicaId, ReplicaSet, Wants};
use super::{health::Health, replica::Replica};

impl Placement {
    /// Sets the pool's members. Returns the indices of the replicas that joined.
    ///
    /// A replica that has the URL of a member stays, with the member's configuration. A replica
    /// that is no longer a member drains: it gets no more calls and leaves when its last one ends.
    /// If it becomes a member again before that, it continues. There are at most [`MAX_REPLICAS`]
    /// replicas, including draining ones. Members at the end of the list that exceed this number do
    /// not join before others have left.
    pub fn set_members(&mut self, now: Instant, members: &[ReplicaConfig]) -> ReplicaSet {
        for replica in self.replicas.iter_mut().flatten() {
            replica.draining = !members.iter().any(|member| member.url == replica.member.url);
        }
        for slot in &mut self.replicas {
            slot.take_if(|replica| replica.has_drained());
        }
        // A replica that joins running ones begins with slow start. The first ones do not.
        let starts = self.known().any(|(_, replica)| replica.health.last_alive.is_some());
        let (mut joined, mut is_complete) = (ReplicaSet::NONE, true);
        for member in members {
            let mut known = self.replicas.iter_mut().flatten();
            if let Some(known) = known.find(|known| known.member.url == member.url) {
                known.member = member.clone();
            } else if let Some(index) = self.free_index() {
                self.ids += 1;
                let health = Health::new(now, self.settings, starts);
                let replica = Replica::new(ReplicaId(self.ids), member.clone(), health, self.polls.poll);
                self.replicas[index] = Some(replica);
                joined.insert(index);
            } else {
                is_complete = false;
            }
        }
        for replica in self.replicas.iter_mut().flatten() {
            replica.load.set_kv_tokens(replica.member.kv_tokens);
        }
        self.pending = (!is_complete).then(|| members.into());
        self.settle(now);
        joined
    }

    /// If some members could not join because the pool was full, and an index is free now, returns
    /// all members. Otherwise, returns `None`. Call this after a replica has left, and pass the
    /// result to [`Placement::set_members`].
    pub(crate) fn take_pending(&mut self) -> Option<Arc<[ReplicaConfig]>> {
        self.pending
            .take_if(|_| self.replicas.len() < MAX_REPLICAS || self.replicas.iter().any(Option::is_none))
    }

    /// Returns a free index of the table of replicas, which grows if necessary, or `None` if all
    /// [`MAX_REPLICAS`] are taken.
    fn free_index(&mut self) -> Option<usize> {
        let free = self.replicas.iter().position(Option::is_none).unwrap_or(self.replicas.len());
        if free == self.replicas.len() && free < MAX_REPLICAS {
            self.replicas.push(None);
        }
        (free < MAX_REPLICAS).then_some(free)
    }

    /// Returns the replicas that are not draining.
    pub(super) fn members(&self) -> ReplicaSet {
        self.filter(|replica| !replica.draining)
    }

    /// Returns the replicas that could serve a call, healthy or not.
    ///
    /// They are not draining, are known to serve the call's model, have a context for an input of
    /// `least_input` tokens as far as is known, and are not among the replicas that the call
    /// avoids. A condition that no replica satisfies is dropped, because only the replica itself
    /// knows for certain. The replicas to avoid are dropped first, then the context length, then
    /// the model.
    pub fn serving(&self, wants: Option<&Wants>, least_input: u64) -> ReplicaSet {
        let members = self.members();
        let model = wants.and_then(|wants| wants.model.as_deref());
        let serving = model.map_or(members, |model| self.serving_model(model));
        let fitting = self.filter(|replica| replica.takes(model, least_input)).and(serving);
        let fitting = fitting.or_if_empty(serving);
        let avoided = wants.into_iter().flat_map(|wants| &wants.avoid);
        let avoided = avoided.filter_map(|id| self.index_of(*id)).collect();
        fitting.less(avoided).or_if_empty(fitting)
    }

    /// Returns the first nonempty set of the following:
    ///
    /// 1. Members that are known to serve the model and do not refuse connections.
    /// 2. Members of which that is not known and that do not refuse connections.
    /// 3. Members that are known to serve the model. The call waits for them.
    /// 4. All members.
    fn serving_model(&self, model: &str) -> ReplicaSet {
        let members = self.members();
        let listening = members.less(self.refusing());
        let serves = |answer| self.filter(|replica| replica.serves(model) == answer).and(members);
        let known = serves(Some(true));
        let unknown = serves(None).and(listening);
        known.and(listening).or_if_empty(unknown).or_if_empty(known).or_if_empty(members)
    }

    /// Returns the members that serve a model as far as is known, and those of which it is not
    /// known, unless they refuse connections.
    pub(super) fn could_serve(&self, model: &str) -> ReplicaSet {
        let could =
            |replica: &Replica| replica.serves(model).unwrap_or_else(|| !replica.health.is_refusing());
        self.filter(could).and(self.members())
    }

    /// Returns the replicas where a call may be tried for which another replica answered that it
    /// lacks the model. Empty if the call names no model.
    ///
    /// If no member serves the model as far as is known, these are the members that did not answer
    /// so themselves, because the model may have been loaded since the members listed their models.
    pub(crate) fn replicas_to_try(&self, call: &PlacedCall) -> ReplicaSet {
        let Some(model) = call.model.as_deref() else { return ReplicaSet::NONE };
        let unasked = self.filter(|replica| !replica.lacks(model)).and(self.members());
        self.could_serve(model).or_if_empty(unasked.less(self.refusing()))
    }

    /// Returns the replicas that refuse connections.
    pub fn refusing(&self) -> ReplicaSet {
        self.filter(|replica| replica.health.is_refusing())
    }
}
