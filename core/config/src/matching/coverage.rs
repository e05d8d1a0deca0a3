//! Finds targets that no request can reach, without comparing every pair of targets.
//!
//! If a rule takes all requests of another, then each URL of the other is covered by one of its
//! URLs, and each model by one of its models. So the rules above are indexed by URL and by model,
//! and a rule is compared with the shortest of the candidate lists that its URLs and models have.
//! If URLs or models are distinct, the time is near-linear in the number of targets. The time is
//! quadratic if targets share both, and for model patterns that begin and end with `*`.

use std::collections::{BTreeSet, HashMap};

use super::TargetRule;
use super::glob::Glob;

/// The rules so far, by what each of them could cover.
#[derive(Debug, Default)]
pub(crate) struct CoverIndex<'a> {
    rules: Vec<&'a TargetRule>,
    /// Rules for every URL.
    every_url: Vec<usize>,
    /// Rules by the normal form of each base URL.
    by_url: HashMap<String, Vec<usize>>,
    /// Rules for every model.
    every_model: Vec<usize>,
    /// Rules by each model that is named in full.
    by_model: HashMap<String, Vec<usize>>,
    /// Rules by the literal prefix of a model pattern, if it is at least as long as the suffix.
    by_start: Affixes,
    /// Rules by the literal suffix, if it is longer.
    by_end: Affixes,
}

/// Rules by a prefix or suffix, and the lengths that occur.
#[derive(Debug, Default)]
struct Affixes {
    rules: HashMap<String, Vec<usize>>,
    lengths: BTreeSet<usize>,
}

impl Affixes {
    fn add(&mut self, affix: &str, at: usize) {
        self.lengths.insert(affix.len());
        push(&mut self.rules, affix, at);
    }

    /// Returns the lists of all affixes of a text; `cut` takes the affix of a length.
    fn lists<'t>(&self, cut: impl Fn(usize) -> Option<&'t str>) -> impl Iterator<Item = &[usize]> {
        self.lengths.iter().filter_map(move |length| self.rules.get(cut(*length)?)).map(Vec::as_slice)
    }
}

impl<'a> CoverIndex<'a> {
    /// Returns the first rule added so far that takes all requests of this one, by its position.
    pub(crate) fn first_cover(&self, rule: &TargetRule) -> Option<usize> {
        let covers = |at: &usize| self.rules.get(*at).is_some_and(|above| above.covers(rule));
        // Each list is in ascending order.
        self.candidates(rule).into_iter().filter_map(|list| list.iter().copied().find(covers)).min()
    }

    /// Adds a rule below all others.
    pub(crate) fn add(&mut self, rule: &'a TargetRule) {
        let at = self.rules.len();
        self.rules.push(rule);
        if rule.urls.is_empty() {
            self.every_url.push(at);
        }
        for url in &rule.urls {
            push(&mut self.by_url, &url.to_string(), at);
        }
        if rule.models.is_empty() || rule.models.iter().any(Glob::is_any) {
            return self.every_model.push(at);
        }
        for model in &rule.models {
            match model.ends() {
                None => push(&mut self.by_model, &model.text(), at),
                Some((start, end)) if start.len() >= end.len() => self.by_start.add(start, at),
                Some((_, end)) => self.by_end.add(end, at),
            }
        }
    }

    /// Returns lists that together hold every rule that takes all requests of this one.
    fn candidates(&self, rule: &TargetRule) -> Vec<&[usize]> {
        let urls: Vec<String> = rule.urls.iter().map(ToString::to_string).collect();
        let models: Vec<String> = rule.models.iter().map(Glob::text).collect();
        let by_url = urls.iter().map(|url| self.of_url(url));
        let by_model = models.iter().map(|model| self.of_model(model));
        let every_url = rule.urls.is_empty().then(|| vec![self.every_url.as_slice()]);
        let every_model = rule.models.is_empty().then(|| vec![self.every_model.as_slice()]);
        let all = by_url.chain(by_model).chain(every_url).chain(every_model);
        all.min_by_key(|lists| lists.iter().map(|list| list.len()).sum::<usize>()).unwrap_or_default()
    }

    /// Returns the rules whose URLs may cover this one: those of each base URL that it continues.
    fn of_url(&self, url: &str) -> Vec<&[usize]> {
        let host = url.find("://").map_or(0, |at| at + 3);
        let ends = url.match_indices('/').map(|(at, _)| at).filter(|at| *at > host).chain([url.len()]);
        let bases = ends.filter_map(|end| self.by_url.get(url.get(..end)?)).map(Vec::as_slice);
        bases.chain([self.every_url.as_slice()]).collect()
    }

    /// Returns the rules whose models may cover this one, or this pattern.
    fn of_model(&self, model: &str) -> Vec<&[usize]> {
        let named = self.by_model.get(model).map(Vec::as_slice);
        let starts = self.by_start.lists(move |length| model.get(..length));
        let ends = self.by_end.lists(move |length| model.get(model.len().checked_sub(length)?..));
        starts.chain(ends).chain(named).chain([self.every_model.as_slice()]).collect()
    }
}

/// Appends `at` to a list, unless it is already the last entry.
fn push(lists: &mut HashMap<String, Vec<usize>>, key: &str, at: usize) {
    let list = match lists.get_mut(key) {
        Some(list) => list,
        None => lists.entry(key.to_owned()).or_default(),
    };
    if list.last() != Some(&at) {
        list.push(at);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TargetMatch;

    fn rule(urls: &[String], models: &[String]) -> TargetRule {
        TargetRule::new(&TargetMatch { urls: urls.to_vec(), models: models.to_vec(), slots_only: false })
            .unwrap()
    }

    fn any_rule() -> impl Strategy<Value = TargetRule> {
        let url = "(http|https)://[ab](:8)?(/[ab]{1,2}){0,2}/?";
        let urls = prop::collection::vec(url, 0..3);
        let models = prop::collection::vec("[ab*]{1,4}", 0..3);
        (urls, models).prop_map(|(urls, models)| rule(&urls, &models))
    }

    proptest! {
        #[test]
        fn index_agrees_with_comparing_every_pair(rules in prop::collection::vec(any_rule(), 1..30)) {
            let mut index = CoverIndex::default();
            for (at, rule) in rules.iter().enumerate() {
                let expected = rules.iter().take(at).position(|above| above.covers(rule));
                prop_assert_eq!(index.first_cover(rule), expected);
                index.add(rule);
            }
        }
    }

    /// How many rules are compared for so many targets.
    fn compared(count: usize, make: impl Fn(usize) -> TargetRule) -> usize {
        let rules: Vec<TargetRule> = (0..count).map(make).collect();
        let mut index = CoverIndex::default();
        let mut compared = 0;
        for rule in &rules {
            compared += index.candidates(rule).into_iter().map(<[usize]>::len).sum::<usize>();
            index.add(rule);
        }
        compared
    }

    #[test]
    fn comparisons_grow_linearly_with_the_targets() {
        let url = |host: usize| vec![format!("https://h{host}.example/v1")];
        let model = |name: String| vec![name];
        let shapes: [&dyn Fn(usize) -> TargetRule; 5] = [
            &|at| rule(&url(at), &[]),
            &|at| rule(&url(0), &model(format!("m{at}"))),
            &|at| rule(&url(0), &model(format!("m{at}-*"))),
            &|at| rule(&[], &model(format!("*-{at}x"))),
            &|at| rule(&url(at / 50), &model(format!("m{}", at % 50))),
        ];
        for (shape, make) in shapes.into_iter().enumerate() {
            assert!(compared(2_000, make) <= 50 * 2_000, "shape {shape}: {}", compared(2_000, make));
        }
    }
}
