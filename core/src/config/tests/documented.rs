//! The reference of settings, which stands in the module's documentation.

use crate::config::Config;
use crate::config::parse::KEYS;

fn reference() -> impl Iterator<Item = &'static str> {
    include_str!("../mod.rs").lines().filter_map(|line| line.strip_prefix("//!")).map(str::trim)
}

#[test]
fn its_example_is_good() {
    let lines = reference().skip_while(|line| *line != "```toml").skip(1).take_while(|line| *line != "```");
    let config = Config::from_toml(&lines.collect::<Vec<_>>().join("\n")).unwrap();
    let names: Vec<&str> = config.targets.iter().map(|target| &*target.name).collect();
    assert_eq!(names, ["anthropic", "openai", "spare", "llama"]);
    assert_eq!(config.targets[1].tenants["acme"].weight, 2.0);
    assert_eq!(config.targets[1].fallback.as_deref(), Some("spare"));
}

#[test]
fn it_names_every_key_where_it_belongs() {
    for (heading, keys) in KEYS {
        let part: Vec<&str> = reference()
            .skip_while(|line| *line != format!("# {heading}"))
            .skip(1)
            .take_while(|line| !line.starts_with("# "))
            .collect();
        assert!(!part.is_empty(), "no heading {heading:?}");
        for key in *keys {
            let forms = [format!("`{key}`"), format!("`{key}."), format!(".{key}`")];
            let told = |line: &&str| forms.iter().any(|form| line.contains(form));
            assert!(part.iter().any(told), "{heading}: {key}");
        }
    }
}
