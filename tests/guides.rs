//! Code in guides that no documentation test compiles is a copy of code that is compiled.

#[test]
fn the_code_of_peers_is_compiled() {
    const GUIDE: &str = include_str!("../src/docs/migrating.md");
    const COMPILED: &str = include_str!("../benches/lib/migrating.rs");
    let lines = |text: &str| {
        let lines = text.lines().map(|line| line.trim().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    };
    let compiled = lines(COMPILED);
    let blocks = GUIDE.split("\n```text\n").skip(1);
    let blocks: Vec<_> = blocks
        .map(|rest| lines(rest.split("\n```").next().expect("a block")))
        .collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        assert!(compiled.contains(&block), "{block}");
    }
}
