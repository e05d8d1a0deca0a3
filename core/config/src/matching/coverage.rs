//! Finds targets that no request can reach, without comparing each pair of targets.
//!
//! A rule is the URLs and model patterns of one target. A rule covers another rule if it matches
//! all requests of the other. If rule A covers rule B, then each URL of B is at or below a URL of
//! A, and each model pattern of B is covered by one of A. Therefore earlier rules are indexed by
//! URL and by model. For each URL and each model of a rule, the index has a list of candidates that
//! may cover the rule. The rule is compared with the candidates in the shortest list. The time is
//! nearly linear in the number of targets if their URLs or models differ. It is quadratic if they
//! share both, and for model patterns that begin and end with `*`.

use std::collections::HashMap;

use super::TargetRule;
use super::glob::Glob;

/// The rules that were added so far, indexed by the URLs and by the models that they match.
#[derive(Debug, Default)]
pub(crate) struct CoverIndex<'a> {
    rules: Vec<&'a TargetRule>,
    /// For each pattern, the positions in `rules`, in ascending order, of the rules with a URL or
    /// model that is indexed under that pattern.
    positions: HashMap<Pattern, Vec<usize>>,
}

/// A key of the index: a set of requests that includes all requests that one URL or one model
/// pattern of a rule matches.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Pattern {
    EveryUrl,
    /// All URLs at or below this base URL, which is in its normal form.
    Url(String),
    EveryModel,
    /// The model with exactly this name.
    Model(String),
    /// The models that start with this text: the literal text before the first `*` of a model
    /// pattern, if it is at least as long as the text after the last `*`.
    Prefix(String),
    /// The models that end with this text: the literal text after the last `*`, if it is longer
    /// than the text before the first.
    Suffix(String),
}

impl<'a> CoverIndex<'a> {
    /// Returns the position of the rule that was added first among those that cover `rule`, or
    /// `None` if no added rule covers it. Positions count the rules in the order in which they were
    /// added, from 0.
    pub(crate) fn first_cover(&self, rule: &TargetRule) -> Option<usize> {
        let covers = |at: &usize| self.rules.get(*at).is_some_and(|above| above.covers(rule));
        self.candidates(rule).into_iter().filter_map(|list| list.iter().copied().find(covers)).min()
    }

    /// Adds a rule after all others.
    pub(crate) fn add(&mut self, rule: &'a TargetRule) {
        let at = self.rules.len();
        self.rules.push(rule);
        let mut patterns: Vec<Pattern> = rule.urls.iter().map(|url| Pattern::Url(url.to_string())).collect();
        if rule.urls.is_empty() {
            patterns.push(Pattern::EveryUrl);
        }
        if rule.models.is_empty() || rule.models.iter().any(Glob::is_any) {
            patterns.push(Pattern::EveryModel);
        } else {
            patterns.extend(rule.models.iter().map(|model| match model.ends() {
                None => Pattern::Model(model.text()),
                Some((start, end)) if start.len() >= end.len() => Pattern::Prefix(start.to_owned()),
                Some((_, end)) => Pattern::Suffix(end.to_owned()),
            }));
        }
        for pattern in patterns {
            let positions = self.positions.entry(pattern).or_default();
            if positions.last() != Some(&at) {
                positions.push(at);
            }
        }
    }

    /// Returns lists of positions in `rules`. Every added rule that covers `rule` is in one of the
    /// lists. The lists are those of the URL or model of `rule` that has the fewest positions in
    /// total.
    fn candidates(&self, rule: &TargetRule) -> Vec<&[usize]> {
        let urls = rule.urls.iter().map(|url| covers_of_url(&url.to_string()));
        let models = rule.models.iter().map(|model| covers_of_model(&model.text()));
        let every_url = rule.urls.is_empty().then(|| vec![Pattern::EveryUrl]);
        let every_model = rule.models.is_empty().then(|| vec![Pattern::EveryModel]);
        let all = urls.chain(models).chain(every_url).chain(every_model);
        let lists = all.map(|patterns| {
            let lists = patterns.iter().filter_map(|pattern| self.positions.get(pattern));
            lists.map(Vec::as_slice).collect::<Vec<_>>()
        });
        lists.min_by_key(|lists| lists.iter().map(|list| list.len()).sum::<usize>()).unwrap_or_default()
    }
}

/// Returns every pattern that covers a base URL: the URL itself, its parent paths, and all URLs.
fn covers_of_url(url: &str) -> Vec<Pattern> {
    let host = url.find("://").map_or(0, |at| at + 3);
    let ends = url.match_indices('/').map(|(at, _)| at).filter(|at| *at > host).chain([url.len()]);
    let bases = ends.filter_map(|end| Some(Pattern::Url(url.get(..end)?.to_owned())));
    bases.chain([Pattern::EveryUrl]).collect()
}

/// Returns every pattern that may cover a model or a model pattern: the model itself, each of its
/// prefixes and suffixes, and all models.
fn covers_of_model(model: &str) -> Vec<Pattern> {
    let cuts = (0..=model.len()).filter_map(|at| model.split_at_checked(at));
    let ends =
        cuts.flat_map(|(start, end)| [Pattern::Prefix(start.to_owned()), Pattern::Suffix(end.to_owned())]);
    ends.chain([Pattern::Model(model.to_owned()), Pattern::EveryModel]).collect()
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

    /// Returns the total number of candidates with which `count` rules are compared, each before it
    /// is added to an index. `make` returns the rule at each position.
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
